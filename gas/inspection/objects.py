"""Read nodes and pods with the rules that keep pods off nodes: selector, required affinity, taints and cordons.

kube-scheduler checks these rules before it asks the extender. Rules that depend on other pods are not modelled:
`not_checked` names those that a pod has.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from gas.objects.stored import (
    ContainerPort,
    DetailedContainer,
    DetailedNode,
    DetailedPod,
    DetailedPodSpec,
    ObjectMeta,
    RequiredPodTerms,
    Requirement,
    SpreadConstraint,
    StoredPart,
    Volume,
)


class NodeTaint(StoredPart, frozen=True):
    key: str = ""
    value: str | None = None
    effect: str = ""


class InspectedNodeSpec(StoredPart, frozen=True):
    taints: Sequence[NodeTaint] | None = None
    unschedulable: bool | None = None


class InspectedNode(DetailedNode, frozen=True):
    spec: InspectedNodeSpec = InspectedNodeSpec()


class _DeviceAttribute(StoredPart, frozen=True):
    string: str | None = None


class Device(StoredPart, frozen=True):
    name: str = ""
    attributes: dict[str, _DeviceAttribute] | None = None

    @property
    def texts(self) -> frozenset[str]:
        """All values of attributes that are texts, in lower case."""
        return frozenset(each.string.lower() for each in (self.attributes or {}).values() if each.string)


class _ResourceSliceSpec(StoredPart, frozen=True):
    driver: str = ""
    node_name: str | None = None
    devices: Sequence[Device] | None = None


class ResourceSlice(StoredPart, frozen=True):
    """A list of devices that a DRA driver publishes, mostly those of one node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _ResourceSliceSpec = _ResourceSliceSpec()


class Toleration(StoredPart, frozen=True):
    """A toleration. An absent key tolerates every key, an absent effect every effect."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSelectorTerm(StoredPart, frozen=True):
    match_expressions: Sequence[Requirement] | None = None
    match_fields: Sequence[Requirement] | None = None


class NodeSelector(StoredPart, frozen=True):
    node_selector_terms: Sequence[NodeSelectorTerm] | None = None


class RequiredNodes(StoredPart, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinity(StoredPart, frozen=True):
    node_affinity: RequiredNodes | None = None
    pod_affinity: RequiredPodTerms | None = None
    pod_anti_affinity: RequiredPodTerms | None = None


class InspectedContainer(DetailedContainer, frozen=True):
    ports: Sequence[ContainerPort] | None = None


class InspectedVolume(Volume, frozen=True):
    """A volume, with the sources of those that may be bound to some of the nodes."""

    persistent_volume_claim: Any = None
    ephemeral: Any = None
    csi: Any = None


class InspectedPodSpec(DetailedPodSpec, frozen=True):
    containers: Sequence[InspectedContainer] | None = None
    init_containers: Sequence[InspectedContainer] | None = None
    volumes: Sequence[InspectedVolume] | None = None
    host_network: bool | None = None
    restart_policy: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: PodAffinity | None = None
    tolerations: Sequence[Toleration] | None = None
    topology_spread_constraints: Sequence[SpreadConstraint] | None = None
    resource_claims: Sequence[Any] | None = None


class Owner(StoredPart, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


_HASHES = {"Deployment": "pod-template-hash", "Rollout": "rollouts-pod-template-hash"}
"""Kind of what owns a ReplicaSet -> the label of its pods with the end of the ReplicaSet's name."""


class InspectedPodMeta(ObjectMeta, frozen=True):
    owner_references: Sequence[Owner] | None = None


class InspectedPod(DetailedPod, frozen=True):
    """A pod with its owners and the rules that limit it to some of the nodes."""

    metadata: InspectedPodMeta = InspectedPodMeta()
    spec: InspectedPodSpec = InspectedPodSpec()

    @property
    def controller(self) -> Owner:
        """The object that creates the pod again when it is deleted; one without a kind if there is none."""
        return next((each for each in self.metadata.owner_references or () if each.controller), Owner())

    @property
    def owner(self) -> str:
        """The controller, ``Job/train``; for a ReplicaSet of a Deployment that one. Empty if there is none."""
        kind, name = self.controller.kind, self.controller.name
        for owner, label in _HASHES.items() if kind == "ReplicaSet" else ():
            if (of_owner := name.removesuffix(f"-{(self.metadata.labels or {}).get(label)}")) != name:
                return f"{owner}/{of_owner}"
        return f"{kind}/{name}" if kind else ""

    @property
    def ends(self) -> bool:
        """True if the pod ends by itself, or is about to."""
        return self.spec.restart_policy in ("Never", "OnFailure") or self.metadata.deletion_timestamp is not None

    def waits_for(self, old: "InspectedPod") -> bool:
        """Return whether a rolling update ends an old pod only when this one, which replaces it, runs."""
        one, other = self.controller, old.controller
        is_same = self.owner == old.owner and self.metadata.namespace == old.metadata.namespace
        return is_same and (one.kind == "DaemonSet" or (one.kind == "ReplicaSet" and one.name != other.name))


