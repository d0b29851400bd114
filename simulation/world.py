"""The world in one thread: extenders, API server, scheduler, kubelets, users and faults, in virtual time."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from gas.sandbox.api.failure import ApiFailure
from gas.sandbox.api.kinds import NODES
from simulation import objects
from simulation.acts import Acts
from simulation.api import ApiServer
from simulation.chance import Chance
from simulation.kubelet import DeviceKubelet, Host
from simulation.laws import LawBroken, Laws
from simulation.loop import Process, VirtualLoop
from simulation.network import Client, Network, Server
from simulation.nodes import Kubelet
from simulation.plan import REPLICAS, Plan
from simulation.programs import PluginProcess, Replica, extender_flags
from simulation.scheduler import Scheduler

START = 5.0
"""Seconds before the first step of a plan."""

SETTLE = 110.0
"""Seconds after the last fault in which every pod that fits must be bound, and books must be right. The product notices
after 90 s that a watch has gone silent."""

REST = 4.0
"""A history is over once all is as it must be at the end, this many seconds after the last fault and as many again."""

TICK = 0.25
"""Seconds between two checks of who decides."""

LATEST_SEND = 4.5
"""Seconds after the last moment in which a replica decided, after which it must send no Binding any more."""


class World:
    """One history. `run` returns when it is over, and raises LawBroken as soon as a law is broken.

    acts      what users do and what fails
    figures   counts of what happened
    kubelets  by node: the process of its kubelet
    hosts     by node: its machine; empty without device plugins, as ``plugins`` is
    """

    def __init__(self, plan: Plan, *, keep_trace: bool = False) -> None:
        self.plan = plan
        self.chance = Chance(plan.seed, "world")
        self.loop = VirtualLoop(self.chance.stream("loop"))
        self.flags = extender_flags(webhooks=plan.webhooks, mixed=plan.mixed, preemption=plan.preemption)
        self.trace_lines: list[str] | None = [] if keep_trace else None
        self.digest = hashlib.sha256()
        self.figures = {"kills": 0, "pauses": 0, "leader changes": 0, "pods": 0, "evictions": 0}
        self._processes: list[Process] = []
        self.kubelets: dict[str, Process] = {}
        self.hosts: dict[str, Host] = {}
        self.plugins: dict[str, PluginProcess] = {}
        self.scheduler: Process
        self._broken: LawBroken | None = None
        self._leader = ""
        self._preempt_asked = 0
        self._over = asyncio.Event()
        self.network = Network(self.loop, self.chance.stream("network"), self.trace)
        self.network.on_send, self.network.on_sent = self._before_send, self._after_send
        users = [*REPLICAS, "scheduler", "user", *(f"kubelet-n{i}" for i in range(len(plan.nodes)))]
        users += [f"plugin-n{i}" for i in range(len(plan.nodes))]
        self.api = ApiServer(self.loop, self.network, users)
        self.api.page = plan.page
        self.laws = Laws(self.api.storage, "extender", self._given)
        self.laws.calm = not plan.has_faults
        self.api.storage.listen(self._written)
        self.acts = Acts(self)
        self.network.late = self.acts.lateness
        self.api.on_binding, self.api.pause = self.acts.before_binding, self.acts.pause
        self.replicas = [Replica(self, name) for name in REPLICAS]
        if plan.webhooks:
            self.api.reviewer = self._reviewer
        self._outside = self.new_process("users")

    def all_figures(self) -> dict[str, float]:
        """Return the counts of what happened."""
        return {
            "callbacks": self.loop.processed,
            "virtual seconds": self.loop.time(),
            "requests": self.network.requests,
            "lost responses": self.network.lost_responses,
            "writes": self.api.storage.version,
            "bindings with cards": self.laws.bindings,
            "receipts": self.laws.receipts,
            "calls of kubelets": sum(host.calls for host in self.hosts.values()),
            **self.figures,
        }

    # What is called from other parts

    def new_process(self, name: str) -> Process:
        """Return a process of this world."""
        process = Process(name)
        self._processes.append(process)
        return process

    def later(self, seconds: float, action: Callable[..., object], *args: Any) -> None:
        """Let the outside world do something after some time."""
        self.loop.call_later(seconds, action, *args, context=self._outside.context)

    def kill(self, replica: Replica, away: float) -> None:
        """Kill a replica, and start it again after ``away`` seconds."""
        self.trace("world", f"{replica.name} is killed")
        self.figures["kills"] += 1
        replica.kill()
        self.later(away, replica.start)

    def replica(self, name: str) -> Replica:
        """Return a replica by its name, or the one that leads or does not lead now."""
        if name in ("leader", "standby"):
            leader = next((each for each in self.replicas if each.decides()), self.replicas[0])
            return leader if name == "leader" else next(each for each in self.replicas if each is not leader)
        return next(each for each in self.replicas if each.name == name)

    def trace(self, who: str, what: str) -> None:
        """Note something in the history."""
        line = f"{self.loop.time():10.4f} {who}: {what}"
        self.digest.update(line.encode())
        if self.trace_lines is not None:
            self.trace_lines.append(line)

    def fail(self, law: str, sentence: str) -> None:
        """Note that a law is broken; the history ends."""
        if self._broken is None and not self.network.closed:
            self._broken = LawBroken(law, sentence)
            self.trace("LAW", str(self._broken))
            self._over.set()

    def _check(self, check: Callable[..., None], *args: Any) -> None:
        try:
            check(*args)
        except LawBroken as broken:
            self.fail(broken.law, broken.sentence)

    def _written(self) -> None:
        """Check the laws after a write."""
        change = self.api.storage.changes(self.api.storage.version - 1)[0]
        if change.after.plural in ("pods", "nodes"):
            value = change.after.value
            more = value["spec"].get("nodeName", "-") + " " + value.get("status", {}).get("phase", "")
            cards = (value["metadata"].get("annotations") or {}).get(objects.CARDS, "")
            gone = " gone" if change.gone else ""
            self.trace("api", f"{change.after.version} {change.after.plural}/{change.after.key} {more} {cards}{gone}")
        elif change.after.plural == "leases":
            self.trace("api", f"lease of {change.after.value['spec'].get('holderIdentity')}")
        self._check(self.laws.follow, self.api.binds_now)
        self._check_leaders()

    def _given(self, uid: str) -> dict[str, set[str]] | None:
        """Return the cards that the containers of a pod have got until now; None once it has ended."""
        if any(uid in host.dropped for host in self.hosts.values()):
            return None
        return next((host.given_cards(uid) for host in self.hosts.values() if uid in host.given), {})

    def _check_leaders(self) -> None:
        leaders = [each.identity for each in self.replicas if each.decides()]
        if len(leaders) > 1:
            self.fail("one leader", f"{' and '.join(leaders)} decide at the same moment")
        if leaders and leaders[0] != self._leader:
            self._leader = leaders[0]
            self.figures["leader changes"] += 1
            self.trace("world", f"{self._leader} decides")

    def _before_send(self, client: Process, _method: str, target: str) -> bool:
        if target.endswith("/preempt"):
            self._preempt_asked = self.api.storage.version
        if target.endswith("/binding"):
            for replica in self.replicas:
                sends = replica.extender is not None and replica.process is client
                if sends and not replica.decides() and self.loop.time() - replica.decided_at > LATEST_SEND:
                    self.fail("one leader", f"{replica.identity} binds and has not decided since {replica.decided_at}")
        return self._kill_at_send(client, before=True)

    def _after_send(self, client: Process) -> None:
        self._kill_at_send(client, before=False)

    def _kill_at_send(self, client: Process, *, before: bool) -> bool:
        for replica in self.replicas:
            if replica.extender is None or replica.process is not client or replica.kill_at_send is None:
                continue
            left, is_before, away = replica.kill_at_send
            if is_before is not before:
                continue
            if left > 0:
                replica.kill_at_send = left - 1, is_before, away
                continue
            replica.kill_at_send = None
            self.kill(replica, away)
            return False
        return True

    def _endpoints(self) -> list[Server]:
        if self.acts.stale:
            return [each.server for each in self.replicas if each.server.up]
        return [
            each.server
            for each in self.replicas
            if each.extender is not None and each.server.up and each.extender.readiness.why_not_serving() is None
        ] or [each.server for each in self.replicas if each.server.up]

    def _reviewer(self) -> Server | None:
        ready = [
            each.admission
            for each in self.replicas
            if each.extender is not None and each.admission.up and each.extender.readiness.why_not_serving() is None
        ]
        return ready[0] if ready else None

    # The history

    def run(self) -> None:
        """Run the whole history. Raises LawBroken."""
        handler = _Errors(self)
        logger = logging.getLogger("gas")
        logger.addHandler(handler)
        self.loop.set_exception_handler(self._unhandled)
        try:
            self.loop.run_until_complete(self._history())
        finally:
            logger.removeHandler(handler)
            self._end()
        if self._broken is not None:
            raise self._broken

    async def _history(self) -> None:
        for index, cards in enumerate(self.plan.nodes):
            node = f"n{index}"
            self.api.api.create(NODES, None, objects.node(node, cards))
            if self.plan.plugins:
                host = self.hosts[node] = Host(self.loop, self.network, cards)
                self.plugins[node] = PluginProcess(self, node, host)
                self.plugins[node].start()
            self.start_kubelet(node)
        for replica in self.replicas:
            replica.start()
        self.start_scheduler()
        self.loop.start(self._outside, self._watch_leaders())
        for step in self.plan.steps:
            self.loop.call_later(START + step.at, self._take, step, context=self._outside.context)
        self.loop.call_at(START + self.plan.active + SETTLE, self._over.set, context=self._outside.context)
        self.loop.start(self._outside, self._watch_for_rest())
        await self._over.wait()
        if self._broken is None and (broken := self._found_at_end()) is not None:
            self.fail(broken.law, broken.sentence)

    async def _watch_for_rest(self) -> None:
        """End the history early if nothing is left to do in it."""
        await asyncio.sleep(START + self.plan.active)
        rested = 0
        while rested < 2:
            await asyncio.sleep(REST)
            rested = rested + 1 if self._found_at_end() is None else 0
        self._over.set()

    def _take(self, step: Any) -> None:
        if self._broken is not None:
            return
        self.trace("plan", str(step))
        try:
            getattr(self.acts, step.act)(*step.args)
        except ApiFailure as failure:
            self.trace("plan", f"refused: {failure}")

    async def _watch_leaders(self) -> None:
        while True:
            self._check_leaders()
            await asyncio.sleep(TICK)

    def _found_at_end(self) -> LawBroken | None:
        """Return the law of the end that does not hold, if any."""
        try:
            self.laws.check_bound()
            if not any(each.decides() for each in self.replicas):
                raise LawBroken("progress", "no replica decides")
            for replica in self.replicas:
                if replica.extender is None:
                    raise LawBroken("progress", f"{replica.name} does not run")
                books = {
                    uid: (booking.node, {str(card): dict(some) for card, some in booking.footprint.amounts.items()})
                    for uid, booking in replica.extender.decider.ledger.bookings()
                }
                self.laws.check_books(replica.name, books)
                self.laws.check_waiting(replica.name, replica.extender.decider.pods.waiting.keys())
            for host in self.hosts.values():
                self.laws.check_devices({uid: host.given_cards(uid) for uid in host.given})
        except LawBroken as broken:
            return broken
        return None

    def _end(self) -> None:
        """End all processes, so that nothing is left behind."""
        self.network.closed = True
        self.loop.set_exception_handler(lambda _loop, _context: None)
        self.loop.bury(*self._processes)
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

    def _unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.fail("no exception at the top", f"{context.get('message')}: {error!r}")

    def start(self, name: str, work: Callable[[Process], Coroutine[Any, Any, None]]) -> Process:
        process = self.new_process(name)

        async def run() -> None:
            try:
                await work(process)
            except Exception as error:  # noqa: BLE001 -- a law
                self.fail("no exception at the top", f"{name} ended: {error!r}")

        self.loop.start(process, run())
        return process

    def start_kubelet(self, node: str) -> None:
        async def work(process: Process) -> None:
            client = Client(self.network, process, self.api.server)
            chance = self.chance.stream(f"kubelet {node} {self.loop.time()}")
            if (host := self.hosts.get(node)) is None:
                await Kubelet(node, client, chance).run()
            else:
                host.kubelet_starts()
                await DeviceKubelet(node, client, chance, host).run()

        self.kubelets[node] = self.start(f"kubelet-{node}", work)

    def start_scheduler(self) -> None:
        async def work(process: Process) -> None:
            client = Client(self.network, process, self.api.server)
            chance = self.chance.stream(f"scheduler {self.loop.time()}")
            await Scheduler(
                self.network,
                process,
                client,
                self._endpoints,
                chance,
                self.trace,
                eager=self.plan.eager,
                evicting=self._evicting if self.plan.preemption else None,
            ).run()

        self.scheduler = self.start("scheduler", work)

    def _evicting(self, pod: dict[str, Any], node: str, victims: list[str]) -> None:
        """Check the pods that are evicted for another one."""
        self.trace("scheduler", f"{pod['metadata']['name']}: evicts {len(victims)} pods from {node}")
        self.figures["evictions"] += len(victims)
        self._check(self.laws.check_victims, pod, node, victims, self._preempt_asked)


class _Errors(logging.Handler):
    """A log handler for which each logged exception is a broken law."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._world.fail("no exception at the top", f"{record.getMessage()}: {record.exc_info[1]!r}")
