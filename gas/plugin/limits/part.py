"""Declare the part that lets the kernel limit the memory that pods use of shared cards."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from gas.daemon import flag_values as values
from gas.daemon.flags import PartFlags, flag
from gas.daemon.metric import Metric
from gas.plugin.part import Core, CoreFlags, Hooks, Part, PodNeeds

if TYPE_CHECKING:
    from gas.plugin.limits.limit_files import Dmem


class MemoryLimitsOf(StrEnum):
    NONE = "none"
    POD = "pod"  # the cgroup of each pod, for all of its containers together


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFlags(PartFlags):
    memory_limits: MemoryLimitsOf = flag(
        "memory-limits=WHAT",
        values.one_of(MemoryLimitsOf),
        MemoryLimitsOf.NONE,
        "Memory limits that the kernel enforces on shared cards: none, or pod (a pod can use no more memory of a card "
        "than it requested). Needs the cgroup controller dmem and the right to write in /sys/fs/cgroup.",
        group="Use of the cards",
    )


METRICS = (
    Metric(
        "gas_plugin_memory_limited_pods",
        "Pods whose memory on shared cards the kernel limits, with --memory-limits=pod.",
    ),
    Metric(
        "gas_plugin_memory_limits_missing",
        "1 while pods, or some of them, have no memory limits although --memory-limits=pod asks for them; the log "
        "has the reason. Else 0.",
    ),
)


def build_limits(core: Core, _flags: LimitFlags, controller: Dmem | None = None) -> Hooks:
    """Build the part. ``controller`` stands in for the kernel's in tests."""
    from gas.plugin.limits.limit_files import DMEM, LimitFiles
    from gas.plugin.limits.memory_limits import MemoryLimits

    files = LimitFiles(_cgroups(core.flags), controller or DMEM)
    limits = MemoryLimits(
        core.pods, core.gpus, files, lambda troubles: core.events.set_states("GPUMemoryLimitsMissing", troubles)
    )
    return Hooks(
        tasks=(limits.run,),
        samples=lambda: (
            ("gas_plugin_memory_limited_pods", (), limits.limited),
            ("gas_plugin_memory_limits_missing", (), limits.trouble is not None),
        ),
        before_start=(limits.before_start,),
        on_pods=limits.pods_changed,
    )


def _uninstall(core: CoreFlags, own: LimitFlags) -> None:
    if own.memory_limits is MemoryLimitsOf.POD:
        from gas.plugin.limits.limit_files import LimitFiles

        LimitFiles(_cgroups(core)).clear()


def _cgroups(core: CoreFlags) -> Path:
    return core.prefix / "sys/fs/cgroup"


MEMORY_LIMITS = Part(
    name="limits",
    flags=LimitFlags,
    is_on=lambda _core, own: own.memory_limits is MemoryLimitsOf.POD,
    build=build_limits,
    needs_pods=True,
    switched_on_by="--memory-limits=pod",
    metrics=METRICS,
    pod=PodNeeds(mounts=("/sys/fs/cgroup",)),
    uninstall=_uninstall,
)
