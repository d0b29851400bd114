"""Placement of GPU pods on the cards of one node, as a library: values in, a choice or a refusal out, no I/O.

`place` takes a `PodNeed` and a node's `Inventory` and `Usage`, and returns a `Choice` or a `Refusal`. `footprint`
returns what a choice takes of each card, and `card_details` describes card by card what is free. ``docs/placement.md``
has an example.
"""

from gas.placement.choice import Choice, ContainerChoice, Footprint, footprint
from gas.placement.inventory import NO_COMPANY, UNUSED, Company, Inventory, Link, Partition, Usage
from gas.placement.need import ContainerNeed, PartitionRule, PodNeed, Role, Scope
from gas.placement.order import NATURAL, BestFit, CardOrder, FewestContainers, LeastUsed, UsedFirst
from gas.placement.place import DEFAULT_STEP_LIMIT, place
from gas.placement.ratio import Ratio
from gas.placement.reason import card_details
from gas.placement.refusal import Refusal, SearchLimitHit
from gas.values.amounts import sorted_amounts
from gas.values.cards import Card, Tile
from gas.values.errors import GasError, InvalidValue

__all__ = [
    "DEFAULT_STEP_LIMIT",
    "NATURAL",
    "NO_COMPANY",
    "UNUSED",
    "BestFit",
    "Card",
    "CardOrder",
    "Choice",
    "Company",
    "ContainerChoice",
    "ContainerNeed",
    "FewestContainers",
    "Footprint",
    "GasError",
    "InvalidValue",
    "Inventory",
    "LeastUsed",
    "Link",
    "Partition",
    "PartitionRule",
    "PodNeed",
    "Ratio",
    "Refusal",
    "Role",
    "Scope",
    "SearchLimitHit",
    "Tile",
    "Usage",
    "UsedFirst",
    "card_details",
    "footprint",
    "place",
    "sorted_amounts",
]
