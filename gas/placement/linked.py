"""Cards in pairs joined by a link, one tile of each (contract E7.7)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from gas.cards import Card, Tile
from gas.placement.free_capacity import FreeCapacity, Pick
from gas.placement.inventory import Link
from gas.placement.requests import Request

Links = Sequence[Link]


def links_among(links: Links, cards: Collection[Card]) -> tuple[Link, ...]:
    """The links that join two different cards of ``cards``."""
    return tuple(
        link
        for link in links
        if link.one.card in cards and link.other.card in cards and link.one.card != link.other.card
    )


def pairs(request: Request, cards: Sequence[Card], links: Links, room: FreeCapacity) -> list[Pick]:
    """Every pair with room, each once, both directions: by candidate, its tiles ascending, the node's order
    of links.

    Pairs of the result may share a card.
    """
    among = links_among(links, cards)
    ends: dict[Tile, list[Tile]] = {}
    for link in among:
        ends.setdefault(link.one, []).append(link.other)
    for link in among:
        ends.setdefault(link.other, []).append(link.one)
    open_tiles = {card: room.tiles(request, card) for card in cards if room.has(request, card)}
    found: dict[frozenset[Tile], Pick] = {}
    for card in cards:
        for tile in open_tiles.get(card, ()):
            for end in ends.get(Tile(card, tile), ()):
                if end.index in open_tiles.get(end.card, ()):
                    pick = Pick((card, end.card), (tile, end.index))
                    found.setdefault(frozenset((Tile(card, tile), end)), pick)
    return list(found.values())


def greedy_pairs(request: Request, cards: Sequence[Card], links: Links, room: FreeCapacity) -> Iterator[Pick]:
    """The original's pairs, best first; the caller takes each before it asks for the next.

    The original looks at a link from its left side only, and for each tile at its first link only.
    """
    first_link: dict[Tile, Tile] = {}
    for link in links:
        first_link.setdefault(link.one, link.other)
    held: set[Card] = set()
    for card in cards:
        if card in held or not room.has(request, card):
            continue
        for tile in room.tiles(request, card):
            end = first_link.get(Tile(card, tile))
            if (
                end is not None
                and end.card in cards
                and end.card not in held | {card}
                and room.has(request, end.card)
                and end.index in room.tiles(request, end.card)
            ):
                held |= {card, end.card}
                yield Pick((card, end.card), (tile, end.index))
                break


def like_links(links: Links, one: Card, other: Card) -> bool:
    """Whether the two cards may change places without changing any link."""
    swap = {one: other, other: one}
    now = {frozenset(link) for link in links}
    swapped = {frozenset(Tile(swap.get(end.card, end.card), end.index) for end in link) for link in links}
    return now == swapped
