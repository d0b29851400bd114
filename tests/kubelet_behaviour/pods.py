"""Pods that a real kubelet runs with busybox and the sandbox's by their annotations, in the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox.kubelet.containers import RESTART_SECONDS, RUN_SECONDS, STOP_SECONDS

Object = dict[str, Any]

IMAGE = "e2e.local/busybox:1"
_FAIL_ONCE = "if [ -e /kept/once ]; then sleep 1000; fi; touch /kept/once; sleep 0.5; exit 1"
_LINGER = "trap 'sleep {seconds}; exit 0' TERM; while true; do sleep 0.1; done"


def container(
    name: str = "a",
    devices: int | str = 1,
    *,
    seconds: float | None = None,
    fails_once: bool = False,
    stops_in: float | None = None,
    sidecar: bool = False,
) -> Object:
    """Return a container that requests devices of the test's resource, and by default runs until it is ended.

    fails_once  it fails at first, and runs when it is started again
    stops_in    how many seconds it takes to end when it is asked to
    """
    script = "sleep 1000" if seconds is None else f"sleep {seconds}"
    if fails_once:
        script = _FAIL_ONCE
    if stops_in is not None:
        script = _LINGER.format(seconds=stops_in)
    built: Object = {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "volumeMounts": [{"name": "kept", "mountPath": "/kept"}],
        "devices": devices,
        "annotations": {},
    }
    if seconds is not None:
        built["annotations"][f"{RUN_SECONDS}.{name}"] = str(seconds)
    if fails_once:
        built["annotations"][f"{RESTART_SECONDS}.{name}"] = "0.5"
    if stops_in is not None:
        built["annotations"][STOP_SECONDS] = str(stops_in)
    if sidecar:
        built["restartPolicy"] = "Always"
    return built


def init(name: str = "i", devices: int = 1) -> Object:
    """Return an ordinary init container, which ends soon."""
    return container(name, devices, seconds=0.1)


def sidecar(name: str = "s", devices: int = 1) -> Object:
    return container(name, devices, sidecar=True)


def pod(
    name: str,
    node: str,
    resource: str,
    *containers: Object,
    init: Sequence[Object] = (),
    restart: str = "Never",
    grace: int = 0,
) -> Object:
    """Return a pod that is on its node from the start."""
    every = [*init, *containers]
    annotations = {name: value for each in every for name, value in each["annotations"].items()}
    spec: Object = {
        "nodeName": node,
        "hostNetwork": True,
        "restartPolicy": restart,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": grace,
        "volumes": [{"name": "kept", "emptyDir": {}}],
        "containers": [_written(each, resource) for each in containers],
        "initContainers": [_written(each, resource) for each in init],
    }
    return {"metadata": {"name": name, "annotations": annotations}, "spec": spec}


def _written(built: Object, resource: str) -> Object:
    written = {name: value for name, value in built.items() if name not in ("devices", "annotations")}
    if built["devices"]:
        written["resources"] = {"limits": {resource: str(built["devices"])}}
    return written
