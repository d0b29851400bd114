"""The vocabularies that gas knows; ``--vocabularies`` selects among them."""

from __future__ import annotations

from gas.intel.vocabulary import INTEL
from gas.vocabulary import Vocabularies, Vocabulary

KNOWN: tuple[Vocabulary, ...] = (INTEL,)

KNOWN_NAMES = ", ".join(each.name for each in KNOWN)

DEFAULT_NAMES = INTEL.name
"""The default of ``--vocabularies``."""

DEFAULT = Vocabularies([INTEL])
"""The same as a value."""


def parse_vocabularies(text: str) -> tuple[Vocabulary, ...]:
    """Parse the value of ``--vocabularies``: names with commas between them, in the order in which they are asked.

    Raises ValueError with what it expects: known names, at least one, each once.
    """
    by_name = {each.name: each for each in KNOWN}
    names = [name.strip() for name in text.split(",")]
    if len(set(names)) != len(names) or not by_name.keys() >= set(names):
        raise ValueError(f"names of vocabularies with commas between them, each once (known: {KNOWN_NAMES})")
    return tuple(by_name[name] for name in names)
