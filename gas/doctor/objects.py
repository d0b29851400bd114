"""The fields of Kubernetes objects that only the doctor reads, beside those of `gas.objects`."""

from __future__ import annotations

from typing import Any

import msgspec

from gas.objects import Node, Pod


class _Part(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    pass


class ManagedFields(_Part, frozen=True):
    """Who wrote which fields; ``fields`` is the API server's nested map."""

    manager: str = ""
    operation: str = ""
    fields: dict[str, Any] | None = msgspec.field(default=None, name="fieldsV1")


class Meta(_Part, frozen=True):
    name: str = ""
    namespace: str | None = None
    labels: dict[str, str] | None = None
    managed_fields: list[ManagedFields] | None = None


class VolumeMount(_Part, frozen=True):
    name: str = ""
    mount_path: str = ""
    sub_path: str | None = None


class Container(_Part, frozen=True):
    name: str = ""
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    volume_mounts: list[VolumeMount] | None = None


class HostPath(_Part, frozen=True):
    path: str = ""


class KeyToPath(_Part, frozen=True):
    key: str = ""
    path: str = ""


class ConfigMapVolume(_Part, frozen=True):
    name: str = ""
    items: list[KeyToPath] | None = None


class Volume(_Part, frozen=True):
    name: str = ""
    host_path: HostPath | None = None
    config_map: ConfigMapVolume | None = None


class Spec(_Part, frozen=True):
    node_name: str | None = None
    service_account_name: str | None = None
    scheduler_name: str | None = None
    containers: list[Container] | None = None
    volumes: list[Volume] | None = None


class Condition(_Part, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class Status(_Part, frozen=True):
    phase: str | None = None
    conditions: list[Condition] | None = None

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type, if it is there."""
        return next((each for each in self.conditions or () if each.type == kind), None)


class Details(_Part, frozen=True):
    """A pod or a node beyond what `gas.objects` has; also a static pod's manifest."""

    metadata: Meta = Meta()
    spec: Spec = Spec()
    status: Status | None = None
    kind: str | None = None

    @property
    def is_ready(self) -> bool:
        ready = self.status.condition("Ready") if self.status is not None else None
        return ready is not None and ready.status == "True"


class SeenPod(msgspec.Struct, frozen=True):
    """One pod, as the extender reads it and with what else is of interest."""

    pod: Pod
    details: Details

    @property
    def where(self) -> str:
        return f"pod {self.pod.key}"


class SeenNode(msgspec.Struct, frozen=True):
    node: Node
    details: Details

    @property
    def where(self) -> str:
        return f"node {self.node.name}"


class _LeaseSpec(_Part, frozen=True):
    renew_time: str | None = None
    holder_identity: str | None = None


class Lease(_Part, frozen=True):
    metadata: Meta
    spec: _LeaseSpec | None = None


class _ServicePort(_Part, frozen=True):
    port: int = 0


class _ServiceSpec(_Part, frozen=True):
    cluster_ip: str | None = msgspec.field(default=None, name="clusterIP")
    ports: list[_ServicePort] | None = None


class Service(_Part, frozen=True):
    metadata: Meta
    spec: _ServiceSpec | None = None


class _EndpointConditions(_Part, frozen=True):
    ready: bool | None = None


class _Endpoint(_Part, frozen=True):
    addresses: list[str] | None = None
    conditions: _EndpointConditions | None = None


class _EndpointPort(_Part, frozen=True):
    port: int | None = None


class EndpointSlice(_Part, frozen=True):
    endpoints: list[_Endpoint] | None = None
    ports: list[_EndpointPort] | None = None

    def ready_addresses(self) -> list[tuple[str, int]]:
        """Address and port of each endpoint that is ready; unknown counts as ready, as everywhere."""
        return [
            (address, each.port)
            for endpoint in self.endpoints or ()
            if endpoint.conditions is None or endpoint.conditions.ready is not False
            for address in endpoint.addresses or ()
            for each in self.ports or ()
            if each.port
        ]


class ConfigMap(_Part, frozen=True):
    data: dict[str, str] | None = None


class ServerVersion(_Part, frozen=True):
    git_version: str = ""


class ReviewStatus(_Part, frozen=True):
    allowed: bool = False


class AccessReview(_Part, frozen=True):
    status: ReviewStatus | None = None
