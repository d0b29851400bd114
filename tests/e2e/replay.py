"""A history of the simulation on the real control plane: the same acts of the outside world, and the same laws."""

from __future__ import annotations

import asyncio
import http.client
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, cast

import aiohttp

from sandbox.api.client import ApiClient, Mirror, Object, RefusedByApi
from sandbox.api.kinds import NODES, PODS, is_over
from sandbox.api.patches import MERGE_PATCH
from sandbox.api.storage import Storage
from sandbox.kubelet.containers import RUN_SECONDS, Containers
from sandbox.kubelet.device_manager import DeviceManager, DeviceState
from sandbox.kubelet.sync_loop import SyncLoop
from simulation import objects
from simulation.chance import Chance
from simulation.kubelet import pace_by
from simulation.laws import Laws
from simulation.observed import LawBroken
from simulation.plan import REPLICAS, Plan, Step
from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.ports import free_port
from tests.e2e.programs import Program
from tests.e2e.service import Forwarder
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import BIND, component_webhooks, register, unregister

PACE = 0.25
"""Seconds of a replay for each second of a plan. The time-outs of the programs stay, so pauses are not shortened."""

LONGEST_PAUSE = 20.0
"""Seconds. A Lease expires after 15."""

SETTLE = 150.0
"""Seconds after the last act in which the laws of a quiet cluster must come to hold. kube-scheduler waits up to 10 s
before it tries a pod again, and a busy machine needs several times as long as a free one."""

DECIDED_AT = "gas-ts"
"""Annotation of a Binding that the extender has decided, also of one that it has reviewed."""

FAULTS = {
    "kill_extender",
    "kill_now",
    "stop_extender",
    "pause_extender",
    "api_outage",
    "lose_history",
    "restart_scheduler",
    "restart_kubelet",
    "change_cards",
    "remove_node",
}
"""Acts that are faults and can be carried out here."""

_WORKLOADS = "/api/v1/namespaces/default/pods"
_NODES = "/api/v1/nodes"


class KubeletClient(ApiClient):
    """Write the statuses of pods so that none that has ended runs again, however late a write of a killed kubelet is.

    Kubelet never lets one run again, but the simulated one may: its containers end with it.
    """

    async def patch(self, path: str, value: Object, content_type: str = MERGE_PATCH) -> Object:
        while True:
            now = await self.get(path)
            if is_over(now) or now["metadata"]["uid"] != value["metadata"]["uid"]:
                return now
            at_this_version = {**value["metadata"], "resourceVersion": now["metadata"]["resourceVersion"]}
            try:
                return await super().patch(path, {**value, "metadata": at_this_version}, content_type)
            except RefusedByApi as refused:
                if refused.code != 409:
                    raise


