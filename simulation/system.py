"""Run the programs of a history: extenders, scheduler, kubelets and device plugins, and connect them."""

import asyncio
import dataclasses
import math
from collections.abc import Callable
from copy import copy
from functools import cache, partial
from itertools import product
from typing import Any, cast

import msgspec

from gas.cluster.connection import ApiServer as ApiConnection
from gas.cluster.credentials import Address, Credentials, Login
from gas.daemon.flags import flags_of
from gas.extender.admission.app import AdmissionMetrics, admission_app
from gas.extender.assembly import Extender
from gas.extender.command_line import COMMAND_LINE, parse_flags
from gas.extender.flags import Flags
from gas.extender.metrics import Metrics
from gas.extender.program import BODY_TIMEOUT
from gas.extender.server import Verb, extender_app
from gas.plugin.assembly import NodeInterfaces, Plugin
from gas.plugin.flags import Environment, WriteNode
from gas.plugin.flags import Flags as PluginFlags
from gas.plugin.flags import parse_flags as parse_plugin_flags
from gas.plugin.metrics import Metrics as PluginMetrics
from gas.values.card_facts import Scan
from gas.values.timing import Timing
from sandbox.api.client import API_FAILURES
from sandbox.api.kinds import DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS, SHAREPODS
from sandbox.kubelet.kubelet import NodeStatusWriter
from sandbox.scheduler.extender_client import ExtenderClient, ExtenderFailed
from sandbox.scheduler.queue import SchedulingQueue
from sandbox.scheduler.scheduler import Scheduler
from simulation import objects
from simulation.api import EPOCH, Webhooks
from simulation.chance import Chance
from simulation.kubelet import Cards, Host, PodResources, Registration
from simulation.loop import Process
from simulation.network import Client, Server, Transport
from simulation.plan import REPLICAS
from simulation.world import World

FINISH = 5.0  # an extender's ``--shutdown-timeout`` in seconds


@cache
def extender_flags(*, webhooks: bool, mixed: bool, preemption: bool, features: frozenset[str] = frozenset()) -> Flags:
    """Return the flags of the extenders. A part that has been removed from the product is not switched on."""
    arguments = {
        "--leader-elect": "one replica" not in features,
        "--lease-namespace=kube-system": "one replica" not in features,
        "--vocabularies=intel,aliyun,koordinator,kubeshare,vendor": mixed,
        "--preemption": preemption,
        "--admission-port=9443": webhooks,
        "--enableAllowlist": "lists" in features,
        "--enableDenylist": "lists" in features,
        "--node-score=balance": "scores" in features,
        "--sharepods": "SharePods" in features,
        "--pod-groups": "PodGroups" in features,
    }
    known = {flag.name for flag in flags_of(COMMAND_LINE)}
    return parse_flags([each for each, is_on in arguments.items() if is_on and each[2:].partition("=")[0] in known])


@cache
def plugin_flags(node: str, *, writes: bool) -> PluginFlags:
    """Return the flags of a node's device plugin; ``writes`` if what the node has is not left to the plan."""
    mode = WriteNode.PATCH if writes else WriteNode.NONE
    arguments = [f"--node-name={node}", f"--shared-dev-num={objects.SLOTS}", f"--write-node={mode}"]
    return parse_plugin_flags(arguments, environ={}, host_name=node)


async def connect(world: World, process: Process, timing: Timing) -> ApiConnection:
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
        self._flags = extender_flags(
            webhooks=plan.webhooks, mixed=plan.mixed, preemption=plan.preemption, features=plan.features
        )
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
        verbs = dict(extender.verbs)
        if "prioritize" in verbs:
            verbs["prioritize"] = dataclasses.replace(
                verbs["prioritize"], call=_scored_again(world, verbs["prioritize"].call)
            )
        self.server.app = extender_app(verbs, metrics, max_body=2**24, body_timeout=BODY_TIMEOUT)
        self.admission.app = admission_app(extender.webhooks, AdmissionMetrics(metrics.registry))
        self.server.up = self.admission.up = True
        self.extender = extender
        await world.watched(self.name, extender.run)

    def kill(self) -> None:
        self.process.kill()
        self.extender = None
        self._world.network.client_gone(self.process)
        self.server.stop()
        self.admission.stop()

    async def _stop(self, gone: Callable[[], None]) -> None:
        if self.extender is not None:
            self.extender.readiness.stop()
            await self.extender.finish(FINISH)
        gone()

    def stop(self, gone: Callable[[], None]) -> None:
        """Stop the process as its program does after SIGTERM, then call ``gone``."""
        self._world.loop.start(self.process, self._stop(gone))

    @property
    def is_ready(self) -> bool:
        extender = self.extender
        return extender is not None and self.server.up and extender.readiness.why_not_serving() is None

    def decides(self) -> bool:
        if self.extender is None or not self.process.alive or self.process.paused:
            return False
        if not self.extender.readiness.may_act():
            return False
        self.decided_at = self._world.loop.time()
        return True


