"""Find the pod and the container of a process in the text of ``/proc/PID/cgroup``.

The paths of one container, as kubelet and the runtimes make them::

    /kubepods/burstable/podUID/ID                                                           cgroupfs, containerd
    /kubepods/burstable/podUID/crio-ID                                                      cgroupfs, CRI-O
    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope      systemd
    /kubepods.slice/kubepods-podUID.slice/crio-ID.scope/container                                systemd, CRI-O, crun

    /system.slice/containerd.service/kubepods-podUID.slice:cri-containerd:ID       systemd in kubelet, not in containerd

systemd's names have ``_`` in place of the ``-`` in a UID. The beginning differs: a kubelet may have a root of its own,
and a reader in a cgroup namespace sees ``/../../podUID/ID``. A process of a container may have created groups below.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_POD = re.compile(
    rb"(?:^|/)(?:[^/]*-)?pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
    rb"(?:[/:](?P<scope>[^/]*)|$)"
)
_CONTAINER = re.compile(rb"(?:(?:cri-containerd|crio|docker)[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?")


class PodProcess(NamedTuple):
    """The pod and the container that a process belongs to.

    pod        UID of the pod
    container  the runtime's id of the container; empty if the path does not say
    """

    pod: str
    container: str


def pod_process(content: bytes) -> PodProcess | None:
    """Return the pod and the container of a process; None if it belongs to no pod.

    The first part of a path that names a pod counts, because kubelet makes it; parts below it are made in containers,
    which may call them what they like. With cgroup version 1 there is a path for each hierarchy: if they name
    different pods, the process counts for none of them.
    """
    found: PodProcess | None = None
    for line in content.split(b"\n"):
        _, _, path = line.partition(b":")[2].partition(b":")
        if (match := _POD.search(path)) is None:
            continue
        pod = match["uid"].decode().replace("_", "-")
        container = _CONTAINER.fullmatch(match["scope"] or b"")
        name = container["id"].decode() if container else ""
        if found is None:
            found = PodProcess(pod, name)
        elif found.pod != pod:
            return None
        elif not found.container:
            found = PodProcess(pod, name)
    return found
