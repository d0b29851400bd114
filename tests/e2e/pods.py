"""Pods as a user writes them, and what the API server shows of them later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.e2e.kube_api import KubeApi, Object

PODS = "/api/v1/namespaces/default/pods"
OVER = ("Succeeded", "Failed")


def container(name: str = "main", *, sidecar: bool = False, **gpu: int | str) -> Object:
    """``container(i915=1, memory_max="5G")`` asks for gpu.intel.com/i915 and gpu.intel.com/memory.max."""
    limits = {"gpu.intel.com/" + key.replace("_max", ".max"): str(amount) for key, amount in gpu.items()}
    written: Object = {"name": name, "image": "none", "resources": {"limits": limits}}
    if sidecar:
        written["restartPolicy"] = "Always"
    return written


def pod(
    name: str,
    *containers: Object,
    init: Sequence[Object] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Object:
    """Without containers: one that asks for nothing."""
    spec: Object = {"restartPolicy": "Never", "containers": list(containers) or [container()]}
    if init:
        spec["initContainers"] = list(init)
    metadata = {"name": name, "annotations": dict(annotations or {}), "labels": dict(labels or {})}
    return {"metadata": metadata, "spec": spec}


def get_pod(api: KubeApi, name: str) -> Object:
    return api.get(f"{PODS}/{name}")


def delete_now(api: KubeApi, name: str) -> None:
    """Without the grace that its containers would have."""
    api.delete(f"{PODS}/{name}", gracePeriodSeconds="0")


def node_of(api: KubeApi, name: str) -> str | None:
    node: str | None = get_pod(api, name)["spec"].get("nodeName")
    return node


def cards_of(written: Object) -> str | None:
    """What is written on it: the cards of its containers."""
    cards: str | None = written["metadata"].get("annotations", {}).get("gas-container-cards")
    return cards


def cards_by_pod(api: KubeApi) -> dict[str, str | None]:
    """Of every bound pod, by name, the cards that are written on it."""
    return {p["metadata"]["name"]: cards_of(p) for p in api.items(PODS) if p["spec"].get("nodeName")}


def unbound(api: KubeApi) -> list[str]:
    """The names of the pods that have no node."""
    return [pod["metadata"]["name"] for pod in api.items(PODS, fieldSelector="spec.nodeName=")]


def is_refused(api: KubeApi, name: str) -> bool:
    """Whether kube-scheduler has tried to place it and failed."""
    conditions = get_pod(api, name)["status"].get("conditions", [])
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)


def event_messages(api: KubeApi, about: str, reason: str) -> list[Any]:
    """The messages of the events with this reason about the object of this name, in the namespace `default`."""
    events = api.items("/api/v1/namespaces/default/events")
    return [e["message"] for e in events if e["involvedObject"]["name"] == about and e["reason"] == reason]
