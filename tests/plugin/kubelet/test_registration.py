from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from gas.plugin.devices.allocation import Allocation
from gas.plugin.devices.device_ids import AllocateRequest
from gas.plugin.devices.device_lists import Device
from gas.plugin.kubelet.device_server import DeviceServer
from gas.plugin.kubelet.plugin_socket import FileIdentity, is_served
from gas.plugin.kubelet.registration import Phase, Registration, Times
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from tests.background import eventually, in_background
from tests.plugin.scripted_kubelet import ScriptedKubelet, devices_of

I915 = "gpu.intel.com/i915"
CARDS = (Device(id="card0-0", healthy=True), Device(id="card1-0", healthy=True))
QUICK = Times(look=0.01, seek=0.01, watch=5.0, count=3600.0, recount=0.05, settle=0.02, other=0.05, retry=0.1)


def nothing(request: AllocateRequest) -> Allocation:
    return Allocation()


async def does_not_say() -> Mapping[str, frozenset[str]] | None:
    return None


class Books:
    """Return the allocatable ids that the test sets; ``asked`` counts the calls."""

    def __init__(self, *ids: str) -> None:
        self.ids = frozenset(ids)
        self.asked = 0

    async def __call__(self) -> Mapping[str, frozenset[str]] | None:
        self.asked += 1
        return {"gpu.intel.com/i915": self.ids}


@asynccontextmanager
async def kubelet_in(directory: Path) -> AsyncIterator[ScriptedKubelet]:
    kubelet = ScriptedKubelet(directory)
    await kubelet.start()
    try:
        yield kubelet
    finally:
        await kubelet.stop()


def plugin(directory: Path, *devices: Device, times: Times = QUICK, books: Books | None = None) -> Registration:
    server = DeviceServer("gpu.intel.com/i915", allocate=nothing, fallback=nothing)
    server.show(devices)
    return Registration(server, directory, allocatable=books or does_not_say, times=times)


@asynccontextmanager
async def running(registration: Registration) -> AsyncIterator[Registration]:
    async with in_background(registration.run()):
        yield registration


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def streams_at_registrations(kubelet: ScriptedKubelet, registration: Registration) -> list[int]:
    """How many times the plugin was watched when each registration from now on came; it grows."""
    streams: list[int] = []
    kubelet.on_register = lambda: streams.append(registration.server.streams)
    return streams


def is_watched(registration: Registration, *, times: int = 1) -> bool:
    return registration.state is Phase.WATCHED and registration.registrations >= times


# contract D1.1, P2.1
async def test_a_resource_is_registered_with_its_name_socket_and_options(socket_directory: Path) -> None:
    async with kubelet_in(socket_directory) as kubelet, running(plugin(socket_directory, *CARDS)) as registration:
        await eventually(lambda: is_watched(registration))
        (endpoint,) = names_in(socket_directory) - {"kubelet.sock", "gpu.intel.com-i915.sock"}
        assert kubelet.registrations == [
            api.RegisterRequest(
                version="v1beta1",
                endpoint=endpoint,
                resource_name=I915,
                options=api.DevicePluginOptions(get_preferred_allocation_available=False),
            )
        ]
        await eventually(lambda: kubelet.shown)
        assert [devices_of(api.ListAndWatchResponse(devices=shown)) for shown in kubelet.shown[I915]] == [
            [("card0-0", "Healthy"), ("card1-0", "Healthy")]
        ]
        assert registration.trouble is None


async def test_without_any_card_the_resource_is_not_registered(socket_directory: Path) -> None:
    server = DeviceServer("gpu.intel.com/i915", allocate=nothing, fallback=nothing)
    registration = Registration(server, socket_directory, allocatable=does_not_say, times=QUICK)
    async with kubelet_in(socket_directory) as kubelet, running(registration):
        await asyncio.sleep(5 * QUICK.look)
        assert registration.state is Phase.NO_CARDS
        assert names_in(socket_directory) == {"kubelet.sock"}
        server.show(CARDS)
        await eventually(lambda: is_watched(registration))
        assert len(kubelet.registrations) == 1


async def test_a_resource_that_lost_its_cards_stays_registered(socket_directory: Path) -> None:
    server = DeviceServer("gpu.intel.com/i915", allocate=nothing, fallback=nothing)
    server.show(CARDS)
    registration = Registration(server, socket_directory, allocatable=does_not_say, times=QUICK)
    async with kubelet_in(socket_directory) as kubelet, running(registration):
        await eventually(lambda: I915 in kubelet.shown)
        server.show(())
        await eventually(lambda: len(kubelet.shown[I915]) == 2)
        assert kubelet.shown[I915][1] == []
        assert registration.state is Phase.WATCHED


