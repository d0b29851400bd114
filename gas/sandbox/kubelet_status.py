"""The status that a kubelet writes for its pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gas.sandbox.containers import Container, Containers
from gas.sandbox.device_allocation import asked_resources
from gas.sandbox.metadata import timestamp

Object = dict[str, Any]


def pod_status(pod: Object, containers: Containers, phase: str) -> Object:
    """Of a pod that was admitted, with what its containers do now."""
    running = phase == "Running"
    return {
        "phase": phase,
        "startTime": pod.get("status", {}).get("startTime") or _now(),
        "conditions": _conditions(ready=running),
        "initContainerStatuses": _statuses(pod, pod["spec"].get("initContainers") or [], containers),
        "containerStatuses": _statuses(pod, pod["spec"]["containers"], containers),
    }


def refused_status(reason: str, message: str) -> Object:
    """Of a pod that kubelet did not take: it has failed for good, and no container of it is ever shown."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": _now()}


def _statuses(pod: Object, specified: list[Object], containers: Containers) -> list[Object]:
    uid = pod["metadata"]["uid"]
    return [_status(container, containers.get(uid, container["name"])) for container in specified]


def _status(specified: Object, container: Container | None) -> Object:
    resources = {name: str(amount) for name, amount in asked_resources(specified).items()}
    common = {"name": specified["name"], "image": specified["image"], "imageID": "", "allocatedResources": resources}
    if container is None:
        waiting = {"waiting": {"reason": "PodInitializing"}}
        return {**common, "ready": False, "started": False, "restartCount": 0, "state": waiting}
    state: Object = {"running": {"startedAt": _now()}}
    if not container.is_running:
        code, reason = (0, "Completed") if container.succeeded else (1, "Error")
        state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": _now(), "containerID": container.id}}
    return {
        **common,
        "ready": container.is_running,
        "started": container.is_running,
        "restartCount": container.restarts,
        "containerID": container.id,
        "state": state,
    }


def _conditions(*, ready: bool) -> list[Object]:
    word, now = "True" if ready else "False", _now()
    found = {"PodScheduled": "True", "Initialized": word, "ContainersReady": word, "Ready": word}
    return [{"type": name, "status": status, "lastTransitionTime": now} for name, status in found.items()]


def _now() -> str:
    return timestamp(datetime.now(UTC))
