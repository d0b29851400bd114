"""GPUs that can be given out of a cluster until it is full, compared with published policies.

Pods of a trace arrive one after the other, and a replayed scheduler asks the extender's decider about each: filter,
prioritize, bind; the node with the highest score wins. The other policies are replayed as well.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from statistics import mean

import msgspec

from benchmarks.clusters import Object
from benchmarks.plot import Line, plot
from benchmarks.replay import BestFit, Curve, Fgd, replay, replay_at_random
from benchmarks.results import Figure, Goal, Results
from benchmarks.traces import WHOLE, Run, Trace, TraceNode, TracePod, generated_trace, read_traces, run_of
from gas.extender.decider import Decider, Options
from gas.extender.scoring.scoring import Scoring
from gas.extender.verdicts import at_once
from gas.extender.wire import BindingArgs, decode_filter
from gas.objects.stored import HostPod, Node
from gas.placement.order import NodeScore
from gas.values.amounts import MILLICORES
from gas.vocabularies.intel import names
from gas.vocabularies.known import DEFAULT

FIRST_SEED = 42
SHARES = 20
"""Containers that may share one card: the smallest pods of the traces ask for a twentieth."""

MODEL = "example.com/model"
PERCENT = 100
POINTS = (80, 85, 90, 95, 100, 105, 110, 120, 130)

GAS, GAS_GPU_PODS, FGD, BEST_FIT, RANDOM = "gas", "gas, GPU pods only", "FGD", "best fit", "random"
POLICIES = (GAS, GAS_GPU_PODS, FGD, BEST_FIT, RANDOM)

AHEAD_OF_FGD = Goal(1, at_least=True)
GOALS: Mapping[tuple[str, str], float] = {
    ("default", GAS): 95.9,
    ("default", GAS_GPU_PODS): 95.5,
    ("gpushare40", GAS): 94.5,
    ("gpushare100", GAS): 87.2,
}
"""Percent of the GPUs allocated when as many were asked for as there are, by trace and policy. On all other traces the
goal is to be ahead of FGD."""


class Others(StrEnum):
    """How pods without GPUs are placed if the extender is not asked about them.

    RANDOM           on a random node that has room
    LEAST_ALLOCATED  on the node with the largest part of CPU and memory left: kube-scheduler's default
    MOST_ALLOCATED   on the node with the smallest part left
    """

    RANDOM = "random"
    LEAST_ALLOCATED = "least-allocated"
    MOST_ALLOCATED = "most-allocated"


def chosen_traces(directory: Path | None, only: Sequence[str]) -> list[Trace]:
    """Return the traces of a folder that are named, or all if none is; without a folder the generated one."""
    traces = [generated_trace()] if directory is None else read_traces(directory)
    return [trace for trace in traces if not only or trace.name in only]


def fragmentation(trace: Trace, *, seeds: int, others: Others = Others.RANDOM) -> Results:
    """Measure a trace with so many orders of arrival.

    others  how pods without GPUs are placed where the extender is asked about GPU pods only
    """
    runs = [run_of(trace, FIRST_SEED + number) for number in range(seeds)]
    curves = [curves_of(run, others) for run in runs]
    return results_of(trace, curves, others)


def curves_of(run: Run, others: Others) -> dict[str, Curve]:
    """Replay one order of arrival under every policy."""
    return {
        GAS: through_extender(run, others=None),
        GAS_GPU_PODS: through_extender(run, others=others),
        FGD: replay(run, Fgd(run.trace)),
        BEST_FIT: replay(run, BestFit()),
        RANDOM: replay_at_random(run),
    }


def results_of(trace: Trace, runs: Sequence[Mapping[str, Curve]], others: Others) -> Results:
    """Return the figures of all orders of arrival of one trace, and their plot.

    runs  by policy
    """

    def at(policy: str, percent: int) -> list[float]:
        return [curves[policy].at(percent) for curves in runs]

    def figure(policy: str) -> Figure:
        values = at(policy, PERCENT)
        return Figure(
            policy,
            mean(values),
            None if policy == FGD else mean(at(FGD, PERCENT)),
            unit="%",
            goal=_goal(trace, policy, others),
            spread=(min(values), max(values)),
        )

    lines = [Line(policy, [(percent, mean(at(policy, percent))) for percent in POINTS]) for policy in POLICIES]
    size = f"{len(trace.nodes):,} nodes, {trace.capacity // WHOLE:,} GPUs"
    title = f"GPUs allocated when {PERCENT} % were asked for, trace {trace.name}: {size}"
    return Results(
        f"fragmentation-{trace.name}",
        f"{title}, mean of {len(runs)} order{'s' * (len(runs) > 1)} of arrival (lowest to highest)",
        [figure(policy) for policy in POLICIES],
        ours="of all GPUs",
        other=FGD,
        notes=(
            f"`gas` is asked about every pod. With GPU pods only, pods without GPUs are placed: {others}.",
            "FGD, best fit and random place every pod.",
        ),
        plots={
            f"fragmentation-{trace.name}": plot(
                title, x="GPUs asked for, %", y="allocated, %", lines=lines, linear=(75, 100)
            )
        },
    )


def _goal(trace: Trace, policy: str, others: Others) -> Goal | None:
    if policy == GAS_GPU_PODS and others is not Others.RANDOM:
        return None
    if (percent := GOALS.get((trace.name, policy))) is not None:
        return Goal(percent, at_least=True, unit="%")
    return AHEAD_OF_FGD if policy == GAS else None


def through_extender(run: Run, *, others: Others | None) -> Curve:
    """Replay a run through the extender. Raises RuntimeError if it allocates anything else than it was asked for.

    others  how pods without GPUs are placed; None if the extender is asked about them as well
    """
    cluster = Cluster(run)
    curve = Curve(run.trace.capacity)
    allocated = 0
    extender = _Extender()
    extender.add_nodes([node_object(name, node) for name, node in cluster.nodes.items()])
    for number, pod in enumerate(run.pods):
        nodes = cluster.with_room(pod)
        waiting = pod_object(f"p-{number}", pod)
        node = None
        if nodes and (pod.cards or others is None):
            node = _choose(extender, waiting, nodes)
        elif nodes and others is not None:
            node = cluster.choose(pod, nodes, others)
            extender.add_pod(waiting | {"spec": waiting["spec"] | {"nodeName": node}})
        if node is not None:
            cluster.take(pod, node)
            allocated += pod.gpu
        curve.arrived(pod, placed=node is not None)
    booked = extender.booked()
    if booked != allocated:
        raise RuntimeError(f"expected {allocated} thousandths of cards to be booked, found {booked}")
    return curve


def _choose(extender: _Extender, waiting: Object, nodes: list[str]) -> str | None:
    """Ask filter, prioritize and bind as kube-scheduler does. Return the node, None if none has a card."""
    extender.add_pod(waiting)
    passing = extender.filter(waiting, nodes)
    if not passing:
        return None
    node = passing[0]
    if len(passing) > 1:
        scores = extender.prioritize(waiting, passing)
        node = max(scores, key=scores.__getitem__)
    extender.bind(waiting, node)
    return node


class _Extender:
    """The decider of the extender, with scores, asked about pods one after the other."""

    def __init__(self) -> None:
        options = Options(vocabularies=DEFAULT)
        self._decider = Decider(options, clock=lambda: 0.0)  # no search is cut short because this machine is busy
        self._scoring = Scoring(NodeScore.BALANCE, self._decider)
        self._decider.add(self._scoring.hooks)
        self._now = 0.0

    def add_nodes(self, nodes: Sequence[Object]) -> None:
        for node in nodes:
            self._decider.node_handlers.changed(msgspec.convert(node, Node))

    def add_pod(self, pod: Object) -> None:
        self._decider.pod_handlers.changed(msgspec.convert(pod, HostPod))

    def filter(self, pod: Object, nodes: Sequence[str]) -> list[str]:
        self._now += 1
        return list(at_once(self._decider.filter(decode_filter(_question(pod, nodes)), now=self._now)).passing)

    def prioritize(self, pod: Object, nodes: Sequence[str]) -> dict[str, int]:
        return dict(at_once(self._scoring.prioritize(decode_filter(_question(pod, nodes)))))

    def bind(self, pod: Object, node: str) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        binding = BindingArgs(pod_name=name, pod_namespace="default", pod_uid=uid, node=node)
        annotations = self._decider.reserve(binding, msgspec.convert(pod, HostPod), now=self._now)
        self.add_pod(
            pod | {"metadata": pod["metadata"] | {"annotations": annotations}, "spec": pod["spec"] | {"nodeName": node}}
        )

    def booked(self) -> int:
        ledger = self._decider.ledger
        usages = (ledger.usage(node) for node in ledger.nodes())
        return sum(amounts.get(MILLICORES, 0) for usage in usages for amounts in usage.amounts.values())


def _question(pod: Object, nodes: Sequence[str]) -> bytes:
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": nodes})


class Cluster:
    """The view of kube-scheduler: the sums that are free on each node."""

    def __init__(self, run: Run) -> None:
        ranked = sorted(zip(run.ranks, run.trace.nodes, strict=True))
        self.nodes = {f"n-{rank:05}": node for rank, node in ranked}
        self._chance = random.Random(run.seed)
        self._free = {name: [node.cpu, node.memory, node.cards * WHOLE] for name, node in self.nodes.items()}

    def with_room(self, pod: TracePod) -> list[str]:
        wanted_cpu, wanted_memory, wanted_gpu = pod.cpu, pod.memory, pod.gpu
        found = [
            name
            for name, (cpu, memory, gpu) in self._free.items()
            if cpu >= wanted_cpu and memory >= wanted_memory and gpu >= wanted_gpu
        ]
        return [name for name in found if pod.may_use(self.nodes[name].model)] if pod.models else found

    def choose(self, pod: TracePod, nodes: Sequence[str], others: Others) -> str:
        """Return the node that kube-scheduler chooses without the extender; of equal ones a random one."""
        if others is Others.RANDOM:
            return self._chance.choice(nodes)
        sign = 1 if others is Others.LEAST_ALLOCATED else -1
        scores = {name: sign * self._percent_left(pod, name) for name in nodes}
        best = max(scores.values())
        return self._chance.choice([name for name, score in scores.items() if score == best])

    def take(self, pod: TracePod, node: str) -> None:
        free = self._free[node]
        free[0] -= pod.cpu
        free[1] -= pod.memory
        free[2] -= pod.gpu

    def _percent_left(self, pod: TracePod, name: str) -> int:
        """Return the part of CPU and memory that is left with the pod, as kube-scheduler's NodeResourcesFit counts."""
        node, (cpu, memory, _) = self.nodes[name], self._free[name]
        return (100 * (cpu - pod.cpu) // node.cpu + 100 * (memory - pod.memory) // node.memory) // 2


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
