"""The processes that run the product: replicas of the extender, and device plugins, each with its successors."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, cast

from gas.cluster.connection import ApiServer as ApiConnection
from gas.cluster.credentials import Credentials
from gas.cluster.login import Address, Login
from gas.extender.admission.app import AdmissionMetrics, admission_app
from gas.extender.assembly import Extender
from gas.extender.command_line import parse_flags
from gas.extender.flags import Flags
from gas.extender.metrics import Metrics
from gas.extender.program import BODY_TIMEOUT
from gas.extender.server import extender_app
from gas.plugin.assembly import NodeInterfaces, Plugin
from gas.plugin.environment import Environment
from gas.plugin.flags import Flags as PluginFlags
from gas.plugin.flags import parse_flags as parse_plugin_flags
from gas.plugin.metrics import Metrics as PluginMetrics
from gas.values.card_facts import Scan
from gas.values.timing import Timing
from simulation import objects
from simulation.api import EPOCH
from simulation.kubelet import Cards, Host, PodResources, Registration
from simulation.loop import Process
from simulation.network import Server, Transport
from simulation.world import World

FINISH = 5.0
"""Seconds that an extender has to stop in, its ``--shutdown-timeout``."""


@cache
def extender_flags(*, webhooks: bool, mixed: bool, preemption: bool) -> Flags:
    """Return the flags of the extenders."""
    arguments = ["--leader-elect", "--lease-namespace=kube-system"]
    if mixed:
        arguments.append("--vocabularies=intel,aliyun,koordinator,kubeshare,vendor")
    if preemption:
        arguments.append("--preemption")
    if webhooks:
        arguments.append("--admission-port=9443")
    return parse_flags(arguments)


@cache
def plugin_flags(node: str) -> PluginFlags:
    """Return the flags of the device plugin of a node. What nodes have is left to the plan."""
    arguments = [f"--node-name={node}", f"--shared-dev-num={objects.SLOTS}", "--write-node=none"]
    return parse_plugin_flags(arguments, environ={}, host_name=node)


async def connect(world: World, process: Process, timing: Timing) -> ApiConnection:
    """Return the product's connection of a process to the API server."""

    async def load() -> Login:
        return Login(Address("https://api:6443", cast(Any, None), None, None), f"Bearer {process.name}", refresh)

    async def refresh() -> str | None:
        return f"Bearer {process.name}"

    credentials = Credentials(load, await load(), world.loop.time)
    return ApiConnection(credentials, transport=Transport(world.network, process, world.api.server), timing=timing)


class Replica:
    """One replica of the extender, and its successors."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        self._chance = world.chance.stream(name)
        plan = world.plan
        self._flags = extender_flags(webhooks=plan.webhooks, mixed=plan.mixed, preemption=plan.preemption)
        self._starts = 0
        self.skew = 0.0
        self.kill_at_send: tuple[int, bool, float] | None = None
        self.decided_at = -math.inf
        self.extender: Extender | None = None
        self.process: Process
        self.server: Server
        self.admission: Server

    @property
    def identity(self) -> str:
        """The name of the present process in the election, which no other ever has."""
        return f"{self.name}-{self._starts}"

    def start(self) -> None:
        """Start a new process."""
        self._starts += 1
        self.process = self._world.new_process(self.name)
        none = cast(Any, None)
        self.server = Server(self.name, self.process, none, up=False)
        self.admission = Server(self.name, self.process, none, up=False)
        self._world.loop.start(self.process, self._run())

    async def _run(self) -> None:
        world = self._world
        timing = Timing(
            monotonic=world.loop.time,
            nanoseconds=lambda: int((EPOCH + world.loop.time() + self.skew) * 1e9),
            spread=self._chance.between,
        )
        api = await connect(world, self.process, timing)
        metrics = Metrics("simulation")
        extender = Extender(api, self._flags, metrics, identity=self.identity, timing=timing)
        self.server.app = extender_app(
            extender.verbs,
            metrics,
            max_body=2**24,
            body_timeout=BODY_TIMEOUT,
        )
        self.admission.app = admission_app(extender.webhooks, AdmissionMetrics(metrics.registry))
        self.server.up = self.admission.up = True
        self.extender = extender
        await world.watched(self.name, extender.run)

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.extender = None
        self._world.network.client_gone(self.process)
        self.server.stop()
        self.admission.stop()

    async def _stop(self, gone: Callable[[], None]) -> None:
        if self.extender is not None:
            self.extender.readiness.stopping = True
            await self.extender.finish(FINISH)
        gone()

    def stop(self, gone: Callable[[], None]) -> None:
        """Stop the process as its program does after SIGTERM, then call ``gone``."""
        self._world.loop.start(self.process, self._stop(gone))

    def decides(self) -> bool:
        """Return whether this replica would decide right now."""
        if (
            self.extender is None
            or not self.process.alive
            or self.process.paused
            or not self.extender.readiness.may_act()
        ):
            return False
        self.decided_at = self._world.loop.time()
        return True


class PluginProcess:
    """The device plugin of one node, and its successors."""

    def __init__(self, world: World, node: str, host: Host) -> None:
        self.name = f"plugin-{node}"
        self._world = world
        self._node = node
        self._host = host

    def start(self) -> None:
        """Start a new process."""
        self._host.plugin = self._world.new_process(self.name)
        self._world.loop.start(self._host.plugin, self._run(self._host.plugin))

    def kill(self) -> None:
        """Kill the process."""
        if (process := self._host.plugin) is not None:
            process.kill()
            self._world.network.client_gone(process)
            self._host.plugin_ends()

    async def _run(self, process: Process) -> None:
        world, host = self._world, self._host
        timing = Timing(
            monotonic=world.loop.time,
            nanoseconds=lambda: int((EPOCH + world.loop.time()) * 1e9),
            spread=world.chance.stream(f"{self.name} {world.loop.time()}").between,
        )
        interfaces = NodeInterfaces(
            resources=lambda _socket, _names: cast(Any, PodResources(host)),
            registration=cast(Any, partial(Registration, host)),
            off_loop=_at_once,
            cards=lambda _flags, _environment: [Cards(host)],
            timing=timing,
        )
        api = await connect(world, process, timing)
        flags = plugin_flags(self._node)
        plugin = Plugin(api, flags, Environment(), PluginMetrics("simulation"), interfaces=interfaces)
        await world.watched(self.name, plugin.run)


async def _at_once(work: Callable[[], Scan]) -> Scan:
    return work()
