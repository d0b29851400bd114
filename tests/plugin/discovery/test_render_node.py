"""Asking a driver for the memory regions of its card."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.plugin.discovery.render_node import (
    I915_HEADER_LAYOUT,
    I915_ITEM_LAYOUT,
    I915_MEMORY_REGIONS,
    I915_QUERY,
    I915_QUERY_LAYOUT,
    REGION_LAYOUT,
    XE_DEVICE_QUERY,
    XE_HEADER_LAYOUT,
    XE_MEM_REGIONS,
    XE_QUERY_LAYOUT,
    CannotAsk,
    ask,
    memory_regions,
)
from gas.plugin.discovery.sysfs_files import UnreadableFile

SYSTEM = (0, 64 * 2**30)
DRIVERS = ("i915", "xe")
NODE = "/dev/dri/renderD128"


def reply(driver: str, *regions: tuple[int, int], count: int | None = None) -> bytes:
    """Build the reply of a driver; a region is its class and its bytes."""
    header = I915_HEADER_LAYOUT if driver == "i915" else XE_HEADER_LAYOUT
    listed = b"".join(REGION_LAYOUT.pack(*region) for region in regions)
    return header.pack(len(regions) if count is None else count) + listed


class Driver:
    """A driver with this reply.

    length  what it announces as the length of the reply; by default the true one
    error   of every request
    """

    def __init__(self, name: str, reply: bytes, *, length: int | None = None, error: int = 0) -> None:
        self.name = name
        self._reply = reply
        self._length = len(reply) if length is None else length
        self._error = error

    def __call__(self, descriptor: int, request: int, argument: bytearray) -> int:
        if self.name == "i915":
            assert request == I915_QUERY
            items, _, address = I915_QUERY_LAYOUT.unpack(argument)
            assert items == 1
            query, length, flags, data = I915_ITEM_LAYOUT.unpack(ctypes.string_at(address, I915_ITEM_LAYOUT.size))
            assert (query, flags) == (I915_MEMORY_REGIONS, 0)
            found = -self._error if self._error else self._deliver(length, data)
            ctypes.memmove(address, I915_ITEM_LAYOUT.pack(query, found, flags, data), I915_ITEM_LAYOUT.size)
            return 0
        assert request == XE_DEVICE_QUERY
        if self._error:
            raise OSError(self._error, os.strerror(self._error))
        extensions, query, size, data = XE_QUERY_LAYOUT.unpack(argument)
        assert (extensions, query) == (0, XE_MEM_REGIONS)
        argument[:] = XE_QUERY_LAYOUT.pack(0, query, self._deliver(size, data), data)
        return 0

    def _deliver(self, room: int, address: int) -> int:
        if room:
            assert ctypes.string_at(address, room) == bytes(room)  # i915 refuses a reply that is not zeroed
            ctypes.memmove(address, self._reply[:room], min(room, len(self._reply)))
        return self._length


def asked(driver: Driver) -> tuple[int, ...]:
    return ask(3, driver.name, NODE, driver)


@pytest.mark.parametrize("name", DRIVERS)
class TestReplies:
    @pytest.mark.parametrize(
        ("regions", "expected"),
        [
            pytest.param([SYSTEM, (1, 17079205888)], (17079205888,), id="one-tile"),
            pytest.param([SYSTEM, (1, 5), (1, 7)], (5, 7), id="two-tiles"),
            pytest.param([SYSTEM], (), id="an-integrated-gpu"),
            pytest.param([SYSTEM, (2, 9), (3, 9), (1, 5)], (5,), id="regions-of-other-classes-do-not-count"),
        ],
    )
    def test_the_regions_of_its_own(self, name: str, regions: list[tuple[int, int]], expected: tuple[int, ...]) -> None:
        assert asked(Driver(name, reply(name, *regions))) == expected

    @pytest.mark.parametrize("error", [errno.EINVAL, errno.ENODEV, errno.ENOTTY, errno.EOPNOTSUPP])
    def test_a_driver_that_does_not_know_the_request(self, name: str, error: int) -> None:
        with pytest.raises(CannotAsk, match=f"the driver of {NODE} does not report memory regions: "):
            asked(Driver(name, b"", error=error))

    @pytest.mark.parametrize("error", [errno.EIO, errno.EFAULT, errno.ENOMEM])
    def test_a_driver_that_fails(self, name: str, error: int) -> None:
        with pytest.raises(UnreadableFile, match=f"cannot ask {NODE} for its memory regions: {os.strerror(error)}"):
            asked(Driver(name, b"", error=error))

    @pytest.mark.parametrize("length", [0, 1, 87, 10**6, 2**31 - 1])
    def test_a_wrong_length(self, name: str, length: int) -> None:
        with pytest.raises(UnreadableFile, match=f"{NODE}: the driver announced a reply of {length} bytes"):
            asked(Driver(name, reply(name, SYSTEM), length=length))

    @pytest.mark.parametrize("count", [0, 3, 2**32 - 1])
    def test_a_wrong_number_of_regions(self, name: str, count: int) -> None:
        with pytest.raises(UnreadableFile, match=f"the reply announces {count} regions in "):
            asked(Driver(name, reply(name, SYSTEM, (1, 5), count=count)))

    @pytest.mark.parametrize("size", [0, 2**50 + 1, 2**64 - 1])
    def test_a_region_of_an_impossible_size(self, name: str, size: int) -> None:
        with pytest.raises(UnreadableFile, match=f"{NODE}: expected the bytes of a region, found {size}"):
            asked(Driver(name, reply(name, SYSTEM, (1, size))))

    @given(garbage=st.binary(max_size=400), length=st.integers(0, 500))
    def test_garbage_never_raises_another_error(self, name: str, garbage: bytes, length: int) -> None:
        with suppress(UnreadableFile):
            assert all(0 < size <= 2**50 for size in asked(Driver(name, garbage, length=length)))


@pytest.mark.parametrize("driver", DRIVERS)
class TestNodes:
    """Other files in place of a render node."""

    def test_none(self, tmp_path: Path, driver: str) -> None:
        with pytest.raises(CannotAsk, match="cannot open /dev/dri/renderD128: No such file or directory"):
            memory_regions(tmp_path / "renderD128", driver)

    def test_a_plain_file(self, tmp_path: Path, driver: str) -> None:
        (tmp_path / "renderD128").touch()
        with pytest.raises(CannotAsk, match="/dev/dri/renderD128 is not a render node"):
            memory_regions(tmp_path / "renderD128", driver)

    def test_a_pipe_does_not_block(self, tmp_path: Path, driver: str) -> None:
        os.mkfifo(tmp_path / "renderD128")
        with pytest.raises(CannotAsk, match="/dev/dri/renderD128 is not a render node"):
            memory_regions(tmp_path / "renderD128", driver)

    def test_a_device_of_another_driver_is_not_asked(self, tmp_path: Path, driver: str) -> None:
        (tmp_path / "renderD128").symlink_to("/dev/null")
        assert stat.S_ISCHR((tmp_path / "renderD128").stat().st_mode)
        with pytest.raises(CannotAsk, match="/dev/dri/renderD128 is not a render node"):
            memory_regions(tmp_path / "renderD128", driver)


def test_layouts_have_the_sizes_in_the_request_numbers() -> None:
    layouts: dict[int, struct.Struct] = {I915_QUERY: I915_QUERY_LAYOUT, XE_DEVICE_QUERY: XE_QUERY_LAYOUT}
    for request, layout in layouts.items():
        assert request >> 16 & 0x3FFF == layout.size
