"""Small doubles of Aliyun's scheduler extender and device plugin: what they read and write, from their sources.

AliyunContainerService/gpushare-scheduler-extender at c0b6141 and gpushare-device-plugin at 45fb8b8. This extender
differs in one thing: it counts pods that are being deleted until they are gone, so that a card with too much on it is
never its own doing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as messages
from gas.plugin.kubelet_api.deviceplugin_v1beta1_pb2_grpc import RegistrationStub
from gas.values.amounts import parse_quantity
from tests.e2e.extender_double import ExtenderDouble
from tests.e2e.fake_nvml import uuid
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.node_cell import NodeCell
from tests.e2e.pods import OVER

GPU_MEM, GPU_COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
INDEX, OF_POD, OF_CARD = "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD", "ALIYUN_COM_GPU_MEM_DEV"
ASSIGNED, ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSIGNED", "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
SOCKET = "aliyungpushare.sock"


def requested(pod: Object) -> int:
    """Return the units in the limits of the containers; the originals do not read init containers."""
    limits = (each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"])
    return sum(parse_quantity(of.get(GPU_MEM, 0)) for of in limits)


class GpushareExtender(ExtenderDouble):
    """The extender; its entry is that of config/scheduler-policy-config.yaml."""

    path = "/gpushare-scheduler"
    managed = (GPU_MEM,)

    def __init__(self, api: KubeApi) -> None:
        super().__init__()
        self._api = api
        self._lock = threading.Lock()

    def reply(self, verb: str, arguments: Object) -> tuple[int, Object]:
        return self._filter(arguments) if verb == "filter" else self._bind(arguments)

    def _filter(self, arguments: Object) -> tuple[int, Object]:
        failed = {}
        for name in arguments["NodeNames"]:
            if not _units(node := self._api.get(f"/api/v1/nodes/{name}"), GPU_MEM):
                failed[name] = f"The node {name} is not for GPU share, need skip"
            elif max(self._free(node), default=-1) < requested(arguments["Pod"]):
                failed[name] = "Insufficient GPU Memory in one device"
        passed = [name for name in arguments["NodeNames"] if name not in failed]
        return 200, {"Nodes": None, "NodeNames": passed, "FailedNodes": failed, "Error": ""}

    def _bind(self, arguments: Object) -> tuple[int, Object]:
        path = f"/api/v1/namespaces/{arguments['PodNamespace']}/pods/{arguments['PodName']}"
        with self._lock:
            pod, node = self._api.get(path), self._api.get(f"/api/v1/nodes/{arguments['Node']}")
            units, free = requested(pod), self._free(node)
            having = [(left, index) for index, left in enumerate(free) if left >= units]
            if pod["metadata"]["uid"] != arguments["PodUID"] or not having:
                return 500, {"Error": f"The node {arguments['Node']} can't place the pod {arguments['PodName']}"}
            annotations = {
                INDEX: str(min(having)[1]),
                OF_CARD: str(_units(node, GPU_MEM) // len(free)),
                OF_POD: str(units),
                ASSIGNED: "false",
                ASSUME_TIME: str(time.time_ns()),
            }
            self._api.merge(path, {"metadata": {"annotations": annotations}})
            named = {"name": arguments["PodName"], "uid": arguments["PodUID"]}
            target = {"kind": "Node", "name": arguments["Node"]}
            self._api.create(f"{path}/binding", {"metadata": named, "target": target})
        return 200, {"Error": ""}

    def _free(self, node: Object) -> list[int]:
        """Return the units that each card has left, by the annotations of the pods of the node."""
        count = _units(node, GPU_COUNT)
        free = [_units(node, GPU_MEM) // count] * count if count else []
        for pod in self._api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node['metadata']['name']}"):
            annotations = pod["metadata"].get("annotations", {})
            index = int(annotations.get(INDEX, "-1"))
            if requested(pod) and pod["status"]["phase"] not in OVER and 0 <= index < count:
                free[index] -= int(annotations.get(OF_POD, "0"))
        return free


def _units(node: Object, resource: str) -> int:
    return parse_quantity(node["status"].get("capacity", {}).get(resource, 0))


class GpusharePlugin:
    """The device plugin of a node with equal cards, in GiB, served by the process of the tests.

    units  of each card
    """

    def __init__(self, api: KubeApi, node: NodeCell, cards: int, units: int) -> None:
        self._api = api
        self._node = node
        self._cards = cards
        self._units = units
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._server: grpc.Server | None = None

    def start(self) -> None:
        """Write the number of cards on the node, serve, and register."""
        count = {GPU_COUNT: str(self._cards)}
        self._api.merge(
            f"/api/v1/nodes/{self._node.name}/status", {"status": {"capacity": count, "allocatable": count}}
        )
        self._stopping.clear()
        self._server = grpc.server(futures.ThreadPoolExecutor())
        calls = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                lambda _request, _context: messages.DevicePluginOptions(), messages.Empty.FromString, _serialized
            ),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._devices, messages.Empty.FromString, _serialized),
            "Allocate": grpc.unary_unary_rpc_method_handler(
                self._allocate, messages.AllocateRequest.FromString, _serialized
            ),
        }
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", calls)])
        directory = self._node.device_plugins
        (directory / SOCKET).unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix:{directory / SOCKET}")
        self._server.start()
        with grpc.insecure_channel(f"unix:{directory / 'kubelet.sock'}") as channel:
            request = messages.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name=GPU_MEM)
            RegistrationStub(channel).Register(request, timeout=20)

    def stop(self) -> None:
        """Stop as at SIGTERM; what is written on the node stays."""
        self._stopping.set()
        if self._server is not None:
            self._server.stop(None).wait()
        (self._node.device_plugins / SOCKET).unlink(missing_ok=True)

    def _devices(self, request: messages.Empty, context: Any) -> Iterator[messages.ListAndWatchResponse]:
        names = (f"{uuid(card)}-_-{unit}" for card in range(self._cards) for unit in range(self._units))
        yield messages.ListAndWatchResponse(devices=[messages.Device(ID=name, health="Healthy") for name in names])
        self._stopping.wait()

    def _allocate(self, request: messages.AllocateRequest, context: Any) -> messages.AllocateResponse:
        (container,) = request.container_requests
        units = len(container.devices_ids)
        with self._lock:
            index = self._assigned(units)
        variables = {
            VISIBLE: str(index) if index >= 0 else f"no-gpu-has-{units}GiB-to-run",
            INDEX: str(index),
            OF_POD: str(units),
            "ALIYUN_COM_GPU_MEM_CONTAINER": str(units),
            OF_CARD: str(self._units),
        }
        return messages.AllocateResponse(container_responses=[messages.ContainerAllocateResponse(envs=variables)])

    def _assigned(self, units: int) -> int:
        """Return the index of the card of the oldest pod with this amount, and write that it has it; -1 if none."""
        here = f"spec.nodeName={self._node.name},status.phase=Pending"
        assumed = [
            (int(annotations[ASSUME_TIME]), pod["metadata"]["namespace"], pod["metadata"]["name"], annotations)
            for pod in self._api.items("/api/v1/pods", fieldSelector=here)
            if (annotations := pod["metadata"].get("annotations", {})).get(ASSIGNED) == "false"
            and ASSUME_TIME in annotations
            and requested(pod) == units
        ]
        for _, namespace, name, annotations in sorted(assumed, key=lambda each: each[:3]):
            written = {ASSIGNED: "true", ASSUME_TIME: str(time.time_ns())}
            self._api.merge(f"/api/v1/namespaces/{namespace}/pods/{name}", {"metadata": {"annotations": written}})
            return int(annotations[INDEX])
        if self._cards == 1:  # the original gives the only card without looking for a pod
            return 0
        return -1


def _serialized(message: Any) -> bytes:
    return bytes(message.SerializeToString())
