"""Read the parts of a node that several vocabularies share: resources, and records of its cards."""

from collections.abc import Mapping

from gas.objects.stored import Node, Quantity
from gas.values.amounts import MalformedQuantity, parse_quantity
from gas.values.card_records import ANNOTATION, CardRecord, parse_card_records
from gas.values.cards import Card
from gas.values.quoted import quoted


def allocatable_resources(node: Node) -> Mapping[str, Quantity]:
    return (node.status.allocatable if node.status else None) or {}


def allocatable_amount(allocatable: Mapping[str, Quantity], resource: str, problems: list[str]) -> int:
    """Return how much of a resource is allocatable, 0 if none. An invalid amount counts as 0 and becomes a problem."""
    try:
        return parse_quantity(allocatable.get(resource, 0))
    except MalformedQuantity as malformed:
        found = quoted(allocatable[resource])
        problems.append(f"allocatable {resource}: {malformed.reason}, found {found}; it is ignored")
        return 0


def recorded_cards(node: Node) -> tuple[CardRecord, ...]:
    """Return the cards that the node's own records name; nothing without records, or if none can be read."""
    return parse_card_records(node.annotations[ANNOTATION])[0] if ANNOTATION in node.annotations else ()


def recorded_amounts(node: Node) -> tuple[tuple[Card, int, int], ...] | None:
    """Return the healthy cards of the node's records with bytes of memory and millicores, None without records."""
    records = recorded_cards(node)
    return (
        tuple((each.card, each.memory or 0, each.millicores) for each in records if each.healthy) if records else None
    )
