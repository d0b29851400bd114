"""The rules that close single cards to a pod. Everything about one rule is here, its refusal included.

To add a rule: give `PodNeed` or `Inventory` a field, write the refusal, and append a `CardRule` to `CARD_RULES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from gas.cards import Card
from gas.placement.inventory import Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.refusal import NotTogether, Refusal, Shortage, not_together_sentence

NO_CARDS: frozenset[Card] = frozenset()


@dataclass(frozen=True)
class CardRule:
    """A rule that closes cards to a pod.

    closed   returns the cards that the rule closes; they need not be on the node
    lifted   returns the need and the inventory without the rule
    detail   describes a closed card: ``"in the deny list"``
    refusal  returns the refusal for a pod that would fit without the rule, from the node's cards that the rule closes
             and from what the usable cards lack
    """

    closed: Callable[[PodNeed, Inventory, Usage], frozenset[Card]]
    lifted: Callable[[PodNeed, Inventory], tuple[PodNeed, Inventory]]
    detail: str
    refusal: Callable[[tuple[Card, ...], Shortage | NotTogether], Refusal]


def closed_cards(need: PodNeed, inventory: Inventory, usage: Usage) -> frozenset[Card]:
    """Return the cards that any rule closes."""
    closed = [cards for rule in CARD_RULES if (cards := rule.closed(need, inventory, usage))]
    return NO_CARDS.union(*closed) if closed else NO_CARDS


@dataclass(frozen=True)
class CardsDisabled(Refusal):
    """The pod would fit if the disabled cards were not disabled."""

    kind: ClassVar[str] = "cards-disabled"
    only_per_card: ClassVar[bool] = True

    disabled: tuple[Card, ...]

    def __str__(self) -> str:
        if len(self.disabled) == 1:
            return f"{self.disabled[0]} is disabled by a telemetry label"
        return f"{len(self.disabled)} cards are disabled by telemetry labels"


@dataclass(frozen=True)
class _ListInTheWay(Refusal):
    """The pod would fit without a list of cards that it names. ``short`` is what the usable cards lack."""

    only_per_card: ClassVar[bool] = True
    where: ClassVar[str]

    short: Shortage | NotTogether

    def __str__(self) -> str:
        if isinstance(self.short, Shortage):
            return self.short.sentence(self.where)
        return not_together_sentence(self.short, f" on the cards {self.where}")


@dataclass(frozen=True)
class AllowListInTheWay(_ListInTheWay):
    """The pod would fit if its allow list named other cards."""

    kind: ClassVar[str] = "allow-list"
    where: ClassVar[str] = "in the allow list"


@dataclass(frozen=True)
class DenyListInTheWay(_ListInTheWay):
    """The pod would fit if its deny list named other cards."""

    kind: ClassVar[str] = "deny-list"
    where: ClassVar[str] = "outside the deny list"


CARD_RULES = (
    CardRule(
        closed=lambda _need, inventory, _usage: inventory.disabled,
        lifted=lambda need, inventory: (need, replace(inventory, disabled=NO_CARDS)),
        detail="disabled by a telemetry label",
        refusal=lambda cards, _short: CardsDisabled(cards),
    ),
    CardRule(
        closed=lambda need, inventory, _usage: (
            NO_CARDS if need.allowed is None else frozenset(inventory.capacity) - need.allowed
        ),
        lifted=lambda need, inventory: (replace(need, allowed=None), inventory),
        detail="not in the allow list",
        refusal=lambda _cards, short: AllowListInTheWay(short),
    ),
    CardRule(
        closed=lambda need, _inventory, _usage: need.denied,
        lifted=lambda need, inventory: (replace(need, denied=NO_CARDS), inventory),
        detail="in the deny list",
        refusal=lambda _cards, short: DenyListInTheWay(short),
    ),
)
"""All rules. The refusal names the first rule without which the pod would fit."""
