"""The vocabularies that gas knows; ``--vocabularies`` selects among them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gas.aliyun.vocabulary import aliyun
from gas.amounts import MemoryUnit
from gas.errors import InvalidEntry
from gas.intel.vocabulary import INTEL
from gas.vendor.vocabulary import VENDOR
from gas.vocabulary import Vocabularies, Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The choices of the administrator about single vocabularies.

    aliyun_unit  the amount of memory that ``aliyun.com/gpu-mem: 1`` stands for
    """

    aliyun_unit: MemoryUnit = MemoryUnit.MIB


DEFAULT_SETTINGS = Settings()

ALIYUN_UNIT_HELP = "Amount of memory that aliyun.com/gpu-mem counts, MiB or GiB, with the vocabulary aliyun."
"""The help of ``--aliyun-unit``, which every program with ``--vocabularies`` has."""


def known(settings: Settings = DEFAULT_SETTINGS) -> tuple[Vocabulary, ...]:
    """Return all vocabularies with these settings."""
    return INTEL, aliyun(settings.aliyun_unit), VENDOR


KNOWN = known()
"""All vocabularies with the default settings."""

KNOWN_NAMES = ", ".join(each.name for each in KNOWN)

DEFAULT_NAMES = INTEL.name
"""The default of ``--vocabularies``."""

DEFAULT = Vocabularies([INTEL])
"""The same as a value."""


def parse_vocabularies(text: str) -> tuple[Vocabulary, ...]:
    """Parse the value of ``--vocabularies``: names with commas between them, in the order in which they are asked.

    Raises InvalidEntry for a name that is unknown, empty or repeated.
    """
    by_name = {each.name: each for each in KNOWN}
    vocabularies: list[Vocabulary] = []
    for entry in text.split(","):
        vocabulary = by_name.get(entry.strip())
        if vocabulary is None or vocabulary in vocabularies:
            raise InvalidEntry(f"vocabularies with commas between them, each once, of these: {KNOWN_NAMES}", entry)
        vocabularies.append(vocabulary)
    return tuple(vocabularies)


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
