"""The labels that telemetry writes about a node's cards, ``telemetry.aware.scheduling.POLICY/gas-…``.

Labels about cards and tiles that the node does not have are ignored, because nodes change while policies stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gas.values.cards import Card, Tile
from gas.values.quoted import listed, quoted
from gas.vocabularies.intel import names
from gas.vocabularies.intel.entries import read_card

_GAS = "gas-"
_ABOUT_CARD = re.compile(
    rf"(?P<what>{names.DISABLE_CARD}|{names.DESCHEDULE_CARD}|{names.PREFER_TILE})(?P<card>card[0-9]+)",
    re.ASCII,
)
_ABOUT_TILE = re.compile(
    rf"(?P<what>{names.DISABLE_TILE}|{names.DESCHEDULE_TILE})(?P<card>card[0-9]+)_gt(?P<tile>[0-9]{{1,9}})",
    re.ASCII,
)
_TILE = re.compile(r"gt([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """All telemetry labels of a node together. Every tile named here exists."""

    disabled: frozenset[Card]
    deschedule_cards: frozenset[Card]
    closed_tiles: Mapping[Card, frozenset[int]]
    deschedule_tiles: frozenset[Tile]
    preferred_card: Card | None
    preferred_tiles: Mapping[Card, tuple[int, ...]]


def read_telemetry(
    labels: Mapping[str, str],
    tiles: Mapping[Card, int],
    pci_groups: Mapping[Card, frozenset[Card]],
    problems: list[str],
) -> Telemetry:
    """Read all telemetry labels of a node in the order of their names; invalid ones are added to ``problems``.

    tiles       how many tiles each card has; every card of the node is a key
    pci_groups  by card, all cards of its board
    """
    reading = _Reading(tiles, pci_groups, problems)
    for label in sorted(label for label in labels if label.startswith(names.TELEMETRY_PREFIX)):
        policy, _, name = label.removeprefix(names.TELEMETRY_PREFIX).partition("/")
        if name.startswith(_GAS):
            reading.take(policy, name, labels[label])
    return reading.result()


class _Reading:
    """The result of the labels read so far."""

    def __init__(
        self, tiles: Mapping[Card, int], pci_groups: Mapping[Card, frozenset[Card]], problems: list[str]
    ) -> None:
        self._tiles = tiles
        self._pci_groups = pci_groups
        self._problems = problems
        self._unknown: list[str] = []
        self._disabled: set[Card] = set()
        self._deschedule_cards: set[Card] = set()
        self._closed_tiles: dict[Card, set[int]] = {}
        self._deschedule_tiles: set[Tile] = set()
        self._preferred_card: Card | None = None
        self._preferred_tiles: dict[Card, list[int]] = {}

    def take(self, policy: str, name: str, value: str) -> None:
        label = f"label {name} of telemetry policy {quoted(policy)}"
        if name == names.PREFER_CARD:
            self._prefer_card(label, value)
        elif (match := _ABOUT_CARD.fullmatch(name)) and (card := read_card(match["card"])) is not None:
            if card in self._tiles:
                self._about_card(match["what"], card, label, value)
        elif (match := _ABOUT_TILE.fullmatch(name)) and (card := read_card(match["card"])) is not None:
            if (tile := Tile(card, int(match["tile"]))).index < self._tiles.get(card, 0):
                self._about_tile(match["what"], tile)
        else:
            self._unknown.append(name)

    def _prefer_card(self, label: str, value: str) -> None:
        if (card := read_card(value)) is None:
            self._problems.append(f"{label}: expected a card name such as card0, found {quoted(value)}")
        elif self._preferred_card is None and card in self._tiles:
            self._preferred_card = card

    def _about_card(self, what: str, card: Card, label: str, value: str) -> None:
        if what == names.PREFER_TILE:
            self._prefer_tile(label, card, value)
            return
        named = frozenset((card,))
        cards = self._pci_groups.get(card, named) if value == names.WHOLE_PCI_GROUP else named
        (self._disabled if what == names.DISABLE_CARD else self._deschedule_cards).update(cards)

    def _prefer_tile(self, label: str, card: Card, value: str) -> None:
        if (match := _TILE.fullmatch(value)) is None:
            self._problems.append(f"{label}: expected a tile name such as gt0, found {quoted(value)}")
        elif (tile := int(match[1])) < self._tiles[card]:
            preferred = self._preferred_tiles.setdefault(card, [])
            if tile not in preferred:
                preferred.append(tile)

    def _about_tile(self, what: str, tile: Tile) -> None:
        self._closed_tiles.setdefault(tile.card, set()).add(tile.index)
        if what == names.DESCHEDULE_TILE:
            self._deschedule_tiles.add(tile)

    def result(self) -> Telemetry:
        if self._unknown:
            self._problems.append(
                f"telemetry label {listed(self._unknown)}: expected names such as"
                " gas-disable-card0, gas-tile-disable-card0_gt1 or gas-prefer-gpu; it is ignored"
            )
        return Telemetry(
            disabled=frozenset(self._disabled),
            deschedule_cards=frozenset(self._deschedule_cards),
            closed_tiles={card: frozenset(tiles) for card, tiles in sorted(self._closed_tiles.items())},
            deschedule_tiles=frozenset(self._deschedule_tiles),
            preferred_card=self._preferred_card,
            preferred_tiles={card: tuple(tiles) for card, tiles in sorted(self._preferred_tiles.items())},
        )
