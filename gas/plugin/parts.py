"""List the plugin's parts. Only this module names them."""

from typing import Any

from gas.plugin.cdi.part import CDI
from gas.plugin.fences.part import FENCES
from gas.plugin.limits.part import MEMORY_LIMITS
from gas.plugin.nfd.part import NFD
from gas.plugin.nvml.part import NVML
from gas.plugin.part import Part
from gas.plugin.usage.part import USAGE

PARTS: tuple[Part[Any], ...] = (
    NVML,
    CDI,
    NFD,
    FENCES,
    MEMORY_LIMITS,
    USAGE,
)
