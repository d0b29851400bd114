"""kubelet's PodResources API: which container has which device ids."""

from __future__ import annotations

from pathlib import Path

import grpc

from gas.plugin.kubelet_api import podresources_v1_pb2 as kubelet_api
from gas.plugin.kubelet_api.podresources_v1_pb2_grpc import PodResourcesListerStub
from tests.e2e.written_cards import PREFIX

Ids = dict[str, set[str]]
"""Resource, without the prefix of Intel's -> ids."""


def listed_ids(socket: Path) -> dict[tuple[str, str], Ids]:
    """Return (pod, container) -> the ids that kubelet lists, of all pods in `default`, also of those without any.

    Do not call it while kubelet allocates devices: kubelet may then forget what it has just allocated.
    """
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        answer = PodResourcesListerStub(channel).List(kubelet_api.ListPodResourcesRequest(), timeout=5)
    found: dict[tuple[str, str], Ids] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            ids = found.setdefault((pod.name, container.name), {})
            for devices in container.devices:
                ids.setdefault(devices.resource_name.removeprefix(PREFIX), set()).update(devices.device_ids)
    return found
