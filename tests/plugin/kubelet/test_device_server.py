from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from gas.plugin.devices.allocation import Allocation, DeviceNode, Mount, NoSuchCards
from gas.plugin.devices.device_ids import AllocateRequest, DeviceId, PreferredRequest, known_ids
from gas.plugin.devices.device_lists import Device
from gas.plugin.kubelet import device_server
from gas.plugin.kubelet.device_server import BETWEEN_CALLS, Allocate, CallTracker, DeviceServer, Outcome
from gas.plugin.kubelet.plugin_socket import is_served
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api.deviceplugin_v1beta1_pb2_grpc import DevicePluginStub
from tests.background import PATIENCE, eventually
from tests.plugin.scripted_kubelet import connect, devices_of, next_of

HEALTHY = (Device(id="card0-0", healthy=True), Device(id="card1-0", healthy=True))
PLAIN = Allocation(device_nodes=(DeviceNode("/dev/dri/card0", "/dev/dri/card0"),))


Replies = list[tuple[str, Outcome]]


def plain(request: AllocateRequest) -> Allocation:
    return PLAIN


async def no_wish(request: PreferredRequest) -> Sequence[DeviceId]:
    return ()


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


@asynccontextmanager
async def served(
    directory: Path, replies: Replies | None = None, **parts: Any
) -> AsyncIterator[tuple[DeviceServer, DevicePluginStub]]:
    """Run a server that shows HEALTHY, with kubelet's connection to it; ``replies`` collects methods and outcomes."""

    def on_reply(method: str, outcome: Outcome, seconds: float) -> None:
        assert 0 <= seconds < PATIENCE
        if replies is not None:
            replies.append((method, outcome))

    options = {"allocate": plain, "fallback": plain, "prefer": no_wish, "on_reply": on_reply, **parts}
    server = DeviceServer("gpu.intel.com/i915", **options)
    server.show(HEALTHY)
    path = directory / "p.sock"
    await server.open(path)
    try:
        async with connect(path) as channel:
            yield server, DevicePluginStub(channel)
    finally:
        await server.close()


def allocate_request(*ids: str) -> api.AllocateRequest:
    return api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=ids)])


def preferred_request(available: str, size: int, must_include: str = "") -> api.PreferredAllocationRequest:
    return api.PreferredAllocationRequest(
        container_requests=[
            api.ContainerPreferredAllocationRequest(
                available_deviceIDs=available.split(),
                must_include_deviceIDs=must_include.split(),
                allocation_size=size,
            )
        ]
    )


# contract P2.6
async def test_kubelet_is_sent_the_devices_and_each_change_until_the_server_closes(socket_directory: Path) -> None:
    async with served(socket_directory) as (server, kubelet):
        assert server.streams == 0
        stream = kubelet.ListAndWatch(api.Empty())
        assert devices_of(await next_of(stream)) == [("card0-0", "Healthy"), ("card1-0", "Healthy")]
        assert server.streams == 1
        server.show(HEALTHY)  # a rescan that found the same
        server.show((Device(id="card0-0", healthy=False, numa_node=1),))
        assert await next_of(stream) == api.ListAndWatchResponse(
            devices=[
                api.Device(ID="card0-0", health="Unhealthy", topology=api.TopologyInfo(nodes=[api.NUMANode(ID=1)]))
            ]
        )
        server.show(())
        assert devices_of(await next_of(stream)) == []
        await server.close()
        assert await next_of(stream) is None
        assert server.streams == 0


async def test_the_end_of_kubelets_watch_is_noticed(socket_directory: Path) -> None:
    async with served(socket_directory) as (server, kubelet):
        stream = kubelet.ListAndWatch(api.Empty())
        await next_of(stream)
        stream.cancel()
        await eventually(lambda: server.streams == 0)


def test_without_any_card_there_is_nothing_to_show() -> None:
    server = DeviceServer("gpu.intel.com/i915", allocate=plain, fallback=plain)
    shown = []
    for devices in ((), HEALTHY, ()):
        server.show(devices)
        shown.append(server.devices)
    assert shown == [None, HEALTHY, ()]


def test_only_healthy_ids_may_be_allocated() -> None:
    server = DeviceServer("gpu.intel.com/i915", allocate=plain, fallback=plain)
    assert server.healthy_ids == frozenset()
    server.show((*HEALTHY, Device(id="card2-0", healthy=False)))
    assert server.healthy_ids == {"card0-0", "card1-0"}


