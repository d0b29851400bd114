"""Random names for cards, drawn outside the code that decides."""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_lowercase

from gas.values.timing import SYSTEM_TIMING

LENGTH = 5
"""Letters of a name, as KubeShare has it: 12 million names for the few cards of a node."""


def random_name(spread: Callable[[float, float], float] = SYSTEM_TIMING.spread) -> str:
    """Return five random lower-case letters.

    spread  returns a random number between two others
    """
    last = len(ascii_lowercase) - 1
    return "".join(ascii_lowercase[min(int(spread(0.0, last + 1.0)), last)] for _ in range(LENGTH))