class Replay:
    """Carry out a plan. `run` raises LawBroken as soon as a law is broken.

    The laws follow what a watch of the pods shows. Acts of the network and of clocks cannot be carried out here.

    figures   what happened
    left_out  by name of the act, how many were not carried out
    by_hand   UIDs of the pods of which another client has sent a Binding
    """

    def __init__(self, cluster: Cluster, plan: Plan, *flags: str) -> None:
        self.figures: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self._cluster = cluster
        self._plan = plan
        self._flags = flags
        self._storage = Storage()
        self._laws = Laws(self._storage)
        self.by_hand: set[str] = set()
        self._extenders: dict[str, Extender] = {}
        self._kubelets: dict[str, asyncio.Task[None]] = {}
        self._paused: set[str] = set()
        self._scheduler_is_stopped = False
        self._later: set[asyncio.Task[None]] = set()
        self._api: ApiClient
        self._of_kubelets: ApiClient
        self._tasks: asyncio.TaskGroup

    def run(self) -> None:
        """Start the extenders, carry out the plan, and wait until the cluster is quiet. Raises LawBroken."""
        with self._programs():
            try:
                asyncio.run(self._history())
            except* LawBroken as broken:
                raise broken.exceptions[0] from None
        for name, extender in self._extenders.items():
            if "Traceback (most recent call last)" in extender.program.log.read_text(errors="replace"):
                raise LawBroken("no exception at the top", f"{name}: {extender.program.log_tail(60)}")

    @contextmanager
    def _programs(self) -> Iterator[None]:
        cluster = self._cluster
        cluster.restart_scheduler(ignorable=False)
        ports = {name: free_port() for name in REPLICAS}
        with ExitStack() as stack:
            for name, port in ports.items():
                flags = ["--leader-elect", *self._flags, *([f"--admission-port={port}"] if self._plan.webhooks else [])]
                self._extenders[name] = cluster.extender(name, *flags, account=cluster.full_account)
                self._extenders[name].program.log.unlink(missing_ok=True)
                self._extenders[name].start()
            if self._plan.webhooks:
                front = free_port()
                stack.callback(Forwarder("127.0.0.1", front, *ports.values()).close)
                register(cluster.api, component_webhooks(BIND), front, cluster.authority.certificate)
                stack.callback(unregister, cluster.api)
            wait_for("a replica leads", lambda: any(map(_is_ready, self._extenders.values())), seconds=120)
            yield

    async def _history(self) -> None:
        api = self._cluster.api
        async with (
            ApiClient(api.url, token=api.token, authority=api.authority) as self._api,
            KubeletClient(api.url, token=api.token, authority=api.authority) as self._of_kubelets,
            asyncio.TaskGroup() as self._tasks,
        ):
            background = [self._tasks.create_task(work) for work in self._background()]
            for index, cards in enumerate(self._plan.nodes):
                await self._put_node(objects.node(f"n{index}", cards))
                self._start_kubelet(f"n{index}")
            await self._carry_out()
            for task in (*background, *self._kubelets.values()):
                task.cancel()

    def _background(self) -> tuple[Coroutine[Any, Any, None], ...]:
        self._mirror = Mirror(self._api, _WORKLOADS, self.seen)
        return self._mirror.run(), self._watch_leaders(), self._keep_scheduler()

    async def _carry_out(self) -> None:
        await self._mirror.complete.wait()
        start = asyncio.get_running_loop().time()
        for step in self._plan.steps:
            await asyncio.sleep(start + PACE * step.at - asyncio.get_running_loop().time())
            await self._take(step)
        await self._settle()

    # The laws

    def seen(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        """Take in one change of a pod, and check the laws. Raises LawBroken."""
        pod = after or before
        if pod is None:
            return
        metadata = pod["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        if before is not None and is_over(before) and not is_over(pod):
            raise LawBroken("ends", f"pod {metadata['name']} had ended, and runs again")
        if after is not None:
            self._storage.put(PODS.plural, key, after)
        elif self._storage.get(PODS.plural, key) is not None:
            self._storage.remove(PODS.plural, key)
        decided = DECIDED_AT in (metadata.get("annotations") or {})
        self._laws.check_writes("user" if metadata["uid"] in self.by_hand and not decided else "extender")

    async def _watch_leaders(self) -> None:
        """Find two replicas that are ready at the same time. Raises LawBroken."""
        one, other = self._extenders.values()
        while True:
            if all([await asyncio.to_thread(_is_ready, each) for each in (one, other, one)]):
                raise LawBroken("one leader", "both replicas were ready at the same time")
            await asyncio.sleep(0.25)

    async def _keep_scheduler(self) -> None:
        """Start kube-scheduler again if it ends by itself, as kubelet does.

        Release 1.37.1 ends itself ("Scheduler cache is corrupted") if a pod is replaced while its watches are broken.
        """
        while True:
            await asyncio.sleep(1.0)
            if not self._scheduler_is_stopped and not self._cluster.scheduler.program.is_running:
                self.figures["ends of kube-scheduler by itself"] += 1
                self._start_scheduler()

    async def _settle(self) -> None:
        """Finish the acts, and wait until the laws of a quiet cluster hold. Raises LawBroken if they do not come to."""
        while self._later:
            await asyncio.wait(self._later)
        end = asyncio.get_running_loop().time() + SETTLE
        while True:
            try:
                await self._check_quiet()
            except LawBroken:
                if asyncio.get_running_loop().time() > end:
                    raise
            else:
                break
            await asyncio.sleep(1.0)
        self.figures["bindings with cards"] = self._laws.bindings

    async def _check_quiet(self) -> None:
        self._laws.check_bound()
        if not any([await asyncio.to_thread(_is_ready, each) for each in self._extenders.values()]):
            raise LawBroken("progress", "no replica decides")
        for name, extender in self._extenders.items():
            try:
                pods = (await asyncio.to_thread(extender.books))["pods"]
            except (OSError, http.client.HTTPException) as error:
                raise LawBroken("progress", f"{name} does not respond: {error!r}") from error
            cards = {uid: {card: held["amounts"] for card, held in pod["cards"].items()} for uid, pod in pods.items()}
            self._laws.check_books(name, {uid: (pod["node"], cards[uid]) for uid, pod in pods.items()})

    # The acts

    async def _take(self, step: Step) -> None:
        act: Callable[..., Awaitable[None]] | None = getattr(self, step.act, None)
        if act is None:
            self.left_out[step.act] += 1
            return
        self.figures["acts"] += 1
        await self._insist(partial(act, *step.args))

    async def _insist(self, send: Callable[[], Awaitable[Any]]) -> None:
        """Send requests, again while the API server is away. A refusal is an outcome like others."""
        while True:
            try:
                await send()
            except RefusedByApi as refused:
                if refused.code not in (429, 500, 503):
                    self.figures["refused acts"] += 1
                    return
            except (aiohttp.ClientError, TimeoutError):
                pass
            else:
                return
            await asyncio.sleep(0.5)

    def _do_later(self, seconds: float, action: Callable[[], Awaitable[None]]) -> None:
        async def wait_and_act() -> None:
            await asyncio.sleep(seconds)
            await self._insist(action)

        task = self._tasks.create_task(wait_and_act())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def create_pod(
        self, name: str, containers: list[dict[str, int]], init: list[dict[str, int]], run: float | None
    ) -> None:
        fields = {"annotations": {RUN_SECONDS: str(run * PACE)}} if run is not None else {}
        await self._api.post(_WORKLOADS, objects.pod(name, containers, init, fields))
        self.figures["pods"] += 1

    async def delete_pod(self, name: str, at_once: bool) -> None:
        await self._api.delete(f"{_WORKLOADS}/{name}", {"gracePeriodSeconds": 0} if at_once else {})

    async def touch_pod(self, name: str) -> None:
        await self._annotate(name, {"example.com/touched": str(self.figures["acts"])})

    async def edit_pod(self, name: str) -> None:
        metadata: dict[str, str] = {}
        while True:
            pod = await self._api.get(f"{_WORKLOADS}/{name}")
            if pod["spec"].get("nodeName"):
                self._laws.edit(pod["metadata"]["uid"])
            metadata = {"resourceVersion": pod["metadata"]["resourceVersion"]}
            try:
                await self._annotate(name, {objects.CARDS: "card0"}, **metadata)
            except RefusedByApi as refused:
                if refused.code != 409:
                    raise
            else:
                return

    async def create_for_others(self, name: str, containers: list[dict[str, int]], node: str, attempts: int) -> None:
        pod = objects.pod(name, containers, [], {})
        pod["spec"]["schedulerName"] = objects.OTHER_SCHEDULER
        await self._api.post(_WORKLOADS, pod)
        self.figures["pods"] += 1
        self._do_later(0.05, partial(self.bind_by_hand, name, node, attempts))

    async def bind_by_hand(self, name: str, node: str, attempts: int = 1) -> None:
        self.by_hand.add((await self._api.get(f"{_WORKLOADS}/{name}"))["metadata"]["uid"])
        try:
            target = {"kind": "Node", "name": node}
            await self._api.post(f"{_WORKLOADS}/{name}/binding", {"metadata": {"name": name}, "target": target})
        except RefusedByApi:
            if attempts > 1:
                self._do_later(1.5, partial(self.bind_by_hand, name, node, attempts - 1))
            else:
                raise

    async def _annotate(self, name: str, annotations: dict[str, str], **metadata: str) -> None:
        await self._api.patch(f"{_WORKLOADS}/{name}", {"metadata": {"annotations": annotations, **metadata}})

    def _extender(self, name: str) -> Extender:
        """Return a replica by its name, or the one that leads or does not lead now."""
        if name in self._extenders:
            return self._extenders[name]
        by_readiness = sorted(self._extenders.values(), key=_is_ready)
        return by_readiness[-1] if name == "leader" else by_readiness[0]

    async def kill_extender(self, name: str, *more: Any) -> None:
        extender = self._extender(name)
        extender.program.kill()
        self.figures["SIGKILLs"] += 1
        self._do_later(more[-1] * PACE, _as_act(self._start_again, extender))

    kill_now = kill_extender

    async def stop_extender(self, name: str, away: float) -> None:
        extender = self._extender(name)
        if extender.program.is_running and extender.program.name not in self._paused:
            self.figures["SIGTERMs"] += 1
            await asyncio.to_thread(extender.program.terminate)
            self._do_later(away * PACE, _as_act(self._start_again, extender))

    def _start_again(self, extender: Extender) -> None:
        if not extender.program.is_running:
            self._paused.discard(extender.program.name)
            extender.start()

    async def pause_extender(self, name: str, seconds: float) -> None:
        program = self._extender(name).program
        if program.is_running and program.name not in self._paused:
            self._paused.add(program.name)
            program.pause()
            self.figures["SIGSTOPs"] += 1
            self._do_later(min(seconds, LONGEST_PAUSE), _as_act(self._resume, program))

    def _resume(self, program: Program) -> None:
        if program.name in self._paused and program.is_running:
            program.resume()
        self._paused.discard(program.name)

    async def api_outage(self, seconds: float) -> None:
        await self._stop_api_server(seconds, compact=False)

    async def lose_history(self, _client: str, seconds: float) -> None:
        await self._stop_api_server(seconds, compact=True)

    async def _stop_api_server(self, seconds: float, *, compact: bool) -> None:
        plane = self._cluster.control_plane
        if not plane.api_server.is_running:
            return
        plane.stop_api_server()
        self.figures["API server restarts"] += 1
        if compact:
            plane.compact()
        self._do_later(seconds * PACE, _as_act(plane.start_api_server))

    async def compact(self) -> None:
        self._cluster.control_plane.compact()

    async def restart_scheduler(self, away: float) -> None:
        self._scheduler_is_stopped = True
        self._cluster.scheduler.stop()
        self.figures["restarts of kube-scheduler"] += 1
        self._do_later(away * PACE, _as_act(self._start_scheduler))

    def _start_scheduler(self) -> None:
        self._scheduler_is_stopped = False
        if not self._cluster.scheduler.program.is_running:
            self._cluster.scheduler.start(ignorable=False)

    async def restart_kubelet(self, node: str, away: float) -> None:
        self._kubelets[node].cancel()
        self._do_later(away * PACE, _as_act(self._start_kubelet, node))

    def _start_kubelet(self, node: str) -> None:
        chance = Chance(self._plan.seed, f"kubelet {node} {self.figures['acts']}")
        if (before := self._kubelets.get(node)) is not None:
            before.cancel()  # also one that a restart during this one has started
        devices = DeviceManager(DeviceState(), cast(Any, None), in_any_order=chance.in_any_order)  # without plugins
        kubelet = SyncLoop(self._of_kubelets, node, devices, containers=Containers(), pace=pace_by(chance))
        self._kubelets[node] = self._tasks.create_task(kubelet.run())

    async def change_cards(self, node: str, count: int, seconds: float) -> None:
        before = self._plan.nodes[int(node[1:])]
        await self._set_cards(node, tuple(range(count)))
        self._do_later(seconds * PACE, partial(self._set_cards, node, before))

    async def _set_cards(self, node: str, cards: tuple[int, ...]) -> None:
        amounts = objects.card_amounts(cards)
        now = objects.node(node, cards)
        self.node_becomes(now)
        status = {"capacity": amounts, "allocatable": amounts}
        metadata = {part: now["metadata"][part] for part in ("labels", "annotations")}
        await self._api.patch(f"{_NODES}/{node}/status", {"metadata": metadata, "status": status})

    async def remove_node(self, node: str, seconds: float) -> None:
        await self._api.delete(f"{_NODES}/{node}")
        if self._storage.get(NODES.plural, node) is not None:
            self._storage.remove(NODES.plural, node)
        self._do_later(seconds * PACE, partial(self._put_node, objects.node(node, self._plan.nodes[int(node[1:])])))

    async def relabel_node(self, node: str) -> None:
        await self._api.patch(f"{_NODES}/{node}", {"metadata": {"labels": {"example.com/zone": "z"}}})

    async def _put_node(self, node: dict[str, Any]) -> None:
        self.node_becomes(node)
        await self._api.post(_NODES, node)

    def node_becomes(self, node: dict[str, Any]) -> None:
        """Tell the laws of a node before it is written, so that no pod is seen on cards of which they do not know."""
        self._storage.put(NODES.plural, node["metadata"]["name"], node)


def _as_act(action: Callable[..., None], *args: Any) -> Callable[[], Awaitable[None]]:
    async def act() -> None:
        action(*args)

    return act


def _is_ready(extender: Extender) -> bool:
    return extender.program.is_running and extender.is_ready()
