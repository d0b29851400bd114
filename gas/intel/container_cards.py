"""Cards by container, as text: ``card0,card1|card2``.

Containers are separated by ``|``, the cards of one by ``,``. A container without cards leaves its place
empty: ``card0||card1`` (contract E3.1).
"""

from __future__ import annotations

from collections.abc import Sequence

from gas.cards import Card, MalformedCard
from gas.intel import names
from gas.intel.malformed_annotation import MalformedAnnotation, check_length
from gas.quoted import quoted


def format_container_cards(containers: Sequence[Sequence[Card]]) -> str:
    """The text for the cards of each container; a pod has at least one container."""
    return "|".join(",".join(map(str, cards)) for cards in containers)


def parse_container_cards(text: str, annotation: str = names.CONTAINER_CARDS) -> tuple[tuple[Card, ...], ...]:
    """The cards of each container, in the order of the text.

    Only the form is checked. Raises MalformedAnnotation, whose sentence names ``annotation``.
    """
    check_length(annotation, text)
    try:
        return tuple(tuple(Card.parse(name) for name in place.split(",")) if place else () for place in text.split("|"))
    except MalformedCard as malformed:
        raise MalformedAnnotation(
            annotation, f"expected card names as in card0,card1||card2, found {quoted(malformed.text)}"
        ) from None
