"""How nodes are scored for a pod: a soft rule, like the order of cards. `gas.placement.node_cost` computes it.

`parse_node_score` and `str()` of a policy have the same text form.
"""

from __future__ import annotations

from enum import StrEnum

from gas.values.errors import InvalidValue
from gas.values.quoted import quoted


class NodeScore(StrEnum):
    """A policy of scoring nodes.

    BALANCE        the node on which the pod leaves least unusable (`gas.placement.node_cost`)
    BEST_FIT       the node whose cards have least left
    BEST_FIT_CARD  the node on which the cards that the pod gets have least left
    SPREAD         the node whose cards have the largest share left
    LEAST_LOADED   the node with the fewest containers on each card
    NONE           all nodes are equal
    """

    BALANCE = "balance"
    BEST_FIT = "best-fit"
    BEST_FIT_CARD = "best-fit-card"
    SPREAD = "spread"
    LEAST_LOADED = "least-loaded"
    NONE = "none"


NODE_SCORES = "|".join(NodeScore)
"""The text forms, for help texts and messages."""


def parse_node_score(text: str) -> NodeScore:
    """Parse the text form of a policy. Raises InvalidValue."""
    try:
        return NodeScore(text.strip())
    except ValueError:
        raise InvalidValue(f"expected {NODE_SCORES}, found {quoted(text)}") from None
