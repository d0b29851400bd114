"""Pods as a user writes them, and their state in the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from tests.e2e.kube_api import KubeApi, Object, RefusedError

PODS = "/api/v1/namespaces/default/pods"
OVER = ("Succeeded", "Failed")


def container(name: str = "main", *, sidecar: bool = False, **gpu: int | str) -> Object:
    """Return a container: ``i915=1, memory_max="5G"`` requests gpu.intel.com/i915 and gpu.intel.com/memory.max."""
    written = asking({"gpu.intel.com/" + key.replace("_max", ".max"): amount for key, amount in gpu.items()}, name)
    if sidecar:
        written["restartPolicy"] = "Always"
    return written


def asking(limits: Mapping[str, Any], name: str = "main") -> Object:
    """Return a container with limits by the full names of resources, as most users write it."""
    resources = {resource: str(amount) for resource, amount in limits.items()}
    return {"name": name, "image": "none", "resources": {"limits": resources}}


def pod(
    name: str,
    *containers: Object,
    init: Sequence[Object] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Object:
    """Return a pod. Without containers it gets one that requests nothing."""
    spec: Object = {"restartPolicy": "Never", "containers": list(containers) or [container()]}
    if init:
        spec["initContainers"] = list(init)
    metadata = {"name": name, "annotations": dict(annotations or {}), "labels": dict(labels or {})}
    return {"metadata": metadata, "spec": spec}


def get_pod(api: KubeApi, name: str) -> Object:
    return api.get(f"{PODS}/{name}")


def delete_now(api: KubeApi, name: str) -> None:
    """Delete a pod without a grace period, unless it is gone."""
    delete(api, name, gracePeriodSeconds="0")


def delete(api: KubeApi, name: str, **query: str) -> None:
    """Delete a pod unless it is gone."""
    try:
        api.delete(f"{PODS}/{name}", **query)
    except RefusedError as refused:
        if refused.status != HTTPStatus.NOT_FOUND:
            raise


def node_of(api: KubeApi, name: str) -> str | None:
    node: str | None = get_pod(api, name)["spec"].get("nodeName")
    return node


def cards_of(written: Object) -> str | None:
    """Return the annotation with the cards of the pod's containers."""
    cards: str | None = written["metadata"].get("annotations", {}).get("gas-container-cards")
    return cards


def cards_by_pod(api: KubeApi) -> dict[str, str | None]:
    """Return the cards written on every bound pod, by name."""
    return {p["metadata"]["name"]: cards_of(p) for p in api.items(PODS) if p["spec"].get("nodeName")}


def unbound(api: KubeApi) -> list[str]:
    """Return the names of the pods without a node."""
    return [pod["metadata"]["name"] for pod in api.items(PODS, fieldSelector="spec.nodeName=")]


def is_refused(api: KubeApi, name: str) -> bool:
    """Return whether kube-scheduler has tried to place the pod and failed."""
    conditions = get_pod(api, name)["status"].get("conditions", [])
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)


def event_messages(api: KubeApi, about: str, reason: str) -> list[Any]:
    """Return the messages of the events with this reason about an object, in the namespace `default`."""
    events = api.items("/api/v1/namespaces/default/events")
    return [e["message"] for e in events if e["involvedObject"]["name"] == about and e["reason"] == reason]
