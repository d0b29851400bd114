"""The vocabularies that the programs of a cluster speak, by the flags of their containers."""

from __future__ import annotations

from collections.abc import Iterable

from gas.doctor.programs import Program, flag_value, flag_values
from gas.doctor.snapshot import Snapshot
from gas.objects.stored import DetailedContainer
from gas.values.amounts import MemoryUnit
from gas.values.errors import InvalidEntry
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.known import DEFAULT_NAMES, DEFAULT_SETTINGS, Settings, parse_vocabularies, with_settings


def vocabulary_flags(container: DetailedContainer) -> dict[str, str]:
    """Return the flags that decide which words a program understands, with their defaults where they are absent."""
    return {
        "vocabularies": ",".join(flag_values(container, "vocabularies")) or DEFAULT_NAMES,
        "aliyun-unit": flag_value(container, "aliyun-unit") or DEFAULT_SETTINGS.aliyun_unit,
    }


def spoken_vocabularies(snapshot: Snapshot) -> Vocabularies:
    """Return the vocabularies of the extender; those of the defaults if no extender, or no valid flag, is seen."""
    containers: Iterable[DetailedContainer] = (container for _, container in snapshot.running(Program.EXTENDER))
    flags = vocabulary_flags(next(iter(containers), DetailedContainer()))
    try:
        settings = Settings(aliyun_unit=MemoryUnit(flags["aliyun-unit"]))
        return Vocabularies(with_settings(parse_vocabularies(flags["vocabularies"]), settings))
    except (InvalidEntry, ValueError):
        return Vocabularies(parse_vocabularies(DEFAULT_NAMES))
