"""The few fields of Kubernetes objects that gas reads, as typed structs straight from JSON.

Every other field is skipped while decoding, which is what keeps 100,000 pods cheap. Field names are Kubernetes' own.
``null`` stands for an absent map or list, as Go's clients write it. Amounts stay texts here: what a quantity means is
for `gas.amounts` to say.
"""

from __future__ import annotations

import msgspec

Quantity = str | int | float
"""As written in an object; API servers answer texts, hand-written bodies often hold numbers."""


class _Object(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    pass


class ObjectMeta(_Object, frozen=True):
    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class ResourceRequirements(_Object, frozen=True):
    requests: dict[str, Quantity] | None = None


class Container(_Object, frozen=True):
    name: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    """Only ``Always``, on an init container, means something: a sidecar."""


class PodSpec(_Object, frozen=True):
    node_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None


class PodStatus(_Object, frozen=True):
    phase: str | None = None


class Pod(_Object, frozen=True):
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
        """``namespace/name``, for people; books go by UID."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    @property
    def node_name(self) -> str:
        """The node it is bound to, or an empty text."""
        return self.spec.node_name or ""

    @property
    def is_over(self) -> bool:
        """Whether its containers have all ended for good: what it held is free."""
        return self.status is not None and self.status.phase in ("Succeeded", "Failed")


class NodeStatus(_Object, frozen=True):
    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None


class Node(_Object, frozen=True):
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
