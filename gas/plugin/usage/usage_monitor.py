"""Measure the use of the cards by the pods of this node every few seconds, and report it."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from gas.plugin.card_pods import CardPod
from gas.plugin.daemon_thread import in_a_daemon_thread, wait_while_stuck
from gas.plugin.discovery.card_source import AskProcesses
from gas.plugin.part import Sample
from gas.plugin.usage.fdinfo import Client, EngineTime
from gas.plugin.usage.pod_usage import MeasuredUse, PodUsages
from gas.plugin.usage.process_walk import ProcessWalker, SeenClient, Walk
from gas.values.amounts import MEMORY_MAX
from gas.values.card_facts import CardFacts
from gas.values.cards import Card
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

INTERVAL = 10.0  # seconds between two walks

SLOW = 10.0
"""Seconds after which a walk is reported as stuck, since a driver that does not respond may block a reader without end.
"""

OUTDATED = 60.0  # seconds after which results are no longer shown if no newer walk has ended
PAUSE = 0.002  # seconds for which the walk regularly lets kubelet's calls go first
REPORT_AGAIN = 600.0  # seconds between two events about the same pod

_NO_PROCESS = (
    "no process of the running pods with cards is visible; the plugin needs hostPID: true, or must run outside of"
    " containers"
)


class PodCardUse(NamedTuple):
    """One pod's use of one card, empty if it does not use it."""

    pod: CardPod
    card: Card
    use: MeasuredUse
    requested: int | None  # in bytes; None if the pod was not given the card

    @property
    def is_over(self) -> bool:
        """True if the pod uses more memory than it requested. A pod that requested none is not judged."""
        return bool(self.requested) and self.use.memory > (self.requested or 0)


