"""The text forms of cards and tiles by container, as annotations hold them.

Cards: ``card0,card1|card2``. Containers are separated by ``|``, the cards of one by ``,``. A container without cards
leaves its place empty: ``card0||card1`` (contract E3.1).

Tiles: ``card0:gt0+gt1,card1:gt0|card2:gt1``. Likewise, with the tiles of a card separated by ``+`` (contract E3.2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gas.decision import names
from gas.values.cards import Card, MalformedCard
from gas.values.errors import GasError
from gas.values.quoted import quoted

CardTiles = tuple[Card, tuple[int, ...]]
"""A card and its tiles, at least one."""

LONGEST = 65_536
"""Characters of an annotation that are parsed: enough for 7,000 cards, far more than is ever written."""

_TILE = re.compile(r"gt(0|[1-9][0-9]{0,8})", re.ASCII)


class MalformedAnnotation(GasError):
    """An annotation about cards or tiles is invalid.

    annotation  its name
    reason      what is wrong with it
    """

    def __init__(self, annotation: str, reason: str) -> None:
        super().__init__(f"annotation {annotation}: {reason}")
        self.annotation = annotation
        self.reason = reason


def format_container_cards(containers: Sequence[Sequence[Card]]) -> str:
    """Return the text for the cards of each container; a pod has at least one container."""
    return "|".join(",".join(map(str, cards)) for cards in containers)


def parse_container_cards(text: str, annotation: str = names.CONTAINER_CARDS) -> tuple[tuple[Card, ...], ...]:
    """Parse the cards of each container, in the order of the text.

    Only the form is checked. Raises MalformedAnnotation, whose sentence names ``annotation``.
    """
    _check_length(annotation, text)
    try:
        return tuple(tuple(Card.parse(name) for name in place.split(",")) if place else () for place in text.split("|"))
    except MalformedCard as malformed:
        raise MalformedAnnotation(
            annotation, f"expected card names as in card0,card1||card2, found {quoted(malformed.text)}"
        ) from None


def format_container_tiles(containers: Sequence[Sequence[CardTiles]]) -> str:
    """Return the text for the tiles of each container; a pod has at least one container."""
    return "|".join(",".join(map(_format_card, cards)) for cards in containers)


def parse_container_tiles(text: str, annotation: str = names.CONTAINER_TILES) -> tuple[tuple[CardTiles, ...], ...]:
    """Parse the tiles of each container, in the order of the text.

    Only the form is checked. An empty part between two ``,`` is a card without tiles, as the original wrote it.
    Raises MalformedAnnotation, whose sentence names ``annotation``.
    """
    _check_length(annotation, text)
    return tuple(tuple(_parse_card(part, annotation) for part in place.split(",") if part) for place in text.split("|"))


def _check_length(annotation: str, text: str) -> None:
    if len(text) > LONGEST:
        raise MalformedAnnotation(annotation, f"expected at most {LONGEST} characters, found {len(text)}")


def _format_card(card_tiles: CardTiles) -> str:
    card, tiles = card_tiles
    return f"{card}:" + "+".join(f"gt{tile}" for tile in tiles)


def _parse_card(text: str, annotation: str) -> CardTiles:
    name, _, tiles = text.partition(":")
    matches = [_TILE.fullmatch(tile) for tile in tiles.split("+")]
    indexes = tuple(int(match[1]) for match in matches if match is not None)
    try:
        card = Card.parse(name)
    except MalformedCard:
        raise _malformed_tiles(annotation, text) from None
    if len(indexes) < len(matches):
        raise _malformed_tiles(annotation, text)
    return card, indexes


def _malformed_tiles(annotation: str, found: str) -> MalformedAnnotation:
    return MalformedAnnotation(annotation, f"expected tiles of cards as in card0:gt0+gt1, found {quoted(found)}")
