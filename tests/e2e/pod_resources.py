"""Kubelet's PodResources API as the tests ask it: which container has which device ids."""

from __future__ import annotations

from pathlib import Path

import grpc

from gas.plugin.kubelet_api import podresources_v1_pb2 as kubelet_api
from gas.plugin.kubelet_api.podresources_v1_pb2_grpc import PodResourcesListerStub
from tests.e2e.written_cards import PREFIX

Ids = dict[str, set[str]]
"""Resource without prefix -> ids."""


def listed_ids(socket: Path) -> dict[tuple[str, str], Ids]:
    """(pod, container) -> what kubelet says it has, of all pods in `default` that kubelet lists, also without any.

    Not to be asked while kubelet gives devices away: kubelet 1.34 may then forget what it has just given.
    """
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        answer = PodResourcesListerStub(channel).List(kubelet_api.ListPodResourcesRequest(), timeout=5)
    found: dict[tuple[str, str], Ids] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            ids = found.setdefault((pod.name, container.name), {})
            for devices in container.devices:
                if devices.resource_name.startswith(PREFIX):
                    ids.setdefault(devices.resource_name.removeprefix(PREFIX), set()).update(devices.device_ids)
    return found
