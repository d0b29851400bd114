"""Pods as the plugin reads them: those of `gas.objects` and a few fields more, which only the node's side needs."""

from __future__ import annotations

import msgspec

from gas.objects import Container, ObjectMeta, Pod, PodSpec, PodStatus


class EnvVar(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    value: str | None = None
    """None also for a value that comes from elsewhere (``valueFrom``), which nobody but kubelet resolves."""


class NodeContainer(Container, frozen=True):
    env: list[EnvVar] | None = None


# A list of containers that know more is no list of containers to a type checker, since another kind could be put
# into it. Nothing is ever put into these: the objects are frozen.
class NodePodSpec(PodSpec, frozen=True):
    containers: list[NodeContainer] | None = None  # type: ignore[assignment]
    init_containers: list[NodeContainer] | None = None  # type: ignore[assignment]


class NodePodStatus(PodStatus, frozen=True):
    start_time: str | None = None
    """Written by kubelet with the pod's first status, so after it has admitted or refused the pod."""


class NodePodMeta(ObjectMeta, frozen=True):
    creation_timestamp: str | None = None


class NodePod(Pod, frozen=True, kw_only=True):
    """Decode the watch of a node's pods into this."""

    metadata: NodePodMeta
    spec: NodePodSpec = NodePodSpec()
    status: NodePodStatus | None = None
