"""How long the containers of the sandbox run: what their pods say, or else the pace of their kubelet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RUN_SECONDS = "gas-sandbox/run-seconds"
"""Annotation of a pod: how long its containers run."""
STOP_SECONDS = "gas-sandbox/stop-seconds"
"""Annotation of a pod: how long its containers take to end when asked to; no longer than the grace period."""
RESTART_SECONDS = "gas-sandbox/restart-seconds"
"""Annotation of a pod: after how long its containers fail once, to be started again."""

# With ``.NAME`` behind it each annotation is about one container of the pod.


@dataclass(frozen=True, slots=True)
class KubeletPace:
    """How long things take, in seconds, for pods that do not say it themselves.

    init        each init container
    run         the containers; None: until they are deleted
    stop        from being asked to end to the end
    status      how often it writes the status of its node
    connecting  how long it tries to connect to a plugin that registers
    sources     from its start until it knows of any pod
    teardown    from the end of a pod's last container until the pod is over and its devices are free
    removal     from then until a deleted pod is gone
    """

    init: float = 0.05
    run: float | None = None
    stop: float = 0.1
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
