"""Read the cards of a node and what they have from its labels, its annotation and its allocatable resources."""

from collections.abc import Collection, Mapping

from gas.objects.stored import Node, Quantity
from gas.placement.inventory import NOTHING, Inventory
from gas.values.amounts import Amounts, MalformedQuantity, parse_quantity
from gas.values.card_records import MOST_RECORDS, MOST_TILES
from gas.values.cards import Card
from gas.values.quoted import listed, quoted
from gas.vocabularies.intel import names
from gas.vocabularies.intel.node_labels import Telemetry, read_cards, read_links, read_numa_groups, read_pci_groups
from gas.vocabularies.intel.node_texts import parse_card_capacity
from gas.vocabularies.node_parts import allocatable_resources
from gas.vocabularies.protocol import NodeFacts

MOST_RESOURCES = 64  # resources of one node; each is shown, and counted in metrics, for each card

_NOT_BOOKED = frozenset(names.MONITORING_RESOURCES)


def read_node(node: Node) -> NodeFacts:
    """Return the facts of a node. Never raises: an invalid part becomes a problem, and the other parts are used."""
    problems: list[str] = []
    labels = node.labels
    allocatable = allocatable_resources(node)
    cards = read_cards(labels, problems)
    if len(cards) > MOST_RECORDS:
        expected = f"expected at most {MOST_RECORDS} cards, found {len(cards)}; the others are ignored"
        problems.append(f"label {names.GPU_NUMBERS}: {expected}")
        cards = cards[:MOST_RECORDS]
    totals = _totals(allocatable, problems)
    if not cards:
        if counted := [name for name in names.COUNT_RESOURCES if name in totals]:
            problems.append(
                f"{names.PREFIX}{counted[0]} is allocatable, but neither label {names.GPU_NUMBERS} nor"
                f" {names.CARDS} names a card; pods get no card of this node"
            )
        return NodeFacts(inventory=Inventory(capacity={}), problems=tuple(problems))

    capacity = _capacity(cards, totals, node.annotations.get(names.CARD_CAPACITY, ""), problems)
    tiles = {card: amounts.get(names.TILES, 0) for card, amounts in capacity.items()}
    pci_groups = read_pci_groups(labels, cards, problems)
    numa_groups = read_numa_groups(labels, cards, problems)
    links = read_links(labels, cards, tiles, problems)
    telemetry = Telemetry(labels, tiles, pci_groups, problems)
    return NodeFacts(
        inventory=Inventory(
            capacity=capacity,
            disabled=frozenset(telemetry.disabled),
            closed_tiles={card: frozenset(closed) for card, closed in sorted(telemetry.closed_tiles.items())},
            preferred_card=telemetry.preferred_card,
            preferred_tiles={card: tuple(first) for card, first in sorted(telemetry.preferred_tiles.items())},
            numa_groups=numa_groups,
            links=links,
            boards=tuple(dict.fromkeys(tuple(sorted(board)) for board in pci_groups.values())),
        ),
        deschedule_cards=frozenset(telemetry.deschedule_cards),
        deschedule_tiles=frozenset(telemetry.deschedule_tiles),
        closed_by={card: tuple(closing) for card, closing in telemetry.closed_by.items()},
        problems=tuple(problems),
    )


def _totals(allocatable: Mapping[str, Quantity], problems: list[str]) -> dict[str, int]:
    """Return the node's sums of the resources that are booked card by card, by short name, without sums of 0."""
    totals: dict[str, int] = {}
    for full_name in sorted(allocatable):
        name = full_name.removeprefix(names.PREFIX)
        if name == full_name or name in _NOT_BOOKED:
            continue
        try:
            total = parse_quantity(allocatable[full_name])
        except MalformedQuantity as malformed:
            found = quoted(allocatable[full_name])
            problems.append(f"allocatable {quoted(full_name)}: {malformed.reason}, found {found}; it is ignored")
            continue
        if total and len(totals) == MOST_RESOURCES:
            problems.append(
                f"allocatable {quoted(full_name)}: expected at most {MOST_RESOURCES} resources under {names.PREFIX}; it"
                " and those after it are ignored"
            )
            break
        if total:
            totals[name] = total
    return totals


def _capacity(cards: Collection[Card], totals: Amounts, annotation: str, problems: list[str]) -> dict[Card, Amounts]:
    """Return the amounts of each card: an even share of the sums, unless the annotation states the amount."""
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
    for name, total in totals.items():
        if total < len(cards) and not any(name in amounts for amounts in capacity.values()):
            expected = f"expected at least 1 for each of {len(cards)} cards, found {total}; no card has any"
            problems.append(f"allocatable {names.PREFIX}{name}: {expected}")
    if too_many:
        problems.append(
            f"resource {names.PREFIX}{names.TILES}: expected at most {MOST_TILES} on a card, found more on"
            f" {listed(too_many)}; these cards count as cards without tiles"
        )
    return capacity


def _with(amounts: Amounts, others: Amounts) -> Amounts:
    """Return the amounts updated by ``others``; an amount of 0 removes the name."""
    if not others:
        return amounts
    return {name: amount for name, amount in {**amounts, **others}.items() if amount}
