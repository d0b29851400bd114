"""Carry out the acts of a plan: what users do, and what fails. Steps of a plan name methods of `Acts`."""

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec

from sandbox.api.client import API_FAILURES, RefusedByApi
from sandbox.api.failure import ApiFailure
from sandbox.api.kinds import NODES, POD_GROUPS, PODS, SHAREPODS, Kind
from sandbox.api.patches import MERGE_PATCH
from sandbox.kubelet.containers import RUN_SECONDS
from simulation import objects
from simulation.loop import Process
from simulation.network import Client, Condition
from simulation.system import System


class Acts:
    def __init__(self, system: System) -> None:
        self._system = system
        self._world = world = system.world
        self._api = world.api
        self._network = world.network
        self._late = 0.0
        self._late_binding = (0.0, 0.0)
        self._pause = (0.0, 0.0)
        self._at_binding: list[str] = []
        self._at_receipt: list[str] = []
        self._spoilt_again: dict[str, str] = {}
        self._swapped = 0
        self._priorities = world.chance.stream("priorities")
        self._late_chance = world.chance.stream("late")

    # Called by the other parts

    def pause(self) -> float:
        """Return the seconds between the review of a Binding and its write."""
        return self._late_chance.between(*self._pause) if self._pause[1] else 0.0

    def lateness(self, method: str, path: str) -> float:
        if self._late_binding[1] and path.endswith("/binding"):
            return self._late_chance.between(*self._late_binding)
        return self._late_chance.between(0.0, self._late) if self._late and "/leases/" not in path else 0.0

    def before_write(self, client: str, namespace: str, name: str) -> None:
        """Let a user act at the worst time: right before a Binding or a receipt is written, or after a node is."""
        if again := not namespace and self._spoilt_again.pop(name, ""):
            self._world.later(0.001, self.spoil_node, name, again)
        planned = {"extender": self._at_binding, "plugin": self._at_receipt}.get(client.partition("-")[0])
        if not planned:
            return
        act = planned.pop()
        try:
            pod = self._api.api.get(PODS, namespace, name).value
            if act == "swap":
                self._world.trace("user", f"{name} is deleted and created again")
                self._api.api.delete(PODS, namespace, name, {"gracePeriodSeconds": 0})
                self._swapped += 1
                asks = [{"i915": 1}, {"i915": 1, "millicores": 700}] if self._swapped % 2 else [{"i915": 1}]
                self._api.api.create(PODS, namespace, objects.pod(name, asks, [], {}))
            elif act == "delete":
                self._world.trace("user", f"{name} is deleted")
                self._api.api.delete(PODS, namespace, name, {"gracePeriodSeconds": 0})
            elif not pod["spec"].get("nodeName"):
                node = sorted(each.key for each in self._api.storage.objects("nodes"))[-1]
                self._world.trace("user", f"{name} is bound to {node}")
                binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
                self._api.binds_now = "user"
                self._api.api.bind(namespace, name, binding)
        except ApiFailure as failure:
            self._world.trace("user", f"refused: {failure}")

    # What users do

    def _create(self, pod: dict[str, Any]) -> None:
        pod["metadata"] |= self._metadata(pod["metadata"]["name"])
        if priority := objects.annotations_of(pod).get(objects.PRIORITY):
            pod["spec"]["priority"] = int(priority)
        if group := objects.annotations_of(pod).get(objects.POD_GROUP):
            pod["spec"]["schedulingGroup"] = {"podGroupName": group}
        if node := objects.annotations_of(pod).get(objects.ONLY_NODE):
            pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        if self._world.plan.preemption:
            pod["spec"]["priority"] = self._priorities.one_of((0, 0, 0, 100, 1000))
        if "budgets" in self._world.plan.features:
            pod["metadata"]["labels"] = {"app": self._priorities.one_of(objects.APPS)}
        if self._world.plan.webhooks:
            self._world.start("user", lambda process: self._send(process, pod))
        else:
            self._api.api.create(PODS, pod["metadata"]["namespace"], pod)
            self._world.figures["pods"] += 1

    async def _send(self, process: Process, pod: dict[str, Any]) -> None:
        """Create a pod through the webhooks, as users do: try again if that fails, unless the pod exists."""
        client = Client(self._network, process, self._api.server)
        for _ in range(3):
            try:
                await client.post(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)
            except RefusedByApi as refusal:
                self._world.trace("user", f"pod refused: {refusal}")
                if refusal.code == 409:
                    return
            except (aiohttp.ClientError, TimeoutError) as error:
                self._world.trace("user", f"pod not created: {error!r}")
            else:
                self._world.figures["pods"] += 1
                return
            await asyncio.sleep(1.5)

    def create_pod(
        self,
        name: str,
        containers: list[dict[str, int]],
        init: list[dict[str, int]],
        run: float | None,
        annotations: dict[str, str] | None = None,
    ) -> None:
        self._create(objects.pod(name, containers, init, _running(run, annotations)))

    def create_copy(self, name: str, containers: list[dict[str, int]], annotations: dict[str, str]) -> None:
        """Create a pod with the annotations of another one."""
        self._create(objects.pod(name, containers, [], {"annotations": annotations}))

    def create_share(
        self, name: str, thousandths: float, memory: int, labels: dict[str, str], run: float | None
    ) -> None:
        complete = not self._world.plan.webhooks
        self._create(objects.share(name, thousandths, memory, labels, _running(run), complete=complete))

    def create_in_words(self, name: str, containers: list[dict[str, int]], run: float | None) -> None:
        """Create a pod with the resources of another system."""
        self._create(objects.pod(name, containers, [], _running(run), prefix=""))

    def create_sharepod(
        self, name: str, thousandths: float, memory: int, labels: dict[str, str], run: float | None, policy: str
    ) -> None:
        share = objects.share(name, thousandths, memory, labels, _running(run), complete=False)
        share["metadata"] |= self._metadata(name)
        share["spec"]["restartPolicy"] = policy
        self._api.api.create(SHAREPODS, share["metadata"]["namespace"], share)
        self._world.figures["SharePods"] += 1

    def create_pod_group(self, name: str, minimum: int) -> None:
        self._api.api.create(POD_GROUPS, "default", {"metadata": {"name": name}, **objects.pod_group(minimum)})

    def delete_sharepod(self, name: str) -> None:
        self._api.api.delete(SHAREPODS, *self._key(name), {})

    def evict_pod(self, name: str) -> None:
        """End a pod that runs as kubelet does under pressure. Its containers, which would run on, never end."""
        pod = self._api.api.get(PODS, *self._key(name)).value
        if pod["status"]["phase"] == "Running" and RUN_SECONDS not in objects.annotations_of(pod):
            status = {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]}
            patch = msgspec.json.encode({"status": status})
            self._api.api.patch(PODS, *self._key(name), (MERGE_PATCH, patch), "status")

    def delete_pod(self, name: str, at_once: bool) -> None:
        self._api.api.delete(PODS, *self._key(name), {"gracePeriodSeconds": 0} if at_once else {})

    def touch_pod(self, name: str) -> None:
        self._annotate(name, {"example.com/touched": str(self._world.loop.time())})

    def edit_pod(self, name: str) -> None:
        pod = self._api.api.get(PODS, *self._key(name)).value
        if pod["spec"].get("nodeName"):
            self._world.laws.edit(pod["metadata"]["uid"])
        self._annotate(name, {objects.CARDS: "card0"})

    def bind_by_hand(self, name: str, node: str, attempts: int = 1) -> None:
        self._world.start("user", lambda process: self._bind_by_hand(process, name, node, attempts))

    def create_for_others(self, name: str, containers: list[dict[str, int]], node: str, attempts: int) -> None:
        """Create a pod that another client binds, once its review is passed or without one."""
        pod = objects.pod(name, containers, [], {})
        pod["metadata"] |= self._metadata(name)
        pod["spec"]["schedulerName"] = objects.OTHER_SCHEDULER
        self._api.api.create(PODS, pod["metadata"]["namespace"], pod)
        self._world.figures["pods"] += 1
        self._world.later(0.05, self.bind_by_hand, name, node, attempts)

    async def _bind_by_hand(self, process: Process, name: str, node: str, attempts: int) -> None:
        client = Client(self._network, process, self._api.server, patience=40.0)
        namespace, name = self._key(name)
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        for _ in range(attempts):
            try:
                await client.post(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", binding)
            except API_FAILURES as error:
                self._world.trace("user", f"binding refused: {error}")
            else:
                return
            await asyncio.sleep(1.5)

    def _annotate(self, name: str, annotations: dict[str, str]) -> None:
        self._patch(PODS, *self._key(name), {"annotations": annotations})

    def _key(self, name: str) -> tuple[str, str]:
        """Return namespace and name of a pod of the plan. With several namespaces, two pods each share a name."""
        if "namespaces" not in self._world.plan.features or name[-1] not in "13579":
            return "default", name
        return objects.NAMESPACE, f"{name[:-1]}{int(name[-1]) - 1}"

    def _metadata(self, name: str) -> dict[str, str]:
        return dict(zip(("namespace", "name"), self._key(name), strict=True))

    def _patch(self, kind: Kind, namespace: str | None, name: str, metadata: dict[str, Any]) -> None:
        self._api.api.patch(kind, namespace, name, (MERGE_PATCH, msgspec.json.encode({"metadata": metadata})))

    # What fails

    def kill_extender(self, name: str, sends: int, before: bool, away: float) -> None:
        replica = self._system.replica(name)
        if replica.extender is not None:
            replica.kill_at_send = sends, before, away

    def kill_now(self, name: str, away: float) -> None:
        replica = self._system.replica(name)
        if replica.extender is not None:
            self._system.kill(replica, away)

    def stop_extender(self, name: str, away: float) -> None:
        replica = self._system.replica(name)
        if replica.extender is not None:
            self._world.trace("world", f"{replica.name} stops")
            process = replica.process
            replica.stop(
                lambda: self._system.kill(replica, away) if replica.process is process and process.alive else None
            )

    def pause_extender(self, name: str, seconds: float) -> None:
        replica = self._system.replica(name)
        if replica.process.alive and not replica.process.paused:
            self._world.figures["pauses"] += 1
            replica.process.paused = True
            self._world.later(seconds, self._world.loop.resume, replica.process)

    def api_outage(self, seconds: float) -> None:
        self._api.server.stop()  # webhook calls in progress go on
        self._world.later(seconds, setattr, self._api.server, "up", True)

    def forbid(self, user: str, seconds: float) -> None:
        self._api.forbidden.add(user)
        self._world.later(seconds, self._api.forbidden.discard, user)

    def throttle(self, seconds: float) -> None:
        self._api.throttled = True
        self._world.later(seconds, setattr, self._api, "throttled", False)

    def slow_lists(self, pause: float, seconds: float) -> None:
        """Let lists, and single objects that are read meanwhile, be ``pause`` seconds old when they arrive."""
        self._api.list_pause = pause
        self._world.later(seconds, setattr, self._api, "list_pause", 0.0)

    def compact(self) -> None:
        self._api.storage.compact()

    def lose_history(self, client: str, seconds: float) -> None:
        """Cut clients off, and drop the history in which they could see what they missed."""
        self.break_watches(client)
        self.condition({"clients": client, "servers": "api", "cut": 1.0}, seconds)
        self._world.later(seconds, self.compact)

    def isolate(self, name: str, seconds: float) -> None:
        """Cut a replica off the API server; the scheduler still reaches it."""
        client = self._system.replica(name).name
        self.break_watches(client)
        self.condition({"clients": client, "servers": "api", "cut": 1.0}, seconds)

    def condition(self, fields: dict[str, Any], seconds: float) -> None:
        if fields.get("clients") in ("leader", "standby"):
            fields = {**fields, "clients": self._system.replica(fields["clients"]).name}
        condition = Condition(**fields)
        self._network.conditions.append(condition)
        self._world.later(seconds, self._network.conditions.remove, condition)

    def late_writes(self, most: float, seconds: float) -> None:
        self._late = most
        self._world.later(seconds, setattr, self, "_late", 0.0)

    def late_bindings(self, least: float, most: float, seconds: float) -> None:
        self._late_binding = least, most
        self._world.later(seconds, setattr, self, "_late_binding", (0.0, 0.0))

    def slow_reviews(self, least: float, most: float, seconds: float) -> None:
        """Let time pass between the review of another client's Binding and its write."""
        self._pause = least, most
        self._world.later(seconds, setattr, self, "_pause", (0.0, 0.0))

    def refuse_reviewed(self) -> None:
        """Let another webhook refuse the Bindings of other clients, after their review."""
        self._api.on_refused = lambda binding: self._world.check(self._world.laws.check_refused, binding)

    def act_at_binding(self, act: str, times: int) -> None:
        """Let a user act on the pods of the next Bindings right before they are written: swap, delete or bind."""
        self._at_binding = [act] * times

    def swap_at_receipt(self, times: int) -> None:
        """Let a user replace the pods of the next receipts right before these are written."""
        self._at_receipt = ["swap"] * times

    def stale_endpoints(self, seconds: float) -> None:
        """Let the scheduler's requests reach replicas that do not decide."""
        self._system.stale = True
        self._world.later(seconds, setattr, self._system, "stale", False)

    def jump_clock(self, name: str, seconds: float) -> None:
        self._system.replica(name).skew += seconds

    def break_watches(self, clients: str = "") -> None:
        """End the watches of the clients whose names begin with this text."""
        for exchange in list(self._api.server.open):
            if exchange.stream and exchange.client.name.startswith(clients):
                exchange.break_off()

    def delay_watches(self, name: str, delay: float, seconds: float) -> None:
        if not name.startswith("plugin"):
            name = self._system.replica(name).name
        self._network.watch_delays[name] = delay
        self._world.later(seconds, lambda: self._network.watch_delays.pop(name, None))

    def repeat_events(self, name: str, probability: float, seconds: float) -> None:
        self._network.repeats[name] = probability
        self._world.later(seconds, lambda: self._network.repeats.pop(name, None))

    def omit_bookmarks(self, name: str, seconds: float) -> None:
        self._network.no_bookmarks.add(name)
        self._world.later(seconds, self._network.no_bookmarks.discard, name)

    def restart_kubelet(self, node: str, away: float) -> None:
        if not self._system.kubelets[node].alive:
            return
        self._system.kubelets[node].kill()
        self._network.client_gone(self._system.kubelets[node])
        host = self._world.hosts[node]
        host.kubelet = host.server = None
        self._world.later(away, self._system.start_kubelet, node)

    def restart_plugin(self, node: str, away: float) -> None:
        if (plugin := self._system.plugins.get(node)) is not None:
            plugin.kill()
            self._world.later(away, self._start_plugin, node)

    def _start_plugin(self, node: str) -> None:
        if (plugin := self._world.hosts[node].plugin) is None or not plugin.alive:
            self._system.plugins[node].start()

    def restart_scheduler(self, away: float) -> None:
        self._system.scheduler.kill()
        self._network.client_gone(self._system.scheduler)
        self._world.later(away, self._start_scheduler)

    def _start_scheduler(self) -> None:
        if not self._system.scheduler.alive:
            self._system.start_scheduler()

    def change_cards(self, node: str, count: int, seconds: float) -> None:
        before = self._world.plan.nodes[int(node[1:])]
        self._set_cards(node, tuple(range(count)))
        self._world.later(seconds, self._set_cards, node, before)

    def _set_cards(self, node: str, cards: tuple[int, ...]) -> None:
        try:
            found = dict(self._api.api.get(NODES, None, node).value)
        except ApiFailure:
            return
        self._world.hosts[node].cards = cards
        now = objects.node(node, cards)
        merged = {
            field: (found["metadata"].get(field) or {}) | some
            for field, some in now["metadata"].items()
            if field != "name"
        }
        changed = {**found, "metadata": {**found["metadata"], **merged}, "status": now["status"]}
        del changed["metadata"]["resourceVersion"]
        self._api.api.update(NODES, None, node, changed, "status")

    def remove_node(self, node: str, seconds: float) -> None:
        self._api.api.delete(NODES, None, node, {})
        self._world.later(seconds, self._return_node, node)

    def _return_node(self, node: str) -> None:
        with suppress(ApiFailure):
            self._api.api.create(NODES, None, objects.node(node, self._world.plan.cards_at_first(node)))

    def spoil_node(self, node: str, what: str, again: str = "") -> None:
        """Replace what a device plugin has written on a node by what it would write without cards.

        ``again`` is replaced as soon as the plugin has repaired it, before it knows that it has.
        """
        self._spoilt_again[node] = again
        found, empty = self._api.api.get(NODES, None, node).value, objects.node(node, ())
        fields = {field: empty["metadata"][field] for field in ("labels", "annotations") if what in (field, "all")}
        status = {field: found["status"][field] | some for field, some in empty["status"].items()}
        patch = {"metadata": fields} | ({"status": status} if what in ("amounts", "all") else {})
        self._api.api.patch(NODES, None, node, (MERGE_PATCH, msgspec.json.encode(patch)), "status")

    def relabel_node(self, node: str) -> None:
        self.label_node(node, {"example.com/zone": f"z{int(self._world.loop.time())}"})

    def label_node(self, node: str, labels: dict[str, str | None]) -> None:
        self._patch(NODES, None, node, {"labels": labels})


def _running(seconds: float | None, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    found = {RUN_SECONDS: str(seconds)} if seconds is not None else {}
    found |= annotations or {}
    return {"annotations": found} if found else {}
