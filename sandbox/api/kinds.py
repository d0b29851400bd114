"""Define the kinds of objects that the sandbox's API server stores, with paths, fields, phases and timestamps."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_META_FIELDS = frozenset({"metadata.name", "metadata.namespace"})


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    has_status: bool = False  # it has the subresource ``status``
    blind_update: bool = True  # a PUT without a resourceVersion replaces the stored object
    # that a fieldSelector may name; an object need not have them, except those of its metadata
    fields: frozenset[str] = _META_FIELDS

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path above the namespaces: ``/api/v1`` or ``/apis/GROUP/VERSION``."""
        return f"/apis/{self.api_version}" if self.group else "/api/v1"

    @property
    def qualified(self) -> str:
        """The name in error messages: ``pods``, ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS = Kind(
    "Pod",
    "pods",
    has_status=True,
    fields=_META_FIELDS
    | {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase"},
)
NODES = Kind("Node", "nodes", namespaced=False, has_status=True, fields=_META_FIELDS | {"spec.unschedulable"})
EVENTS = Kind(
    "Event",
    "events",
    fields=_META_FIELDS
    | {"reason", "type", "reportingComponent"}
    | {f"involvedObject.{field}" for field in ("kind", "namespace", "name", "uid", "apiVersion")},
)
LEASES = Kind("Lease", "leases", group="coordination.k8s.io", blind_update=False)
DISRUPTION_BUDGETS = Kind(
    "PodDisruptionBudget", "poddisruptionbudgets", group="policy", has_status=True, blind_update=False
)
SHAREPODS = Kind("SharePod", "sharepods", group="kubeshare.nthu", has_status=True, blind_update=False)
POD_GROUPS = Kind("PodGroup", "podgroups", group="scheduling.k8s.io", version="v1beta1", has_status=True)
NAMESPACES = Kind("Namespace", "namespaces", namespaced=False, fields=_META_FIELDS | {"status.phase"})

CLAIMS = Kind("PersistentVolumeClaim", "persistentvolumeclaims", has_status=True)

KINDS = (PODS, NODES, EVENTS, LEASES, DISRUPTION_BUDGETS, SHAREPODS, POD_GROUPS, NAMESPACES, CLAIMS)


def is_over(pod: Mapping[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def system_time() -> datetime:
    return datetime.now(UTC)


def timestamp(time: datetime) -> str:
    """Format a time as objects carry it, in whole seconds: ``2026-01-31T12:00:00Z``."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
