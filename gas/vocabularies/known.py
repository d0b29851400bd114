"""The vocabularies that gas knows; ``--vocabularies`` selects among them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gas.daemon import flag_values as values
from gas.daemon.flags import flag
from gas.values.amounts import MemoryUnit
from gas.values.errors import InvalidEntry
from gas.vocabularies.aliyun.vocabulary import aliyun
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.intel.vocabulary import INTEL
from gas.vocabularies.koordinator.vocabulary import KOORDINATOR
from gas.vocabularies.kubeshare.vocabulary import KUBESHARE
from gas.vocabularies.protocol import Vocabulary
from gas.vocabularies.vendor.vocabulary import VENDOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The choices of the administrator about single vocabularies.

    aliyun_unit  the amount of memory that ``aliyun.com/gpu-mem: 1`` stands for
    """

    aliyun_unit: MemoryUnit = MemoryUnit.MIB


DEFAULT_SETTINGS = Settings()


def known(settings: Settings = DEFAULT_SETTINGS) -> tuple[Vocabulary, ...]:
    """Return all vocabularies with these settings, in the order in which they are asked.

    KubeShare's is the last one. Its pods are known by annotations, which can be edited; those of the others by what
    containers request. So a bound pod of another vocabulary does not become one of KubeShare's.
    """
    return INTEL, aliyun(settings.aliyun_unit), KOORDINATOR, VENDOR, KUBESHARE


KNOWN = known()
"""All vocabularies with the default settings."""

KNOWN_NAMES = ", ".join(each.name for each in KNOWN)

DEFAULT_NAMES = INTEL.name
"""The default of ``--vocabularies``."""

DEFAULT = Vocabularies([INTEL])
"""The same as a value."""


JOINED_HELP = "If the flag is given several times, all values count."
"""The help of ``--vocabularies`` about several components of deploy/ that each switch vocabularies on."""


def parse_vocabularies(text: str) -> tuple[Vocabulary, ...]:
    """Parse the value of ``--vocabularies``: names with commas between them, in any order.

    Raises InvalidEntry for a name that is unknown or empty.
    """
    names = {each.name for each in KNOWN}
    entries = {entry: entry.strip() for entry in text.split(",")}
    for entry, name in entries.items():
        if name not in names:
            raise InvalidEntry(f"vocabularies with commas between them, of these: {KNOWN_NAMES}", entry)
    return tuple(each for each in KNOWN if each.name in entries.values())


def vocabularies_flag(other: str) -> tuple[Vocabulary, ...]:
    """Declare ``--vocabularies`` as a field of a Flags class. ``other`` is the program that needs the same value."""
    return flag(
        "vocabularies",
        parse_vocabularies,
        DEFAULT_NAMES,
        "NAME,…",
        f"Vocabularies in which pods may ask for GPUs. Known: {KNOWN_NAMES}. Set the same for {other}. {JOINED_HELP}",
        group="Vocabularies",
        joined=True,
    )


def aliyun_unit_flag(other: str) -> MemoryUnit:
    """Declare ``--aliyun-unit`` as a field of a Flags class, below `vocabularies_flag`."""
    return flag(
        "aliyun-unit",
        values.one_of(MemoryUnit),
        MemoryUnit.MIB,
        "UNIT",
        "Amount of memory that aliyun.com/gpu-mem counts, MiB or GiB, with the vocabulary aliyun. "
        f"Set the same for {other}.",
    )


def with_settings(vocabularies: Sequence[Vocabulary], settings: Settings) -> tuple[Vocabulary, ...]:
    """Return the vocabularies of the same names with these settings."""
    by_name = {each.name: each for each in known(settings)}
    return tuple(by_name[each.name] for each in vocabularies)


def unused_settings(given: Collection[str], vocabularies: Sequence[Vocabulary]) -> tuple[str, ...]:
    """Return a warning for each flag of a vocabulary that is not switched on.

    given  names of the flags on the command line
    """
    names = {each.name for each in vocabularies}
    return tuple(
        f"ignored: --{flag}; it needs {name} among --vocabularies"
        for flag, name in (("aliyun-unit", "aliyun"),)
        if flag in given and name not in names
    )
