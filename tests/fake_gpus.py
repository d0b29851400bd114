"""Models of fake GPUs, and changes of a tree with them, that only tests need."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from sandbox.hardware.fake_sysfs import FakeGpu, Model, device_directory

ARC_A770 = Model(device_id="0x56a0", driver="i915", memory=16 * 2**30)
ARC_B580 = Model(device_id="0xe20b", driver="xe")
FLEX_140 = Model(device_id="0x56c1", driver="i915", memory=6 * 2**30)
MAX_1100 = Model(device_id="0x0bda", driver="i915", memory=48 * 2**30)


def with_virtual_functions(physical: FakeGpu, count: int, *, first: int) -> tuple[FakeGpu, ...]:
    """Return the physical function with ``count`` virtual functions, and these as cards numbered from ``first``."""
    place, _, _ = physical.pci_address.rpartition(".")
    virtual = (
        replace(
            physical,
            card=first + index,
            pci_path=(*physical.pci_path[:-1], f"{place}.{index + 1}"),
            virtual_functions=None,
            mei=None,
        )
        for index in range(count)
    )
    return (replace(physical, virtual_functions=count), *virtual)


def remove_gpu(root: Path, gpu: FakeGpu) -> None:
    """Remove one card, as when its driver is unbound."""
    card, places = f"card{gpu.card}", (root / "sys/class/drm", root / "dev/dri")
    nodes = [place / name for place in places for name in (card, gpu.render_node)]
    for path in (*nodes, root / f"dev/mei{gpu.mei}", *(root / "dev/dri/by-path").glob(f"pci-{gpu.pci_address}-*")):
        path.unlink(missing_ok=True)
    shutil.rmtree(device_directory(root, gpu), ignore_errors=True)


def card_directory(root: Path, gpu: FakeGpu) -> Path:
    return root / "sys/class/drm" / f"card{gpu.card}"
