"""The node labels about cards: which cards there are, which belong together, and which tiles are linked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gas.placement.inventory import Link
from gas.values.cards import Card, Tile
from gas.vocabularies.intel import names
from gas.vocabularies.intel.entries import EntryFaults, read_card, read_number
from gas.vocabularies.intel.split_label import joined_label


def read_cards(labels: Mapping[str, str], problems: list[str]) -> tuple[Card, ...]:
    """Return the node's cards in natural order, each once.

    They come from the label ``gpu-numbers`` (``0.1.2``), or from the older ``cards`` (``card0.card1``) if that names
    none.
    """
    if numbers := joined_label(labels, names.GPU_NUMBERS, problems):
        faults = EntryFaults(f"label {names.GPU_NUMBERS}", "numbers such as 0.1.10")
        cards = _each_once(numbers.split("."), _numbered_card, faults)
        problems.extend(faults.sentences())
        if cards:
            return cards
    if (card_names := labels.get(names.CARDS)) is None:
        return ()
    faults = EntryFaults(f"label {names.CARDS}", "card names such as card0.card1")
    cards = _each_once(card_names.split("."), read_card, faults)
    problems.extend(faults.sentences())
    return cards


def _each_once(entries: Iterable[str], read: Callable[[str], Card | None], faults: EntryFaults) -> tuple[Card, ...]:
    cards: set[Card] = set()
    for entry in entries:
        if (card := read(entry)) is None:
            faults.malformed(entry)
        elif card in cards:
            faults.repeated(entry)
        else:
            cards.add(card)
    return tuple(sorted(cards))


def _numbered_card(text: str) -> Card | None:
    number = read_number(text)
    return None if number is None else Card(number)


def read_numa_groups(
    labels: Mapping[str, str], cards: Collection[Card], problems: list[str]
) -> tuple[tuple[Card, ...], ...] | None:
    """Return the cards by NUMA node in the order of the label ``numa-gpu-map`` (``0-0.1_1-2.3``).

    Returns None if the node has no such label. A label without any readable group gives an empty tuple: then no card is
    known to be in any group.
    """
    if (text := joined_label(labels, names.NUMA_GPU_MAP, problems)) is None:
        return None
    faults = EntryFaults(f"label {names.NUMA_GPU_MAP}", "NUMA nodes with their card numbers such as 0-0.1_1-2.3")
    known, grouped = set(cards), set[Card]()
    groups: dict[int, list[Card]] = {}
    for entry in text.split("_") if text else ():
        numa_node, dash, numbers = entry.partition("-")
        number = read_number(numa_node)
        if number is None or not dash:
            faults.malformed(entry)
            continue
        groups.setdefault(number, []).extend(_group(numbers, known, grouped, faults))
    problems.extend(faults.sentences())
    return tuple(tuple(group) for group in groups.values() if group)


def read_pci_groups(
    labels: Mapping[str, str], cards: Collection[Card], problems: list[str]
) -> dict[Card, frozenset[Card]]:
    """Return, for each card that shares its board with others, all cards of that board, itself included.

    They come from the label ``pci-groups`` (``0.1_2.3.4``).
    """
    text = joined_label(labels, names.PCI_GROUPS, problems)
    faults = EntryFaults(f"label {names.PCI_GROUPS}", "groups of card numbers such as 0.1_2.3.4")
    known, grouped = set(cards), set[Card]()
    groups: dict[Card, frozenset[Card]] = {}
    for entry in text.split("_") if text else ():
        group = frozenset(_group(entry, known, grouped, faults))
        groups.update((card, group) for card in group)
    problems.extend(faults.sentences())
    return groups


def _group(numbers: str, known: set[Card], grouped: set[Card], faults: EntryFaults) -> list[Card]:
    """Return the cards of one group and add them to ``grouped``, which holds the cards of all groups so far."""
    group: list[Card] = []
    for text in numbers.split("."):
        if (number := read_number(text)) is None:
            faults.malformed(text)
        elif (card := Card(number)) not in known:
            faults.unknown(str(card))
        elif card in grouped:
            faults.repeated(str(card))
        else:
            grouped.add(card)
            group.append(card)
    return group


def read_links(
    labels: Mapping[str, str], cards: Sequence[Card], tiles: Mapping[Card, int], problems: list[str]
) -> tuple[Link, ...]:
    """Return the links between tiles of different cards, in the order of the label ``xe-links``, each once.

    The label has the form ``0.0-1.0_2.0-3.0``, each entry ``device.tile-device.tile``.

    cards  in natural order: a device number of the label is an index into it
    tiles  how many tiles each card has. Links of a card without tiles are ignored, because its tiles are not announced
           yet while the device plugin starts
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
    """Parse ``"0.0-1.0"`` into ((0, 0), (1, 0)); return None for any other text and for a device linked to itself."""
    numbers = [[read_number(number) for number in end.split(".")] for end in entry.split("-")]
    match numbers:
        case [[int(one), int(one_tile)], [int(other), int(other_tile)]] if one != other:
            return (one, one_tile), (other, other_tile)
    return None
