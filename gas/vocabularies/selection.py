"""Declare the flags that select vocabularies and configure them, in extender and plugin alike.

Each program has ``--vocabularies`` among its own flags, and adds VOCABULARY_FLAGS as those of parts.
"""

from collections.abc import Sequence

from gas.daemon.flags import CommandFlags, PartFlags, flag, flags_in
from gas.values.errors import InvalidEntry
from gas.vocabularies.known import KNOWN
from gas.vocabularies.protocol import Vocabulary

KNOWN_NAMES = ", ".join(each.name for each in KNOWN)

DEFAULT_NAMES = KNOWN[0].name  # the default of ``--vocabularies``

JOINED_HELP = "If the flag is given several times, all values count."
"""The help of ``--vocabularies`` about several components of deploy/ that each switch vocabularies on."""

VOCABULARY_FLAGS: tuple[type[PartFlags], ...] = tuple(each.flags for each in KNOWN if each.flags is not None)


def parse_vocabularies(text: str) -> tuple[Vocabulary, ...]:
    """Parse the value of ``--vocabularies``: names with commas between them, in any order. Raises InvalidEntry."""
    names = {each.name for each in KNOWN}
    entries = {entry: entry.strip() for entry in text.split(",")}
    for entry, name in entries.items():
        if name not in names:
            raise InvalidEntry(f"vocabularies with commas between them, of these: {KNOWN_NAMES}", entry)
    return tuple(each for each in KNOWN if each.name in entries.values())


def vocabularies_flag(other: str) -> tuple[Vocabulary, ...]:
    """Declare ``--vocabularies`` as a field of a Flags class. ``other`` is the program that needs the same value."""
    return flag(
        "vocabularies=NAME,…",
        parse_vocabularies,
        DEFAULT_NAMES,
        f"Vocabularies in which pods may ask for GPUs. Known: {KNOWN_NAMES}. Set the same for {other}. {JOINED_HELP}",
        group="Vocabularies",
        joined=True,
    )


def configured(vocabularies: Sequence[Vocabulary], flags: CommandFlags) -> tuple[Vocabulary, ...]:
    return tuple(each.with_flags(flags) for each in vocabularies)


def unused_flags(vocabularies: Sequence[Vocabulary], flags: CommandFlags) -> tuple[str, ...]:
    """Return a warning for each flag on the command line of a vocabulary that is not selected."""
    selected = {each.name for each in vocabularies}
    return tuple(
        f"ignored: --{declared.name}; it needs {each.name} among --vocabularies"
        for each in KNOWN
        if each.flags is not None and each.name not in selected
        for declared in flags_in(each.flags)
        if declared.name in flags.given
    )
