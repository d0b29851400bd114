"""Serve kubelet's device plugin API for one resource. It decides nothing: it translates, guards and times."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

import grpc
from grpc import aio

from gas.plugin.devices.allocation import Allocation
from gas.plugin.devices.device_ids import ALL_CARDS, AllocateRequest, PreferredRequest, known_ids
from gas.plugin.devices.device_lists import Device
from gas.plugin.kubelet.plugin_socket import PluginSocket
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    add_DevicePluginServicer_to_server,
)
from gas.values.errors import GasError
from gas.values.quoted import listed

logger = logging.getLogger(__name__)

REPLY_WITHIN = 0.8  # Seconds until kubelet chooses by itself. While it waits, nothing else on the node starts or ends.

SETTLE_WITHIN = 0.1
"""Additional seconds for a preference whose own limit was reached meanwhile. On a busy node both limits may have passed
when the process runs again. Cancelling at once would lose the preference."""

START_WITHIN = 10.0  # Seconds after which a container starts in any case. Kubelet waits 30; other pods do not wait.
FINISH = 1.0  # seconds for kubelet to finish its calls for one pod when the server is closed in the middle of them
BETWEEN_CALLS = 0.1  # seconds without a call after which kubelet is not in the middle of a pod

_POLL = 0.01


class Outcome(StrEnum):
    DECIDED = "decided"
    FELL_BACK = "fell-back"  # the decision failed: the container gets the ids that kubelet chose
    REFUSED = "refused"  # nothing could be given; kubelet ends the pod


Prefer = Callable[[PreferredRequest], Awaitable[Sequence[str]]]
Allocate = Callable[[AllocateRequest], Allocation]
PreStart = Callable[[AllocateRequest], Awaitable[None]]
_Context: TypeAlias = aio.ServicerContext[Any, Any]
OnReply = Callable[[str, Outcome, float], None]
"""Called after each call with the method's name, its outcome and its duration in seconds."""


