"""A CUDA program without libraries of its own: ``python cuda.py memory|fault``, with the driver's library alone.

memory  prints, as JSON, UUID and bytes of each card that the process may use, and how many of the bytes are free
fault   writes to an address that no program has, which the driver reports as an Xid of an application
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid
from typing import Any

_KERNEL = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry fault()
{
    .reg .b64 %address;
    .reg .b32 %value;
    mov.u64 %address, 4096;
    mov.u32 %value, 1;
    st.global.u32 [%address], %value;
    ret;
}
"""


class CudaError(Exception):
    """A call of the driver's library failed."""


class Cuda:
    """The driver's library with a context on each card."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises CudaError."""
        if code := getattr(self._library, name)(*arguments):
            raise CudaError(f"{name}: error {code}")

    def devices(self) -> list[int]:
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return list(range(count.value))

    def enter(self, device: int) -> None:
        """Make a context on a card the current one."""
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def memory(self, device: int) -> dict[str, str | int]:
        identity = (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGetUuid", ctypes.byref(identity), device)
        self.enter(device)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return {"uuid": f"GPU-{uuid.UUID(bytes=bytes(identity))}", "total": total.value, "free": free.value}

    def fault(self, device: int) -> None:
        """Run the kernel above. Raises CudaError, by its purpose."""
        self.enter(device)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_KERNEL))
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"fault")
        self.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        self.call("cuCtxSynchronize")


if __name__ == "__main__":
    cuda = Cuda()
    if sys.argv[1:] == ["fault"]:
        cuda.fault(0)
    print(json.dumps([cuda.memory(device) for device in cuda.devices()]))