async def test_kubelet_may_start_after_the_plugin(socket_directory: Path) -> None:
    async with running(plugin(socket_directory, *CARDS)) as registration:
        await eventually(lambda: registration.trouble)
        assert registration.trouble == (
            f"{socket_directory}/kubelet.sock does not exist: kubelet has not started, or has its plugins elsewhere"
        )
        assert registration.state is Phase.NO_KUBELET
        async with kubelet_in(socket_directory):
            await eventually(lambda: is_watched(registration))
            assert registration.trouble is None


async def test_after_kubelets_restart_the_plugin_listens_and_registers_again(socket_directory: Path) -> None:
    async with kubelet_in(socket_directory) as kubelet, running(plugin(socket_directory, *CARDS)) as registration:
        await eventually(lambda: is_watched(registration))
        await kubelet.stop()
        await eventually(lambda: registration.state is Phase.NO_KUBELET)
        kubelet.shown.clear()
        await kubelet.start()  # removes the plugin's socket
        await eventually(lambda: is_watched(registration, times=2))
        await eventually(lambda: kubelet.shown)
        assert [device.ID for device in kubelet.shown[I915][0]] == ["card0-0", "card1-0"]


async def test_kubelets_socket_is_checked_more_often_while_kubelet_does_not_watch(socket_directory: Path) -> None:
    """It gives the plugin less than a second before it refuses pods."""
    assert Times().seek + Times().settle < 0.2
    registration = plugin(socket_directory, *CARDS, times=replace(QUICK, look=3600.0, retry=3600.0))
    async with kubelet_in(socket_directory) as kubelet, running(registration):
        await eventually(lambda: is_watched(registration))
        await kubelet.stop()
        await eventually(lambda: registration.trouble and "does not reply" in registration.trouble)
        await kubelet.start()
        await eventually(lambda: is_watched(registration, times=2))


# contract P2.2
async def test_another_kubelet_socket_is_enough_to_register_again_at_once(socket_directory: Path) -> None:
    times = replace(QUICK, retry=3600.0)
    async with kubelet_in(socket_directory) as first, running(plugin(socket_directory, *CARDS, times=times)) as ours:
        await eventually(lambda: is_watched(ours))
        kubelets = [first]
        for _ in range(13):
            kubelets.append(ScriptedKubelet(socket_directory))
            await kubelets[-1].listen()  # while the older one's watch goes on and our socket stays
            await eventually(lambda: is_watched(ours, times=len(kubelets)))
        assert [len(kubelet.registrations) for kubelet in kubelets] == [1] * 14
        for kubelet in kubelets[1:]:
            await kubelet.stop()


async def test_without_kubelets_socket_nothing_is_served(socket_directory: Path) -> None:
    async with kubelet_in(socket_directory) as kubelet, running(plugin(socket_directory, *CARDS)) as registration:
        await eventually(lambda: is_watched(registration))
        kubelet.socket.unlink()
        await eventually(lambda: names_in(socket_directory) == set())
        await eventually(lambda: kubelet.streams[I915] == 0)


async def test_while_kubelet_is_away_the_plugin_keeps_trying(socket_directory: Path) -> None:
    kubelet = ScriptedKubelet(socket_directory)
    await kubelet.start()
    await kubelet.stop()
    assert kubelet.socket.is_socket()  # left behind
    async with running(plugin(socket_directory, *CARDS)) as registration:
        await eventually(lambda: registration.trouble)
        assert registration.trouble is not None
        assert registration.trouble.startswith(
            f"kubelet at {socket_directory}/kubelet.sock does not reply to the registration of {I915}: UNAVAILABLE"
        )
        await kubelet.start()
        await eventually(lambda: is_watched(registration))
    await kubelet.stop()


