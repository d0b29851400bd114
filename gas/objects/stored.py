"""The fields of Kubernetes objects that gas reads, as typed structs decoded straight from JSON.

A pod is modelled once, in several views: msgspec decodes only the fields that a struct names, so a program chooses the
smallest view that has what it reads.

Pod          for the extender, which watches every pod of the cluster, and for the device plugin
HostPod      for the extender while it also counts the CPU, memory and pod slots of nodes
AskedPod     for the extender, when a filter request names the pod
NewPod       for the extender, when the API server calls a webhook about a new pod
DetailedPod  for the doctor and kubectl gas, which also read how a pod is started and how it fares

Field names are Kubernetes' own, in snake case. A map or list is None where it is absent or ``null``, as Go's clients
write it. Amounts stay as they were written; `gas.values.amounts` parses them.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec

Quantity = str | int | float  # an amount as an object holds it: the API server writes texts, people often write numbers


class StoredPart(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """A part of a Kubernetes object."""


class ObjectMeta(StoredPart, frozen=True):
    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class ObjectId(msgspec.Struct, frozen=True, gc=False):
    """The name and the UID of an object."""

    name: str
    uid: str


class ResourceRequirements(StoredPart, frozen=True):
    requests: dict[str, Quantity] | None = None


class EnvVar(StoredPart, frozen=True):
    """An environment variable. ``value`` is also None where the value comes from elsewhere (``valueFrom``)."""

    name: str = ""
    value: str | None = None


HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"  # the variable that says how Intel's libraries number cards and tiles
VISIBLE_CARDS = "NVIDIA_VISIBLE_DEVICES"  # the variable that says which cards NVIDIA's runtime gives a container


class Container(StoredPart, frozen=True):
    """A container. ``restart_policy`` matters only where it is ``Always`` on an init container: a sidecar."""

    name: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    # only the variables above: an extender retains many pods, and pods have many variables
    env: Sequence[EnvVar] | None = None

    def __post_init__(self) -> None:
        if self.env is not None:
            kept = tuple(each for each in self.env if each.name in (HIERARCHY, VISIBLE_CARDS))
            msgspec.structs.force_setattr(self, "env", kept or None)

    def variable(self, name: str) -> str | None:
        """Return the value of a variable, None without one; the last one counts, as for the container's process."""
        return next((each.value for each in reversed(self.env or ()) if each.name == name), None)

    @property
    def is_privileged(self) -> bool:
        """True if a new container sees all devices of its node; False where only its requests were read."""
        return False

    @property
    def requests(self) -> dict[str, Quantity]:
        return (self.resources.requests if self.resources is not None else None) or {}


class SchedulingGate(StoredPart, frozen=True):
    name: str = ""


class SchedulingGroup(StoredPart, frozen=True):
    pod_group_name: str | None = None


