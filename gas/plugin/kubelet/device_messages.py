"""Devices and answers as the messages of kubelet's device plugin API."""

from __future__ import annotations

from gas.plugin.devices.container_answer import ContainerAnswer
from gas.plugin.devices.device_lists import Device
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api


def device_message(device: Device) -> api.Device:
    """One device of the list that kubelet watches."""
    nodes = [] if device.numa_node is None else [api.NUMANode(ID=device.numa_node)]
    return api.Device(
        ID=device.id,
        health="Healthy" if device.healthy else "Unhealthy",
        topology=api.TopologyInfo(nodes=nodes) if nodes else None,
    )


def answer_message(answer: ContainerAnswer) -> api.ContainerAllocateResponse:
    """What a container gets."""
    return api.ContainerAllocateResponse(
        envs=answer.env,
        mounts=[
            api.Mount(host_path=mount.host_path, container_path=mount.container_path, read_only=True)
            for mount in answer.mounts
        ],
        devices=[
            api.DeviceSpec(host_path=node.host_path, container_path=node.container_path, permissions="rw")
            for node in answer.device_nodes
        ],
        annotations=answer.annotations,
        cdi_devices=[api.CDIDevice(name=name) for name in answer.cdi],
    )