def _scored_again(world: World, prioritize: Any) -> Verb:
    """Return the verb, whose scores must fall from node to node, and be the same again if nothing is remembered."""

    async def call(body: bytes) -> bytes:
        response: bytes = await prioritize(body)
        scoring = copy(prioritize.scoring)
        scoring.scores = type(scoring.scores)(scoring.scores._policy, prioritize.decider)
        scoring.scores.demand = prioritize.scoring.scores.demand
        again = await dataclasses.replace(prioritize, scoring=scoring)(body)
        scores = [each["Score"] for each in msgspec.json.decode(response)]
        if response != again or (any(scores) and scores != sorted(set(scores), reverse=True)):
            world.fail("scores", f"nodes have {response.decode()}, without memory {again.decode()}")
        return response

    return call


class PluginProcess:
    """The device plugin of one node, and its successors."""

    def __init__(self, world: World, node: str, host: Host) -> None:
        self.name = f"plugin-{node}"
        self._world = world
        self._node = node
        self._host = host

    def start(self) -> None:
        self._host.plugin = self._world.new_process(self.name)
        self._world.loop.start(self._host.plugin, self._run(self._host.plugin))

    def kill(self) -> None:
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
            off_loop=at_once,
            cards=lambda _flags, _environment: [Cards(host)],
            timing=timing,
        )
        api = await connect(world, process, timing)
        flags = plugin_flags(self._node, writes="written nodes" in world.plan.features)
        plugin = Plugin(api, flags, Environment(), PluginMetrics("simulation"), interfaces=interfaces)
        await world.watched(self.name, plugin.run)


async def at_once(work: Callable[[], Scan]) -> Scan:
    return work()


HTTP_TIMEOUT = 30.0  # seconds that the scheduler waits for an extender's response


class System:
    def __init__(self, world: World) -> None:
        self.world = world
        names = REPLICAS[:1] if "one replica" in world.plan.features else REPLICAS
        self.replicas = [Replica(world, name) for name in names]
        self.kubelets: dict[str, Process] = {}  # by node, the process of its kubelet
        self.plugins: dict[str, PluginProcess] = {}  # by node; empty if device plugins are left out
        self.scheduler: Process
        self.stale = False  # the scheduler's requests also reach replicas that do not decide
        self.preempt_asked = 0  # version of the API server's storage when the extender was last asked whom to evict
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
        world = self.world
        if "namespaces" in world.plan.features:
            world.api.api.create(NAMESPACES, None, {"metadata": {"name": objects.NAMESPACE}})
        for allowed, app in enumerate(objects.APPS[:2]) if "budgets" in world.plan.features else ():
            world.api.api.create(DISRUPTION_BUDGETS, "default", objects.budget(app, allowed))
        for index, cards in enumerate(world.plan.nodes):
            node = f"n{index}"
            world.api.api.create(NODES, None, objects.node(node, world.plan.cards_at_first(node)))
            host = world.hosts[node] = Host(world.loop, world.network, cards)
            if world.plan.plugins:
                self.plugins[node] = PluginProcess(world, node, host)
                self.plugins[node].start()
            if not world.plan.placed:
                self.start_kubelet(node)
        if "SharePods" in world.plan.features:
            world.start("garbage collector", self._collect_garbage)
        self._place_pods()
        for replica in self.replicas:
            replica.start()
        self.start_scheduler()

    def _place_pods(self) -> None:
        """Create the pods that nodes have from the beginning: as an extender has bound them, two cards each."""
        api = self.world.api
        api.binds_now = "extender"
        for node, place in product(range(len(self.world.plan.nodes)), range(self.world.plan.placed)):
            cards = f"card{2 * place},card{2 * place + 1}"
            asks = {"i915": 2, "millicores": self._checkers.one_of((1000, 2000, 2000))}
            fields = {"annotations": {objects.CARDS: cards, objects.TIMESTAMP: str(place + 1)}}
            pod = objects.pod(f"n{node}-{place}", [asks], [], fields)
            pod["spec"]["nodeName"] = f"n{node}"
            api.api.create(PODS, "default", pod)
        api.binds_now = ""

    async def _collect_garbage(self, _process: Process) -> None:
        """Delete pods whose SharePod is gone, as kube-controller-manager does."""
        api, chance = self.world.api, self.world.chance.stream("garbage")
        while True:
            await asyncio.sleep(chance.between(0.2, 3.0))
            shares = {each.value["metadata"]["uid"] for each in api.storage.objects(SHAREPODS.plural)}
            for pod in api.storage.objects(PODS.plural):
                namespace, _, name = pod.key.partition("/")
                if (owners := objects.owners_of(pod.value)) and owners.isdisjoint(shares):
                    api.api.delete(PODS, namespace, name, {})

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
            others = [each for each in self.replicas if each is not leader]
            return others[0] if name == "standby" and others else leader
        return next((each for each in self.replicas if each.name == name), self.replicas[0])

    def start_kubelet(self, node: str) -> None:
        world = self.world

        async def work(process: Process) -> None:
            client = Client(world.network, process, world.api.server)
            chance = world.chance.stream(f"kubelet {node} {world.loop.time()}")
            kubelet = world.hosts[node].new_kubelet(node, client, chance, world.api.now)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(kubelet.run())
                if "written nodes" in world.plan.features:
                    state = world.hosts[node].state
                    amounts = NodeStatusWriter(client, node).run(lambda: (state.capacity(), state.allocatable()), 1.0)
                    tasks.create_task(amounts)

        self.kubelets[node] = world.start(f"kubelet-{node}", work)

    def start_scheduler(self) -> None:
        world = self.world

        async def failed(pod: dict[str, Any], reason: str, message: str) -> None:
            world.trace("scheduler", f"{pod['metadata']['name']}: {reason}: {message}")
            if reason == "Unschedulable" or "room for pod" in message:
                world.check(world.laws.promises.check_refused, pod["metadata"]["uid"], message)
            if "room for pod" in message:
                world.check(world.laws.pod_groups.check_refused, pod, message)

        async def work(process: Process) -> None:
            chance = world.chance.stream(f"scheduler {world.loop.time()}")
            service, features = _Service(world, process, self._endpoints, chance), world.plan.features
            ignorable, weight = "ignorable" in features, int("scores" in features)
            await Scheduler(
                Client(world.network, process, world.api.server),
                ExtenderClient(service.post, objects.MANAGED, ignorable=ignorable, weight=weight),
                queue=_eager_queue(features) if world.plan.eager else None,
                failed=failed,
                choose=lambda nodes, _score: chance.one_of(nodes),
                concurrent=True,
                evicting=self._evicting if world.plan.preemption else None,
                volumes=world.volumes if "late volumes" in features else None,
                pod_groups="PodGroups" in features,
            ).run()

        self.scheduler = world.start("scheduler", work)

    def _evicting(self, pod: dict[str, Any], node: str, victims: list[str], binding: bool) -> None:
        self.world.trace("scheduler", f"{pod['metadata']['name']}: evicts {len(victims)} pods from {node}")
        self.world.figures["evictions"] += len(victims)
        check = partial(self.world.laws.check_victims, binding=binding)
        self.world.check(check, pod, node, victims, self.preempt_asked)

    def _endpoints(self) -> list[Server]:
        ready = [] if self.stale else [each.server for each in self.replicas if each.is_ready]
        return ready or [each.server for each in self.replicas if each.server.up]

    def _reviewer(self) -> Server | None:
        return next((each.admission for each in self.replicas if each.is_ready), None)

    def _checker(self) -> Server | None:
        """Return one of the replicas, of which all check new pods."""
        running = [each.admission for each in self.replicas if each.admission.up]
        return self._checkers.one_of(running) if running else None


