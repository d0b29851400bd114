"""Keeps one resource registered with kubelet, through restarts of either."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import grpc
from grpc import aio

from gas.cluster.backoff import Backoff
from gas.errors import GasError
from gas.plugin.kubelet.device_server import DeviceServer, options
from gas.plugin.kubelet.plugin_socket import PluginSocket, SocketIdentity, is_served, socket_identity
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api.deviceplugin_v1beta1_pb2_grpc import RegistrationStub

logger = logging.getLogger(__name__)

API_VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"


class NotRegistered(GasError):
    """Kubelet did not take the registration."""

    def __init__(self, resource_name: str, socket: Path, error: aio.AioRpcError) -> None:
        # Kubelet's answer to a plugin it does not want is UNKNOWN, with its reason as details.
        answer = "does not answer" if error.code() is grpc.StatusCode.UNAVAILABLE else "answers"
        super().__init__(
            f"kubelet at {socket} {answer} when {resource_name} is registered: {error.code().name}: {error.details()}"
        )


class State(StrEnum):
    """Where a registration stands."""

    NO_CARDS = "no-cards"  # none so far, so there is no resource
    NO_KUBELET = "no-kubelet"  # it is not there, or does not take the registration
    REGISTERED = "registered"  # kubelet knows the resource and has not asked for its devices yet
    WATCHED = "watched"  # all is well
    STANDING_BACK = "standing-back"  # another plugin serves the resource on this node


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds.

    look      between two looks at the sockets while kubelet watches
    seek      the same while it does not: after its start kubelet takes its pods up within a second, and refuses for
              good those whose devices it cannot find then
    register  for kubelet's answer; within it kubelet connects to us, for which it allows itself 10
    watch     until kubelet has asked for the devices
    count     between two questions what kubelet's books say
    recount   from an answer that lacks devices to the next question
    settle    from the end of an old watch to the next registration: kubelet notices the end after our new
              registration otherwise, and drops that instead
    other     between two looks whether the other plugin still serves; it is gone after three in a row
    retry     the longest pause between two registrations
    """

    look: float = 0.5
    seek: float = 0.05
    register: float = 12.0
    watch: float = 3.0
    count: float = 3.0
    recount: float = 0.5
    settle: float = 0.1
    other: float = 1.0
    retry: float = 2.0


