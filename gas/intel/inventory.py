"""What a node has: from its labels, its annotation about unlike cards and its allocatable resources."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gas.amounts import Amounts, MalformedQuantity, parse_quantity
from gas.cards import Card
from gas.intel import names
from gas.intel.card_capacity import parse_card_capacity
from gas.intel.card_groups import read_numa_groups, read_pci_groups
from gas.intel.card_labels import read_cards
from gas.intel.telemetry_labels import read_telemetry
from gas.intel.xe_links import read_links
from gas.objects import Node, Quantity
from gas.placement.inventory import NOTHING, Inventory
from gas.quoted import listed, quoted
from gas.vocabulary import NodeFacts

MOST_TILES = 256
"""No card has nearly as many; a larger number is a mistake, and would have to be walked tile by tile."""

_NOT_BOOKED = frozenset(names.MONITORING_RESOURCES)


def read_node(node: Node) -> NodeFacts:
    """The facts of a node. Never refuses: what makes no sense becomes a problem, the rest still counts."""
    problems: list[str] = []
    labels = node.labels
    allocatable = (node.status.allocatable if node.status else None) or {}
    cards = read_cards(labels, problems)
    totals = _totals(allocatable, problems)
    if not cards:
        if counted := [name for name in names.COUNT_RESOURCES if name in totals]:
            problems.append(
                f"{names.PREFIX}{counted[0]} is allocatable, but neither label {names.GPU_NUMBERS} nor"
                f" {names.CARDS} names a card; no card of the node can be given out"
            )
        return NodeFacts(inventory=Inventory(capacity={}), problems=tuple(problems))

    capacity = _capacity(cards, totals, node.annotations.get(names.CARD_CAPACITY, ""), problems)
    tiles = {card: amounts.get(names.TILES, 0) for card, amounts in capacity.items()}
    pci_groups = read_pci_groups(labels, cards, problems)
    numa_groups = read_numa_groups(labels, cards, problems)
    links = read_links(labels, cards, tiles, problems)
    telemetry = read_telemetry(labels, tiles, pci_groups, problems)
    return NodeFacts(
        inventory=Inventory(
            capacity=capacity,
            disabled=telemetry.disabled,
            closed_tiles=telemetry.closed_tiles,
            preferred_card=telemetry.preferred_card,
            preferred_tiles=telemetry.preferred_tiles,
            numa_groups=numa_groups,
            links=links,
        ),
        deschedule_cards=telemetry.deschedule_cards,
        deschedule_tiles=telemetry.deschedule_tiles,
        problems=tuple(problems),
    )


def _totals(allocatable: Mapping[str, Quantity], problems: list[str]) -> dict[str, int]:
    """What the whole node has of each resource that is booked card by card; only what there is any of."""
    totals: dict[str, int] = {}
    for full_name in sorted(allocatable):
        name = full_name.removeprefix(names.PREFIX)
        if name == full_name or name in _NOT_BOOKED:
            continue
        try:
            total = parse_quantity(allocatable[full_name])
        except MalformedQuantity as malformed:
            found = quoted(allocatable[full_name])
            problems.append(f"allocatable {quoted(full_name)}: {malformed.reason}, found {found}; it is left out")
            continue
        if total:
            totals[name] = total
    return totals


def _capacity(cards: Collection[Card], totals: Amounts, annotation: str, problems: list[str]) -> dict[Card, Amounts]:
    """An even share of the node's resources for each card, where the annotation does not say otherwise."""
    even = {name: share for name, total in totals.items() if (share := total // len(cards))}
    unlike = parse_card_capacity(annotation, problems)
    if elsewhere := [str(card) for card in unlike if card not in cards]:
        problems.append(f"annotation {names.CARD_CAPACITY}: the node does not have {listed(elsewhere)}")
    capacity: dict[Card, Amounts] = {}
    too_many: list[str] = []
    for card in cards:
        amounts = _with(even, unlike.get(card, NOTHING))
        if amounts.get(names.TILES, 0) > MOST_TILES:
            too_many.append(str(card))
            amounts = _with(amounts, {names.TILES: 0})
        capacity[card] = amounts
    if too_many:
        problems.append(
            f"resource {names.PREFIX}{names.TILES}: expected at most {MOST_TILES} on a card, more on"
            f" {listed(too_many)}; these are taken to have none"
        )
    return capacity


def _with(amounts: Amounts, others: Amounts) -> Amounts:
    """The amounts with ``others`` in the place of those of the same name; 0 takes a name out."""
    if not others:
        return amounts
    return {name: amount for name, amount in {**amounts, **others}.items() if amount}
