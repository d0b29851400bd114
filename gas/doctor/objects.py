"""Define Kubernetes objects that only the doctor reads. Pods and nodes are in `gas.objects.stored`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from gas.objects.stored import ObjectMeta


class _SeenPart(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    pass


class AnyObject(_SeenPart, frozen=True):
    """An object of any kind, of which only the metadata matters."""

    metadata: ObjectMeta = ObjectMeta()


class _LeaseSpec(_SeenPart, frozen=True):
    renew_time: datetime | None = None


class Lease(_SeenPart, frozen=True):
    metadata: ObjectMeta
    spec: _LeaseSpec | None = None


class _ServicePort(_SeenPart, frozen=True):
    port: int = 0


class _ServiceSpec(_SeenPart, frozen=True):
    cluster_ip: str | None = msgspec.field(default=None, name="clusterIP")
    publish_not_ready_addresses: bool = False
    ports: Sequence[_ServicePort] | None = None


class Service(_SeenPart, frozen=True):
    spec: _ServiceSpec | None = None

    @property
    def address(self) -> tuple[str, int] | None:
        """The cluster IP and the first port; None for a headless Service."""
        if self.spec is None or self.spec.cluster_ip in (None, "", "None") or not self.spec.ports:
            return None
        port = self.spec.ports[0].port
        return (self.spec.cluster_ip or "", port) if port else None


class _EndpointConditions(_SeenPart, frozen=True):
    ready: bool | None = None


class _SliceEndpoint(_SeenPart, frozen=True):
    addresses: Sequence[str] | None = None
    conditions: _EndpointConditions | None = None


class _EndpointPort(_SeenPart, frozen=True):
    port: int | None = None


class EndpointSlice(_SeenPart, frozen=True):
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


class _ServiceReference(_SeenPart, frozen=True):
    namespace: str = ""
    name: str = ""
    path: str = ""
    port: int | None = None


class _WebhookClient(_SeenPart, frozen=True):
    """The URL of a webhook and the authorities that the API server trusts, as PEM; empty for its machine's."""

    service: _ServiceReference | None = None
    url: str = ""
    ca_bundle: bytes = b""


class _MatchCondition(_SeenPart, frozen=True):
    expression: str = ""


class AdmissionRule(_SeenPart, frozen=True):
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


class RegisteredWebhook(_SeenPart, frozen=True):
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


class WebhookConfiguration(_SeenPart, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    webhooks: Sequence[RegisteredWebhook] | None = None


class ConfigMap(_SeenPart, frozen=True):
    data: dict[str, str] | None = None


class _KubeletConfiguration(_SeenPart, frozen=True):
    topology_manager_policy: str = "none"


class KubeletSettings(_SeenPart, frozen=True):
    kubeletconfig: _KubeletConfiguration


class ServerVersion(_SeenPart, frozen=True):
    git_version: str = ""


class _ReviewStatus(_SeenPart, frozen=True):
    allowed: bool = False


class AccessReview(_SeenPart, frozen=True):
    status: _ReviewStatus | None = None
