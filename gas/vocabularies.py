"""The vocabularies that gas knows, by hand: ``--vocabularies`` chooses among them."""

from __future__ import annotations

from gas.intel.vocabulary import INTEL
from gas.vocabulary import Vocabularies, Vocabulary

KNOWN: tuple[Vocabulary, ...] = (INTEL,)

DEFAULT = Vocabularies([INTEL])
"""What both programs speak unless told otherwise."""