async def test_kubelet_may_make_the_calls_that_something_is_to_be_done_for(socket_directory: Path) -> None:
    for prefer, before_start in ((no_wish, ()), (None, (_does_nothing,))):
        async with served(socket_directory, prefer=prefer, before_start=before_start) as (_, kubelet):
            said = await kubelet.GetDevicePluginOptions(api.Empty(), timeout=PATIENCE)
            assert said == api.DevicePluginOptions(
                get_preferred_allocation_available=prefer is not None, pre_start_required=bool(before_start)
            )


async def _does_nothing(request: AllocateRequest) -> None: ...


async def test_a_question_is_passed_on_and_its_preference_returned(socket_directory: Path) -> None:
    asked: list[PreferredRequest] = []

    async def prefer(request: PreferredRequest) -> Sequence[DeviceId]:
        asked.append(request)
        return known_ids(["card1-0", "card0-1"])

    async with served(socket_directory, prefer=prefer) as (_, kubelet):
        answer = await kubelet.GetPreferredAllocation(
            preferred_request("card1-0 card0-1 card0-0", 2, "card0-1"), timeout=PATIENCE
        )
    assert [list(each.deviceIDs) for each in answer.container_responses] == [["card1-0", "card0-1"]]
    assert asked == [
        PreferredRequest(
            resource="gpu.intel.com/i915",
            offered=["card1-0", "card0-1", "card0-0"],
            must_include=frozenset(known_ids(["card0-1"])),
            size=2,
        )
    ]
    assert asked[0].available == frozenset(known_ids(["card0-0", "card0-1", "card1-0"]))


async def _raises(request: PreferredRequest) -> Sequence[DeviceId]:
    raise ZeroDivisionError


async def _takes_forever(request: PreferredRequest) -> Sequence[DeviceId]:
    await asyncio.sleep(3600)
    return ()


@pytest.mark.parametrize("prefer", [_raises, _takes_forever], ids=["raises", "takes too long"])
async def test_without_a_preference_kubelet_chooses(
    socket_directory: Path, caplog: pytest.LogCaptureFixture, prefer: Any
) -> None:
    replies: Replies = []
    async with served(socket_directory, replies, prefer=prefer) as (_, kubelet):
        answer = await kubelet.GetPreferredAllocation(preferred_request("card0-0", 1), timeout=PATIENCE)
    assert [list(each.deviceIDs) for each in answer.container_responses] == [[]]
    assert replies == [("GetPreferredAllocation", Outcome.FELL_BACK)]
    assert "kubelet chooses its devices" in caplog.text


async def test_a_preference_with_a_limit_of_its_own_counts_after_a_moment_without_processor(
    socket_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_server, "REPLY_WITHIN", 0.1)

    async def guess_at_the_limit(request: PreferredRequest) -> Sequence[DeviceId]:
        asyncio.get_running_loop().call_soon(time.sleep, 0.2)
        try:
            async with asyncio.timeout(0.05):
                await asyncio.sleep(3600)
        except TimeoutError:
            return known_ids(["card1-0"])
        raise AssertionError

    async with served(socket_directory, prefer=guess_at_the_limit) as (_, kubelet):
        assert await _preferred(kubelet) == ["card1-0"]


async def test_a_container_gets_all_that_was_decided(socket_directory: Path) -> None:
    asked: list[AllocateRequest] = []

    def allocate(request: AllocateRequest) -> Allocation:
        asked.append(request)
        return Allocation(
            env={"ZE_AFFINITY_MASK": "0"},
            device_nodes=(DeviceNode("/tree/dev/dri/card0", "/dev/dri/card0"),),
            mounts=(Mount("/tree/dev/dri/by-path", "/dev/dri/by-path"),),
            cdi=("gpu.intel.com/card=card0",),
            annotations={"key": "value"},
        )

    async with served(socket_directory, allocate=allocate) as (_, kubelet):
        answer = await kubelet.Allocate(allocate_request("card0-1", "card0-0"), timeout=PATIENCE)
    assert answer.container_responses[0] == api.ContainerAllocateResponse(
        envs={"ZE_AFFINITY_MASK": "0"},
        devices=[api.DeviceSpec(host_path="/tree/dev/dri/card0", container_path="/dev/dri/card0", permissions="rw")],
        mounts=[api.Mount(host_path="/tree/dev/dri/by-path", container_path="/dev/dri/by-path", read_only=True)],
        cdi_devices=[api.CDIDevice(name="gpu.intel.com/card=card0")],
        annotations={"key": "value"},
    )
    assert asked == [AllocateRequest(resource="gpu.intel.com/i915", ids=frozenset(known_ids(["card0-0", "card0-1"])))]


