"""Tiles by container and card, as text: ``card0:gt0+gt1,card1:gt0|card2:gt1``.

Containers are separated by ``|``, the cards of one by ``,``, the tiles of a card by ``+``. A container
without tiles leaves its place empty (contract E3.2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gas.cards import Card, MalformedCard
from gas.intel import names
from gas.intel.malformed_annotation import MalformedAnnotation, check_length
from gas.quoted import quoted

CardTiles = tuple[Card, tuple[int, ...]]
"""A card and the tiles of it, at least one."""

_TILE = re.compile(r"gt(0|[1-9][0-9]{0,8})", re.ASCII)


def format_container_tiles(containers: Sequence[Sequence[CardTiles]]) -> str:
    """The text for the tiles of each container; a pod has at least one container."""
    return "|".join(",".join(map(_format_card, cards)) for cards in containers)


def _format_card(card_tiles: CardTiles) -> str:
    card, tiles = card_tiles
    return f"{card}:" + "+".join(f"gt{tile}" for tile in tiles)


def parse_container_tiles(text: str, annotation: str = names.CONTAINER_TILES) -> tuple[tuple[CardTiles, ...], ...]:
    """The tiles of each container, in the order of the text.

    Only the form is checked. Nothing between two ``,`` is a card without tiles, as the original wrote it.
    Raises MalformedAnnotation, whose sentence names ``annotation``.
    """
    check_length(annotation, text)
    return tuple(tuple(_parse_card(part, annotation) for part in place.split(",") if part) for place in text.split("|"))


def _parse_card(text: str, annotation: str) -> CardTiles:
    name, _, tiles = text.partition(":")
    matches = [_TILE.fullmatch(tile) for tile in tiles.split("+")]
    indexes = tuple(int(match[1]) for match in matches if match is not None)
    try:
        card = Card.parse(name)
    except MalformedCard:
        raise _malformed(annotation, text) from None
    if len(indexes) < len(matches):
        raise _malformed(annotation, text)
    return card, indexes


def _malformed(annotation: str, found: str) -> MalformedAnnotation:
    return MalformedAnnotation(annotation, f"expected tiles of cards as in card0:gt0+gt1, found {quoted(found)}")
