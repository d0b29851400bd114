"""Kubelet's side of the plugin's benchmark, and its pods: it calls plugins and lists the pods, as kubelet does.

Its responses are made in advance, so that only the plugin is timed.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import grpc

from gas.cluster.objects import MERGE_PATCH
from gas.decision import names as decision
from gas.decision.annotations import format_container_cards
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api import podresources_v1_pb2 as resources_api
from gas.plugin.kubelet_api.deviceplugin_v1beta1_pb2_grpc import DevicePluginStub
from gas.values.cards import Card
from gas.vocabularies.intel import names
from sandbox.api.kinds import PODS
from sandbox.api.verbs import Api

Object = dict[str, Any]

NAMESPACE = "default"
NODE = "node-1"
RESOURCE = names.PREFIX + "i915"
CONTAINER = "main"

_started = count(1_700_000_000_000_000_000)


def waiting_pod(name: str, ids: int, decided: Sequence[Card], *, resource: str = RESOURCE) -> Object:
    """Return a pod with one container that is bound to the node and not yet admitted by kubelet.

    ids      how many devices it asks for
    decided  the cards that the extender wrote on it; empty if it was bound without the extender
    """
    annotations = {
        decision.TIMESTAMP: str(next(_started)),
        decision.CONTAINER_CARDS: format_container_cards([decided]),
    }
    resources = {resource: str(ids)}
    container = {"name": CONTAINER, "image": "none", "resources": {"limits": resources, "requests": resources}}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations if decided else {}},
        "spec": {"nodeName": NODE, "containers": [container]},
    }


def create_running(api: Api, name: str, card: Card) -> None:
    """Create a running pod that has the card that was decided."""
    api.create(PODS, NAMESPACE, waiting_pod(name, 1, [card]))
    status = {"status": {"phase": "Running", "startTime": "2025-01-01T00:00:00Z"}}
    api.patch(PODS, NAMESPACE, name, (MERGE_PATCH, json.dumps(status).encode()), "status")


PATIENCE = 120.0
"""Seconds for calls that should take a fraction of one."""

Ids = Mapping[str, Sequence[str]]
"""The device ids of each container."""


@dataclass(frozen=True, slots=True)
class Timed:
    """The response of a plugin, and the seconds that it took."""

    ids: frozenset[str]
    seconds: float


class PluginConnection:
    def __init__(self, socket: Path) -> None:
        self.channel = grpc.insecure_channel(f"unix:{socket}", options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = DevicePluginStub(self.channel)
        grpc.channel_ready_future(self.channel).result(PATIENCE)

    def prefer(self, offered: Sequence[str], size: int) -> Timed:
        """Call GetPreferredAllocation for one container; return the ids."""
        asked = api.ContainerPreferredAllocationRequest(available_deviceIDs=offered, allocation_size=size)
        request = api.PreferredAllocationRequest(container_requests=[asked])
        started = time.perf_counter()
        answer = self.stub.GetPreferredAllocation(request, timeout=PATIENCE)
        took = time.perf_counter() - started
        return Timed(frozenset(answer.container_responses[0].deviceIDs), took)

    def allocate(self, ids: Sequence[str]) -> Timed:
        """Call Allocate for one container; return the device nodes."""
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=ids)])
        started = time.perf_counter()
        answer = self.stub.Allocate(request, timeout=PATIENCE)
        took = time.perf_counter() - started
        return Timed(frozenset(device.container_path for device in answer.container_responses[0].devices), took)


class Kubelet:
    """Take the registration of one resource, watch its devices, and list the pods added with `show`.

    resource  full name
    """

    def __init__(self, directory: Path, resource: str) -> None:
        self.watched = Event()
        """Set once the plugin has listed its devices."""
        self.devices: tuple[str, ...] = ()
        self._plugins = directory / "device-plugins"
        self._resource = resource
        self._pods: dict[str, resources_api.PodResources] = {}
        self._answers: dict[str, bytes] = {"List": b"", "GetAllocatableResources": b""}
        self._connection: PluginConnection | None = None

    @property
    def plugin(self) -> PluginConnection:
        if self._connection is None:
            raise RuntimeError("no plugin has registered")
        return self._connection

    def show(self, namespace: str, name: str, ids: Ids) -> None:
        """Add a pod that kubelet has admitted, with the devices of its containers."""
        containers = [
            resources_api.ContainerResources(name=container, devices=self._listed(of_container))
            for container, of_container in ids.items()
        ]
        pod = resources_api.PodResources(name=name, namespace=namespace, containers=containers)
        self._pods[f"{namespace}/{name}"] = pod
        self._prepare()

    def drop(self, namespace: str, name: str) -> None:
        del self._pods[f"{namespace}/{name}"]
        self._prepare()

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.channel.close()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve both of kubelet's sockets while the block runs."""
        server = grpc.server(ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": _method(self._register)}),
                grpc.method_handlers_generic_handler(
                    "v1.PodResourcesLister",
                    {
                        "List": _method(lambda _: self._answers["List"]),
                        "Get": _method(self._get),
                        "GetAllocatableResources": _method(lambda _: self._answers["GetAllocatableResources"]),
                    },
                ),
            )
        )
        for socket in (self._plugins / "kubelet.sock", self._plugins.parent / "pod-resources/kubelet.sock"):
            socket.parent.mkdir(parents=True, exist_ok=True)
            server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield
        finally:
            server.stop(None).wait()

    def _prepare(self) -> None:
        answer = resources_api.ListPodResourcesResponse(pod_resources=self._pods.values())
        self._answers["List"] = answer.SerializeToString()

    def _get(self, request: bytes) -> bytes:
        asked = resources_api.GetPodResourcesRequest.FromString(request)
        if (pod := self._pods.get(f"{asked.pod_namespace}/{asked.pod_name}")) is None:
            raise LookupError(f"kubelet was asked for {asked.pod_name}, which it does not know")
        encoded: bytes = resources_api.GetPodResourcesResponse(pod_resources=pod).SerializeToString()
        return encoded

    def _register(self, request: bytes) -> bytes:
        asked = api.RegisterRequest.FromString(request)
        if asked.resource_name == self._resource:
            self._connection = PluginConnection(self._plugins / asked.endpoint)
            Thread(target=self._watch, args=(self._connection,), daemon=True).start()
        encoded: bytes = api.Empty().SerializeToString()
        return encoded

    def _watch(self, plugin: PluginConnection) -> None:
        try:
            for told in plugin.stub.ListAndWatch(api.Empty()):
                self.devices = tuple(device.ID for device in told.devices)
                allocatable = resources_api.AllocatableResourcesResponse(devices=self._listed(self.devices))
                self._answers["GetAllocatableResources"] = allocatable.SerializeToString()
                self.watched.set()
        except grpc.RpcError:
            return  # the plugin has ended, or we do

    def _listed(self, ids: Sequence[str]) -> list[resources_api.ContainerDevices]:
        """Return one entry for each id, as kubelet writes them."""
        return [resources_api.ContainerDevices(resource_name=self._resource, device_ids=[id_]) for id_ in ids]


def _method(answer: Callable[[bytes], bytes]) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(lambda request, _context: answer(request))