UNSCHEDULABLE = NodeTaint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint that Kubernetes gives a cordoned node."""

DEFAULT_SCHEDULER = "default-scheduler"  # the scheduler name that the API server gives a pod that names none
LONGEST_MESSAGE = 1000  # characters of a scheduler's message about a pod


def node_rules(pod: InspectedPod) -> bytes:
    """Return all of a pod that `exclusion` depends on, as one value, which pods of one template share."""
    return msgspec.json.encode((pod.spec.node_selector, pod.spec.affinity, pod.spec.tolerations), order="sorted")


def exclusion(pod: InspectedPod, node: InspectedNode) -> str:
    """Return a sentence about the node with the rule that keeps a pod off it; empty if none does."""
    spec = pod.spec
    if any(node.labels.get(key) != value for key, value in (spec.node_selector or {}).items()):
        return "the pod's node selector does not match the node"
    nodes = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    if nodes is not None and not any(_matches(term, node) for term in nodes.node_selector_terms or ()):
        return "the pod's required node affinity does not match the node"
    taints = [*(node.spec.taints or ())]
    if node.spec.unschedulable:
        taints.append(UNSCHEDULABLE)
    for taint in taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            _tolerates(each, taint) for each in spec.tolerations or ()
        ):
            if taint.key == UNSCHEDULABLE.key:
                return "the node is cordoned"
            return f"the pod does not tolerate the taint {taint.key}"
    return ""


def not_checked(pod: InspectedPod) -> tuple[str, ...]:
    """Name the rules of Kubernetes that may keep the pod off a node and are not modelled here."""
    found: list[str] = []
    affinity = pod.spec.affinity
    if affinity and affinity.pod_affinity and affinity.pod_affinity.required:
        found.append("pod affinity")
    if affinity and affinity.pod_anti_affinity and affinity.pod_anti_affinity.required:
        found.append("pod anti-affinity")
    if any(each.when_unsatisfiable == "DoNotSchedule" for each in pod.spec.topology_spread_constraints or ()):
        found.append("topology spread constraints")
    if any(each.persistent_volume_claim or each.ephemeral or each.csi for each in pod.spec.volumes or ()):
        found.append("volumes")
    if pod.spec.resource_claims:
        found.append("resource claims")
    ports = [
        port for each in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ())) for port in each.ports or ()
    ]
    if any(pod.spec.host_network or port.host_port for port in ports):
        found.append("host ports")
    return tuple(found)


def held_back(pod: InspectedPod) -> str:
    """Return a sentence about why no scheduler looks at a waiting pod; empty if one does."""
    if pod.metadata.deletion_timestamp:
        return "it is not scheduled any more, because it is being deleted"
    names = ", ".join(gate.name for gate in pod.spec.scheduling_gates or ())
    return f"it is scheduled only when its scheduling gates have been removed: {names}" if names else ""


def last_attempt(pod: InspectedPod) -> str:
    """Return a sentence about what its scheduler last wrote on a pod that waits; empty if kube-scheduler has yet to."""
    name, scheduled = pod.spec.scheduler_name or DEFAULT_SCHEDULER, pod.condition("PodScheduled")
    scheduler = "kube-scheduler" if name == DEFAULT_SCHEDULER else f"scheduler {name}"
    if scheduled is not None and scheduled.message:
        return f"the last attempt of {scheduler} failed: {' '.join(scheduled.message.split())[:LONGEST_MESSAGE]}"
    is_own = name != DEFAULT_SCHEDULER
    return f"{scheduler} has not reported on it yet; check that a scheduler of this name runs" if is_own else ""


def yet_to_come(pod: InspectedPod) -> str:
    """Return sentences about what a pod that has room waits for."""
    others = f"not looked at here: {', '.join(unchecked)}" if (unchecked := not_checked(pod)) else ""
    chosen = f" has chosen node {pod.nominated_node} for it, and" if pod.nominated_node else ""
    attempt = last_attempt(pod) or f"kube-scheduler{chosen} has yet to bind it"
    return held_back(pod) or "; ".join(filter(None, (attempt, others)))


def _matches(term: NodeSelectorTerm, node: InspectedNode) -> bool:
    """Return whether a term selects a node; an empty term selects none."""
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    return (
        bool(expressions or fields)
        and all(each.is_met(node.labels.get(each.key)) for each in expressions)
        and all(each.key == "metadata.name" and each.is_met(node.name) for each in fields)
    )


def _tolerates(toleration: Toleration, taint: NodeTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == (taint.value or "")