class Registration:
    """Registers one resource, and again whenever something is wrong.

        no-cards --first device--> no-kubelet --Register--> registered --ListAndWatch--> watched
                                       ^                        |                           |
                                       '----- something is wrong: close everything ---------'

    Wrong is: kubelet.sock is another one (kubelet restarted, and removed our socket); our socket is gone; kubelet
    does not watch, or not any more; kubelet's books lack devices of ours (when the watch of an older plugin ends
    kubelet drops all devices of the resource, whoever serves them now). The old watch always ends before
    the next registration. Another socket in the place of ours is that of a newer plugin: then we stand back
    until nobody serves there.

    server       what is registered; opened and closed from here
    directory    kubelet's, normally /var/lib/kubelet/device-plugins
    allocatable  resource -> the ids that kubelet counts as healthy, or None when it does not say
    on_kubelet   called, before it is registered with, with the identity of the kubelet that is there
    on_state     called after `state` has become another one
    """

    def __init__(
        self,
        server: DeviceServer,
        directory: Path,
        *,
        allocatable: Callable[[], Awaitable[Mapping[str, frozenset[str]] | None]],
        on_kubelet: Callable[[SocketIdentity], None] = lambda _kubelet: None,
        on_state: Callable[[], None] = lambda: None,
        times: Times | None = None,
    ) -> None:
        self.state = State.NO_CARDS
        self.registrations = 0
        """How many times kubelet took a registration."""
        self.trouble: str | None = None
        """The sentence why kubelet does not have the resource now, once there was a try."""
        self.server = server
        self._kubelet = directory / KUBELET_SOCKET
        self._path = directory / f"{server.resource.replace('/', '-')}.sock"
        self._allocatable = allocatable
        self._on_kubelet = on_kubelet
        self._on_state = on_state
        self._times = times or Times()
        self._backoff = Backoff(self._times.settle, self._times.retry)

    async def run(self) -> None:
        """Until cancelled; then the server is closed."""
        try:
            while self.server.devices is None:
                await self.server.news()
            self._enter(State.NO_KUBELET)
            while True:
                kubelet = await self._kubelet_there()
                self._on_kubelet(kubelet)
                try:
                    wrong = await self._serve_until_wrong(kubelet)
                except GasError as error:
                    wrong = str(error)
                except Exception as error:
                    logger.exception("the registration of %s failed", self.server.resource)
                    wrong = repr(error)
                finally:
                    await self.server.close()
                self._enter(State.NO_KUBELET)
                self._report(wrong)
                await asyncio.sleep(self._backoff.wait())
        finally:
            await self.server.close()

    async def _serve_until_wrong(self, kubelet: SocketIdentity) -> str:
        socket = await self.server.open(self._path)
        wrong = await _first(self._sockets_change(kubelet, socket), self._registration_ends(socket))
        if socket.is_replaced():
            await self.server.close()
            await self._stand_back()
            return f"the other plugin of {self.server.resource} has ended"
        return wrong

    async def _sockets_change(self, kubelet: SocketIdentity, socket: PluginSocket) -> str:
        while True:
            if socket_identity(self._kubelet) != kubelet:
                self._backoff.reset()
                return f"{self._kubelet} is another one: kubelet has restarted or ended"
            if not socket.is_there():
                return f"{socket.path} is gone, or another plugin's"
            await asyncio.sleep(self._times.look if self.state is State.WATCHED else self._times.seek)

    async def _registration_ends(self, socket: PluginSocket) -> str:
        while True:
            try:
                await self._register(socket)
                break
            except NotRegistered as error:
                self._report(str(error))
                await asyncio.sleep(self._backoff.wait())
        self._enter(State.REGISTERED)
        self.registrations += 1
        return await _first(self._watch_ends(), self._books_lack_devices())

    async def _register(self, socket: PluginSocket) -> None:
        request = api.RegisterRequest(
            version=API_VERSION,
            endpoint=socket.new_endpoint().name,
            resource_name=self.server.resource,
            options=options(self.server),
        )
        # A channel of its own pool connects at once; a shared one may still wait after an earlier failure.
        channel = aio.insecure_channel(f"unix:{self._kubelet}", options=[("grpc.use_local_subchannel_pool", 1)])
        async with channel:
            try:
                await RegistrationStub(channel).Register(request, timeout=self._times.register)
            except aio.AioRpcError as error:
                raise NotRegistered(self.server.resource, self._kubelet, error) from error

    async def _watch_ends(self) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._times.watch):
                while not self.server.streams:
                    await self.server.news()
        if not self.server.streams:
            return f"kubelet does not ask for the devices of {self.server.resource}"
        self._enter(State.WATCHED)
        self.trouble = None
        logger.info("kubelet watches the devices of %s", self.server.resource)
        started = asyncio.get_running_loop().time()
        while self.server.streams:
            await self.server.news()
        if asyncio.get_running_loop().time() - started > self._times.retry:
            self._backoff.reset()
        return f"kubelet has stopped watching the devices of {self.server.resource}"

    async def _books_lack_devices(self) -> str:
        """Kubelet's books follow what it is told with a delay, so one difference alone says nothing."""
        lacking_before: frozenset[str] = frozenset()
        while True:
            await asyncio.sleep(self._times.recount if lacking_before else self._times.count)
            counted = await self._allocatable()
            lacking = frozenset[str]()
            if counted is not None and self.state is State.WATCHED:
                lacking = self.server.healthy_ids - counted.get(self.server.resource, frozenset())
            if still := lacking & lacking_before:
                some = ", ".join(sorted(still)[:3])
                return f"kubelet's books lack {len(still)} device(s) of {self.server.resource}, such as {some}"
            lacking_before = lacking

    async def _stand_back(self) -> None:
        self._enter(State.STANDING_BACK)
        self._report(f"another plugin serves {self.server.resource} on this node; waiting for its end")
        unanswered = 0
        while unanswered < 3:
            await asyncio.sleep(self._times.other)
            unanswered = 0 if await is_served(self._path) else unanswered + 1

    async def _kubelet_there(self) -> SocketIdentity:
        while (kubelet := socket_identity(self._kubelet)) is None:
            self._report(f"there is no {self._kubelet}: kubelet has not started, or has its plugins elsewhere")
            await asyncio.sleep(self._times.seek)
        return kubelet

    def _enter(self, state: State) -> None:
        if state is not self.state:
            self.state = state
            self._on_state()

    def _report(self, trouble: str) -> None:
        if trouble != self.trouble:
            logger.warning("%s is not registered: %s", self.server.resource, trouble)
        self.trouble = trouble


async def _first(*waiting: Coroutine[None, None, str]) -> str:
    """The sentence of the first one that ends; the others are cancelled. What it raised is raised."""
    tasks = [asyncio.ensure_future(each) for each in waiting]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
