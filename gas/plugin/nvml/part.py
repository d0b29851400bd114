"""Declare the part that finds NVIDIA's cards by the library of their driver."""

import re
from dataclasses import dataclass
from enum import StrEnum

from gas.daemon import flag_values as values
from gas.daemon.flags import PartFlags, flag, switch
from gas.plugin.part import Core, FlagChoice, Hooks, Part, PodNeeds
from gas.values.cards import FIRST_BESIDE_OTHERS

SOURCE = FlagChoice("nvml", "NVIDIA's, by the library of their driver")

CATALOGUE = "catalogue"  # stands for the Xids that NVIDIA's catalogue lets one ignore
_CATALOGUE = (
    "8,11,13-14,25,31-32,37-41,43-45,60,63,66-72,75-77,80,82-86,88-89,92-94,96-108,121,126-135,137,139,141,152-154,157,"
    "160-161"
)
"""The Xids whose immediate action is IGNORE or RESTART_APP; 45, which follows other Xids; and 154, which says that the
driver's demand has changed, which is read (`NvmlCard.recovery`)."""
_XIDS = re.compile(r"(?P<first>[0-9]{1,3})(-(?P<last>[0-9]{1,3}))?", re.ASCII)


class Access(StrEnum):
    VARIABLE = "variable"  # by NVIDIA_VISIBLE_DEVICES, for NVIDIA's container runtime
    NODES = "nodes"  # by the variable and the device nodes, as some programs need that check them
    CDI = "cdi"  # by the CDI names of NVIDIA's container toolkit


def parse_xids(text: str) -> frozenset[int]:
    """Parse Xids, ranges of them and `CATALOGUE`, with commas between them. Raises ValueError with what it expects."""
    found: set[int] = set()
    for entry in text.replace(CATALOGUE, _CATALOGUE).split(",") if text else ():
        if (match := _XIDS.fullmatch(entry.strip())) is None:
            raise ValueError(f"{CATALOGUE}, or numbers and ranges with commas between them, such as {CATALOGUE},109")
        first, last = int(match["first"]), int(match["last"] or match["first"])
        found.update(range(first, last + 1))
    return frozenset(found)


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
    nvidia_ignored_xids: frozenset[int] = flag(
        "nvidia-ignored-xids=LIST",
        parse_xids,
        CATALOGUE,
        "Messages of NVIDIA's driver (Xids) after which a card is still given out: numbers, ranges such as 31-32, and "
        "catalogue for those for which NVIDIA's catalogue demands nothing or a restart of the application.",
    )
    reserved_memory: bool = switch(
        "nvidia-reserved-memory",
        "Also count the memory that NVIDIA's driver reserves, as Aliyun's plugin does. Programs cannot use it.",
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
        ignored_xids=flags.nvidia_ignored_xids,
        counts_reserved=flags.reserved_memory,
    )
    return Hooks(sources=(cards,), processes=(cards.processes,))


NVML = Part(
    name="nvml",
    flags=NvmlFlags,
    is_on=lambda core, _own: SOURCE.name in core.card_sources,
    build=_build,
    switched_on_by=f"{SOURCE.name} among --card-sources",
    settings=frozenset({"nvidia-access", "nvidia-ignored-xids", "nvidia-reserved-memory"}),
    card_source=SOURCE,
    pod=PodNeeds(environment={"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}),
)
