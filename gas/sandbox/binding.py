"""Binding a pod to a node: one write that sets the node and copies the annotations of the Binding onto the pod."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gas.sandbox.failure import ApiFailure, bad_request, conflict
from gas.sandbox.kinds import PODS
from gas.sandbox.metadata import timestamp
from gas.sandbox.storage import Value


def check_binding(name: str, binding: dict[str, Any]) -> None:
    """Raises ApiFailure when the Binding cannot be for this pod, or names no node."""
    if (binding.get("metadata") or {}).get("name") != name:
        raise bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    if target.get("kind", "Node") not in ("Node", ""):
        supported = 'supported values: "Node", "<empty>"'
        raise ApiFailure(500, "", f'target.kind: Unsupported value: "{target["kind"]}": {supported}')
    if not target.get("name"):
        raise ApiFailure(500, "", "target.name: Required value")


def bound(pod: Value, binding: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The pod as bound. Raises ApiFailure (409) for another pod's UID, a pod that is bound or being deleted."""
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = binding["metadata"].get(field)
        if wanted and wanted != metadata[field]:
            raise conflict(
                PODS,
                name,
                f"StorageError: invalid object, Code: 4, Key: /registry/pods/{metadata['namespace']}/{name}, "
                f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {word} in precondition: {wanted}, "
                f"{word} in object meta: {metadata[field]}",
            )
    if "deletionTimestamp" in metadata:
        raise conflict(PODS, name, f"pod {name} is being deleted, cannot be assigned to a host", "binding")
    if node := pod["spec"].get("nodeName"):
        raise conflict(PODS, name, f'pod {name} is already assigned to node "{node}"', "binding")
    annotations = {**metadata.get("annotations", {}), **(binding["metadata"].get("annotations") or {})}
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(now),
    }
    others = [other for other in pod["status"].get("conditions", []) if other["type"] != "PodScheduled"]
    return {
        **pod,
        "metadata": {**metadata, **({"annotations": annotations} if annotations else {})},
        "spec": {**pod["spec"], "nodeName": binding["target"]["name"]},
        "status": {**pod["status"], "conditions": [*others, condition]},
    }
