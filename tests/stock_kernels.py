"""Sysfs as stock kernels have it for a card, beside the files of every tree: no file states the amount of its memory.

From the sources of Linux 6.12 (``i915_sysfs.c``, ``intel_gt_sysfs_pm.c``, ``sysfs_engines.c``, ``xe_tile_sysfs.c``,
``xe_gt_sysfs.c``, ``xe_gt_freq.c``, ``xe_vram_freq.c`` …), and the kernel versions that ``Documentation/ABI/testing``
states for single files. Contents are of the kernel's form, and each number among them looks like an amount of memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.hardware.fake_sysfs import FakeGpu, Model, device_directory
from tests.fake_gpus import card_directory

GB = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class StockKernel:
    """The files that one driver of one kernel shows for a card.

    model    a card that it supports
    regions  bytes of the memory regions that its driver reports of the card, one for each tile
    card     files in ``/sys/class/drm/cardN``; the ``{gt}`` of a path stands for each tile
    device   files in the directory of the PCI device, likewise with ``{tile}``
    """

    version: str
    model: Model
    regions: tuple[int, ...]
    card: tuple[str, ...] = ()
    device: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.version}-{self.model.driver}-{self.model.device_id}"

    def write(self, root: Path, gpu: FakeGpu) -> None:
        """Add the files to a tree that has the card already."""
        for directory, paths in ((card_directory(root, gpu), self.card), (device_directory(root, gpu), self.device)):
            for path in paths:
                for tile in range(self.model.tiles):
                    file = directory / path.format(gt=f"gt{tile}", tile=f"tile{tile}")
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(_TEXTS.get(file.name, "2000000000\n"))


_TEXTS: Mapping[str, str] = {
    "name": "rcs0\n",
    "capabilities": "\n",
    "power_profile": "[base]    power_saving\n",
    "sched_priority": "[low] normal high\n",
    "serial_number": "8c-ec-f1-00-00-12-34-56\n",
    "resource2_resize": "0000000000000000\n",
}

_I915_CARD = (
    *(f"gt/{{gt}}/{name}" for name in ("id", "rc6_enable", "rc6_residency_ms", "punit_req_freq_mhz")),
    *(f"gt/{{gt}}/rps_{name}_freq_mhz" for name in ("act", "boost", "cur", "max", "min", "RP0", "RP1", "RPn")),
    *(f"gt/{{gt}}/{name}" for name in ("throttle_reason_status", "slpc_ignore_eff_freq", "media_freq_factor")),
    *(f"gt/{{gt}}/.defaults/{name}" for name in ("rps_max_freq_mhz", "rps_min_freq_mhz")),
    *(f"gt_{name}_freq_mhz" for name in ("act", "boost", "cur", "max", "min", "RP0", "RP1", "RPn")),
    *(f"engine/{name}" for name in ("rcs0/name", "rcs0/capabilities", "ccs0/mmio_base", "vcs0/heartbeat_interval_ms")),
    "metrics/0/id",
    "error",
)
_I915_HWMON = tuple(
    f"hwmon/hwmon0/{name}" for name in ("in0_input", "power1_max", "power1_rated_max", "power1_crit", "energy1_input")
)
_XE_DEVICE = (
    "vram_d3cold_threshold",
    *(f"{{tile}}/gt0/freq0/{name}_freq" for name in ("act", "cur", "max", "min", "rp0", "rpe", "rpn")),
    *(f"{{tile}}/gt0/gtidle/{name}" for name in ("name", "idle_status", "idle_residency_ms")),
    *(f"{{tile}}/gt0/engines/rcs/{name}" for name in ("job_timeout_ms", "timeslice_duration_us", "preempt_timeout_us")),
    "{tile}/gt0/engines/rcs/.defaults/job_timeout_ms",
    *(f"hwmon/hwmon0/{name}" for name in ("power1_max", "power1_rated_max", "energy1_input", "power1_max_interval")),
)
_XE_6_12_DEVICE = (
    *_XE_DEVICE,
    *(f"{{tile}}/gt0/freq0/throttle/{name}" for name in ("status", "reason_pl1", "reason_thermal")),
    *(f"hwmon/hwmon0/{name}" for name in ("power2_max", "power2_rated_max", "energy2_input", "in1_input")),
)
_XE_PONTE_VECCHIO = ("{tile}/memory/freq0/max_freq", "{tile}/memory/freq0/min_freq", "{tile}/gt0/ccs_mode")
_NEWEST_PCI = ("serial_number", "resource2_resize")

A770_I915 = Model(device_id="0x56a0", driver="i915")
A770_XE = Model(device_id="0x56a0", driver="xe")
"""Linux 6.8 does not know Arc B yet; its xe drives Arc A if ``xe.force_probe`` says so."""
B580 = Model(device_id="0xe20b", driver="xe")
MAX_1550 = Model(device_id="0x0bd5", driver="xe", tiles=2)
EIGHT_GB = (8 * GB,)

STOCK_KERNELS = (
    StockKernel(version="6.8", model=A770_I915, regions=EIGHT_GB, card=_I915_CARD, device=_I915_HWMON),
    StockKernel(version="6.8", model=A770_XE, regions=EIGHT_GB, device=_XE_DEVICE),
    StockKernel(
        version="6.12",
        model=A770_I915,
        regions=EIGHT_GB,
        card=_I915_CARD,
        device=(*_I915_HWMON, "hwmon/hwmon0/fan1_input"),
    ),
    StockKernel(version="6.12", model=B580, regions=EIGHT_GB, device=_XE_6_12_DEVICE),
    StockKernel(
        version="6.12", model=MAX_1550, regions=(4 * GB, 4 * GB), device=(*_XE_6_12_DEVICE, *_XE_PONTE_VECCHIO)
    ),
    StockKernel(
        version="7.0",
        model=A770_I915,
        regions=EIGHT_GB,
        card=_I915_CARD,
        device=(*_I915_HWMON, "hwmon/hwmon0/fan1_input", "hwmon/hwmon0/temp1_input", *_NEWEST_PCI),
    ),
    StockKernel(
        version="7.0",
        model=B580,
        regions=EIGHT_GB,
        device=(
            *_XE_6_12_DEVICE,
            *_NEWEST_PCI,
            *(f"hwmon/hwmon0/{name}" for name in ("power1_cap", "temp2_input", "temp3_input", "fan1_input")),
            *(f"sriov_admin/pf/profile/{name}" for name in ("exec_quantum_ms", "sched_priority")),
            "sriov_admin/vf1/profile/vram_quota",
            "auto_link_downgrade_capable",
            "{tile}/gt0/freq0/power_profile",
        ),
    ),
)
"""By version. All that is known of 7.0 is the documentation of single files; the others are those of 6.12."""