async def test_a_refusal_is_logged_once_and_retried(socket_directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with kubelet_in(socket_directory) as kubelet:
        kubelet.refuses = "too old"
        async with running(plugin(socket_directory, *CARDS)) as registration:
            await eventually(lambda: registration.trouble)
            assert registration.trouble == (
                f"kubelet at {socket_directory}/kubelet.sock refuses the registration of {I915}: UNKNOWN: too old"
            )
            await asyncio.sleep(3 * QUICK.retry)
            assert sum("too old" in message for message in caplog.messages) == 1
            kubelet.refuses = ""
            await eventually(lambda: is_watched(registration))


async def test_a_removed_socket_is_created_again(socket_directory: Path) -> None:
    async with kubelet_in(socket_directory) as kubelet, running(plugin(socket_directory, *CARDS)) as registration:
        await eventually(lambda: is_watched(registration))
        streams = streams_at_registrations(kubelet, registration)
        (socket_directory / "gpu.intel.com-i915.sock").unlink()
        await eventually(lambda: is_watched(registration, times=2))
        assert streams == [0]  # the old watch had ended


async def test_when_kubelet_ends_the_watch_the_plugin_registers_again_with_a_new_socket_name(
    socket_directory: Path,
) -> None:
    async with kubelet_in(socket_directory) as kubelet, running(plugin(socket_directory, *CARDS)) as registration:
        await eventually(lambda: is_watched(registration))
        await kubelet.drop(I915)
        await eventually(lambda: is_watched(registration, times=2))
        first, second = (request.endpoint for request in kubelet.registrations)
        assert first != second
        assert names_in(socket_directory) == {"kubelet.sock", "gpu.intel.com-i915.sock", second}


async def test_a_kubelet_that_never_asks_for_the_devices_is_registered_with_again(
    socket_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with kubelet_in(socket_directory) as kubelet:
        kubelet.watches = False
        registration = plugin(socket_directory, *CARDS, times=replace(QUICK, watch=0.2))
        async with running(registration):
            await eventually(lambda: len(kubelet.registrations) == 2)
            assert f"kubelet does not ask for the devices of {I915}" in caplog.text


async def test_when_kubelet_counts_too_few_devices_the_plugin_registers_again(
    socket_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    books = Books("card0-0")
    registration = plugin(socket_directory, *CARDS, times=replace(QUICK, count=0.1), books=books)
    async with kubelet_in(socket_directory) as kubelet:
        streams = streams_at_registrations(kubelet, registration)
        async with running(registration):
            await eventually(lambda: len(kubelet.registrations) >= 2)
            assert f"kubelet does not count 1 device(s) of {I915}, such as card1-0" in caplog.text
            assert set(streams) == {0}  # the old watch had ended


@pytest.mark.parametrize(
    "ids", [("card0-0", "card1-0"), ("card0-0", "card1-0", "card9-0")], ids=["all of them", "more of another plugin"]
)
async def test_when_kubelet_counts_all_devices_the_registration_stays(
    socket_directory: Path, ids: tuple[str, ...]
) -> None:
    books = Books(*ids)
    registration = plugin(
        socket_directory, *CARDS, Device(id="card2-0", healthy=False), times=replace(QUICK, count=0.02), books=books
    )
    async with kubelet_in(socket_directory) as kubelet, running(registration):
        await eventually(lambda: books.asked >= 5)
        assert len(kubelet.registrations) == 1


async def test_a_single_wrong_count_does_not_matter(socket_directory: Path) -> None:
    books = Books()
    registration = plugin(socket_directory, *CARDS, times=replace(QUICK, count=0.1), books=books)
    async with kubelet_in(socket_directory) as kubelet, running(registration):
        await eventually(lambda: books.asked == 1)
        books.ids = frozenset({"card0-0", "card1-0"})
        await eventually(lambda: books.asked >= 4)
        assert len(kubelet.registrations) == 1


async def test_devices_are_counted_less_often_later(socket_directory: Path) -> None:
    books = Books("card0-0", "card1-0")
    times = replace(QUICK, count=0.05, first=0.2, count_later=3600.0)
    registration = plugin(socket_directory, *CARDS, times=times, books=books)
    async with kubelet_in(socket_directory), running(registration):
        await eventually(lambda: books.asked >= 2)
        await asyncio.sleep(2 * times.first)
        asked = books.asked
        await asyncio.sleep(5 * times.count)
        assert books.asked == asked


async def test_a_newer_plugin_takes_over_and_the_older_returns_after_it_stops(
    socket_directory: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = count()

    async def seldom(path: Path) -> bool:  # as on a busy node: only failures in a row count
        return next(checks) % 3 == 2 and await is_served(path)

    monkeypatch.setattr(f"{Registration.__module__}.is_served", seldom)
    async with kubelet_in(socket_directory) as kubelet, running(plugin(socket_directory, *CARDS)) as older:
        await eventually(lambda: is_watched(older))
        async with running(plugin(socket_directory, CARDS[0])) as newer:
            await eventually(lambda: is_watched(newer))
            await eventually(lambda: older.state is Phase.STANDING_BACK)
            # The end of the older one's watch made kubelet drop the newer one, which notices and comes back.
            await eventually(lambda: is_watched(newer) and kubelet.streams[I915] == 1)
            await asyncio.sleep(6 * QUICK.other)
            assert (older.state, older.registrations) == (Phase.STANDING_BACK, 1)
            assert is_watched(newer)
            assert f"another plugin serves {I915} on this node; waiting until it stops" in caplog.text
            assert [device.ID for device in kubelet.shown[I915][-1]] == ["card0-0"]
        await eventually(lambda: is_watched(older, times=2))
        await eventually(lambda: [device.ID for device in kubelet.shown[I915][-1]] == ["card0-0", "card1-0"])


# contract A1.27
async def test_the_plugin_of_another_system_keeps_its_resource_until_it_is_removed(socket_directory: Path) -> None:
    """Kubelet gives a resource to the plugin that registers last, and Aliyun's registers only when kubelet starts."""
    books = Books("GPU-0-_-0", "GPU-0-_-1")
    async with kubelet_in(socket_directory) as kubelet, running(plugin(socket_directory, *CARDS, books=books)) as ours:
        await eventually(lambda: ours.state is Phase.STANDING_BACK)
        await asyncio.sleep(3 * QUICK.other)
        assert kubelet.registrations == []
        assert ours.trouble is not None
        assert ours.trouble.startswith(f"another plugin offers {I915} on this node, with device ids such as GPU-0-_-")
        books.ids = frozenset()
        await eventually(lambda: is_watched(ours))
        # It comes back: kubelet ends the watch of this one.
        books.ids = frozenset({"GPU-0-_-0"})
        await kubelet.drop(I915)
        await eventually(lambda: ours.state is Phase.STANDING_BACK)
        assert ours.registrations == 1


async def test_intels_plugin_keeps_its_socket_though_its_names_and_ids_are_like_ours(socket_directory: Path) -> None:
    path = socket_directory / "gpu.intel.com-i915.sock"
    async with kubelet_in(socket_directory) as kubelet:
        intels = await asyncio.start_unix_server(lambda _, writer: writer.close(), path)
        served = path.stat()
        async with running(plugin(socket_directory, *CARDS, books=Books("card0-0", "card1-0"))) as ours:
            await eventually(lambda: ours.state is Phase.STANDING_BACK)
            assert kubelet.registrations == []
            assert ours.trouble is not None
            said = f"another plugin offers {I915} on this node, at the socket {path}; this plugin"
            assert ours.trouble.startswith(said)
            assert path.stat() == served
            intels.close()
            await eventually(lambda: is_watched(ours))


async def test_a_restarted_plugin_takes_the_place_of_what_its_predecessor_left(socket_directory: Path) -> None:
    async with kubelet_in(socket_directory) as kubelet:
        async with running(plugin(socket_directory, *CARDS)) as first:
            await eventually(lambda: is_watched(first))
        await eventually(lambda: kubelet.streams[I915] == 0)
        (socket_directory / "gpu.intel.com-i915.sock").write_text("left by a plugin that was killed")
        async with running(plugin(socket_directory, *CARDS)) as second:
            await eventually(lambda: is_watched(second))


async def test_a_plugin_that_stops_removes_its_socket(socket_directory: Path) -> None:
    async with kubelet_in(socket_directory):
        async with running(plugin(socket_directory, *CARDS)) as registration:
            await eventually(lambda: is_watched(registration))
            assert (socket_directory / "gpu.intel.com-i915.sock").is_socket()
        assert names_in(socket_directory) == {"kubelet.sock"}


async def test_a_directory_that_cannot_hold_a_socket_is_reported(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 100)
    directory.mkdir()
    (directory / "kubelet.sock").write_text("")
    async with running(plugin(directory, *CARDS)) as registration:
        await eventually(lambda: registration.trouble)
        assert registration.trouble is not None
        assert registration.trouble.startswith(f"cannot listen at {directory}/gpu.intel.com-i915.sock: ")


async def test_each_kubelet_is_reported_before_the_registration_with_it(socket_directory: Path) -> None:
    async with kubelet_in(socket_directory) as kubelet:
        server = DeviceServer("gpu.intel.com/i915", allocate=nothing, fallback=nothing)
        server.show(CARDS)
        met: dict[FileIdentity, int] = {}

        def on_kubelet(identity: FileIdentity) -> None:
            met.setdefault(identity, len(kubelet.registrations))

        registration = Registration(
            server,
            socket_directory,
            allocatable=does_not_say,
            on_kubelet=on_kubelet,
            times=QUICK,
        )
        async with running(registration):
            await eventually(lambda: registration.state is Phase.WATCHED)
            await kubelet.stop()
            await kubelet.start()
            await eventually(lambda: registration.registrations == 2 and registration.state is Phase.WATCHED)
    before = list(met.values())
    assert (before[0], before[-1]) == (0, 1)
