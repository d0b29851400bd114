"""Pods per second through the real kube-scheduler: without an extender, with the bare one, and with ours."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.clusters import Object, Size, nodes, ordinary_pod, placed_pods, pod
from benchmarks.extenders import ALL_VERBS_FLAGS, BareExtender, our_extender
from benchmarks.processes import MB, cpu_seconds, resident_bytes
from benchmarks.real_cluster import RealCluster, Scheduler, real_cluster, watched_pods
from benchmarks.results import Figure, Goal, Results, noise
from gas.objects.stored import ObjectId, Pod
from tests.e2e.programs import Program
from tests.e2e.release import pinned_version, selected_release

SIZE = Size(nodes=5000, pods=20_000)
ROUNDS = 5
"""Rounds after one that does not count: kube-apiserver and etcd take twice as long for their first thousand pods."""

PODS = 600
"""Pods that wait at the start of a round."""

PATIENCE = 240.0
"""Seconds for one round."""

ASKED = {"i915": 1, "millicores": 100, "memory.max": 10**9}
NEW = "new-"
NONE = "none"
ALL_VERBS = "gas, all verbs"
NOT_BATCHED = "none, not batched"
EXTENDER = "the extender"
"""Name of the extender's program, whichever extender it is."""


@dataclass(slots=True)
class Found:
    """The measurements of one way to schedule, a value a round.

    rates      pods per second
    processor  milliseconds of processor time per pod, by program
    resident   MB of the extender at the end of the round
    failures   attempts of kube-scheduler that ended in an error, in all rounds
    """

    rates: list[float] = field(default_factory=list)
    processor: dict[str, list[float]] = field(default_factory=dict)
    resident: list[float] = field(default_factory=list)
    failures: int = 0


def scheduling(*, full: bool) -> Results:
    """Measure every way in turn, ``ROUNDS`` times; ``full`` adds all nodes in every filter."""
    ways = {NONE: 0, "bare": 0, "gas": 0, ALL_VERBS: 0}
    if full:
        ways |= {"bare, all nodes": 100, "gas, all nodes": 100, "none, all nodes": 100}
    found = asyncio.run(_measure(ways, lambda name: pod(name, ASKED)))
    rates = {way: median(each.rates) for way, each in found.items()}
    figures = [
        Figure(
            "pods a second, ours against the bare extender",
            rates["gas"],
            rates["bare"],
            "/s",
            Goal(0.95, at_least=True),
            noise=noise(found["bare"].rates),
        ),
        Figure(
            "pods a second, ours with scores and preemption, against the bare extender",
            rates[ALL_VERBS],
            rates["bare"],
            "/s",
            Goal(0.95, at_least=True),
        ),
        Figure("pods a second, the bare extender against none", rates["bare"], rates[NONE], "/s"),
        *_processor_time("gas", found["gas"], found["bare"]),
        *_processor_time(ALL_VERBS, found[ALL_VERBS], found["bare"]),
        Figure("extender's resident memory after these pods", median(found["gas"].resident), None, "MB", Goal(150)),
        Figure("the same, all verbs", median(found[ALL_VERBS].resident), None, "MB", Goal(150)),
    ]
    if full:
        figures += [
            Figure("all nodes in every filter request", rates["gas, all nodes"], rates["bare, all nodes"], "/s"),
            Figure(
                "all nodes in every filter request, bare against none",
                rates["bare, all nodes"],
                rates["none, all nodes"],
                "/s",
            ),
        ]
    title = f"{PODS:,} waiting pods through the real kube-scheduler: {SIZE.nodes:,} nodes, {SIZE.pods:,} pods; medians"
    failures = ", ".join(f"{way} {each.failures}" for way, each in found.items())
    notes = [
        "By default, kube-scheduler asks about 500 nodes a pod in a cluster of 5,000.",
        f"Attempts that ended in an error, which cost a pod a second or more: {failures}.",
    ]
    return Results("scheduling", title, figures, other="other", notes=notes)


def _processor_time(way: str, ours: Found, bare: Found) -> list[Figure]:
    """Return the processor time a pod of the extender and of all programs, and that with the bare extender."""
    own, own_of_bare = (median(each.processor[EXTENDER]) for each in (ours, bare))
    total, of_bare = (sum(map(median, each.processor.values())) for each in (ours, bare))
    return [
        Figure(f"{way}: processor time a pod, {EXTENDER}", own, own_of_bare),
        Figure(f"{way}: processor time a pod, all together", total, of_bare),
    ]


