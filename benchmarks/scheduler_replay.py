"""The fragmentation benchmark through the real kube-scheduler: what its own plugins leave of the gain.

A cluster with fewer nodes and the same mix, so that a replay takes minutes. The plugins keep their default weights, and
the extender scores pods with GPUs only, as the shipped policy has it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from statistics import mean

from benchmarks.extenders import our_extender
from benchmarks.fragmentation import FGD, FIRST_SEED, Others, node_object, pod_object, through_extender
from benchmarks.real_cluster import RealCluster, Scheduler, real_cluster, watched_pods
from benchmarks.replay import Curve, Fgd, replay
from benchmarks.results import Figure, Results
from benchmarks.traces import Run, Trace, run_of
from gas.objects.stored import HostPod, ObjectId

NODES = 150
PATIENCE = 60.0
"""Seconds until kube-scheduler has placed a pod or found no node for it."""

PERCENTS = (100, 110, 130)
PREFIX = "p-"
NO_SCORES = "filter and bind only"
HIGHEST_SCORE = "the highest score, without kube-scheduler"
WEIGHTS: Mapping[str, int | None] = {NO_SCORES: None, "scores with weight 1": 1, "scores with weight 100": 100}


def through_scheduler(trace: Trace, *, seeds: int) -> Results:
    """Measure a small cluster with the mix of a trace. Raises ComponentsMissing."""
    small = scaled(trace, NODES)
    runs = [run_of(small, FIRST_SEED + number) for number in range(seeds)]
    fgd = Fgd(small)
    curves: dict[str, list[Curve]] = {way: [] for way in (*WEIGHTS, HIGHEST_SCORE, FGD)}
    for run in runs:
        for way, curve in asyncio.run(_every_weight(run)).items():
            curves[way].append(curve)
        curves[HIGHEST_SCORE].append(through_extender(run, others=Others.LEAST_ALLOCATED))
        curves[FGD].append(replay(run, fgd))

    def at(way: str, percent: int) -> list[float]:
        return [curve.at(percent) for curve in curves[way]]

    return Results(
        f"fragmentation-scheduler-{trace.name}",
        f"GPUs allocated by the real kube-scheduler, trace {trace.name} cut down to {len(small.nodes)} nodes and"
        f" {small.capacity // 1000} GPUs, mean of {seeds} order{'s' * (seeds > 1)} of arrival (lowest to highest)",
        [
            Figure(
                f"{way}, {percent} % of the GPUs asked for",
                mean(at(way, percent)),
                None if way == FGD else mean(at(FGD, percent)),
                unit="%",
                spread=(min(at(way, percent)), max(at(way, percent))),
            )
            for way in curves
            for percent in PERCENTS
        ],
        ours="of all GPUs",
        other=FGD,
        notes=(
            "kube-scheduler's own plugins score with their default weights. It asks the extender about GPU pods only.",
            f"{HIGHEST_SCORE}: pods without GPUs are placed: {Others.LEAST_ALLOCATED}. FGD places every pod.",
        ),
    )


def scaled(trace: Trace, nodes: int) -> Trace:
    """Return a trace with so many of its nodes and as large a part of its pods, both drawn at random."""
    if nodes >= len(trace.nodes):
        return trace
    chance = random.Random(FIRST_SEED)
    some = sorted(chance.sample(trace.nodes, nodes))
    part = sum(node.cards for node in some) / sum(node.cards for node in trace.nodes)
    pods = [trace.pods[at] for at in sorted(chance.sample(range(len(trace.pods)), round(part * len(trace.pods))))]
    return Trace(trace.name, some, pods)


async def _every_weight(run: Run) -> dict[str, Curve]:
    found = {}
    ranked = sorted(zip(run.ranks, run.trace.nodes, strict=True))
    with real_cluster(node_object(f"n-{rank:05}", node) for rank, node in ranked) as cluster:
        for way, weight in WEIGHTS.items():
            flags = () if weight is None else ("--node-score=balance",)
            ours = our_extender(cluster.directory, cluster.authority, cluster.kubeconfig, *flags)
            scheduler = Scheduler(
                cluster,
                extender_port=ours.endpoint.port,
                verbs=() if weight is None else ("prioritize",),
                weight=weight or 1,
            )
            try:
                ours.start_and_wait_until_ready(seconds=120)
                scheduler.start()
                found[way] = await _replay(run, cluster)
            finally:
                scheduler.stop()
                ours.program.kill()
                cluster.delete_pods(PREFIX)
    return found


async def _replay(run: Run, cluster: RealCluster) -> Curve:
    curve = Curve(run.trace.capacity)
    outcomes = Outcomes()
    async with watched_pods(cluster, HostPod, outcomes):
        for number, pod in enumerate(run.pods):
            name = f"{PREFIX}{number:05}"
            body = pod_object(name, pod)
            del body["metadata"]["uid"]
            await asyncio.to_thread(cluster.fill, [body])
            placed = await outcomes.of(name)
            if not placed:
                await asyncio.to_thread(cluster.delete_pods, name)
            curve.arrived(pod, placed=placed)
    return curve


class Outcomes:
    """The outcome of each pod, as kube-scheduler states it. Fed by a watch."""

    def __init__(self) -> None:
        self._placed: dict[str, bool] = {}
        self._news = asyncio.Event()

    async def of(self, name: str) -> bool:
        """Wait until a pod is placed, or no node has room for it, and return which. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            while name not in self._placed:
                self._news.clear()
                await self._news.wait()
        return self._placed[name]

    def listed(self, pods: Sequence[HostPod]) -> None:
        for each in pods:
            self.changed(each)

    def complete(self, _listed: list[ObjectId]) -> None:
        """Ignore pods of before that were deleted."""

    def changed(self, pod: HostPod) -> None:
        conditions = (pod.status.conditions if pod.status is not None else None) or ()
        has_no_room = any(each.type == "PodScheduled" and each.reason == "Unschedulable" for each in conditions)
        if pod.node_name or has_no_room:
            self._placed[pod.metadata.name] = bool(pod.node_name)
            self._news.set()

    def deleted(self, pod: HostPod) -> None:
        """Ignore pods that are deleted because no node has room for them."""
