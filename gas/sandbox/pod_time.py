"""How long the containers of the sandbox run: what their pods say, or else the pace of their kubelet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gas.sandbox.pod_runner import RUN_SECONDS, STOP_SECONDS, Pace

RESTART_SECONDS = "gas-sandbox/restart-seconds"
"""Annotation of a pod: after how long its containers fail once, to be started again."""

# With ``.NAME`` behind it each annotation is about one container of the pod.


@dataclass(frozen=True, slots=True)
class KubeletPace(Pace):
    """Besides: how long kubelet takes, in seconds.

    status      how often it writes the status of its node
    connecting  how long it tries to connect to a plugin that registers
    sources     from its start until it knows of any pod
    teardown    from the end of a pod's last container until the pod is over and its devices are free
    removal     from then until a deleted pod is gone
    """

    status: float = 0.1
    connecting: float = 10
    sources: float = 0.3
    teardown: float = 0.2
    removal: float = 0.1


def container_seconds(pod: dict[str, Any], container: str, otherwise: float | None) -> float | None:
    """How long a container runs; None: until it is ended."""
    return _seconds(pod, RUN_SECONDS, container, otherwise)


def restart_seconds(pod: dict[str, Any], container: str) -> float | None:
    """After how long it fails for the first time; None: it does not."""
    return _seconds(pod, RESTART_SECONDS, container, None)


def stop_seconds(pod: dict[str, Any], otherwise: float) -> float:
    """How long a pod takes to end once it is asked to."""
    return _seconds(pod, STOP_SECONDS, "", otherwise) or 0


def _seconds(pod: dict[str, Any], annotation: str, container: str, otherwise: float | None) -> float | None:
    """The number in the annotation; one that cannot be read counts as not given."""
    annotations = pod["metadata"].get("annotations") or {}
    for name in (f"{annotation}.{container}", annotation):
        try:
            return max(float(annotations[name]), 0)
        except (KeyError, ValueError):
            continue
    return otherwise
