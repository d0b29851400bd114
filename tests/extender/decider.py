"""A decider with both verbs, wired as the extender wires them, with a `Cluster` in place of an API server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from gas.extender.bind import Binder, BindPod
from gas.extender.bookings import Move
from gas.extender.decider import Decider, Options
from gas.extender.decisions import PodRefusal
from gas.extender.filter import Filter, PendingBinds
from gas.extender.hooks import Change, Corrected, Mismatch, Observer, Problem
from gas.extender.late_bindings import ChangeVersion, GetPod, PodRequests, Settler
from gas.extender.metrics import Metrics
from gas.objects.stored import Node, Pod
from gas.placement.order import DEFAULT_ORDER, CardOrder
from gas.vocabularies.known import DEFAULT
from gas.vocabularies.protocol import NeedOptions
from tests.extender.cluster import Cluster
from tests.listed import list_all

OPTIONS = Options(vocabularies=DEFAULT)


class Recorder(Observer):
    """Keep what the decider reports.

    freed       names of nodes on which cards may have become free
    mismatches  (pod, sentence)
    corrected   pods whose bookings follow a receipt
    moves       all events of pods' cards
    """

    def __init__(self) -> None:
        self.freed: list[str] = []
        self.mismatches: list[tuple[str, str]] = []
        self.corrected: list[str] = []
        self.moves: list[Move] = []

    def node_changed(self, node: str, change: Change) -> None:
        if Change.FREED in change:
            self.freed.append(node)

    def moved(self, move: Move) -> None:
        self.moves.append(move)

    def found(self, problem: Problem) -> None:
        match problem:
            case Corrected(pod):
                self.corrected.append(pod.key)
            case Mismatch(pod, sentence):
                self.mismatches.append((pod.key, sentence))


def following(
    nodes: Iterable[Mapping[str, Any]], *pods: Mapping[str, Any], options: Options = OPTIONS
) -> DrivenDecider:
    """Return a decider that knows these nodes and pods."""
    decider = DrivenDecider(options=options)
    for each in pods:
        decider.cluster.add(each)
    decider.follow([msgspec.convert(dict(each), Node) for each in nodes])
    return decider


class DrivenDecider(Decider):
    """A decider that a test drives through its verbs. It knows nothing until a test feeds `nodes` and `pods`.

    bind_pod, get_pod, change_version  may be replaced by a test
    not_ready  the sentence that keeps the verbs from deciding
    refused    (pod, refusal) of pods that no node had room for
    reports    see `Recorder`
    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        card_order: CardOrder = DEFAULT_ORDER,
        lists: bool = True,
        options: Options | None = None,
        patience: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reports = Recorder()
        need = NeedOptions(allowlist=lists, denylist=lists, card_order=card_order)
        super().__init__(options or Options(vocabularies=DEFAULT, need=need), self.reports)
        self.cluster = cluster or Cluster()
        self.bind_pod: BindPod = self.cluster.bind_pod
        self.get_pod: GetPod = self.cluster.get_pod
        self.change_version: ChangeVersion = self.cluster.change_version
        self.not_ready: str | None = None
        self.refused: list[tuple[str, PodRefusal]] = []
        self.metrics = Metrics("1")
        self.pending_binds = PendingBinds(patience=patience)
        self.filter_verb = Filter(
            self,
            self.pending_binds,
            self.metrics,
            why_not_ready=lambda: self.not_ready,
            on_refused=lambda pod, refusal: self.refused.append((pod.key, refusal)),
        )
        self.settler = Settler(
            self.bookings, self.pods, PodRequests(self._get_pod, self._change_version, clock), retry_pause=0.0
        )
        self.binder = Binder(
            self,
            self.pending_binds,
            self.metrics,
            bind_pod=self._bind_pod,
            settler=self.settler,
            why_not_ready=lambda: self.not_ready,
            settle_patience=0.5,
        )
        self.observers.add(self.pending_binds, self.settler)

    async def settle(self) -> None:
        """Wait until no bind and no reviewed Binding is in doubt."""
        await self.binder.finished()
        await self.settler.all_settled()

    async def _bind_pod(self, pod: Pod, node: str, annotations: Mapping[str, str]) -> None:
        await self.bind_pod(pod, node, annotations)

    async def _get_pod(self, namespace: str, name: str) -> Pod | None:
        return await self.get_pod(namespace, name)

    async def _change_version(self, namespace: str, name: str, uid: str) -> bool:
        return await self.change_version(namespace, name, uid)

    def list_pods(self, pods: list[Pod]) -> None:
        """Take in a complete list, as the watch does."""
        list_all(self.pod_handlers, pods)

    def see(self, event: str, pod: Pod) -> None:
        """Take in a watch event."""
        if event == "DELETED":
            self.pod_handlers.deleted(pod)
        else:
            self.pod_handlers.changed(pod)

    def follow(self, nodes: Iterable[Node]) -> None:
        """List the cluster, and take in all changes at once from now on."""
        list_all(self.nodes, list(nodes))
        self.list_pods(self.cluster.all())
        self.reports.freed.clear()
        self.cluster.on_change = self.see

    async def ask(self, pod: Mapping[str, Any], *names: str) -> dict[str, Any]:
        """Filter these nodes, as kube-scheduler with ``nodeCacheCapable`` asks."""
        return await self.ask_raw({"Pod": pod, "Nodes": None, "NodeNames": list(names)})

    async def ask_whole(self, pod: Mapping[str, Any], *nodes: Mapping[str, Any]) -> dict[str, Any]:
        """Filter whole nodes, as an autoscaler asks."""
        return await self.ask_raw({"Pod": pod, "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None})

    async def ask_raw(self, args: object) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self.filter_verb(json.dumps(args).encode()))
        return answer

    async def bind(self, pod: Mapping[str, Any], node: str, **changed: str) -> str:
        """Bind as kube-scheduler asks, with some fields changed, and return the response's ``Error``."""
        metadata = pod["metadata"]
        args = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        answer: dict[str, str] = json.loads(await self.binder(json.dumps(args | changed).encode()))
        return answer["Error"]

    def counted(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"gas_extender_{name}", labels) or 0.0

    def booked(self) -> dict[str, Any]:
        """Return every booking by UID."""
        return dict(self.ledger.bookings())


def as_pod(pod: Mapping[str, Any]) -> Pod:
    return msgspec.convert(dict(pod), Pod)


def booked_cards(decider: DrivenDecider, uid: str) -> str:
    """Return what is booked for a pod: ``"card0,card1 on node-1, held"``, or ``"nothing"``."""
    booking = decider.ledger.booking(uid)
    if booking is None:
        return "nothing"
    return f"{','.join(map(str, booking.footprint.amounts))} on {booking.node}, {booking.state.value}"
