"""Documents of the page about one node, one pod and many pods: plain data, made as `kubectl gas` makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from heapq import nsmallest
from itertools import islice

import msgspec

from gas.decision.names import WRITTEN_ANNOTATIONS
from gas.extender.decisions import Decision
from gas.inspection.cluster import Cluster, natural
from gas.inspection.node_rules import not_checked
from gas.inspection.node_view import node_data
from gas.inspection.objects import InspectedPod
from gas.inspection.report import Booked
from gas.inspection.rows import Reasons, pod_row
from gas.inspection.why import explain, explanation_data
from gas.values.quoted import escaped
from gas.vocabularies.protocol import BadNeed

MOST_PODS = 200
"""Pods in one list. A search finds the others."""

MOST_DECISIONS = 200


def node_document(cluster: Cluster, name: str) -> dict[str, object]:
    """Return everything about one node. Raises Missing."""
    return node_data(cluster, name) | {"labels": dict(sorted(cluster.node(name).labels.items()))}


def pods_document(cluster: Cluster, text: str, state: str) -> dict[str, object]:
    """Return the pods whose names, node or state contain a text.

    state  ``waiting`` or ``bound`` for only these; empty for all
    """
    wanted = text.lower()
    found = [
        pod
        for pod in cluster.gpu_pods
        if (not state or (state == "bound") == bool(pod.node_name))
        and (wanted in pod.key.lower() or wanted in pod.node_name.lower())
    ]
    first = nsmallest(MOST_PODS, found, key=lambda pod: (bool(pod.node_name), natural(pod.key)))
    reasons = Reasons(cluster)
    return {"total": len(found), "pods": [_listed(cluster, pod, reasons) for pod in first]}


def _listed(cluster: Cluster, pod: InspectedPod, reasons: Reasons) -> dict[str, object]:
    row: dict[str, object] = {key: _datum(value) for key, value in pod_row(cluster, pod).items()}
    if not pod.node_name:
        row["note"] = reasons.of(pod)
    row["created"] = pod.metadata.creation_timestamp or ""
    return row


def pod_document(cluster: Cluster, namespace: str, name: str) -> dict[str, object]:
    """Return the way of one pod: what it asks for, what was decided, what kubelet gave, what it uses.

    Raises Missing.
    """
    pod = cluster.pod(namespace, name)
    booking = cluster.decider.ledger.booking(pod.uid)
    options = cluster.settings.options
    needs: list[dict[str, object]] = []
    with suppress(BadNeed):
        for container in options.vocabularies.need(pod, options.need).containers:
            if container.count:
                of_each = dict(container.per_card)
                needs.append({"container": container.name, "cards": container.count, "of_each": of_each})
    cards: list[dict[str, object]] = []
    for card, amounts in booking.footprint.amounts.items() if booking is not None else ():
        use = cluster.use.get((pod.uid, card))
        cards.append(
            {
                "card": str(card),
                "amounts": dict(amounts),
                "tiles": sorted(booking.footprint.tiles.get(card, ())) if booking is not None else [],
                "used": use.memory if use is not None else None,
                "busy": use.busy if use is not None else None,
            }
        )
    written = {key: text for key in WRITTEN_ANNOTATIONS if (text := pod.annotations.get(key))}
    return {
        **_listed(cluster, pod, Reasons(cluster)),
        "uid": pod.uid,
        "labels": dict(sorted((pod.metadata.labels or {}).items())),
        "needs": needs,
        "held": cards,
        "booking": booking.state.value if booking is not None else None,
        "written": written,
        "decisions": decisions_data(each for each in cluster.decisions if each.uid == pod.uid),
    }


def why_document(cluster: Cluster, namespace: str, name: str, is_late: Callable[[], bool]) -> dict[str, object]:
    """Return why a pod waits and what would let it run, as `kubectl gas why` does. Raises Missing."""
    pod = cluster.pod(namespace, name)
    return {
        **explanation_data(explain(cluster, pod, is_late)),
        "not_checked": [] if pod.node_name else list(not_checked(pod)),
    }


def decisions_data(decisions: Iterable[Decision]) -> list[dict[str, object]]:
    """Return decisions as data, at most `MOST_DECISIONS` of them."""
    return [msgspec.to_builtins(each) for each in islice(decisions, MOST_DECISIONS)]


def as_text(data: object) -> object:
    """Return data with every text in it escaped as in tables: nothing in it can change how the rest is shown."""
    if isinstance(data, str):
        return escaped(data)
    if isinstance(data, Mapping):
        return {escaped(str(key)): as_text(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [as_text(each) for each in data]
    return data


def _datum(value: object) -> object:
    if isinstance(value, Booked):
        return {"booked": value.booked, "capacity": value.capacity}
    return list(value) if isinstance(value, tuple) else value
