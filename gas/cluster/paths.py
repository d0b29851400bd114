"""Paths of objects on the API server. Names in them are quoted, since some come from outside."""

from urllib.parse import quote

from gas.values.errors import GasError

# Collections of the whole cluster.
PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
DAEMONSETS = "/apis/apps/v1/daemonsets"
DISRUPTION_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
RESOURCE_API = "/apis/resource.k8s.io/v1"
DEVICE_CLASSES = f"{RESOURCE_API}/deviceclasses"
RESOURCE_SLICES = f"{RESOURCE_API}/resourceslices"
POD_GROUPS = "/apis/scheduling.k8s.io/v1beta1/podgroups"
SHAREPODS = "/apis/kubeshare.nthu/v1/sharepods"


class MalformedName(GasError):
    """The name of an object is empty, or one such as ``..`` that would lead to another path."""


def sharepod(namespace: str, name: str) -> str:
    return f"/apis/kubeshare.nthu/v1/namespaces/{_segment(namespace)}/sharepods/{_segment(name)}"


def pods_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{_segment(namespace)}/pods"


def pod(namespace: str, name: str) -> str:
    return f"{pods_of(namespace)}/{_segment(name)}"


def claim(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{_segment(namespace)}/persistentvolumeclaims/{_segment(name)}"


def explanation(namespace: str, name: str) -> str:
    return f"/apis/explain.gas/v1alpha1/namespaces/{_segment(namespace)}/pods/{_segment(name)}"


def binding(namespace: str, name: str) -> str:
    return f"{pod(namespace, name)}/binding"


def node(name: str) -> str:
    return f"/api/v1/nodes/{_segment(name)}"


def events(namespace: str) -> str:
    return f"/api/v1/namespaces/{_segment(namespace)}/events"


def event(namespace: str, name: str) -> str:
    return f"{events(namespace)}/{_segment(name)}"


def leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{_segment(namespace)}/leases"


def lease(namespace: str, name: str) -> str:
    return f"{leases(namespace)}/{_segment(name)}"


def _segment(name: str) -> str:
    if name in ("", ".", ".."):
        raise MalformedName(f"expected the name of a Kubernetes object, found {name[:80]!r}")
    return quote(name, safe="")
