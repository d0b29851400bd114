"""Ask the driver of a card how much memory of its own the card has, through the card's render node.

The layouts are those of the kernel's headers ``include/uapi/drm/i915_drm.h`` and ``xe_drm.h``, which never change:
`DRM_I915_QUERY_MEMORY_REGIONS` (Linux 5.15 and later) and `DRM_XE_DEVICE_QUERY_MEM_REGIONS` (Linux 6.8 and later). The
driver lists one region of the card's own memory for each tile, and the system's memory as a region of another class.
Opening the node and asking changes nothing on the card; no other request is made.
"""

import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

from gas.plugin.discovery.sysfs_files import UnreadableFile
from gas.values.card_facts import MOST_MEMORY
from gas.values.errors import GasError

Query = Callable[[Path, str], tuple[int, ...]]
"""Maps a render node and its driver to the bytes of each region of the card's memory: `memory_regions` or a test
double."""

Ioctl = Callable[[int, int, bytearray], object]  # like `fcntl.ioctl`, which changes the bytes that it gets
DRM_MAJOR = 226  # the major number of all DRM device nodes

I915_QUERY = 0xC0106479
I915_MEMORY_REGIONS = 4
XE_DEVICE_QUERY = 0xC0286440
XE_MEM_REGIONS = 1
LOCAL_MEMORY = 1  # class of the card's own memory: ``I915_MEMORY_CLASS_DEVICE`` and ``DRM_XE_MEM_REGION_CLASS_VRAM``
I915_QUERY_LAYOUT = struct.Struct("=IIQ")  # ``struct drm_i915_query``: number of items, flags, address of the items
I915_ITEM_LAYOUT = struct.Struct("=QiIQ")  # ``struct drm_i915_query_item``: query, length, flags, address of the data
I915_HEADER_LAYOUT = struct.Struct("=I12x")  # ``struct drm_i915_query_memory_regions`` up to its regions: their number
XE_QUERY_LAYOUT = struct.Struct("=QIIQ16x")  # ``struct drm_xe_device_query``: extensions, query, size, address of data
XE_HEADER_LAYOUT = struct.Struct("=I4x")  # ``struct drm_xe_query_mem_regions`` up to its regions: number of regions
REGION_LAYOUT = struct.Struct("=H6xQ72x")
"""``struct drm_i915_memory_region_info`` and ``struct drm_xe_mem_region``: class, total size in bytes."""

_MOST_REGIONS = 256
_NOT_SUPPORTED = (errno.ENOTTY, errno.EINVAL, errno.ENODEV, errno.EOPNOTSUPP)


class CannotAsk(GasError):
    """The driver cannot be asked: the node cannot be opened, or the driver is too old. Asking again may not help."""


def memory_regions(node: Path, driver: str) -> tuple[int, ...]:
    """Return the usable bytes of each region of the card's own memory, one for each tile; empty if it has none.

    ``node`` is the render node, ``/dev/dri/renderD128``; ``driver`` is ``i915`` or ``xe``. May block as long as the
    card does not respond. Raises CannotAsk; UnreadableFile if the driver fails or its reply is invalid.
    """
    place = f"/dev/dri/{node.name}"
    try:
        # O_NONBLOCK and the check below: something else may be at the path, and another driver must not be asked.
        descriptor = os.open(node, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise CannotAsk(f"cannot open {place}: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISCHR(status.st_mode) or os.major(status.st_rdev) != DRM_MAJOR:
            raise CannotAsk(f"{place} is not a render node")
        return ask(descriptor, driver, place)
    finally:
        os.close(descriptor)


def ask(descriptor: int, driver: str, place: str, ioctl: Ioctl = fcntl.ioctl) -> tuple[int, ...]:
    """Return the same as `memory_regions` from an open render node, which errors call ``place``."""
    try:
        if driver == "i915":
            return _sizes(_ask_i915(descriptor, ioctl), I915_HEADER_LAYOUT)
        return _sizes(_ask_xe(descriptor, ioctl), XE_HEADER_LAYOUT)
    except OSError as error:
        if error.errno in _NOT_SUPPORTED:
            raise CannotAsk(f"the driver of {place} does not report memory regions: {error.strerror}") from error
        raise UnreadableFile(f"cannot ask {place} for its memory regions: {error.strerror}") from error
    except UnreadableFile as error:
        raise UnreadableFile(f"memory regions of {place}: {error}") from error


def _ask_i915(descriptor: int, ioctl: Ioctl) -> bytes:
    """Ask for the length of the reply, then for the reply. i915 reports an item's error in place of its length."""
    data = ctypes.create_string_buffer(0)
    for _ in range(2):
        item = ctypes.create_string_buffer(
            I915_ITEM_LAYOUT.pack(I915_MEMORY_REGIONS, len(data), 0, ctypes.addressof(data) if len(data) else 0),
            I915_ITEM_LAYOUT.size,
        )
        ioctl(descriptor, I915_QUERY, bytearray(I915_QUERY_LAYOUT.pack(1, 0, ctypes.addressof(item))))
        _, length, _, _ = I915_ITEM_LAYOUT.unpack(item.raw)
        if length < 0:
            raise OSError(-length, os.strerror(-length))
        if len(data):
            break
        data = _buffer(length)
    return data.raw[:length]


def _ask_xe(descriptor: int, ioctl: Ioctl) -> bytes:
    query = bytearray(XE_QUERY_LAYOUT.pack(0, XE_MEM_REGIONS, 0, 0))
    ioctl(descriptor, XE_DEVICE_QUERY, query)
    data = _buffer(XE_QUERY_LAYOUT.unpack(query)[2])
    query = bytearray(XE_QUERY_LAYOUT.pack(0, XE_MEM_REGIONS, len(data), ctypes.addressof(data)))
    ioctl(descriptor, XE_DEVICE_QUERY, query)
    return data.raw


def _buffer(length: int) -> ctypes.Array[ctypes.c_char]:
    """Return zeroed memory for a reply. Raises UnreadableFile if the length is not that of a list of regions."""
    if not REGION_LAYOUT.size <= length <= _MOST_REGIONS * REGION_LAYOUT.size:
        raise UnreadableFile(f"the driver announced a reply of {length} bytes")
    return ctypes.create_string_buffer(length)


def _sizes(reply: bytes, header: struct.Struct) -> tuple[int, ...]:
    """Return the sizes of the regions of the card's own memory. Raises UnreadableFile."""
    if len(reply) < header.size:
        raise UnreadableFile(f"the reply has only {len(reply)} bytes")
    (count,) = header.unpack_from(reply)
    regions = memoryview(reply)[header.size :]
    if not 0 < count <= len(regions) // REGION_LAYOUT.size:
        raise UnreadableFile(f"the reply announces {count} regions in {len(reply)} bytes")
    sizes = tuple(
        size
        for memory_class, size in REGION_LAYOUT.iter_unpack(regions[: count * REGION_LAYOUT.size])
        if memory_class == LOCAL_MEMORY
    )
    for size in sizes:
        if not 0 < size <= MOST_MEMORY:
            raise UnreadableFile(f"expected the bytes of a region, found {size}")
    return sizes
