"""Define Kubernetes objects that only the doctor reads. Pods and nodes are in `gas.objects.stored`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec

from gas.inspection.objects import InspectedPod, InspectedPodSpec
from gas.objects.stored import ContainerStatus, HostPodStatus, ObjectMeta, StoredPart


class AnyObject(StoredPart, frozen=True):
    """An object of any kind, of which only the metadata matters."""

    metadata: ObjectMeta = ObjectMeta()


class _LeaseSpec(StoredPart, frozen=True):
    renew_time: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class Lease(StoredPart, frozen=True):
    metadata: ObjectMeta
    spec: _LeaseSpec | None = None


class _ServicePort(StoredPart, frozen=True):
    port: int = 0


class _ServiceSpec(StoredPart, frozen=True):
    cluster_ip: str | None = msgspec.field(default=None, name="clusterIP")
    publish_not_ready_addresses: bool = False
    ports: Sequence[_ServicePort] | None = None


class Service(StoredPart, frozen=True):
    spec: _ServiceSpec | None = None

    @property
    def address(self) -> tuple[str, int] | None:
        """The cluster IP and the first port; None for a headless Service."""
        if self.spec is None or self.spec.cluster_ip in (None, "", "None") or not self.spec.ports:
            return None
        port = self.spec.ports[0].port
        return (self.spec.cluster_ip or "", port) if port else None


class _EndpointConditions(StoredPart, frozen=True):
    ready: bool | None = None


class _SliceEndpoint(StoredPart, frozen=True):
    addresses: Sequence[str] | None = None
    conditions: _EndpointConditions | None = None


class _EndpointPort(StoredPart, frozen=True):
    port: int | None = None


class EndpointSlice(StoredPart, frozen=True):
    endpoints: Sequence[_SliceEndpoint] | None = None
    ports: Sequence[_EndpointPort] | None = None

    def ready_addresses(self) -> list[tuple[str, int]]:
        """Return address and port of each ready endpoint. As everywhere in Kubernetes, unknown counts as ready."""
        return [
            (address, each.port)
            for endpoint in self.endpoints or ()
            if endpoint.conditions is None or endpoint.conditions.ready is not False
            for address in endpoint.addresses or ()
            for each in self.ports or ()
            if each.port
        ]


class _ServiceReference(StoredPart, frozen=True):
    namespace: str = ""
    name: str = ""
    path: str = ""
    port: int | None = None


class _WebhookClient(StoredPart, frozen=True):
    """The URL of a webhook and the authorities that the API server trusts, as PEM; empty for its machine's."""

    service: _ServiceReference | None = None
    url: str = ""
    ca_bundle: bytes = b""


class _MatchCondition(StoredPart, frozen=True):
    expression: str = ""


class AdmissionRule(StoredPart, frozen=True):
    """A rule of a webhook about which requests it gets. ``*`` stands for all values of a field."""

    api_groups: Sequence[str] | None = None
    api_versions: Sequence[str] | None = None
    operations: Sequence[str] | None = None
    resources: Sequence[str] | None = None
    scope: str = "*"

    def matches(self, operation: str, group: str, resource: str) -> bool:
        """Return whether this operation on a resource in namespaces, ``pods`` or ``pods/binding``, is matched."""
        name, _, part = resource.partition("/")
        of_all = {"*/*", f"*/{part}", f"{name}/*"} if part else {"*", "*/*", f"{name}/*"}
        return (
            self.scope in ("*", "Namespaced")
            and not {operation, "*"}.isdisjoint(self.operations or ())
            and not {group, "*"}.isdisjoint(self.api_groups or ())
            and not {"v1", "*"}.isdisjoint(self.api_versions or ())
            and not {resource, *of_all}.isdisjoint(self.resources or ())
        )


class RegisteredWebhook(StoredPart, frozen=True):
    """An entry of a webhook configuration. The API server fills in policy and time-out, in seconds."""

    name: str
    client_config: _WebhookClient = _WebhookClient()
    rules: Sequence[AdmissionRule] | None = None
    namespace_selector: dict[str, Any] | None = None
    object_selector: dict[str, Any] | None = None
    failure_policy: str = ""
    reinvocation_policy: str = ""  # ``IfNeeded`` or ``Never``; empty for a validating webhook
    timeout_seconds: int = 0
    match_conditions: Sequence[_MatchCondition] | None = None


class WebhookConfiguration(StoredPart, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    webhooks: Sequence[RegisteredWebhook] | None = None


class ConfigMap(StoredPart, frozen=True):
    data: dict[str, str] | None = None


class _KubeletConfiguration(StoredPart, frozen=True):
    topology_manager_policy: str = "none"


class KubeletSettings(StoredPart, frozen=True):
    kubeletconfig: _KubeletConfiguration


class ServerVersion(StoredPart, frozen=True):
    git_version: str = ""


class _DaemonSetTemplate(StoredPart, frozen=True):
    spec: InspectedPodSpec = InspectedPodSpec()


class _DaemonSetSpec(StoredPart, frozen=True):
    template: _DaemonSetTemplate = _DaemonSetTemplate()


class _DaemonSetStatus(StoredPart, frozen=True):
    desired_number_scheduled: int = 0
    number_ready: int = 0


class DaemonSet(StoredPart, frozen=True):
    metadata: ObjectMeta
    spec: _DaemonSetSpec = _DaemonSetSpec()
    status: _DaemonSetStatus = _DaemonSetStatus()

    @property
    def pod(self) -> InspectedPod:
        """A pod as its template describes it."""
        return InspectedPod(spec=self.spec.template.spec)


class _Trouble(StoredPart, frozen=True):
    reason: str = ""
    message: str = ""


class _ContainerState(StoredPart, frozen=True):
    waiting: _Trouble | None = None
    terminated: _Trouble = _Trouble()


class _StartedContainer(ContainerStatus, frozen=True):
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()


class _StartedPodStatus(HostPodStatus, frozen=True):
    container_statuses: Sequence[_StartedContainer] | None = None


class StartedPod(InspectedPod, frozen=True):
    """A pod of a DaemonSet, with why its containers do not run."""

    status: _StartedPodStatus | None = None

    @property
    def trouble(self) -> tuple[str, str]:
        """Reason and message of the first container that waits, or of its last end; empty texts if all run."""
        for each in (self.status.container_statuses if self.status is not None else None) or ():
            if each.state.waiting is not None:
                return each.state.waiting.reason, each.last_state.terminated.message or each.state.waiting.message
        return "", ""


class WarningEvent(StoredPart, frozen=True):
    involved_object: ObjectMeta = ObjectMeta()
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
