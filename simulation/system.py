"""The programs of a history: extenders, scheduler, kubelets and device plugins, and how they reach each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from sandbox.api.client import API_FAILURES
from sandbox.api.kinds import NODES
from sandbox.scheduler.extender_client import ExtenderClient, ExtenderFailed
from sandbox.scheduler.queue import SchedulingQueue
from sandbox.scheduler.scheduler import Scheduler
from simulation import objects
from simulation.chance import Chance
from simulation.kubelet import Host
from simulation.loop import Process
from simulation.network import Client, Server
from simulation.plan import REPLICAS
from simulation.programs import PluginProcess, Replica
from simulation.webhooks import Webhooks
from simulation.world import World

HTTP_TIMEOUT = 30.0
"""Seconds that the scheduler waits for a response of an extender."""


class System:
    """All programs of a world.

    replicas       of the extender
    kubelets       by node: the process of its kubelet
    plugins        by node; empty if device plugins are left out
    stale          whether the scheduler's requests also reach replicas that do not decide
    preempt_asked  version of the API server's storage when the extender was last asked whom to evict
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.replicas = [Replica(world, name) for name in REPLICAS]
        self.kubelets: dict[str, Process] = {}
        self.plugins: dict[str, PluginProcess] = {}
        self.scheduler: Process
        self.stale = False
        self.preempt_asked = 0
        self._checkers = world.chance.stream("checkers")
        if world.plan.webhooks:
            world.api.webhooks = Webhooks(
                world.network,
                world.api.process,
                of_bindings=self._reviewer,
                of_pods=self._checker,
                on_pod=lambda *pods: world.check(world.laws.check_new_pod, *pods),
            )

    def start(self) -> None:
        """Add the nodes and start everything."""
        world = self.world
        for index, cards in enumerate(world.plan.nodes):
            node = f"n{index}"
            world.api.api.create(NODES, None, objects.node(node, cards))
            host = world.hosts[node] = Host(world.loop, world.network, cards)
            if world.plan.plugins:
                self.plugins[node] = PluginProcess(world, node, host)
                self.plugins[node].start()
            self.start_kubelet(node)
        for replica in self.replicas:
            replica.start()
        self.start_scheduler()

    def kill(self, replica: Replica, away: float) -> None:
        """Kill a replica, and start it again after ``away`` seconds."""
        self.world.trace("world", f"{replica.name} is killed")
        self.world.figures["kills"] += 1
        replica.kill()
        self.world.later(away, replica.start)

    def replica(self, name: str) -> Replica:
        """Return a replica by its name, or the one that leads or does not lead now."""
        if name in ("leader", "standby"):
            leader = next((each for each in self.replicas if each.decides()), self.replicas[0])
            return leader if name == "leader" else next(each for each in self.replicas if each is not leader)
        return next(each for each in self.replicas if each.name == name)

    def start_kubelet(self, node: str) -> None:
        """Start a kubelet."""
        world = self.world

        async def work(process: Process) -> None:
            client = Client(world.network, process, world.api.server)
            chance = world.chance.stream(f"kubelet {node} {world.loop.time()}")
            await world.hosts[node].new_kubelet(node, client, chance, world.api.now).run()

        self.kubelets[node] = world.start(f"kubelet-{node}", work)

    def start_scheduler(self) -> None:
        """Start the scheduler."""
        world = self.world

        async def work(process: Process) -> None:
            chance = world.chance.stream(f"scheduler {world.loop.time()}")
            service = _Service(world, process, self._endpoints, chance)
            await Scheduler(
                Client(world.network, process, world.api.server),
                ExtenderClient(service.post, objects.MANAGED),
                queue=SchedulingQueue(first=0.1, longest=0.4, forgotten=0.5) if world.plan.eager else None,
                reports=_Traced(world),
                choose=lambda nodes, _score: chance.one_of(nodes),
                concurrent=True,
                evicting=self._evicting if world.plan.preemption else None,
            ).run()

        self.scheduler = world.start("scheduler", work)

    def _evicting(self, pod: dict[str, Any], node: str, victims: list[str], binding: bool) -> None:
        """Check the pods that are evicted for another one."""
        self.world.trace("scheduler", f"{pod['metadata']['name']}: evicts {len(victims)} pods from {node}")
        self.world.figures["evictions"] += len(victims)
        check = partial(self.world.laws.check_victims, binding=binding)
        self.world.check(check, pod, node, victims, self.preempt_asked)

    def _endpoints(self) -> list[Server]:
        if self.stale:
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

    def _checker(self) -> Server | None:
        """Return one of the replicas, of which all check new pods."""
        running = [each.admission for each in self.replicas if each.admission.up]
        return self._checkers.one_of(running) if running else None


class _Service:
    """The scheduler's way to the extenders, with a connection that leads to the same one while it responds."""

    def __init__(self, world: World, process: Process, endpoints: Callable[[], list[Server]], chance: Chance) -> None:
        self._world = world
        self._process = process
        self._endpoints = endpoints
        self._chance = chance
        self._last: Server | None = None

    async def post(self, verb: str, args: dict[str, Any]) -> bytes:
        """Send a request of the scheduler. Raises ExtenderFailed."""
        if not (servers := self._endpoints()):
            await asyncio.sleep(0.01)
            raise ExtenderFailed("no endpoint")
        server = self._last if self._last in servers else self._chance.one_of(servers)
        client = Client(self._world.network, self._process, server, patience=HTTP_TIMEOUT)
        self._last = None
        try:
            answer = await client.post(f"/scheduler/{verb}", args)
        except API_FAILURES as failure:
            raise ExtenderFailed(f"{server.name}: {type(failure).__name__} {failure}") from None
        if not answer.get("Error"):
            self._last = server
        return msgspec.json.encode(answer)


class _Traced:
    """Note in the history what the scheduler reports."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def failed(self, pod: dict[str, Any], reason: str, message: str) -> None:
        self._world.trace("scheduler", f"{pod['metadata']['name']}: {reason}: {message}")

    async def bound(self, pod: dict[str, Any], node: str) -> None:
        self._world.trace("scheduler", f"{pod['metadata']['name']}: bound to {node}")

    def forget(self, uid: str) -> None:
        """Do nothing: nothing is remembered."""
