"""Run one history: what happens to the system of a world, and which laws hold in it."""

import asyncio
import logging
from functools import partial
from typing import Any

from sandbox.api.failure import ApiFailure
from simulation import objects
from simulation.acts import Acts
from simulation.loop import Process
from simulation.observed import LawBroken
from simulation.plan import Plan
from simulation.system import System
from simulation.world import World

START = 5.0  # seconds before the first step of a plan

SETTLE = 110.0
"""Seconds after the last fault in which every pod that fits must be bound, and ledgers must be right.

The product notices after 90 s that a watch has gone silent.
"""

REST = 4.0  # seconds between two checks of whether a history may end: all was as it must be at the end in two in a row
TICK = 0.25  # seconds between two checks of who decides
LATEST_SEND = 4.5  # seconds after a replica last decided, after which it must not send a Binding


class History:
    """The history of a plan. `run` raises LawBroken as soon as a law is broken."""

    def __init__(self, plan: Plan, *, keep_trace: bool = False) -> None:
        self.plan = plan
        self.world = World(plan, keep_trace=keep_trace)
        self._system = System(self.world)
        self._acts = Acts(self._system)
        self._leader = ""
        network, api = self.world.network, self.world.api
        network.on_send, network.on_sent = self._before_send, partial(self._kill_at_send, before=False)
        network.late = self._acts.lateness
        api.on_write, api.pause = self._acts.before_write, self._acts.pause
        api.storage.listen(lambda: self.world.check(self._written))

    def figures(self) -> dict[str, float]:
        world = self.world
        return {
            "callbacks": world.loop.processed,
            "virtual seconds": world.loop.time(),
            "requests": world.network.requests,
            "lost responses": world.network.lost_responses,
            "writes": world.api.storage.version,
            "bindings with cards": world.laws.bindings,
            "receipts": world.laws.receipts,
            "calls of kubelets": sum(host.calls for host in world.hosts.values()),
            **world.figures,
        }

    def run(self) -> None:
        world = self.world
        handler = _Errors(world)
        logger = logging.getLogger("gas")
        logger.addHandler(handler)
        world.loop.set_exception_handler(self._unhandled)
        try:
            world.loop.run_until_complete(self._history())
        finally:
            logger.removeHandler(handler)
            world.end()
        if world.broken is not None:
            raise world.broken

    async def _history(self) -> None:
        world = self.world
        self._system.start()
        world.loop.start(world.outside, self._watch_leaders())
        for step in self.plan.steps:
            world.later(START + step.at, self._take, step)
        world.later(START + self.plan.active + SETTLE, world.over.set)
        world.loop.start(world.outside, self._watch_for_rest())
        await world.over.wait()
        if world.broken is None and (broken := self._found_at_end()) is not None:
            world.fail(broken.law, broken.sentence)

    async def _watch_for_rest(self) -> None:
        """End the history early if nothing is left to do in it."""
        await asyncio.sleep(START + self.plan.active)
        rested = 0
        while rested < 2:
            await asyncio.sleep(REST)
            rested = rested + 1 if self._found_at_end() is None else 0
        self.world.over.set()

    def _take(self, step: Any) -> None:
        if self.world.broken is not None:
            return
        self.world.trace("plan", str(step))
        try:
            getattr(self._acts, step.act)(*step.args)
        except ApiFailure as failure:
            self.world.trace("plan", f"refused: {failure}")

    async def _watch_leaders(self) -> None:
        while True:
            self._check_leaders()
            self._check_pod_groups()
            await asyncio.sleep(TICK)

    def _check_pod_groups(self) -> None:
        laws = self.world.laws.pod_groups
        self.world.check(laws.check_whole)
        for replica in self._system.replicas:
            if replica.extender is not None:
                self.world.check(laws.check_promises, tuple(replica.extender.decider.promises._by_parts))

    def _check_leaders(self) -> None:
        leaders = [each.identity for each in self._system.replicas if each.decides()]
        if len(leaders) > 1:
            self.world.fail("one leader", f"{' and '.join(leaders)} decide at the same moment")
        if leaders and leaders[0] != self._leader:
            self._leader = leaders[0]
            self.world.figures["leader changes"] += 1
            self.world.trace("world", f"{self._leader} decides")

    def _written(self) -> None:
        world = self.world
        change = world.api.storage.changes(world.api.storage.version - 1)[0]
        if change.after.plural in ("pods", "nodes"):
            value = change.after.value
            more = value["spec"].get("nodeName", "-") + " " + value.get("status", {}).get("phase", "")
            cards = (value["metadata"].get("annotations") or {}).get(objects.CARDS, "")
            gone = " gone" if change.gone else ""
            world.trace("api", f"{change.after.version} {change.after.plural}/{change.after.key} {more} {cards}{gone}")
        elif change.after.plural == "sharepods":
            status, gone = change.after.value.get("status") or {}, " gone" if change.gone else ""
            shown = f"{status.get('PodStatus', {}).get('phase', '-')} {status.get('message', '')}"
            world.trace("api", f"{change.after.version} sharepods/{change.after.key} {shown}{gone}")
        elif change.after.plural == "leases":
            world.trace("api", f"lease of {change.after.value['spec'].get('holderIdentity')}")
        world.laws.check_writes(world.api.binds_now)
        self._check_leaders()

    def _before_send(self, client: Process, _method: str, target: str) -> bool:
        world = self.world
        if target.endswith("/preempt"):
            self._system.preempt_asked = world.api.storage.version
        if target.endswith("/binding"):
            for replica in self._system.replicas:
                sends = replica.extender is not None and replica.process is client
                if sends and not replica.decides() and world.loop.time() - replica.decided_at > LATEST_SEND:
                    world.fail("one leader", f"{replica.identity} binds and has not decided since {replica.decided_at}")
        return self._kill_at_send(client, before=True)

    def _kill_at_send(self, client: Process, *, before: bool) -> bool:
        for replica in self._system.replicas:
            if replica.extender is None or replica.process is not client or replica.kill_at_send is None:
                continue
            left, is_before, away = replica.kill_at_send
            if is_before is not before:
                continue
            if left > 0:
                replica.kill_at_send = left - 1, is_before, away
                continue
            replica.kill_at_send = None
            self._system.kill(replica, away)
            return False
        return True

    def _found_at_end(self) -> LawBroken | None:
        """Return the law of the end that is broken, if any."""
        world = self.world
        try:
            world.laws.check_bound()
            if not any(each.decides() for each in self._system.replicas):
                raise LawBroken("progress", "no replica decides")
            for replica in self._system.replicas:
                if replica.extender is None:
                    raise LawBroken("progress", f"{replica.name} does not run")
                ledger = replica.extender.decider.ledger
                books = {
                    uid: (booking.node, {str(card): dict(some) for card, some in booking.footprint.amounts.items()})
                    for uid, booking in ledger.bookings()
                }
                used = {node: ledger.usage(node).amounts for node in ledger.nodes()}
                sums = {
                    node: objects.added([{str(card): some for card, some in cards.items()}])
                    for node, cards in used.items()
                }
                world.laws.check_books(replica.name, books, sums)
                world.laws.check_waiting(replica.name, replica.extender.decider.pods.waiting.keys())
                bookings = replica.extender.decider.bookings
                nominated = {node: set(bookings.nominated(node)) for node in bookings.nominated_nodes()}
                world.laws.promises.check_books(replica.name, nominated)
                if "sharepods" in replica.extender.watches:
                    world.laws.sharepods.check_at_end()
            for node, host in world.hosts.items():
                if "written nodes" in self.plan.features:
                    world.laws.check_node(node, host.cards)
                uids = host.state.allocations
                given = {uid: host.given_cards(uid) for uid in uids}
                world.laws.check_devices(given, {uid: host.tile_variables(uid) for uid in uids})
        except LawBroken as broken:
            return broken
        return None

    def _unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.world.fail("no exception at the top", f"{context.get('message')}: {error!r}")


class _Errors(logging.Handler):
    """Count each logged exception as a broken law."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._world.fail("no exception at the top", f"{record.getMessage()}: {record.exc_info[1]!r}")