async def test_every_container_of_a_call_gets_a_reply(socket_directory: Path) -> None:
    request = api.AllocateRequest(
        container_requests=[api.ContainerAllocateRequest(devices_ids=[each]) for each in ("card0-0", "card1-0")]
    )
    async with served(socket_directory) as (_, kubelet):
        answer = await kubelet.Allocate(request, timeout=PATIENCE)
    assert len(answer.container_responses) == 2


def _unencodable(request: AllocateRequest) -> Allocation:
    return Allocation(env={"ZE_AFFINITY_MASK": 1})  # type: ignore[dict-item]


def _broken(request: AllocateRequest) -> Allocation:
    raise ZeroDivisionError


def _no_such_cards(request: AllocateRequest) -> Allocation:
    raise NoSuchCards("no card0")


FALLS_BACK = "allocating the devices that kubelet chose for gpu.intel.com/i915"
FAILS = "cannot allocate gpu.intel.com/i915"


# contract P3.7
@pytest.mark.parametrize(
    ("allocate", "fallback", "error", "logged"),
    [
        pytest.param(_broken, plain, None, [(logging.ERROR, True, FALLS_BACK)], id="our-bug"),
        pytest.param(_unencodable, plain, None, [(logging.ERROR, True, FALLS_BACK)], id="nonsense"),
        pytest.param(_no_such_cards, plain, None, [(logging.WARNING, False, f"{FALLS_BACK}: ")], id="expected"),
        pytest.param(
            _no_such_cards,
            _no_such_cards,
            (grpc.StatusCode.FAILED_PRECONDITION, str(NoSuchCards("no card0"))),
            [(logging.ERROR, False, f"{FAILS}: {NoSuchCards('no card0')}; kubelet fails the pod")],
            id="card-gone",
        ),
        pytest.param(
            _broken,
            _broken,
            (grpc.StatusCode.INTERNAL, "no devices could be given: ZeroDivisionError()"),
            [(logging.ERROR, True, FALLS_BACK), (logging.ERROR, True, f"{FAILS}; kubelet fails the pod")],
            id="our-bug-even-without-a-pod",
        ),
    ],
)
async def test_when_the_decision_fails_a_container_gets_what_kubelet_chose_if_there_is_any(
    socket_directory: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    allocate: Allocate,
    fallback: Allocate,
    error: tuple[grpc.StatusCode, str] | None,
    logged: list[tuple[int, bool, str]],
) -> None:
    replies: Replies = []
    found: tuple[grpc.StatusCode, str | None] | None = None
    async with served(socket_directory, replies, allocate=allocate, fallback=fallback) as (_, kubelet):
        try:
            answer = await kubelet.Allocate(allocate_request("card0-0"), timeout=PATIENCE)
            assert [each.host_path for each in answer.container_responses[0].devices] == ["/dev/dri/card0"]
        except aio.AioRpcError as raised:
            found = raised.code(), raised.details()
    assert found == error
    assert replies == [("Allocate", Outcome.REFUSED if error else Outcome.FELL_BACK)]
    records = [(record.levelno, bool(record.exc_info)) for record in caplog.records]
    assert records == [(level, has_traceback) for level, has_traceback, _ in logged]
    assert all(record.message.startswith(begin) for record, (_, _, begin) in zip(caplog.records, logged, strict=True))


@pytest.mark.parametrize(
    ("ids", "warnings"),
    [
        pytest.param(
            ["card0-0", "GPU-1"], ["kubelet allocates 'GPU-1', which this plugin never offered"], id="foreign"
        ),
        pytest.param(
            ["card0-0", *"dcba"],
            ["kubelet allocates 'a', 'b', 'c' and 1 more, which this plugin never offered"],
            id="many-foreign",
        ),
        pytest.param(["card0-0", "all"], [], id="that-of-monitoring"),
    ],
)
async def test_ids_that_name_no_card_are_left_out(
    socket_directory: Path, caplog: pytest.LogCaptureFixture, ids: list[str], warnings: list[str]
) -> None:
    asked: list[AllocateRequest] = []

    def allocate(request: AllocateRequest) -> Allocation:
        asked.append(request)
        return PLAIN

    async with served(socket_directory, allocate=allocate) as (_, kubelet):
        await kubelet.Allocate(allocate_request(*ids), timeout=PATIENCE)
    assert [request.ids for request in asked] == [frozenset(known_ids(["card0-0"]))]
    assert warnings_in(caplog) == warnings


async def test_replies_are_reported(socket_directory: Path) -> None:
    replies: Replies = []
    async with served(socket_directory, replies) as (_, kubelet):
        await kubelet.GetPreferredAllocation(preferred_request("card0-0", 1), timeout=PATIENCE)
        await kubelet.Allocate(allocate_request("card0-0"), timeout=PATIENCE)
    assert replies == [("GetPreferredAllocation", Outcome.DECIDED), ("Allocate", Outcome.DECIDED)]


