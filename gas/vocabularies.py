"""The vocabularies that gas knows; ``--vocabularies`` selects among them."""

from __future__ import annotations

from gas.errors import InvalidEntry
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
