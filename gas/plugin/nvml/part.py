"""Declare the part that finds NVIDIA's cards by the library of their driver."""

from dataclasses import dataclass
from enum import StrEnum

from gas.daemon import flag_values as values
from gas.daemon.flags import PartFlags, flag
from gas.plugin.part import Core, FlagChoice, Hooks, Part, PodNeeds
from gas.values.cards import FIRST_BESIDE_OTHERS

SOURCE = FlagChoice("nvml", "NVIDIA's, by the library of their driver")


class Access(StrEnum):
    VARIABLE = "variable"  # by NVIDIA_VISIBLE_DEVICES, for NVIDIA's container runtime
    NODES = "nodes"  # by the variable and the device nodes, as some programs need that check them
    CDI = "cdi"  # by the CDI names of NVIDIA's container toolkit


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlFlags(PartFlags):
    nvidia_access: Access = flag(
        "nvidia-access=MODE",
        values.one_of(Access),
        Access.VARIABLE,
        "How containers get NVIDIA's cards: variable (NVIDIA_VISIBLE_DEVICES, for NVIDIA's container runtime), nodes "
        "(the variable and the device nodes) or cdi (the CDI names of NVIDIA's container toolkit).",
        group="Finding cards",
    )


def _build(core: Core, flags: NvmlFlags) -> Hooks:
    from gas.plugin.nvml.nvml_cards import NvmlCards
    from gas.plugin.nvml.nvml_library import Nvml

    first_number = 0 if core.flags.card_sources == {SOURCE.name} else FIRST_BESIDE_OTHERS
    cards = NvmlCards(
        core.flags.prefix,
        Nvml(),
        core.card_rules,
        with_nodes=flags.nvidia_access is Access.NODES,
        by_cdi=flags.nvidia_access is Access.CDI,
        first_number=first_number,
    )
    return Hooks(sources=(cards,), processes=(cards.processes,))


NVML = Part(
    name="nvml",
    flags=NvmlFlags,
    is_on=lambda core, _own: SOURCE.name in core.card_sources,
    build=_build,
    switched_on_by=f"{SOURCE.name} among --card-sources",
    settings=frozenset({"nvidia-access"}),
    card_source=SOURCE,
    pod=PodNeeds(environment={"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}),
)