class PodSpec(StoredPart, frozen=True):
    node_name: str | None = None
    priority: int | None = None
    containers: Sequence[Container] | None = None
    init_containers: Sequence[Container] | None = None
    scheduling_gates: Sequence[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None


SUSPENSIONS = ("Terminating", "Gated")  # why kube-scheduler may not look at a pod that has no node


class RequestMapping(StoredPart, frozen=True):
    resource_name: str = ""


class ExtendedResourceClaim(StoredPart, frozen=True):
    """The ResourceClaim that kube-scheduler made for extended resources of a pod, and which resources these are."""

    resource_claim_name: str = ""
    request_mappings: Sequence[RequestMapping] | None = None


class PodStatus(StoredPart, frozen=True):
    """A pod's status. Kubelet writes ``start_time`` once it has admitted or refused the pod."""

    phase: str | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    extended_resource_claim_status: ExtendedResourceClaim | None = None


class Pod(StoredPart, frozen=True):
    """The fields of a pod that placement and bookings depend on."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations or {}

    @property
    def uid(self) -> str:
        return self.metadata.uid or ""

    @property
    def key(self) -> str:
        """The pod's ``namespace/name``, for messages; the ledger is keyed by UID."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    @property
    def node_name(self) -> str:
        return self.spec.node_name or ""

    @property
    def priority(self) -> int:
        """The priority, 0 where it is absent: the API server writes it into every new pod."""
        return self.spec.priority or 0

    @property
    def nominated_node(self) -> str:
        """The node on which kube-scheduler makes room for the pod, or an empty text."""
        return (self.status.nominated_node_name if self.status is not None else None) or ""

    @property
    def claimed(self) -> frozenset[str]:
        """The extended resources that kubelet takes from a ResourceClaim, and not from a device plugin."""
        claim = self.status.extended_resource_claim_status if self.status is not None else None
        return frozenset() if claim is None else frozenset(each.resource_name for each in claim.request_mappings or ())

    @property
    def suspended(self) -> str:
        """Why kube-scheduler does not look at the pod, ``Terminating`` or ``Gated``; empty if it does."""
        terminating, gated = SUSPENSIONS
        if self.metadata.deletion_timestamp:
            return terminating
        return gated if self.spec.scheduling_gates else ""

    @property
    def is_mirror(self) -> bool:
        """True if kubelet shows a static pod by it, which runs whether it can be created or not."""
        return "kubernetes.io/config.mirror" in self.annotations

    @property
    def is_over(self) -> bool:
        """True if all containers have ended for good, so that the pod's cards are free."""
        return self.status is not None and self.status.phase in ("Succeeded", "Failed")


class Condition(StoredPart, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class ContainerStatus(StoredPart, frozen=True):
    """The requests of a container that its node has allocated and set, which differ from its spec during a resize."""

    name: str = ""
    allocated_resources: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None


class HostPodSpec(PodSpec, frozen=True):
    overhead: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None


class HostPodStatus(PodStatus, frozen=True):
    conditions: Sequence[Condition] | None = None
    container_statuses: Sequence[ContainerStatus] | None = None
    init_container_statuses: Sequence[ContainerStatus] | None = None
    allocated_resources: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None


class HostPod(Pod, frozen=True):
    """A pod with everything that its requests for CPU, memory and other resources of its node depend on."""

    spec: HostPodSpec = HostPodSpec()
    status: HostPodStatus | None = None


class NodeAffinity(StoredPart, frozen=True):
    required: msgspec.Raw = msgspec.field(
        default_factory=msgspec.Raw, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(StoredPart, frozen=True):
    node_affinity: NodeAffinity | None = None


class AskedPodSpec(HostPodSpec, frozen=True):
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None


class AskedPod(HostPod, frozen=True):
    """A pod in a filter request, with the rules that limit it to some of the nodes."""

    spec: AskedPodSpec = AskedPodSpec()

    @property
    def node_restriction(self) -> Hashable:
        """A value that is equal for pods that are limited to nodes in the same words; None if it is not limited."""
        selector, affinity = self.spec.node_selector, self.spec.affinity
        nodes = affinity.node_affinity if affinity is not None else None
        required = bytes(nodes.required) if nodes is not None else b""
        return (frozenset((selector or {}).items()), required) if selector or required not in (b"", b"null") else None


class NewResources(ResourceRequirements, frozen=True):
    limits: dict[str, Quantity] | None = None


def with_requests(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a container, or the spec of a pod, with its limits as requests where it states none, as a new pod has.

    An amount ``null`` is 0, as for the API server.
    """
    resources = container.get("resources") or {}
    limits, stated = (
        {name: 0 if amount is None else amount for name, amount in (resources.get(part) or {}).items()}
        for part in ("limits", "requests")
    )
    if not limits and not stated:
        return container
    return {
        **container,
        "resources": {**resources, **({"limits": limits} if limits else {}), "requests": {**limits, **stated}},
    }


class NewSecurityContext(StoredPart, frozen=True):
    privileged: bool | None = None


class NewContainer(Container, frozen=True):
    resources: NewResources | None = None
    security_context: NewSecurityContext | None = None

    @property
    def is_privileged(self) -> bool:
        return self.security_context is not None and bool(self.security_context.privileged)


class NewPodSpec(PodSpec, frozen=True):
    containers: Sequence[NewContainer] | None = None
    init_containers: Sequence[NewContainer] | None = None
    scheduler_name: str | None = None
    runtime_class_name: str | None = None
    affinity: dict[str, Any] | None = None
    node_selector: dict[str, str] | None = None


class NewPod(Pod, frozen=True):
    """A pod that is to be created, or the template of one, which may lack anything."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NewPodSpec = NewPodSpec()


class PodTemplate(StoredPart, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NewPodSpec = NewPodSpec()


class JobSpec(StoredPart, frozen=True):
    template: PodTemplate | None = None


class JobTemplate(StoredPart, frozen=True):
    spec: JobSpec = JobSpec()


class RollingUpdate(StoredPart, frozen=True):
    """How many pods may be missing or more than wanted; numbers, or percentages of ``replicas``."""

    max_unavailable: int | str | None = None
    max_surge: int | str | None = None


class UpdateStrategy(StoredPart, frozen=True):
    rolling_update: RollingUpdate | None = None


class WorkloadSpec(JobSpec, frozen=True):
    job_template: JobTemplate | None = None
    replicas: int | None = None
    strategy: UpdateStrategy | None = None
    update_strategy: UpdateStrategy | None = None


class Workload(StoredPart, frozen=True):
    """An object with a template of pods: a Deployment or the like, a Job, a CronJob or a PodTemplate."""

    spec: WorkloadSpec = WorkloadSpec()
    own_template: PodTemplate | None = msgspec.field(default=None, name="template")  # of a PodTemplate: it has no spec

    @property
    def template(self) -> PodTemplate | None:
        if self.own_template is not None:
            return self.own_template
        jobs = self.spec.job_template
        return self.spec.template if jobs is None else jobs.spec.template

    @property
    def adds_pods_first(self) -> bool:
        """True if an update ends an old pod only once a new one runs, because no pod may be missing."""
        strategy = self.spec.strategy or self.spec.update_strategy
        most = strategy.rolling_update.max_unavailable if strategy is not None and strategy.rolling_update else None
        if isinstance(most, str):  # a percentage, rounded down; the API server has filled in the default
            percent = most.removesuffix("%")
            replicas = 1 if self.spec.replicas is None else self.spec.replicas
            most = int(percent) * replicas // 100 if percent.isdecimal() and len(percent) <= 3 else None
        return most == 0


WORKLOADS = {
    "": ("replicationcontrollers", "podtemplates"),
    "apps": ("deployments", "statefulsets", "daemonsets", "replicasets"),
    "batch": ("jobs", "cronjobs"),
}
"""By API group, the resources that a `Workload` is one of."""


class ContainerPort(StoredPart, frozen=True):
    host_port: int | None = None


class PreemptorContainer(Container, frozen=True):
    ports: Sequence[ContainerPort] | None = None


class RequiredPodTerms(StoredPart, frozen=True):
    required: Sequence[Any] | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PreemptorAffinity(StoredPart, frozen=True):
    pod_anti_affinity: RequiredPodTerms | None = None


class SpreadConstraint(StoredPart, frozen=True):
    when_unsatisfiable: str = ""


class PreemptorPodSpec(HostPodSpec, frozen=True):
    containers: Sequence[PreemptorContainer] | None = None
    init_containers: Sequence[PreemptorContainer] | None = None
    affinity: PreemptorAffinity | None = None
    topology_spread_constraints: Sequence[SpreadConstraint] | None = None


class PreemptorPod(HostPod, frozen=True):
    """A pod that others may be evicted for, with the rules that keep it off a node because of the pods there."""

    spec: PreemptorPodSpec = PreemptorPodSpec()

    @property
    def avoids_pods(self) -> bool:
        """True if pods can be in its way for other reasons than resources: host ports, anti-affinity or spreading."""
        containers = (*(self.spec.containers or ()), *(self.spec.init_containers or ()))
        affinity = self.spec.affinity.pod_anti_affinity if self.spec.affinity is not None else None
        return (
            any(port.host_port for container in containers for port in container.ports or ())
            or bool(affinity is not None and affinity.required)
            or any(rule.when_unsatisfiable == "DoNotSchedule" for rule in self.spec.topology_spread_constraints or ())
        )


class VolumeMount(StoredPart, frozen=True):
    name: str = ""
    mount_path: str = ""
    sub_path: str | None = None
    sub_path_expr: str | None = None
    read_only: bool | None = None


class Capabilities(StoredPart, frozen=True):
    add: Sequence[str] | None = None


class SecurityContext(StoredPart, frozen=True):
    privileged: bool | None = None
    capabilities: Capabilities | None = None


class DetailedContainer(Container, frozen=True):
    image: str | None = None
    command: Sequence[str] | None = None
    args: Sequence[str] | None = None
    volume_mounts: Sequence[VolumeMount] | None = None
    security_context: SecurityContext | None = None


class HostPath(StoredPart, frozen=True):
    path: str = ""


class KeyToPath(StoredPart, frozen=True):
    key: str = ""
    path: str = ""


class ConfigMapVolume(StoredPart, frozen=True):
    name: str = ""
    items: Sequence[KeyToPath] | None = None


class Volume(StoredPart, frozen=True):
    name: str = ""
    host_path: HostPath | None = None
    config_map: ConfigMapVolume | None = None


class DetailedPodSpec(HostPodSpec, frozen=True):
    containers: Sequence[DetailedContainer] | None = None
    init_containers: Sequence[DetailedContainer] | None = None
    service_account_name: str | None = None
    scheduler_name: str | None = None
    volumes: Sequence[Volume] | None = None
    host_pid: bool | None = msgspec.field(default=None, name="hostPID")


class DetailedPod(HostPod, frozen=True):
    """A pod with its commands, mounts and conditions; also a static pod's manifest, which may lack anything."""

    kind: str | None = None
    metadata: ObjectMeta = ObjectMeta()
    spec: DetailedPodSpec = DetailedPodSpec()

    @property
    def is_ready(self) -> bool:
        ready = self.condition("Ready")
        return ready is not None and ready.status == "True"

    def condition(self, kind: str) -> Condition | None:
        conditions = (self.status.conditions if self.status is not None else None) or ()
        return next((condition for condition in conditions if condition.type == kind), None)


class NodeStatus(StoredPart, frozen=True):
    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None


class Node(StoredPart, frozen=True):
    """The fields of a node that its cards are read from."""

    metadata: ObjectMeta
    status: NodeStatus | None = None

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations or {}


class Requirement(StoredPart, frozen=True):
    """One expression of a selector; ``operator`` is In, NotIn, Exists or DoesNotExist, for nodes also Gt or Lt."""

    key: str = ""
    operator: str = ""
    values: frozenset[str] | None = None

    def is_met(self, value: str | None) -> bool:
        """Return whether a label with this value meets it, None for no such label. An invalid one is never met."""
        values = self.values or ()
        match self.operator:
            case "In":
                return value in values
            case "NotIn":
                return bool(values) and value not in values
            case "Exists":
                return value is not None and not values
            case "DoesNotExist":
                return value is None and not values
            case "Gt" | "Lt" if value is not None and len(values) == 1:
                try:
                    found, limit = int(value), int(*values)
                except ValueError:
                    return False
                return found > limit if self.operator == "Gt" else found < limit
        return False


class LabelSelector(StoredPart, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: Sequence[Requirement] | None = None


class DisruptionBudgetSpec(StoredPart, frozen=True):
    selector: LabelSelector | None = None


class DisruptionBudgetStatus(StoredPart, frozen=True):
    """The state of a budget; ``disrupted_pods`` has the names of the pods whose eviction was counted already."""

    disruptions_allowed: int | None = None
    disrupted_pods: dict[str, str | None] | None = None


class DisruptionBudget(StoredPart, frozen=True):
    metadata: ObjectMeta
    spec: DisruptionBudgetSpec | None = None
    status: DisruptionBudgetStatus | None = None

    @property
    def uid(self) -> str:
        return self.metadata.uid or ""


class DeviceClassSpec(StoredPart, frozen=True):
    extended_resource_name: str | None = None


class DeviceClass(StoredPart, frozen=True):
    """A kind of devices of DRA drivers; ``resource`` is the extended resource that it stands for, empty if none."""

    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def resource(self) -> str:
        return self.spec.extended_resource_name or ""


class GangPolicy(StoredPart, frozen=True):
    min_count: int | None = None


class GroupPolicy(StoredPart, frozen=True):
    gang: GangPolicy | None = None


class PodGroupSpec(StoredPart, frozen=True):
    scheduling_policy: GroupPolicy = GroupPolicy()


class PodGroup(StoredPart, frozen=True):
    """Pods that kube-scheduler binds together."""

    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()

    @property
    def uid(self) -> str:
        return self.metadata.uid or ""

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    @property
    def min_count(self) -> int | None:
        """How many of its pods must run at the same time; None if each may run by itself."""
        gang = self.spec.scheduling_policy.gang
        return None if gang is None else gang.min_count or 1


class ManagedFields(StoredPart, frozen=True):
    """The fields of an object that one client wrote; ``fields`` is the API server's nested map."""

    manager: str = ""
    operation: str = ""
    fields: dict[str, Any] | None = msgspec.field(default=None, name="fieldsV1")


class DetailedObjectMeta(ObjectMeta, frozen=True):
    managed_fields: Sequence[ManagedFields] | None = None


class NodeInfo(StoredPart, frozen=True):
    kernel_version: str = ""
    kubelet_version: str = ""


class DetailedNodeStatus(NodeStatus, frozen=True):
    conditions: Sequence[Condition] | None = None
    node_info: NodeInfo | None = None


class DetailedNode(Node, frozen=True):
    metadata: DetailedObjectMeta
    status: DetailedNodeStatus | None = None

    @property
    def is_ready(self) -> bool:
        conditions = (self.status.conditions if self.status is not None else None) or ()
        return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)

    @property
    def kernel_version(self) -> str:
        """The release of the kernel, ``6.12.0-amd64``; empty if it is unknown."""
        info = self.status.node_info if self.status is not None else None
        return info.kernel_version if info is not None else ""
