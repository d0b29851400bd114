"""Which tiles are linked directly: the label ``xe-links``, ``0.0-1.0_2.0-3.0`` (device.tile-device.tile)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gas.cards import Card, Tile
from gas.intel import names
from gas.intel.card_labels import read_number
from gas.intel.entry_faults import EntryFaults
from gas.intel.split_label import joined_label
from gas.placement.inventory import Link


def read_links(
    labels: Mapping[str, str], cards: Sequence[Card], tiles: Mapping[Card, int], problems: list[str]
) -> tuple[Link, ...]:
    """The links between tiles of different cards, in the label's order, each once.

    cards  in natural order: the device numbers of the label are positions in it
    tiles  how many tiles each card has. Links of a card without any are passed over: while the device plugin
           starts, the tiles are not announced yet
    """
    text = joined_label(labels, names.XE_LINKS, problems)
    faults = EntryFaults(f"label {names.XE_LINKS}", "links between two cards such as 0.0-1.0_2.0-3.0")
    links: dict[Link, None] = {}
    for entry in text.split("_") if text else ():
        if (ends := _ends(entry)) is None:
            faults.malformed(entry)
            continue
        if any(device >= len(cards) for device, _ in ends):
            faults.unknown(entry)
            continue
        one, other = (Tile(cards[device], index) for device, index in ends)
        if not tiles.get(one.card, 0) or not tiles.get(other.card, 0):
            continue
        if one.index >= tiles[one.card] or other.index >= tiles[other.card]:
            faults.unknown(entry)
        elif (link := Link(one, other)) in links:
            faults.repeated(entry)
        else:
            links[link] = None
    problems.extend(faults.sentences())
    return tuple(links)


def _ends(entry: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """``"0.0-1.0"`` -> ((0, 0), (1, 0)); None for anything else and for a device linked to itself."""
    numbers = [[read_number(number) for number in end.split(".")] for end in entry.split("-")]
    match numbers:
        case [[int(one), int(one_tile)], [int(other), int(other_tile)]] if one != other:
            return (one, one_tile), (other, other_tile)
    return None
