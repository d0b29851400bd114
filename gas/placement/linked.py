"""Pairs of cards that are joined by a link, with one tile of each (contract E7.7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gas.placement.free_capacity import FreeCapacity, Pick
from gas.placement.inventory import Link
from gas.placement.plan import Request
from gas.values.cards import Card, Tile

Links = Sequence[Link]


def pairs(request: Request, cards: Sequence[Card], links: Links, free: FreeCapacity) -> list[Pick]:
    """Return every pair of cards that has enough free, each pair of tiles once.

    Links count in both directions. The order is that of ``cards``, then of the tiles of a card, then of the links.
    Pairs of the result may share a card.
    """
    ends: dict[Tile, list[Tile]] = {}
    for link in links:
        ends.setdefault(link.one, []).append(link.other)
    for link in links:
        ends.setdefault(link.other, []).append(link.one)
    open_tiles = {card: free.tiles(request, card) for card in cards if free.has(request, card)}
    found: dict[frozenset[Tile], Pick] = {}
    for card in cards:
        for tile in open_tiles.get(card, ()):
            for end in ends.get(Tile(card, tile), ()):
                if end.index in open_tiles.get(end.card, ()):
                    pick = Pick((card, end.card), (tile, end.index))
                    found.setdefault(frozenset((Tile(card, tile), end)), pick)
    return list(found.values())


def first_fit_pairs(request: Request, cards: Sequence[Card], links: Links, free: FreeCapacity) -> Iterator[Pick]:
    """Yield the original's pairs, best first; the caller takes each from ``free`` before it asks for the next.

    The original follows a link from its left end only, and uses only the first link of each tile.
    """
    first_link: dict[Tile, Tile] = {}
    for link in links:
        first_link.setdefault(link.one, link.other)
    taken: set[Card] = set()
    for card in cards:
        if card in taken or not free.has(request, card):
            continue
        for tile in free.tiles(request, card):
            end = first_link.get(Tile(card, tile))
            if (
                end is not None
                and end.card in cards
                and end.card not in taken
                and free.has(request, end.card)
                and end.index in free.tiles(request, end.card)
            ):
                taken |= {card, end.card}
                yield Pick((card, end.card), (tile, end.index))
                break


def are_linked_alike(links: Links, one: Card, other: Card) -> bool:
    """Return whether the two cards can be swapped without changing any link."""
    swap = {one: other, other: one}
    now = {frozenset(link) for link in links}
    swapped = {frozenset(Tile(swap.get(end.card, end.card), end.index) for end in link) for link in links}
    return now == swapped
