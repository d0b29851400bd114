"""The fields of nodes and pods in a file that the sandbox looks at, with their types; all others are dropped.

What an API server, a kubelet or a controller had added to an object is so left behind, and a field of the wrong type
is found before anything works with it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gas.objects import Quantity

Amounts = dict[str, Quantity]


class _Fields(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    def as_object(self) -> dict[str, Any]:
        """As the API takes it, without what is not set."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class Metadata(_Fields, frozen=True):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Resources(_Fields, frozen=True):
    limits: Amounts | None = None
    requests: Amounts | None = None


class Container(_Fields, frozen=True):
    name: str | None = None
    image: str | None = None
    resources: Resources | None = None
    restart_policy: str | None = None


class Unread(_Fields, frozen=True):
    """Something of which only matters that it is there."""


class PodSpec(_Fields, frozen=True):
    node_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_selector: dict[str, str] | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    affinity: Unread | None = None
    topology_spread_constraints: list[Unread] | None = None


class PodStatus(_Fields, frozen=True):
    phase: str | None = None


class PodManifest(_Fields, frozen=True):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None

    @property
    def name(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.metadata.name or self.metadata.generate_name or ''}"

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or "default"

    @property
    def is_over(self) -> bool:
        return self.status is not None and self.status.phase in ("Succeeded", "Failed")


class Taint(_Fields, frozen=True):
    effect: str | None = None


class NodeSpec(_Fields, frozen=True):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(_Fields, frozen=True):
    allocatable: Amounts | None = None
    capacity: Amounts | None = None


class NodeManifest(_Fields, frozen=True):
    metadata: Metadata = Metadata()
    spec: NodeSpec | None = None
    status: NodeStatus | None = None

    @property
    def name(self) -> str:
        return self.metadata.name or ""

    @property
    def keeps_pods_away(self) -> bool:
        """Whether it has a taint that only pods with a toleration get past."""
        taints = (self.spec.taints if self.spec is not None else None) or []
        return any(taint.effect in ("NoSchedule", "NoExecute") for taint in taints)