def ordinary() -> Results:
    """Measure pods that request no GPU, with and without our extender in kube-scheduler's configuration."""
    # From 1.35 on, kube-scheduler places equal pods in batches, unless an extender is configured.
    batches = selected_release().minor >= 35
    ways = {NONE: 0, "gas": 0} | ({NOT_BATCHED: 0} if batches else {})
    found = asyncio.run(_measure(ways, ordinary_pod))
    rates = {way: median(each.rates) for way, each in found.items()}
    what = "pods a second, our extender configured against none"
    figures = [Figure(what, rates["gas"], rates[NONE], "/s", noise=noise(found[NONE].rates))]
    if batches:
        figures += [
            Figure("pods a second, none and no batching against none", rates[NOT_BATCHED], rates[NONE], "/s"),
            Figure(
                "pods a second, our extender configured against none and no batching",
                rates["gas"],
                rates[NOT_BATCHED],
                "/s",
            ),
        ]
    title = (
        f"{PODS:,} waiting pods without GPUs through kube-scheduler {pinned_version()}: {SIZE.nodes:,} nodes, "
        f"{SIZE.pods:,} pods; medians"
    )
    return Results("ordinary", title, figures, ours="first", other="second")


async def _measure(ways: Mapping[str, int], new_pod: Callable[[str], Object]) -> dict[str, Found]:
    found = {way: Found() for way in ways}
    with real_cluster(nodes(SIZE), placed_pods(SIZE, seed=1)) as cluster:
        warming_up = {NONE: ways[NONE]}
        for turn in (warming_up, *[ways] * ROUNDS):
            for way, percentage in turn.items():
                extender, port = _extender(way, cluster)
                scheduler = Scheduler(
                    cluster,
                    extender_port=port,
                    verbs=("preempt", "prioritize") if way == ALL_VERBS else (),
                    percentage=percentage,
                    flags=("--feature-gates=OpportunisticBatching=false",) if way == NOT_BATCHED else (),
                )
                waiting = [new_pod(f"{NEW}{each:05}") for each in range(PODS)]
                of_way = Found() if turn is warming_up else found[way]
                try:
                    await _round(cluster, scheduler, extender, waiting, of_way)
                finally:
                    if extender is not None:
                        extender.kill()
    return found


def _extender(way: str, cluster: RealCluster) -> tuple[Program | None, int | None]:
    """Start the extender of a way, wait until it is ready, and return it with its port."""
    if way.startswith("gas"):
        flags = ALL_VERBS_FLAGS if way == ALL_VERBS else ()
        ours = our_extender(cluster.directory, cluster.authority, cluster.kubeconfig, *flags)
        ours.start_and_wait_until_ready(seconds=120)
        return ours.program, ours.endpoint.port
    if way.startswith("bare"):
        bare = BareExtender(cluster.directory, cluster.authority, cluster.kubeconfig)
        bare.start()
        return bare.program, bare.port
    return None, None


async def _round(
    cluster: RealCluster, scheduler: Scheduler, extender: Program | None, waiting: Sequence[Object], found: Found
) -> None:
    """Create pods at once for a scheduler that is ready; measure from the first that is bound to the last."""
    bound = _Bound(PODS)
    async with watched_pods(cluster, Pod, bound, keep=bound.is_new):
        try:
            scheduler.start()
            await asyncio.sleep(1)
            programs = {each.name: each for each in (*cluster.programs, scheduler.program)}
            if extender is not None:
                programs[EXTENDER] = extender
            before = {name: cpu_seconds(program.pid) for name, program in programs.items()}
            await asyncio.to_thread(cluster.fill, waiting)
            try:
                await asyncio.wait_for(bound.done.wait(), PATIENCE)
            except TimeoutError:
                logs = scheduler.program.log_tail(20) + (extender.log_tail(5) if extender else "")
                raise TimeoutError(f"{len(bound.times)} of {PODS} pods bound after {PATIENCE:g} s\n{logs}") from None
            found.rates.append((PODS - 1) / (bound.times[-1] - bound.times[0]))
            found.failures += sum(_is_failure(line) for line in scheduler.program.log_text().splitlines())
            for name, program in programs.items():
                spent = 1e3 * (cpu_seconds(program.pid) - before[name]) / PODS
                found.processor.setdefault(name, []).append(spent)
            if extender is not None:
                found.resident.append(resident_bytes(extender.pid) / MB)
        finally:
            scheduler.stop()
            cluster.delete_pods(NEW)
            await asyncio.sleep(0.5)


def _is_failure(line: str) -> bool:
    """Return whether a line of kube-scheduler's log reports an attempt with an error other than "no node fits"."""
    return '"Error scheduling pod; retrying"' in line


class _Bound:
    """Record when the new pods are bound.

    times  when each was bound, by ``time.perf_counter``
    """

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._seen: set[str] = set()
        self.times: list[float] = []
        self.done = asyncio.Event()

    @staticmethod
    def is_new(pod: Pod) -> bool:
        return pod.metadata.name.startswith(NEW)

    def listed(self, pods: list[Pod]) -> None:
        for each in pods:
            self.changed(each)

    def complete(self, _listed: list[ObjectId]) -> None:
        """Ignore pods that were deleted between two rounds."""

    def changed(self, pod: Pod) -> None:
        name = pod.metadata.name
        if not pod.node_name or name in self._seen:
            return
        self._seen.add(name)
        self.times.append(time.perf_counter())
        if len(self._seen) == self._wanted:
            self.done.set()

    def deleted(self, pod: Pod) -> None:
        """Ignore pods deleted between two rounds."""
