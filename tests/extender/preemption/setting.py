"""A cluster in memory on which pods of several priorities compete for cards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gas.extender.bookings import Event
from gas.extender.decider import CannotBind, Decider, Options
from gas.extender.hooks import FilterDecision
from gas.extender.preemption.preemption import Preemption
from gas.extender.preemption.wire import PreemptArgs, Proposal
from gas.extender.verdicts import at_once
from gas.extender.wire import BindingArgs, FilterArgs
from gas.objects.stored import DisruptionBudget, HostPod, Node, PreemptorPod
from gas.vocabularies.known import DEFAULT
from gas.vocabularies.protocol import NeedOptions
from tests.builders import container, node_json, pod_json

PREEMPTING = Options(
    vocabularies=DEFAULT,
    need=NeedOptions(allowlist=True, denylist=True),
)


def priority_pod(
    name: str, *containers: Mapping[str, Any], priority: int = 0, nominated: str = "", started: str = "", **fields: Any
) -> dict[str, Any]:
    """Return a pod as JSON, whose UID is its name; without containers it asks for one whole card."""
    sent = pod_json(*(containers or (container(i915=1),)), name=name, uid=name, **fields)
    sent["spec"]["priority"] = priority
    if nominated:
        sent["status"]["nominatedNodeName"] = nominated
    if started:
        sent["status"]["startTime"] = started
    return sent


def with_requests(sent: dict[str, Any], **requests: str | int) -> dict[str, Any]:
    """Add requests for CPU or memory to the first container of a pod."""
    sent["spec"]["containers"][0].setdefault("resources", {}).setdefault("requests", {}).update(requests)
    return sent


def budget(
    name: str, allowed: int, disrupted: Iterable[str] = (), namespace: str = "default", **labels: str
) -> DisruptionBudget:
    """Return a PodDisruptionBudget that covers pods with these labels."""
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {
                "disruptionsAllowed": allowed,
                "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z"),
            },
        },
        DisruptionBudget,
    )


class PreemptingCluster:
    """A decider that preempts, fed as its watches feed it.

    pods  every pod as it is now, by name
    """

    def __init__(self, options: Options = PREEMPTING, *, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.decider = Decider(options, clock=clock)
        self.preemption: Any = Preemption(self.decider)
        self.decider.add(self.preemption.hooks)
        self.pods: dict[str, dict[str, Any]] = {}

    def add_node(self, name: str = "n", *, cards: int = 2, cpu: str = "64", pods: str = "110", **fields: Any) -> None:
        sent = node_json(name, cards=cards, **fields)
        sent["status"]["allocatable"] |= {"cpu": cpu, "memory": "256Gi", "pods": pods}
        self.decider.node_handlers.changed(msgspec.convert(sent, Node))

    def see(self, sent: dict[str, Any]) -> None:
        """Take in a pod that is new or was updated."""
        self.pods[sent["metadata"]["name"]] = sent
        pod = msgspec.convert(sent, HostPod)
        if self.decider.must_see(pod):
            self.decider.pod_handlers.changed(pod)

    def bind(self, sent: dict[str, Any], node: str = "n") -> None:
        """Bind a pod and show it on its node. Raises CannotBind."""
        metadata = sent["metadata"]
        args = BindingArgs(metadata["name"], metadata["namespace"], metadata["uid"], node)
        annotations = self.decider.reserve(args, msgspec.convert(sent, HostPod), now=1.0)
        metadata.setdefault("annotations", {}).update(annotations)
        sent["spec"]["nodeName"] = node
        sent["status"]["phase"] = "Running"
        self.see(sent)

    def run(self, name: str, *containers: Mapping[str, Any], node: str = "n", **fields: Any) -> None:
        """Bind a new pod of this description."""
        self.bind(priority_pod(name, *containers, **fields), node)

    def label(self, name: str, **labels: str) -> None:
        """Set the labels of a pod."""
        self.pods[name]["metadata"]["labels"] = labels
        self.see(self.pods[name])

    def start_deleting(self, name: str) -> None:
        """Start the grace period of a pod."""
        sent = self.pods[name]
        sent["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.see(sent)

    def delete(self, name: str) -> None:
        pod = msgspec.convert(self.pods.pop(name), HostPod)
        if self.decider.must_see(pod):
            self.decider.pod_handlers.deleted(pod)

    def filter(self, sent: Mapping[str, Any], *names: str) -> FilterDecision:
        args = FilterArgs(msgspec.convert(dict(sent), HostPod), list(names) or ["n"], None)
        decision: FilterDecision = at_once(self.decider.filter(args, now=1.0))
        return decision

    def fits(self, sent: Mapping[str, Any], node: str = "n") -> bool:
        return list(self.filter(sent, node).passing) == [node]

    def preempt(
        self, sent: Mapping[str, Any], proposals: Mapping[str, Sequence[str]], *, violations: int = 0
    ) -> dict[str, Proposal]:
        """Return the victims by node for what kube-scheduler proposes."""
        proposed = {node: Proposal(tuple(uids), violations) for node, uids in proposals.items()}
        return dict(at_once(self.preemption.preempt(PreemptArgs(msgspec.convert(dict(sent), PreemptorPod), proposed))))

    def victims(self, sent: Mapping[str, Any], *proposed: str, node: str = "n") -> str:
        """Return the victims on one node: ``"a b"``, or ``"dropped"``."""
        found = self.preempt(sent, {node: proposed}).get(node)
        return "dropped" if found is None else " ".join(found.uids)

    def can_bind(self, sent: dict[str, Any], node: str = "n") -> bool:
        """Try a bind, and take it back."""
        metadata = sent["metadata"]
        args = BindingArgs(metadata["name"], metadata["namespace"], metadata["uid"], node)
        try:
            self.decider.reserve(args, msgspec.convert(sent, HostPod), now=1.0)
        except CannotBind:
            return False
        self.decider.bookings.report(metadata["uid"], Event.REFUSED)
        return True
