"""GPUs that can be given out of a cluster until it is full, compared with published policies.

Pods of a trace arrive one after the other, and a replayed scheduler places each through the real extender process:
filter, prioritize, bind; the node with the highest score wins. The other policies are replayed in this process.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.clusters import Object, Size
from benchmarks.feed import event
from benchmarks.plot import Line, plot
from benchmarks.replay import BestFit, Curve, Fgd, replay, replay_at_random
from benchmarks.results import Figure, Goal, Results
from benchmarks.stage import Stage, stage
from benchmarks.traces import WHOLE, Run, Trace, TraceNode, TracePod, generated_trace, read_traces, run_of
from gas.intel import names
from gas.intel.node_description import MILLICORES

FIRST_SEED = 42
SHARES = 20
"""Containers that may share one card: the smallest pods of the traces ask for a twentieth."""

SETTLE = 60
"""Seconds in which the extender takes in all nodes."""

MODEL = "example.com/model"
PERCENTS = (100, 110, 130)
POINTS = (70, 80, 90, 95, 100, 110, 120, 130)


def fragmentation(traces: Path | None, *, seeds: int, only: Sequence[str] = ()) -> list[Results]:
    """Measure every trace of a folder, or a generated one, with so many orders of arrival each.

    only  names of traces; all if empty
    """
    found = [generated_trace()] if traces is None else read_traces(traces)
    return [_of_trace(trace, seeds) for trace in found if not only or trace.name in only]


def _of_trace(trace: Trace, seeds: int) -> Results:
    runs = [run_of(trace, FIRST_SEED + number) for number in range(seeds)]
    fgd = Fgd(trace)
    curves: dict[str, list[Curve]] = {
        "gas": [through_extender(run, every_pod=True) for run in runs],
        "gas, GPU pods only": [through_extender(run, every_pod=False) for run in runs],
        "FGD": [replay(run, fgd) for run in runs],
        "best fit": [replay(run, BestFit()) for run in runs],
        "random": [replay_at_random(run) for run in runs],
    }
    figures = [
        Figure(
            f"{name}, {percent} % of the GPUs asked for",
            at(curves[name], percent),
            at(curves["FGD"], percent),
            unit="%",
            goal=Goal(1, at_least=True) if name == "gas" and percent == PERCENTS[0] else None,
        )
        for name in ("gas", "gas, GPU pods only", "best fit", "random")
        for percent in PERCENTS
    ]
    lines = [
        Line(name, [(percent, at(curves[name], percent)) for percent in POINTS])
        for name in ("gas", "FGD", "best fit", "random")
    ]
    title = f"GPUs allocated, trace {trace.name}: {len(trace.nodes):,} nodes, {trace.capacity // WHOLE:,} GPUs"
    return Results(
        f"fragmentation-{trace.name}",
        f"{title}, mean of {seeds} order{'s' * (seeds > 1)} of arrival",
        figures,
        ours="of all GPUs",
        other="FGD",
        notes=(
            "`gas` is asked about every pod. With GPU pods only, pods without GPUs go to a random node that has room.",
            "FGD, best fit and random see every pod.",
        ),
        plots={f"fragmentation-{trace.name}": plot(title, x="GPUs asked for, %", y="allocated, %", lines=lines)},
    )


def at(curves: Sequence[Curve], percent: int) -> float:
    return mean(curve.at(percent) for curve in curves)


def through_extender(run: Run, *, every_pod: bool) -> Curve:
    """Replay a run through the extender. Raises RuntimeError if it allocates anything else than it was asked for.

    every_pod  whether the extender is asked about pods without GPUs as well
    """
    cluster = _Cluster(run)
    chance = random.Random(run.seed)
    curve = Curve(run.trace.capacity)
    allocated = 0
    with _with_nodes([node_object(name, node) for name, node in cluster.nodes.items()]) as running:
        driver = running.driver(running.ours.endpoint.port)
        for number, pod in enumerate(run.pods):
            nodes = cluster.with_room(pod)
            waiting = pod_object(f"p-{number}", pod)
            node = None
            if nodes and (pod.cards or every_pod):
                running.send("pods", [event("ADDED", waiting)])
                node = _choose(driver, waiting, nodes)
            elif nodes:
                node = chance.choice(nodes)
                running.send("pods", [event("ADDED", waiting | {"spec": waiting["spec"] | {"nodeName": node}})])
            if node is not None:
                cluster.take(pod, node)
                allocated += pod.gpu
            curve.arrived(pod, placed=node is not None)
        driver.close()
        booked = sum(card.get(MILLICORES, 0) for cards in running.ours.booked().values() for card in cards.values())
    if booked != allocated:
        raise RuntimeError(f"expected {allocated} thousandths of cards to be booked, found {booked}")
    return curve


def _choose(driver: Any, waiting: Object, nodes: list[str]) -> str | None:
    """Ask filter, prioritize and bind as kube-scheduler does. Return the node, None if none has a card."""
    args = {"Pod": waiting, "Nodes": None, "NodeNames": nodes}
    passing = json.loads(driver.ask("filter", json.dumps(args).encode())[1])["NodeNames"]
    if not passing:
        return None
    node = passing[0]
    if len(passing) > 1:
        scores = json.loads(driver.ask("prioritize", json.dumps(args | {"NodeNames": passing}).encode())[1])
        node = max(scores, key=lambda each: each["Score"])["Host"]
    metadata = waiting["metadata"]
    binding = {"PodName": metadata["name"], "PodNamespace": "default", "PodUID": metadata["uid"], "Node": node}
    driver.ask("bind", json.dumps(binding).encode())
    return str(node)


class _Cluster:
    """The view of kube-scheduler: the sums that are free on each node."""

    def __init__(self, run: Run) -> None:
        ranked = sorted(zip(run.ranks, run.trace.nodes, strict=True))
        self.nodes = {f"n-{rank:05}": node for rank, node in ranked}
        self._free = {name: [node.cpu, node.memory, node.cards * WHOLE] for name, node in self.nodes.items()}

    def with_room(self, pod: TracePod) -> list[str]:
        return [
            name
            for name, (cpu, memory, gpu) in self._free.items()
            if cpu >= pod.cpu and memory >= pod.memory and gpu >= pod.gpu and pod.may_use(self.nodes[name].model)
        ]

    def take(self, pod: TracePod, node: str) -> None:
        free = self._free[node]
        free[0] -= pod.cpu
        free[1] -= pod.memory
        free[2] -= pod.gpu


def node_object(name: str, node: TraceNode) -> Object:
    amounts = {
        "cpu": f"{node.cpu}m",
        "memory": f"{node.memory}Mi",
        "pods": "1000",
        names.PREFIX + "i915": str(node.cards * SHARES),
        names.PREFIX + MILLICORES: str(node.cards * WHOLE),
    }
    labels = {names.GPU_NUMBERS: ".".join(map(str, range(node.cards))), MODEL: node.model}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts, "capacity": amounts}}


def pod_object(name: str, pod: TracePod) -> Object:
    requests = {"cpu": f"{pod.cpu}m", "memory": f"{pod.memory}Mi"}
    if pod.cards:
        requests |= {names.PREFIX + "i915": str(pod.cards), names.PREFIX + MILLICORES: str(pod.gpu)}
    spec: Object = {"containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}]}
    if pod.models:
        terms = [{"matchExpressions": [{"key": MODEL, "operator": "In", "values": sorted(pod.models)}]}]
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": spec,
        "status": {"phase": "Pending"},
    }


@contextmanager
def _with_nodes(nodes: list[Object]) -> Iterator[Stage]:
    with stage(Size(0, 0), "--node-score=balance") as running:
        running.send("nodes", (event("ADDED", node) for node in nodes))
        deadline = time.monotonic() + SETTLE
        while len(running.ours.books()["nodes"]) < len(nodes):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the extender does not know all nodes after {SETTLE} s")
            time.sleep(0.1)
        yield running