@dataclass(eq=False)
class UsageMonitor:
    """Walk over the processes of the node's GPU pods in a thread of its own, at each interval.

    proc         normally ``/proc``
    processes    asks drivers that do not state there who uses their cards
    on_over      called with a pod that uses more memory than it requested, and with a sentence about it; for one pod at
                 most every `REPORT_AGAIN` seconds
    trouble      sentence about why there are no current results, else None
    """

    pods: Iterable[CardPod]
    gpus: Callable[[], Collection[CardFacts]]
    proc: Path
    on_over: Callable[[CardPod, str], None]
    _: KW_ONLY
    processes: AskProcesses = lambda: ((), ())
    interval: float = INTERVAL
    slow: float = SLOW
    clock: Callable[[], float] = time.monotonic
    walks: int = field(init=False, default=0)  # number of walks that have ended
    walked: str = field(init=False, default="")  # when the last one ended, RFC 3339; empty before the first
    cpu_seconds: float = field(init=False, default=0.0)  # processor time of all walks
    problems: tuple[str, ...] = field(init=False, default=())  # of the last walk, one sentence each
    trouble: str | None = field(init=False, default="the processes of this node have not been read yet")
    _usages: PodUsages = field(init=False, default_factory=PodUsages)
    _walked_at: float = field(init=False, default=float("-inf"))
    _without_processes: int = field(init=False, default=0)
    _reported: dict[str, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._walker = ProcessWalker(self.proc, pause=lambda: time.sleep(PAUSE))

    async def run(self) -> None:
        while True:
            started = self.clock()
            try:
                await self.walk_once()
            except Exception:
                logger.exception("the use of the cards could not be measured")
            await asyncio.sleep(max(self.interval - (self.clock() - started), self.interval / 10))

    async def walk_once(self) -> None:
        pods = {pod.cgroup_uid: pod for pod in self.pods}
        started = self.clock()
        walking = asyncio.ensure_future(in_a_daemon_thread(partial(self._timed, frozenset(pods)), name="usage"))
        stuck = f"reading the processes of this node has taken over {self.slow:g} s; a driver does not respond"
        try:
            walk = await wait_while_stuck(walking, self.slow, lambda: self._note_trouble(stuck))
        except GasError as error:
            self._note_trouble(str(error))
            return
        self.walks += 1
        self._walked_at, self.walked = self.clock(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._note_problems(walk, pods.values())
        cards = {name: gpu for gpu in self.gpus() for name in (gpu.pci_address, str(gpu.card)) if name}
        self._usages.update(walk.clients, pods=pods.keys(), cards=cards, now=started)
        self._report_pods()

    @property
    def uses(self) -> Iterator[PodCardUse]:
        """The use and the requests of every pod, by card; nothing while the results are outdated."""
        if self.clock() - self._walked_at > OUTDATED:
            return
        gpus = self.gpus()
        for pod in sorted(self.pods, key=lambda each: each.key):
            used, requested = self._usages.pods.get(pod.cgroup_uid, {}), pod.requested_memory(gpus)
            for card in sorted({*used, *requested}):
                yield PodCardUse(pod, card, used.get(card, MeasuredUse()), requested.get(card))

    def _timed(self, pods: Collection[str]) -> Walk:
        started = time.thread_time()
        try:
            walk = self._walker.walk(pods)
            processes, problems = self.processes()
            for each in processes:
                if (pod := self._walker.pod_of(each.pid)) in pods and pod is not None:
                    engines = {engine: EngineTime(nanoseconds) for engine, nanoseconds in each.busy.items()}
                    walk.clients.append(SeenClient(pod, Client(str(each.card), each.pid, each.memory, engines)))
            walk.problems.update(dict.fromkeys(problems))
            return walk
        finally:
            self.cpu_seconds += time.thread_time() - started

    def _note_trouble(self, trouble: str) -> None:
        if trouble != self.trouble:
            logger.error(trouble)
        self.trouble = trouble

    def _note_problems(self, walk: Walk, pods: Iterable[CardPod]) -> None:
        """Log problems that the walk before did not have. One is a node on which no running pod has any process."""
        runs = any(pod.is_running for pod in pods)
        self._without_processes = self._without_processes + 1 if runs and not walk.processes else 0
        if self._without_processes > 1:
            walk.problems[_NO_PROCESS] = None
        for problem in walk.problems:
            if problem not in self.problems:
                logger.warning(problem)
        self.problems = tuple(walk.problems)
        self.trouble = None

    def _report_pods(self) -> None:
        """Call ``on_over`` for pods that use more memory than they requested, if it was not called for them lately."""
        now = self.clock()
        self._reported = {uid: at for uid, at in self._reported.items() if now - at < REPORT_AGAIN}
        over: dict[str, list[PodCardUse]] = {}
        for use in self.uses:
            if use.is_over and use.pod.uid not in self._reported:
                over.setdefault(use.pod.uid, []).append(use)
        for uid, uses in over.items():
            self._reported[uid] = now
            pod = uses[0].pod
            amounts = ", ".join(
                f"{_mib(use.use.memory, up=True)} of {use.card} but requested {_mib(use.requested)}" for use in uses
            )
            sentence = (
                f"the pod uses {amounts} of {MEMORY_MAX}; other pods on the card may find less memory than they"
                " requested: request what the pod needs, or make it use less"
            )
            logger.warning(sentence, extra={"pod": pod.key})
            self.on_over(pod, sentence)


def _mib(amount: int | None, *, up: bool = False) -> str:
    """Format bytes as MiB; rounded so that more than requested never reads as the same amount."""
    mib = (amount or 0) / 2**20
    return f"{math.ceil(mib) if up else math.floor(mib)} MiB"


def usage_json(monitor: UsageMonitor) -> bytes:
    """Return the body of ``/usage``. Times are RFC 3339, amounts bytes.

    walked    when the processes were last read; null before the first time
    interval  seconds between two readings
    trouble   why there are no current results; null if there are
    pods      namespace, name, UID and cards. ``memoryRequested`` is null if the pod was not given the card; ``clients``
              is how many the pod has open; ``engines`` have by class the ``busy`` share of the last interval and total
              ``seconds``
    """
    return msgspec.json.encode(
        {
            "walked": monitor.walked or None,
            "interval": INTERVAL,
            "trouble": monitor.trouble,
            "problems": monitor.problems,
            "pods": [_pod(list(uses)) for _, uses in groupby(monitor.uses, key=lambda use: use.pod.uid)],
        }
    )


def _pod(uses: list[PodCardUse]) -> dict[str, object]:
    namespace, _, name = uses[0].pod.key.partition("/")
    return {
        "namespace": namespace,
        "name": name,
        "uid": uses[0].pod.uid,
        "cards": {
            str(card): {
                "memoryUsed": use.memory,
                "memoryRequested": requested,
                "clients": use.clients,
                "engines": {
                    engine: {"busy": round(spent.busy, 4), "seconds": round(spent.seconds, 3)}
                    for engine, spent in use.engines.items()
                },
            }
            for _, card, use, requested in uses
        },
    }


def usage_samples(monitor: UsageMonitor) -> Iterator[Sample]:
    uses = list(monitor.uses)
    for pod, card, use, requested in uses:
        namespace, _, name = pod.key.partition("/")
        place = (namespace, name, str(card))
        yield "gas_plugin_pod_memory_used_bytes", place, use.memory
        if requested is not None:
            yield "gas_plugin_pod_memory_requested_bytes", place, requested
        for engine, spent in use.engines.items():
            yield "gas_plugin_pod_engine_seconds_total", (*place, engine), spent.seconds
    yield "gas_plugin_pods_over_memory_request", (), len({use.pod.uid for use in uses if use.is_over})
    yield "gas_plugin_usage_walks_total", (), monitor.walks
    yield "gas_plugin_usage_cpu_seconds_total", (), monitor.cpu_seconds
    yield "gas_plugin_usage_problems", (), len(monitor.problems)