class CallTracker:
    """Track kubelet's calls to all servers. For one pod they come one after the other, milliseconds apart."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._in_progress = 0
        self.last_end = float("-inf")  # when the last call ended

    @contextmanager
    def call(self) -> Iterator[None]:
        self._in_progress += 1
        try:
            yield
        finally:
            self._in_progress -= 1
            self.last_end = self.clock()

    async def pause(self, *, lasting: float, within: float = float("inf")) -> None:
        """Wait until there was no call for ``lasting`` seconds, which may be now; at most ``within`` seconds."""
        end = self.clock() + within
        while (now := self.clock()) < end:
            rest = _POLL if self._in_progress else self.last_end + lasting - now
            if rest <= 0:
                return
            await asyncio.sleep(min(rest, end - now))


@dataclass(eq=False)
class DeviceServer(DevicePluginServicer):
    """The device plugin of one resource. It serves from `open` to `close`, which may alternate any number of times.

    Kubelet does nothing else while it waits for a reply, so the functions must be quick. An error would end the pod for
    good, so failures are logged and kubelet's own choice stands. Kubelet gets an error only if ``fallback`` fails too.
    """

    resource: str  # full name: ``gpu.intel.com/i915``
    _: KW_ONLY
    allocate: Allocate  # returns what a container gets with its ids
    fallback: Allocate  # the same regardless of any pod, for when ``allocate`` fails
    # returns the ids that a container should get; may call PodResources. None lets kubelet choose
    prefer: Prefer | None = None
    # awaited before each start of a container with its devices. If there are any, kubelet starts no container of
    # the resource while the plugin is away
    before_start: Sequence[PreStart] = ()
    on_reply: OnReply = lambda method, outcome, seconds: None
    # shared by all servers, so that this one does not end in the middle of a pod
    calls: CallTracker = field(default_factory=CallTracker)
    # the devices that kubelet is shown; None before the first card
    devices: tuple[Device, ...] | None = field(init=False, default=None)
    # those of them that kubelet may give to containers
    healthy_ids: frozenset[str] = field(init=False, default=frozenset())
    streams: int = field(init=False, default=0)  # how many watches kubelet has open: 1, and rarely 2 for a moment
    _news: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _closing: bool = field(init=False, default=False)
    _serving: tuple[aio.Server, PluginSocket] | None = field(init=False, default=None)
    _ending: asyncio.Task[None] | None = field(init=False, default=None)

    @property
    def options(self) -> api.DevicePluginOptions:
        """The calls that kubelet should make, for its registration and its connection."""
        return api.DevicePluginOptions(
            get_preferred_allocation_available=self.prefer is not None, pre_start_required=bool(self.before_start)
        )

    def show(self, devices: Sequence[Device]) -> None:
        """Show kubelet these devices from now on. An empty list before the first card is ignored."""
        if self.devices == tuple(devices) or (self.devices is None and not devices):
            return
        self.devices = tuple(devices)
        self.healthy_ids = frozenset(device.id for device in self.devices if device.healthy)
        self._notify()

    async def news(self) -> None:
        """Wait until `devices` or `streams` changes."""
        await self._news.wait()

    async def open(self, path: Path) -> PluginSocket:
        """Listen at this path, in place of any other server. Raises CannotListen."""
        server = aio.server()
        add_DevicePluginServicer_to_server(self, server)
        socket = await PluginSocket.listen(server, path)
        self._closing = False
        self._serving = server, socket
        return socket

    async def close(self) -> None:
        """Stop listening and end kubelet's watch. After a cancellation the end goes on and may be awaited again."""
        if self._serving is not None:
            (server, socket), self._serving = self._serving, None
            socket.remove()
            self._ending = asyncio.create_task(self._end(server))
        if self._ending is not None:
            # Not awaited directly: before Python 3.12 gRPC may swallow the cancellation.
            await asyncio.wait({self._ending})
            self._ending.result()

    async def _end(self, server: aio.Server) -> None:
        # When its watch ends, kubelet closes the connection, which fails the pod in the middle of its calls for good.
        await self.calls.pause(lasting=BETWEEN_CALLS, within=FINISH)
        self._closing = True
        self._notify()
        await server.stop(FINISH)

    async def GetDevicePluginOptions(self, request: api.Empty, context: _Context) -> api.DevicePluginOptions:
        return self.options

    async def ListAndWatch(self, request: api.Empty, context: _Context) -> AsyncIterator[api.ListAndWatchResponse]:
        async for state in self.watched():
            yield state

    async def watched(self) -> AsyncIterator[api.ListAndWatchResponse]:
        """Yield every state of the devices until `close`, for one watch of kubelet."""
        self.streams += 1
        self._notify()
        try:
            shown: tuple[Device, ...] | None = None
            while not self._closing:
                news = self._news
                if self.devices is not None and self.devices != shown:
                    shown = self.devices
                    yield api.ListAndWatchResponse(devices=map(_device_message, shown))
                else:
                    await news.wait()
        finally:
            self.streams -= 1
            self._notify()

    async def GetPreferredAllocation(
        self, request: api.PreferredAllocationRequest, context: _Context
    ) -> api.PreferredAllocationResponse:
        return api.PreferredAllocationResponse(
            container_responses=[await self.preferred(each) for each in request.container_requests]
        )

    async def preferred(
        self, asked: api.ContainerPreferredAllocationRequest
    ) -> api.ContainerPreferredAllocationResponse:
        """Return the ids that a container should get; none lets kubelet choose."""
        started = time.perf_counter()
        outcome = Outcome.DECIDED
        ids: Sequence[str] = ()
        try:
            if self.prefer is not None:
                request = PreferredRequest(
                    resource=self.resource,
                    offered=asked.available_deviceIDs,
                    must_include=frozenset(known_ids(asked.must_include_deviceIDs)),
                    size=asked.allocation_size,
                )
                with self.calls.call():
                    ids = await _in_time(self.prefer(request))
        except Exception:
            outcome = Outcome.FELL_BACK
            logger.exception("no preference for a container of %s: kubelet chooses its devices", self.resource)
        self.on_reply("GetPreferredAllocation", outcome, time.perf_counter() - started)
        return api.ContainerPreferredAllocationResponse(deviceIDs=ids)

    async def Allocate(self, request: api.AllocateRequest, context: _Context) -> api.AllocateResponse:
        try:
            return api.AllocateResponse(container_responses=map(self.allocated, request.container_requests))
        except GasError as error:
            logger.error("cannot allocate %s: %s; kubelet fails the pod", self.resource, error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise  # never reached: abort raises
        except Exception as error:
            logger.exception("cannot allocate %s; kubelet fails the pod", self.resource)
            await context.abort(grpc.StatusCode.INTERNAL, f"no devices could be given: {error!r}")
            raise  # never reached: abort raises

    def allocated(self, asked: api.ContainerAllocateRequest) -> api.ContainerAllocateResponse:
        """Return what a container gets with the ids that kubelet chose. Raises if nothing can be given."""
        started = time.perf_counter()
        outcome = Outcome.REFUSED
        try:
            ids = frozenset(known_ids(asked.devices_ids))
            if len(ids) < len(asked.devices_ids) and (unknown := set(asked.devices_ids) - ids - {ALL_CARDS}):
                logger.warning("kubelet allocates %s, which this plugin never offered", listed(sorted(unknown)))
            request = AllocateRequest(resource=self.resource, ids=ids)
            try:
                with self.calls.call():
                    reply = _allocate_message(self.allocate(request))
                outcome = Outcome.DECIDED
            except Exception as error:
                is_expected = isinstance(error, GasError)
                if not is_expected:
                    logger.exception(_FALLBACK, self.resource)
                reply = _allocate_message(self.fallback(request))
                outcome = Outcome.FELL_BACK
                if is_expected:
                    logger.warning(f"{_FALLBACK}: %s", self.resource, error)
            return reply
        finally:
            self.on_reply("Allocate", outcome, time.perf_counter() - started)

    async def PreStartContainer(
        self, request: api.PreStartContainerRequest, context: _Context
    ) -> api.PreStartContainerResponse:
        """Prepare the start of a container with these devices. Never fails, so that the container starts."""
        started = time.perf_counter()
        outcome = Outcome.DECIDED
        try:
            of_container = AllocateRequest(resource=self.resource, ids=frozenset(known_ids(request.devices_ids)))
            async with asyncio.timeout(START_WITHIN):
                for prepare in self.before_start:
                    await prepare(of_container)
        except Exception:
            outcome = Outcome.FELL_BACK
            logger.exception("the start of a container of %s could not be prepared; it starts anyway", self.resource)
        self.on_reply("PreStartContainer", outcome, time.perf_counter() - started)
        return api.PreStartContainerResponse()

    def _notify(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


_FALLBACK = "allocating the devices that kubelet chose for %s"


def _device_message(device: Device) -> api.Device:
    nodes = [] if device.numa_node is None else [api.NUMANode(ID=device.numa_node)]
    return api.Device(
        ID=device.id,
        health="Healthy" if device.healthy else "Unhealthy",
        topology=api.TopologyInfo(nodes=nodes) if nodes else None,
    )


def _allocate_message(answer: Allocation) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        envs=answer.env,
        mounts=[
            api.Mount(host_path=mount.host_path, container_path=mount.container_path, read_only=mount.read_only)
            for mount in answer.mounts
        ],
        devices=[
            api.DeviceSpec(host_path=node.host_path, container_path=node.container_path, permissions="rw")
            for node in answer.device_nodes
        ],
        annotations=answer.annotations,
        cdi_devices=[api.CDIDevice(name=name) for name in answer.cdi],
    )


async def _in_time(preference: Awaitable[Sequence[str]]) -> Sequence[str]:
    """Return the preference, or raise its error. Raises TimeoutError if it is late."""
    asked = asyncio.ensure_future(preference)
    try:
        for seconds in (REPLY_WITHIN, SETTLE_WITHIN):
            if (await asyncio.wait({asked}, timeout=seconds))[0]:
                return asked.result()
        raise TimeoutError
    finally:
        asked.cancel()
