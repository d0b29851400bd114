"""The parts that decide, wired as the extender wires them, with a `Cluster` in place of an API server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gas.extender.bind import Binder, BindPod, GetPod
from gas.extender.expected_binds import ExpectedBinds
from gas.extender.filter import Filter
from gas.extender.metrics import Metrics
from gas.extender.nodes import Nodes
from gas.extender.pods import Pods
from gas.extender.refusals import PodRefusal, Refusals
from gas.extender.verdicts import Verdicts
from gas.ledger import Ledger
from gas.objects import Node, Pod
from gas.placement.place import DEFAULT_STEP_LIMIT
from tests.extender.cluster import Cluster


class Decider:
    """Filter and bind with their books. Nothing is known until a test tells `nodes` and `pods`.

    bind_pod, get_pod  may be replaced by a test
    not_ready  the sentence that keeps it from answering
    told       (pod, refusal) of pods that were refused for a reason that only books per card see
    released   names of nodes whose cards became free
    troubles   (pod, sentence)
    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        balanced: str | None = None,
        lists: bool = True,
        patience: float = 0.0,
        write_timeout: float | None = None,
    ) -> None:
        self.cluster = cluster or Cluster()
        self.bind_pod: BindPod = self.cluster.bind_pod
        self.get_pod: GetPod = self.cluster.get_pod
        self.not_ready: str | None = None
        self.told: list[tuple[str, PodRefusal]] = []
        self.released: list[str] = []
        self.troubles: list[tuple[str, str]] = []
        self.metrics = Metrics("1")
        self.refusals = Refusals()
        self.expected_binds = ExpectedBinds(patience=patience)
        self.ledger = Ledger(on_change=self._changed)
        self.nodes = Nodes(on_change=self._changed)
        self.pods = Pods(
            self.ledger,
            on_release=self.released.append,
            on_gone=self.refusals.drop,
            on_correction=lambda _pod: self.metrics.corrections.inc(),
            on_trouble=lambda pod, sentence: self.troubles.append((pod.key, sentence)),
        )
        self.verdicts = Verdicts(self.nodes, self.ledger, balanced=balanced, step_limit=DEFAULT_STEP_LIMIT)
        self.filter = Filter(
            self.verdicts,
            self.ledger,
            self.refusals,
            self.expected_binds,
            self.metrics,
            nodes=self.nodes,
            allowlist=lists,
            denylist=lists,
            why_not_ready=lambda: self.not_ready,
            on_refused=lambda pod, refusal: self.told.append((pod.key, refusal)),
        )
        self.binder = Binder(
            self.verdicts,
            self.ledger,
            self.pods,
            self.refusals,
            self.expected_binds,
            metrics=self.metrics,
            allowlist=lists,
            denylist=lists,
            bind_pod=self._bind_pod,
            get_pod=self._get_pod,
            why_not_ready=lambda: self.not_ready,
            on_release=self.released.append,
            write_timeout=write_timeout,
            settle_pause=0.0,
        )

    async def _bind_pod(
        self, *, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        await self.bind_pod(namespace=namespace, name=name, uid=uid, node=node, annotations=annotations)

    async def _get_pod(self, namespace: str, name: str) -> Pod | None:
        return await self.get_pod(namespace, name)

    def _changed(self, node: str) -> None:
        self.verdicts.forget(node)

    def see(self, event: str, pod: Pod) -> None:
        """What a watch does with an event."""
        if event == "DELETED":
            self.pods.deleted(pod)
        else:
            self.pods.changed(pod)

    def follow(self, nodes: Iterable[Node]) -> None:
        """List the cluster, and hear of all changes at once from now on."""
        self.nodes.replaced(list(nodes))
        self.pods.replaced(self.cluster.all())
        self.cluster.on_change = self.see

    async def ask(self, pod: Mapping[str, Any], *names: str) -> dict[str, Any]:
        """Filter these nodes, as kube-scheduler with ``nodeCacheCapable`` asks."""
        return await self.ask_raw({"Pod": pod, "Nodes": None, "NodeNames": list(names)})

    async def ask_whole(self, pod: Mapping[str, Any], *nodes: Mapping[str, Any]) -> dict[str, Any]:
        """Filter whole nodes, as an autoscaler asks."""
        return await self.ask_raw({"Pod": pod, "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None})

    async def ask_raw(self, args: object) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self.filter(json.dumps(args).encode()))
        return answer

    async def bind(self, pod: Mapping[str, Any], node: str, **changed: str) -> str:
        """Bind as kube-scheduler asks; the answer's ``Error``. ``changed`` takes the place of what is asked."""
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

    def books(self) -> dict[str, Any]:
        """Every booking, comparable."""
        return dict(self.ledger.bookings())


def as_pod(pod: Mapping[str, Any]) -> Pod:
    return msgspec.convert(dict(pod), Pod)


def booked_cards(decider: Decider, uid: str) -> str:
    """``"card0,card1 on node-1, held"``, or ``"nothing"``."""
    booking = decider.ledger.booking(uid)
    if booking is None:
        return "nothing"
    return f"{','.join(map(str, booking.footprint.amounts))} on {booking.node}, {booking.state.value}"
