"""The node annotation ``gas-card-capacity``: the amounts of single cards where cards differ.

In ``card0=memory.max:8000000000,millicores:1000;card1=memory.max:16Gi``, ``;`` separates cards and ``,`` separates the
resources of one card, each with a Kubernetes quantity. Blanks around the parts and full names of resources
(``gpu.intel.com/xe``) are accepted. An amount of 0 means that the card does not have the resource.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gas.values.amounts import Amounts, MalformedQuantity, parse_quantity
from gas.values.cards import Card
from gas.vocabularies.intel import names
from gas.vocabularies.intel.label_text import EntryFaults, read_card

_RESOURCE = re.compile(r"[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?", re.ASCII)


def parse_card_capacity(text: str, problems: list[str]) -> dict[Card, dict[str, int]]:
    """Return the listed amounts by card. Invalid entries are left out and added to ``problems``."""
    faults = EntryFaults(
        f"annotation {names.CARD_CAPACITY}",
        "cards with amounts such as card0=memory.max:8000000000,millicores:1000",
    )
    capacity: dict[Card, dict[str, int]] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, _, amounts = part.partition("=")
        if (card := read_card(name.strip())) is None:
            faults.malformed(part)
            continue
        if card in capacity:
            faults.repeated(str(card))
            continue
        capacity[card] = _amounts(amounts, card, faults)
    problems.extend(faults.sentences())
    return capacity


def _amounts(text: str, card: Card, faults: EntryFaults) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for part in map(str.strip, text.split(",")):
        written, _, quantity = part.partition(":")
        resource = written.strip().removeprefix(names.PREFIX)
        if _RESOURCE.fullmatch(resource) is None:
            faults.malformed(f"{card}={part}")
            continue
        if resource in amounts:
            faults.repeated(f"{resource} of {card}")
            continue
        try:
            amounts[resource] = parse_quantity(quantity.strip())
        except MalformedQuantity:
            faults.malformed(f"{card}={part}")
    return amounts


def format_card_capacity(capacity: Mapping[Card, Amounts]) -> str:
    """Return the annotation for `parse_card_capacity`; a card without amounts is left out."""
    return ";".join(
        f"{card}=" + ",".join(f"{resource}:{amount}" for resource, amount in amounts.items())
        for card, amounts in capacity.items()
        if amounts
    )
