"""Represent the world of a history: what all its parts share, in virtual time."""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from simulation.api import ApiServer
from simulation.chance import Chance
from simulation.kubelet import Host
from simulation.laws import Laws
from simulation.loop import Process, VirtualLoop
from simulation.network import Network
from simulation.observed import LawBroken
from simulation.plan import REPLICAS, Plan
from simulation.volumes import Volumes


class World:
    """Time, chance, network, API server and laws of one history, and the notes of what happens in it.

    figures  counts of what happened
    """

    def __init__(self, plan: Plan, *, keep_trace: bool = False) -> None:
        self.plan = plan
        self.chance = Chance(plan.seed, "world")
        self.loop = VirtualLoop(self.chance.stream("loop"))
        self.trace_lines: list[str] | None = [] if keep_trace else None
        self.digest = hashlib.sha256()
        self.figures = {"kills": 0, "pauses": 0, "leader changes": 0, "pods": 0, "evictions": 0, "SharePods": 0}
        self.processes: list[Process] = []
        self.hosts: dict[str, Host] = {}  # machines by node
        self.broken: LawBroken | None = None  # the law that was broken; None if all hold until now
        self.over = asyncio.Event()  # set when the history ends
        self.network = Network(self.loop, self.chance.stream("network"))
        users = [*REPLICAS, "scheduler", "user", *(f"kubelet-n{i}" for i in range(len(plan.nodes)))]
        users += [f"plugin-n{i}" for i in range(len(plan.nodes))]
        self.api = ApiServer(self.loop, users)
        self.api.page = plan.page
        self.volumes = Volumes(self.loop.time)
        self.laws = Laws(self.api.storage, self._given, self.loop.time, self.volumes.nodes.get)
        self.volumes.on_made = self.laws.promises.ties
        self.laws.promises.known = plan.shows_promises
        self.laws.pod_groups.known = plan.shows_groups
        self.laws.calm, self.laws.calm_devices = not plan.has_faults, not plan.disturbs_nodes
        # Such pods take promised cards, and so do more important ones.
        takers = {"pods bound by others", "late volumes"} if plan.preemption else {"pods bound by others"}
        self.laws.skips_failed_binds = "ignorable" in plan.features and not takers.isdisjoint(plan.features)
        self.outside = self.new_process("users")

    def new_process(self, name: str) -> Process:
        process = Process(name)
        self.processes.append(process)
        return process

    def start(self, name: str, work: Callable[[Process], Coroutine[Any, Any, None]]) -> Process:
        process = self.new_process(name)
        self.loop.start(process, self.watched(name, partial(work, process)))
        return process

    async def watched(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the work of a process. If it ends with an exception, a law is broken."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 -- a law
            self.fail("no exception at the top", f"{name} ended: {error!r}")

    def later(self, seconds: float, action: Callable[..., object], *args: Any) -> None:
        """Let the outside world do something after some time."""
        self.loop.call_later(seconds, action, *args, context=self.outside.context)

    def trace(self, who: str, what: str) -> None:
        line = f"{self.loop.time():10.4f} {who}: {what}"
        self.digest.update(line.encode())
        if self.trace_lines is not None:
            self.trace_lines.append(line)

    def fail(self, law: str, sentence: str) -> None:
        """Note that a law is broken; the history ends."""
        if self.broken is None and not self.network.closed:
            self.broken = LawBroken(law, sentence)
            self.trace("LAW", str(self.broken))
            self.over.set()

    def end(self) -> None:
        """End all processes, so that nothing is left behind."""
        self.network.closed = True
        self.loop.set_exception_handler(lambda _loop, _context: None)
        self.loop.bury(*self.processes)
        for _ in range(20):
            tasks = asyncio.all_tasks(self.loop)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def check(self, check: Callable[..., None], *args: Any) -> None:
        """Check a law. If it is broken, or cannot be checked, the history ends."""
        try:
            check(*args)
        except LawBroken as broken:
            self.fail(broken.law, broken.sentence)
        except Exception as error:  # noqa: BLE001 -- the API server would take it for a request that failed
            self.fail("no exception at the top", f"a law ended: {error!r}")

    def _given(self, uid: str) -> dict[str, set[str]] | None:
        """Return the cards that the containers of a pod have so far; None once it has ended."""
        if any(uid in host.dropped for host in self.hosts.values()):
            return None
        return next((host.given_cards(uid) for host in self.hosts.values() if uid in host.state.allocations), {})