async def test_a_container_starts_when_its_preparation_is_done(socket_directory: Path) -> None:
    prepared: list[AllocateRequest] = []
    replies: Replies = []

    async def prepare(request: AllocateRequest) -> None:
        await asyncio.sleep(0.05)
        prepared.append(request)

    async with served(socket_directory, replies, before_start=[prepare]) as (_, kubelet):
        request = api.PreStartContainerRequest(devices_ids=["card0-0", "GPU-1"])
        await kubelet.PreStartContainer(request, timeout=PATIENCE)
    assert prepared == [AllocateRequest(resource="gpu.intel.com/i915", ids=frozenset(known_ids(["card0-0"])))]
    assert replies == [("PreStartContainer", Outcome.DECIDED)]


@pytest.mark.parametrize("failure", ["error", "hang"])
async def test_a_container_starts_even_if_its_preparation_fails(
    socket_directory: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    monkeypatch.setattr(device_server, "START_WITHIN", 0.1)
    replies: Replies = []

    async def fail(request: AllocateRequest) -> None:
        if failure == "hang":
            await asyncio.sleep(60)
        raise RuntimeError("a bug")

    async with served(socket_directory, replies, before_start=[fail]) as (_, kubelet):
        request = api.PreStartContainerRequest(devices_ids=["card0-0"])
        assert await kubelet.PreStartContainer(request, timeout=PATIENCE) == api.PreStartContainerResponse()
    assert replies == [("PreStartContainer", Outcome.FELL_BACK)]


@pytest.mark.parametrize("turns", range(0, 60, 4))
async def test_closing_can_be_cancelled_at_any_moment(socket_directory: Path, turns: int) -> None:
    server = DeviceServer("gpu.intel.com/i915", allocate=plain, fallback=plain)
    path = socket_directory / "p.sock"
    for more in range(4):
        await server.open(path)
        closing = asyncio.create_task(server.close())
        for _ in range(turns + more):
            await asyncio.sleep(0)
        if closing.cancel():
            with pytest.raises(asyncio.CancelledError):
                await closing
        await server.close()  # the end went on all the same
        assert not await is_served(path)


async def test_it_does_not_end_in_the_middle_of_a_pod(socket_directory: Path) -> None:
    """Kubelet would end that pod for good."""
    asked, may_answer = asyncio.Event(), asyncio.Event()
    now = 0.0

    async def slow(request: PreferredRequest) -> Sequence[DeviceId]:
        asked.set()
        await may_answer.wait()
        return known_ids(["card1-0"])

    async def still_watched_after(seconds: float) -> bool:
        nonlocal now
        now += seconds
        await asyncio.sleep(0.05)
        return server.streams == 1

    async with served(socket_directory, prefer=slow, calls=CallTracker(lambda: now)) as (server, kubelet):
        stream = kubelet.ListAndWatch(api.Empty())
        await next_of(stream)
        asking = asyncio.create_task(_preferred(kubelet))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        closing = asyncio.create_task(server.close())
        assert await still_watched_after(2 * BETWEEN_CALLS)
        may_answer.set()
        assert await asking == ["card1-0"]
        assert await still_watched_after(0.9 * BETWEEN_CALLS)
        answer = await kubelet.Allocate(allocate_request("card1-0"))
        assert len(answer.container_responses) == 1
        assert await still_watched_after(0.9 * BETWEEN_CALLS)
        now += 0.2 * BETWEEN_CALLS
        assert await next_of(stream) is None
        await closing


async def test_it_ends_eventually_even_if_kubelet_keeps_calling(
    socket_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_server, "FINISH", 0.1)
    async with served(socket_directory, prefer=_takes_forever) as (server, kubelet):
        asking = asyncio.create_task(_preferred(kubelet))
        await asyncio.sleep(0.1)
        await asyncio.wait_for(server.close(), PATIENCE)
        await asyncio.gather(asking, return_exceptions=True)


async def test_a_call_that_fails_has_ended_too() -> None:
    calls = CallTracker(lambda: 0.0)
    with pytest.raises(RuntimeError), calls.call():
        raise RuntimeError
    await asyncio.wait_for(calls.pause(lasting=0.0), PATIENCE)


async def _preferred(kubelet: DevicePluginStub) -> list[str]:
    answer = await kubelet.GetPreferredAllocation(preferred_request("card0-0 card1-0", 1))
    return list(answer.container_responses[0].deviceIDs)
