"""Pods that kubelet fails because a program was killed, not because of the cards that were decided."""

from __future__ import annotations

from tests.e2e.kube_api import Object

WITHOUT_PLUGIN = (
    "no healthy devices present",
    "cannot allocate unregistered device",
    "error while dialing",
    "error reading from server",
    "the client connection is closing",
    "Server shutdown",
    "desc = CANCELLED",
)
"""kubelet's errors when the plugin is not there, or ends during a call because it is killed, or terminated while
pods are created without a pause. The last one is seen on busy machines, where a call outlasts the plugin's grace."""


def is_excused(failed: Object) -> bool:
    """Return whether a pod failed because there was no plugin, or because kubelet was killed while it started it."""
    return _is_refused_without_plugin(failed) or _is_ended_with_kubelet(failed)


def _is_refused_without_plugin(failed: Object) -> bool:
    status = failed["status"]
    return status.get("reason") == "UnexpectedAdmissionError" and any(
        why in status["message"] for why in WITHOUT_PLUGIN
    )


def _is_ended_with_kubelet(failed: Object) -> bool:
    """Return whether containerd gave up a starting container because kubelet, which requested it, was killed."""
    states = [each["state"].get("terminated", {}) for each in failed["status"].get("containerStatuses", [])]
    return any(state.get("reason") == "StartError" and "context canceled" in state["message"] for state in states)
