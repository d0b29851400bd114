"""Where pods of manifests would land: they are placed one after the other, as the extender would, and booked.

The extender's own filter and reserve decide. Among the nodes that pass, the first one by name is taken, because the
order of preference is kube-scheduler's.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from gas.inspection.cluster import Cluster
from gas.inspection.manifests import WantedPods
from gas.inspection.objects import InspectedPod
from gas.inspection.reasons import Diagnosis, Reason, diagnose
from gas.inspection.report import Report, Row, columns
from gas.ledger.ledger import NodeSums
from gas.placement.choice import footprint
from gas.placement.inventory import Inventory
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.placement.refusal import Refusal
from gas.vocabularies.protocol import BadNeed

MOST_MORE = 10_000  # further pods are counted up to this number: a larger number would help no administrator


@dataclass(frozen=True, slots=True)
class Place:
    pod: str
    node: str  # empty if no node has room
    cards: tuple[str, ...] = ()  # as they would be written on the pod; empty if it needs none
    passing: int = 0  # how many nodes have room


@dataclass(frozen=True, slots=True)
class Fitted:
    """The places of the pods of one object."""

    name: str
    count: int  # how many pods it asks for
    places: tuple[Place, ...]  # of those that fit, and of the first that does not
    more: int | None  # how many more of it fit then, up to MOST_MORE; None for a DaemonSet, and if it needs no cards
    refusal: Diagnosis | None = None  # why the first pod that does not fit does not; None if all fit
    faults: str = ""  # what the pods lack although they fit

    @property
    def fitting(self) -> int:
        return sum(bool(place.node) for place in self.places)


def fit_all(cluster: Cluster, wanted: Sequence[WantedPods]) -> list[Fitted]:
    """Place the pods of all objects, in their order, and book them in the cluster's ledger."""
    return [_fit(cluster, each, f"fit-{number}") for number, each in enumerate(wanted)]


def _fit(cluster: Cluster, wanted: WantedPods, uid: str) -> Fitted:
    if wanted.fault:
        refused = f"the API server refuses it: {wanted.fault}"
        place = Place(wanted.pod.key, "")
        return Fitted(wanted.name, wanted.count, (place,), 0, Diagnosis(refused, reasons=(Reason(refused, 0),)))
    excluded = cluster.eligible(wanted.pod)
    if wanted.each_node:
        targets = [[name] for name, rule in excluded.items() if not rule]
    else:
        only = wanted.pod.node_name
        names = [name for name, rule in excluded.items() if (name == only if only else not rule)]
        targets = [names] * wanted.count
    places: list[Place] = []
    refusal: Diagnosis | None = None
    for number, names in enumerate(targets):
        metadata = wanted.pod.metadata
        name = metadata.name if len(targets) == 1 else f"{metadata.name}-{number}"
        metadata = replace(metadata, name=name, uid=f"{uid}-{number}")
        pod = replace(wanted.pod, metadata=metadata, spec=replace(wanted.pod.spec, node_name=None))
        decision = cluster.filter(pod, names)
        if decision.passing:
            node = decision.passing[0]
            places.append(Place(pod.key, node, cluster.book(pod, node), len(decision.passing)))
            if excluded[node] and node in names:
                names.remove(node)
            continue
        if refusal is None:
            refusal = diagnose(cluster, wanted.pod, names if wanted.each_node or wanted.pod.node_name else None)
        places.append(Place(pod.key, ""))
        if not wanted.each_node:
            break  # the others are equal, and nothing becomes free
    more = None if wanted.each_node else more_of(cluster, wanted.pod)
    return Fitted(wanted.name, len(targets), tuple(places), more, refusal, cluster.decider.faults(wanted.pod))


def more_of(cluster: Cluster, pod: InspectedPod) -> int | None:
    """Return how many more pods like this one fit, on all nodes together; None if it needs no cards.

    Counts up to MOST_MORE. Nodes in the same state are counted once.
    """
    decider, requests = cluster.decider, cluster.other_requests(pod)
    try:
        need = decider.need(pod)
    except BadNeed:
        return 0
    if not need.wants_cards:
        return None
    only, others = pod.node_name, decider.promises.to_others(pod)
    of_state: dict[int, int] = {}
    total = 0
    for name, rule in cluster.eligible(pod).items():
        facts = decider.nodes.facts(name)
        if (name != only if only else rule) or facts is None:
            continue
        promised = others.get(name, ())
        state = decider.verdicts.states.of(name, promised)
        if state not in of_state:
            sums = decider.ledger.sums(name, promised)
            of_state[state] = _room(need, facts.inventory, sums, MOST_MORE - total, decider.options.step_limit)
        free = cluster.free_other_resources(name)
        total += min([of_state[state], *(free[each] // amount for each, amount in requests if each in free)])
        if total >= MOST_MORE:
            return MOST_MORE
    return total


def _room(need: PodNeed, inventory: Inventory, sums: NodeSums, most: int, step_limit: int) -> int:
    for count in range(most):
        choice = place(need, inventory, sums.usage(), step_limit=step_limit)
        if isinstance(choice, Refusal):
            return count
        sums.put(f"more-{count}", footprint(need, choice, inventory.capacity))
    return most


def fit_report(fitted: Sequence[Fitted]) -> Report:
    """Return a row for each object: how many of its pods fit, where, and how many more would."""
    rows: list[Row] = [
        {
            "object": each.name,
            "pods": each.count,
            "fit": each.fitting,
            "more": each.more,
            "nodes": tuple(
                f"{node}({count})" if count > 1 else node
                for node, count in Counter(place.node for place in each.places if place.node).items()
            ),
            "reason": (each.refusal.line if each.refusal is not None else each.faults) or None,
        }
        for each in fitted
    ]
    head = (*columns("object"), *columns("pods", "fit", "more", number=True))
    return Report((*head, *columns("nodes", "reason")), rows)


def explained_report(fitted: Sequence[Fitted]) -> Report:
    """Return a row for each pod that fits, and for the first one that does not a row for each reason of the nodes."""
    rows: list[Row] = []
    for each in fitted:
        for of_pod in each.places:
            head = {"pod": of_pod.pod, "node": of_pod.node or None, "cards": of_pod.cards}
            if of_pod.node:
                rows.append({**head, "nodes": of_pod.passing, "note": each.faults})
            elif each.refusal is not None:
                rows += [{**head, "nodes": reason.nodes, "note": str(reason)} for reason in each.refusal.reasons]
    return Report((*columns("pod", "node", "cards"), *columns("nodes", number=True), *columns("note")), rows)
