"""Read the node labels about cards: which there are, which belong together, which are linked, and telemetry's."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gas.placement.inventory import Link
from gas.values.cards import Card, Tile
from gas.values.quoted import listed, quoted
from gas.vocabularies.intel import names
from gas.vocabularies.intel.node_texts import EntryFaults, joined_label, read_card, read_number


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
            faults.malformed.append(entry)
        elif card in cards:
            faults.repeated.append(entry)
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

    None if the node has no such label. A label without any readable group gives an empty tuple: no card is known to be
    in any group.
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
            faults.malformed.append(entry)
            continue
        groups.setdefault(number, []).extend(_group(numbers, known, grouped, faults))
    problems.extend(faults.sentences())
    return tuple(tuple(group) for group in groups.values() if group)


def read_pci_groups(
    labels: Mapping[str, str], cards: Collection[Card], problems: list[str]
) -> dict[Card, frozenset[Card]]:
    """Return, for each card in the label ``pci-groups`` (``0.1_2.3.4``), all cards of its board, itself included."""
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
            faults.malformed.append(text)
        elif (card := Card(number)) not in known:
            faults.unknown.append(str(card))
        elif card in grouped:
            faults.repeated.append(str(card))
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
            faults.malformed.append(entry)
            continue
        if any(device >= len(cards) for device, _ in ends):
            faults.unknown.append(entry)
            continue
        one, other = (Tile(cards[device], index) for device, index in ends)
        if not tiles.get(one.card, 0) or not tiles.get(other.card, 0):
            continue
        if one.index >= tiles[one.card] or other.index >= tiles[other.card]:
            faults.unknown.append(entry)
        elif (link := Link(one, other)) in links:
            faults.repeated.append(entry)
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


_ABOUT_CARD = re.compile(
    rf"(?P<what>{names.DISABLE_CARD}|{names.DESCHEDULE_CARD}|{names.PREFER_TILE})(?P<card>card[0-9]+)", re.ASCII
)
_ABOUT_TILE = re.compile(
    rf"(?P<what>{names.DISABLE_TILE}|{names.DESCHEDULE_TILE})(?P<card>card[0-9]+)_gt(?P<tile>[0-9]{{1,9}})", re.ASCII
)
_TILE = re.compile(r"gt([0-9]{1,9})", re.ASCII)
_MOST_CLOSING = 16  # labels that close one board which are read: any more change nothing, and take time for each card


class Telemetry:
    """All labels that telemetry writes about a node's cards, ``telemetry.aware.scheduling.POLICY/gas-…``, together.

    Labels about cards and tiles that the node does not have are ignored, because nodes change while policies stay; so
    every card and tile in the result exists. Labels of several policies are read in the order of their names.
    """

    def __init__(
        self,
        labels: Mapping[str, str],
        tiles: Mapping[Card, int],  # how many tiles each card has; every card of the node is a key
        pci_groups: Mapping[Card, frozenset[Card]],  # by card, all cards of its board
        problems: list[str],
    ) -> None:
        """Read the labels; invalid ones are added to ``problems``."""
        self.disabled: set[Card] = set()
        self.deschedule_cards: set[Card] = set()
        self.closed_tiles: dict[Card, set[int]] = {}
        self.deschedule_tiles: set[Tile] = set()
        self.closed_by: dict[Card, list[str]] = {}
        self.preferred_card: Card | None = None
        self.preferred_tiles: dict[Card, list[int]] = {}
        self._closings: Counter[tuple[str, frozenset[Card]]] = Counter()
        self._tiles = tiles
        self._pci_groups = pci_groups
        self._problems = problems
        unknown: list[str] = []
        for label in sorted(label for label in labels if label.startswith(names.TELEMETRY_PREFIX)):
            policy, _, name = label.removeprefix(names.TELEMETRY_PREFIX).partition("/")
            where = f"label {name} of telemetry policy {quoted(policy)}"
            if name.startswith("gas-") and not self._take(name, labels[label], where):
                unknown.append(name)
        if unknown:
            problems.append(
                f"telemetry label {listed(unknown)}: expected names such as"
                " gas-disable-card0, gas-tile-disable-card0_gt1 or gas-prefer-gpu; it is ignored"
            )

    def _take(self, name: str, value: str, where: str) -> bool:
        """Add what a label states. Returns False if its name is not known."""
        if name == names.PREFER_CARD:
            self._prefer_card(value, where)
        elif (match := _ABOUT_CARD.fullmatch(name)) and (card := read_card(match["card"])) is not None:
            if card in self._tiles:
                self._about_card(match["what"], card, value, where)
        elif (match := _ABOUT_TILE.fullmatch(name)) and (card := read_card(match["card"])) is not None:
            if (tile := Tile(card, int(match["tile"]))).index < self._tiles.get(card, 0):
                self.closed_tiles.setdefault(card, set()).add(tile.index)
                self.closed_by.setdefault(card, []).append(where)
                if match["what"] == names.DESCHEDULE_TILE:
                    self.deschedule_tiles.add(tile)
        else:
            return False
        return True

    def _prefer_card(self, value: str, where: str) -> None:
        if (card := read_card(value)) is None:
            self._problems.append(f"{where}: expected a card name such as card0, found {quoted(value)}")
        elif self.preferred_card is None and card in self._tiles:
            self.preferred_card = card

    def _about_card(self, what: str, card: Card, value: str, where: str) -> None:
        if what == names.PREFER_TILE:
            if (match := _TILE.fullmatch(value)) is None:
                self._problems.append(f"{where}: expected a tile name such as gt0, found {quoted(value)}")
            elif (tile := int(match[1])) < self._tiles[card]:
                preferred = self.preferred_tiles.setdefault(card, [])
                if tile not in preferred:
                    preferred.append(tile)
            return
        whole_board = self._pci_groups.get(card) if value == names.WHOLE_PCI_GROUP else None
        if whole_board is not None:
            self._closings[what, whole_board] += 1
            if self._closings[what, whole_board] > _MOST_CLOSING:
                return
        closing = whole_board or (card,)
        (self.disabled if what == names.DISABLE_CARD else self.deschedule_cards).update(closing)
        for each in closing:
            self.closed_by.setdefault(each, []).append(where)
