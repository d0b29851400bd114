"""Time of the filters of a PodGroup, in which all of its pods are planned, compared with those of a plain pod."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarks.clusters import node_names, pod
from benchmarks.filter import ONE_CARD
from benchmarks.growth import ASKED, USUAL, USUAL_CARDS, decider_of
from benchmarks.results import Figure, Results
from gas.extender.filter import Filter
from gas.extender.pod_groups.pod_groups import PodGroups
from gas.objects.stored import Pod, PodGroup

MEMBERS = 64
WHOLE_NODE = {"i915": USUAL_CARDS, "millicores": 100 * USUAL_CARDS}


def pod_groups() -> Results:
    figures = [
        asyncio.run(_figure(f"{kind}, {asked:,} names", amounts, asked))
        for kind, amounts in (("one card each", ONE_CARD), (f"{USUAL_CARDS} cards each", WHOLE_NODE))
        for asked in (ASKED, USUAL.nodes)
    ]
    title = (
        f"Processor time of a `filter` with `--pod-groups`, without HTTP and TLS: mean of the {MEMBERS} pods of a"
        f" PodGroup; {USUAL.nodes:,} nodes of {USUAL_CARDS} cards, {USUAL.pods:,} placed pods"
    )
    return Results("pod-groups", title, figures, ours="a pod of the group", other="a plain pod")


async def _figure(what: str, amounts: dict[str, int], asked: int) -> Figure:
    """Ask about each pod once with other nodes, as kube-scheduler does; the first plain one is not counted."""
    filter_nodes, decider = decider_of(USUAL, USUAL_CARDS)
    groups = PodGroups(decider, unexpect=lambda _uid: None, now=time.time)
    decider.add(groups.hooks)
    policy = {"schedulingPolicy": {"gang": {"minCount": MEMBERS}}}
    sent = {"metadata": {"name": "group", "namespace": "default", "uid": "group"}, "spec": policy}
    groups.minimums.changed(msgspec.convert(sent, PodGroup))
    members = [_pod(f"member-{number}", amounts) for number in range(MEMBERS)]
    for each in members:
        each["spec"]["schedulingGroup"] = {"podGroupName": "group"}
        decider.pod_handlers.changed(msgspec.convert(each, Pod))
    plain = [_pod(f"plain-{number}", amounts) for number in range(MEMBERS + 1)]
    _, *others = await _times(filter_nodes, plain, asked)
    ours = await _times(filter_nodes, members, asked)
    return Figure(what, 1e3 * sum(ours) / MEMBERS, 1e3 * sum(others) / MEMBERS)


def _pod(name: str, amounts: dict[str, int]) -> dict[str, Any]:
    sent = pod(name, amounts)
    sent["metadata"]["uid"] = name
    return sent


async def _times(filter_nodes: Filter, pods: Sequence[dict[str, Any]], asked: int) -> list[float]:
    names = node_names(USUAL)
    times = []
    for at, each in enumerate(pods):
        first = at * asked % len(names)
        body = json.dumps({"Pod": each, "Nodes": None, "NodeNames": (names + names)[first : first + asked]}).encode()
        started = time.process_time()
        answer = await filter_nodes(body)
        times.append(time.process_time() - started)
        if b'"NodeNames":["' not in answer:
            raise RuntimeError(f"expected nodes to pass, found {answer[:300]!r}")
    return times