def _eager_queue(features: frozenset[str]) -> SchedulingQueue:
    """Return a queue that tries refused pods again and again. It never tries groups twice within half a second."""
    if "PodGroups" in features:
        return SchedulingQueue(first=0.6, longest=1.0, forgotten=1.0)
    return SchedulingQueue(first=0.1, longest=0.4, forgotten=0.5)


class _Service:
    """Connect the scheduler to the extenders, and to the same one while it responds."""

    def __init__(self, world: World, process: Process, endpoints: Callable[[], list[Server]], chance: Chance) -> None:
        self._world = world
        self._process = process
        self._endpoints = endpoints
        self._chance = chance
        self._last: Server | None = None

    async def post(self, verb: str, args: dict[str, Any]) -> bytes:
        if not (servers := self._endpoints()):
            await asyncio.sleep(0.01)
            raise ExtenderFailed("no endpoint")
        server = self._last if self._last in servers else self._chance.one_of(servers)
        client = Client(self._world.network, self._process, server, patience=HTTP_TIMEOUT)
        self._last = None
        if verb == "filter":
            self._world.laws.pod_groups.asked(args["Pod"])
        try:
            sent = msgspec.json.encode(args)
            status, body = await client.exchange("POST", f"/scheduler/{verb}", sent, "application/json")
        except API_FAILURES as failure:
            raise ExtenderFailed(f"{server.name}: {type(failure).__name__} {failure}") from None
        if status != 200:
            raise ExtenderFailed(f"{server.name}: status {status}")
        if verb == "filter":
            self._world.check(
                self._world.laws.pod_groups.answered, args["Pod"], args["NodeNames"], msgspec.json.decode(body)
            )
        if verb == "prioritize" or not msgspec.json.decode(body).get("Error"):
            self._last = server
            if verb == "bind":
                self._world.trace("scheduler", f"{args['PodName']}: bound to {args['Node']}")
        return body
