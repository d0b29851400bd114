"""Keep one resource registered with kubelet, through restarts of either."""

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
from gas.plugin.devices.device_ids import is_known
from gas.plugin.kubelet.device_server import DeviceServer
from gas.plugin.kubelet.plugin_socket import (
    FileIdentity,
    PluginSocket,
    file_identity,
    is_served,
    is_served_by_another_system,
)
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api.deviceplugin_v1beta1_pb2_grpc import RegistrationStub
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

API_VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"


class NotRegistered(GasError):
    def __init__(self, resource: str, socket: Path, error: aio.AioRpcError) -> None:
        # Kubelet refuses a plugin with UNKNOWN, and its reason as details.
        verb = "does not reply to" if error.code() is grpc.StatusCode.UNAVAILABLE else "refuses"
        super().__init__(
            f"kubelet at {socket} {verb} the registration of {resource}: {error.code().name}: {error.details()}"
        )


class Phase(StrEnum):
    NO_CARDS = "no-cards"  # there was no card so far, so there is no resource
    NO_KUBELET = "no-kubelet"  # it is absent, or does not accept the registration
    REGISTERED = "registered"  # kubelet knows the resource, but does not watch its devices yet
    WATCHED = "watched"  # kubelet watches the devices
    STANDING_BACK = "standing-back"  # another plugin serves the resource on this node


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Intervals and limits in seconds."""

    look: float = 0.5  # between two checks of the sockets while kubelet watches
    # the same while it does not: after its start kubelet admits its pods within a second, and refuses for good those
    # whose devices it cannot find then
    seek: float = 0.05
    # for kubelet's reply; within it kubelet connects to the plugin, for which it allows itself 10
    register: float = 12.0
    watch: float = 3.0  # until kubelet has asked for the devices
    # between two checks of the devices that kubelet counts: while the watch of an older plugin may end, and later
    count: float = 3.0
    count_later: float = 15.0
    first: float = 60.0  # from a registration until then
    recount: float = 0.5  # from a check that lacks devices to the next
    # from the end of an old watch to the next registration: otherwise kubelet notices the end after the new
    # registration, and drops that instead; also the most for kubelet's list of devices before a registration
    settle: float = 0.1
    other: float = 1.0  # between two checks of the other plugin; one of gas is gone after three in a row that fail
    retry: float = 2.0  # longest pause between two registrations


class Registration:
    """Register one resource, and register it again whenever something is wrong.

        no-cards --first device--> no-kubelet --Register--> registered --ListAndWatch--> watched
                                       ^                        |                           |
                                       '----- something is wrong: close everything ---------'

    Something is wrong if kubelet.sock is another one (kubelet restarted, and removed the plugin's socket), the plugin's
    socket is gone, kubelet does not watch or stops watching, or kubelet does not count all devices (when the watch of
    an older plugin ends, kubelet drops all devices of the resource, whichever plugin serves them now). The old watch
    always ends before the next registration. Another socket in place of the plugin's is that of a newer plugin: then
    this one stands back until no process serves there; before it registers, also while kubelet counts foreign ids, or
    a plugin of another system serves at its path.

    directory    normally /var/lib/kubelet/device-plugins
    allocatable  returns the ids that kubelet counts as healthy, by resource; None if kubelet does not reply
    on_kubelet   called before each registration, with the identity of kubelet's socket
    """

    def __init__(
        self,
        server: DeviceServer,
        directory: Path,
        *,
        allocatable: Callable[[], Awaitable[Mapping[str, frozenset[str]] | None]],
        on_kubelet: Callable[[FileIdentity], None] = lambda _kubelet: None,
        on_state: Callable[[], None] = lambda: None,
        times: Times | None = None,
    ) -> None:
        self.state = Phase.NO_CARDS
        self.registrations = 0  # how many registrations kubelet accepted
        self.trouble: str | None = None
        """Why kubelet does not have the resource now, as a sentence; None before the first attempt."""
        self.server = server
        self._kubelet = directory / KUBELET_SOCKET
        self._path = directory / f"{server.resource.replace('/', '-')}.sock"
        self._allocatable = allocatable
        self._on_kubelet = on_kubelet
        self._on_state = on_state
        self._times = times or Times()
        self._backoff = Backoff(self._times.settle, self._times.retry)

    async def run(self) -> None:
        """Keep the resource registered until cancelled; then close the server."""
        try:
            while self.server.devices is None:
                await self.server.news()
            self._enter(Phase.NO_KUBELET)
            while True:
                while (kubelet := file_identity(self._kubelet)) is None:
                    missing = f"{self._kubelet} does not exist: kubelet has not started, or has its plugins elsewhere"
                    self._report(missing)
                    await asyncio.sleep(self._times.seek)
                self._on_kubelet(kubelet)
                await self._let_another_system_serve()
                try:
                    wrong = await self._serve_until_wrong(kubelet)
                except GasError as error:
                    wrong = str(error)
                except Exception as error:
                    logger.exception("the registration of %s failed", self.server.resource)
                    wrong = repr(error)
                finally:
                    await self.server.close()
                self._enter(Phase.NO_KUBELET)
                self._report(wrong)
                await asyncio.sleep(self._backoff.wait())
        finally:
            await self.server.close()

    async def _serve_until_wrong(self, kubelet: FileIdentity) -> str:
        socket = await self.server.open(self._path)
        wrong = await _first(self._sockets_change(kubelet, socket), self._registration_ends(socket))
        if socket.is_replaced():
            await self.server.close()
            await self._stand_back()
            return f"the other plugin of {self.server.resource} has stopped"
        return wrong

    async def _sockets_change(self, kubelet: FileIdentity, socket: PluginSocket) -> str:
        while True:
            if file_identity(self._kubelet) != kubelet:
                self._backoff.reset()
                return f"the socket {self._kubelet} is gone or new, so kubelet has stopped or restarted"
            if not socket.is_there():
                return f"the socket {socket.path} was removed, or another plugin has put its own there"
            await asyncio.sleep(self._times.look if self.state is Phase.WATCHED else self._times.seek)

    async def _registration_ends(self, socket: PluginSocket) -> str:
        while True:
            try:
                await self._register(socket)
                break
            except NotRegistered as error:
                self._report(str(error))
                await asyncio.sleep(self._backoff.wait())
        self._enter(Phase.REGISTERED)
        self.registrations += 1
        return await _first(self._watch_ends(), self._devices_are_missing())

    async def _register(self, socket: PluginSocket) -> None:
        request = api.RegisterRequest(
            version=API_VERSION,
            endpoint=socket.new_endpoint().name,
            resource_name=self.server.resource,
            options=self.server.options,
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
        self._enter(Phase.WATCHED)
        self.trouble = None
        logger.info("kubelet watches the devices of %s", self.server.resource)
        started = asyncio.get_running_loop().time()
        while self.server.streams:
            await self.server.news()
        if asyncio.get_running_loop().time() - started > self._times.retry:
            self._backoff.reset()
        return f"kubelet has stopped watching the devices of {self.server.resource}"

    async def _devices_are_missing(self) -> str:
        """Return a sentence once kubelet counts too few devices twice in a row: it follows changes with a delay."""
        lacking_before: frozenset[str] = frozenset()
        clock = asyncio.get_running_loop().time
        first_until = clock() + self._times.first
        while True:
            count = self._times.count if clock() < first_until else self._times.count_later
            await asyncio.sleep(self._times.recount if lacking_before else count)
            counted = await self._allocatable()
            lacking = frozenset[str]()
            if counted is not None and self.state is Phase.WATCHED:
                lacking = self.server.healthy_ids - counted.get(self.server.resource, frozenset())
            if still := lacking & lacking_before:
                some = ", ".join(sorted(still)[:3])
                return f"kubelet does not count {len(still)} device(s) of {self.server.resource}, such as {some}"
            lacking_before = lacking

    async def _let_another_system_serve(self) -> None:
        while (sign := await self._sign_of_another_system()) is not None:
            self._report(
                f"another plugin offers {self.server.resource} on this node, {sign}; this plugin offers none until the"
                " other one is removed"
            )
            self._enter(Phase.STANDING_BACK)
            await asyncio.sleep(self._times.other)

    async def _sign_of_another_system(self) -> str | None:
        if await is_served_by_another_system(self._path):
            return f"at the socket {self._path}"
        try:
            counted = await asyncio.wait_for(self._allocatable(), self._times.settle)
        except TimeoutError:  # a kubelet that has just started refuses pods for good if it waits for their devices
            return None
        ids = (counted or {}).get(self.server.resource, frozenset())
        return next((f"with device ids such as {id_}" for id_ in ids if not is_known(id_)), None)

    async def _stand_back(self) -> None:
        self._report(f"another plugin serves {self.server.resource} on this node; waiting until it stops")
        self._enter(Phase.STANDING_BACK)
        unanswered = 0
        while unanswered < 3:
            await asyncio.sleep(self._times.other)
            unanswered = 0 if await is_served(self._path) else unanswered + 1

    def _enter(self, state: Phase) -> None:
        if state is not self.state:
            self.state = state
            self._on_state()

    def _report(self, trouble: str) -> None:
        if trouble != self.trouble:
            logger.warning("%s is not registered: %s", self.server.resource, trouble)
        self.trouble = trouble


async def _first(*waiting: Coroutine[None, None, str]) -> str:
    """Return the result of the first coroutine that ends, or raise its error; the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in waiting]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
