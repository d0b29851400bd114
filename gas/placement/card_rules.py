"""The rules that close single cards to a pod, each with its refusal.

To add a rule: give `PodNeed` or `Inventory` a field, write the refusal, and append a `CardRule` to `CARD_RULES`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gas.placement.inventory import Company, Inventory, Usage, free_amount
from gas.placement.need import PodNeed
from gas.placement.refusal import NotTogether, Refusal, Shortage
from gas.values.cards import Card
from gas.values.quoted import quoted

NO_CARDS: frozenset[Card] = frozenset()


@dataclass(frozen=True)
class CardRule:
    """A rule that closes cards to a pod."""

    # returns the cards that the rule closes; they need not be on the node
    closed: Callable[[PodNeed, Inventory, Usage], frozenset[Card]]
    # returns those of need, inventory and usage, by name, that differ without the rule
    lifted: Callable[[PodNeed, Inventory, Usage], Mapping[str, Any]]
    detail: Callable[[PodNeed, Usage], str]  # describes a closed card: ``"in the deny list"``
    # returns the refusal for a pod that would fit without the rule, from the node's cards that the rule closes and from
    # what the usable cards lack
    refusal: Callable[[PodNeed, Usage, tuple[Card, ...], Shortage | NotTogether], Refusal]


def closed_cards(need: PodNeed, inventory: Inventory, usage: Usage) -> frozenset[Card]:
    return NO_CARDS.union(*(rule.closed(need, inventory, usage) for rule in CARD_RULES))


@dataclass(frozen=True)
class CardsDisabled(Refusal, kind="cards-disabled"):
    """The pod would fit if the disabled cards were not disabled."""

    disabled: tuple[Card, ...]

    def __str__(self) -> str:
        if len(self.disabled) == 1:
            return f"{self.disabled[0]} is disabled by a label or annotation of the node"
        return f"{len(self.disabled)} cards are disabled by labels or annotations of the node"


@dataclass(frozen=True)
class _InTheWay(Refusal):
    """The pod would fit without a rule that narrows its cards."""

    short: Shortage | NotTogether  # what the usable cards lack
    where: str  # which cards the rule leaves: ``"in the allow list"``

    def __str__(self) -> str:
        return self.short.sentence(self.where)


@dataclass(frozen=True)
class AllowListInTheWay(_InTheWay, kind="allow-list"):
    """The pod would fit if its allow list named other cards."""


@dataclass(frozen=True)
class DenyListInTheWay(_InTheWay, kind="deny-list"):
    """The pod would fit if its deny list named other cards."""


@dataclass(frozen=True)
class ModelsInTheWay(_InTheWay, kind="models"):
    """The pod would fit if it named or avoided other models of cards."""


@dataclass(frozen=True)
class AffinityInTheWay(_InTheWay, kind="affinity"):
    """The pod would fit without its affinity."""


@dataclass(frozen=True)
class AntiAffinityInTheWay(_InTheWay, kind="anti-affinity"):
    """The pod would fit without its anti-affinity."""


@dataclass(frozen=True)
class ExclusionInTheWay(_InTheWay, kind="exclusion"):
    """The pod would fit if the pods on the cards had the same exclusion as it."""


@dataclass(frozen=True)
class OtherPodsInTheWay(_InTheWay, kind="other-pods"):
    """The pod would fit if its cards might have other pods."""


@dataclass(frozen=True)
class FilledCardsInTheWay(_InTheWay, kind="filled-cards"):
    """The pod would fit if nothing had to be left of resources that it does not take."""


def _of_models(parts: frozenset[str], inventory: Inventory) -> frozenset[Card]:
    """Return the cards whose models have one of these parts."""
    models = inventory.models
    return frozenset(card for card in inventory.capacity if any(part in models.get(card, "") for part in parts))


def _unfilled(need: PodNeed) -> str:
    return " or ".join(sorted(need.unfilled))


def _filled(need: PodNeed, inventory: Inventory, usage: Usage) -> frozenset[Card]:
    return frozenset(
        card
        for card, has in inventory.capacity.items()
        if any(has.get(name) and free_amount(inventory, usage, card, name) <= 0 for name in need.unfilled)
    )


def _not_joined(inventory: Inventory, usage: Usage, may_join: Callable[[Collection[Company]], bool]) -> frozenset[Card]:
    return frozenset(card for card in inventory.capacity if not may_join(usage.company_on(card)))


def _with_equal_exclusion(usage: Usage, exclusion: str) -> Usage:
    cards = usage.containers
    alike = {card: [replace(each, exclusion=exclusion) for each in usage.company_on(card)] for card in cards}
    return replace(usage, company=alike)


@dataclass(frozen=True)
class NamedCardInTheWay(_InTheWay, kind="card-name"):
    """The pod would fit if its card need not have a name."""


def cards_to_name(name: str, inventory: Inventory, usage: Usage) -> frozenset[Card]:
    """Return the cards of which a pod may use one by this name: those that have it, or else all that are idle.

    More than one card has the name if kubelet gave a pod another card than was decided.
    """
    return _named(name, usage) or frozenset(filter(usage.is_idle, inventory.capacity))


def _named(name: str, usage: Usage) -> frozenset[Card]:
    return frozenset(card for card, names in usage.names.items() if name in names)


CARD_RULES = (
    CardRule(
        closed=lambda _need, inventory, _usage: inventory.disabled,
        lifted=lambda _need, inventory, _usage: {"inventory": replace(inventory, disabled=NO_CARDS)},
        detail=lambda _need, _usage: "disabled by a label or annotation of the node",
        refusal=lambda _need, _usage, cards, _short: CardsDisabled(cards),
    ),
    CardRule(
        closed=lambda need, inventory, _usage: (
            NO_CARDS if need.allowed is None else frozenset(inventory.capacity) - inventory.resolve(need.allowed)
        ),
        lifted=lambda need, *_: {"need": replace(need, allowed=None)},
        detail=lambda _need, _usage: "not in the allow list",
        refusal=lambda _need, _usage, _cards, short: AllowListInTheWay(short, "in the allow list"),
    ),
    CardRule(
        closed=lambda need, inventory, _usage: inventory.resolve(need.denied),
        lifted=lambda need, *_: {"need": replace(need, denied=NO_CARDS)},
        detail=lambda _need, _usage: "in the deny list",
        refusal=lambda _need, _usage, _cards, short: DenyListInTheWay(short, "outside the deny list"),
    ),
    CardRule(
        closed=lambda need, inventory, _usage: (
            frozenset(inventory.capacity) - _of_models(need.models, inventory) if need.models else NO_CARDS
        ),
        lifted=lambda need, *_: {"need": replace(need, models=frozenset())},
        detail=lambda _need, _usage: "not of a model that the pod names",
        refusal=lambda _need, _usage, _cards, short: ModelsInTheWay(short, "of the models that the pod names"),
    ),
    CardRule(
        closed=lambda need, inventory, _usage: (
            _of_models(need.denied_models, inventory) if need.denied_models else NO_CARDS
        ),
        lifted=lambda need, *_: {"need": replace(need, denied_models=frozenset())},
        detail=lambda _need, _usage: "of a model that the pod avoids",
        refusal=lambda _need, _usage, _cards, short: ModelsInTheWay(short, "outside the models that the pod avoids"),
    ),
    CardRule(
        closed=lambda need, inventory, usage: (
            _not_joined(inventory, usage, need.company.has_affinity) if need.company.affinity else NO_CARDS
        ),
        lifted=lambda need, *_: {"need": replace(need, company=replace(need.company, affinity=""))},
        detail=lambda need, _usage: f"no pod with affinity {quoted(need.company.affinity)}",
        refusal=lambda need, _usage, _cards, short: AffinityInTheWay(
            short, f"open to affinity {quoted(need.company.affinity)}"
        ),
    ),
    CardRule(
        closed=lambda need, inventory, usage: (
            _not_joined(inventory, usage, need.company.has_no_anti_affinity) if need.company.anti_affinity else NO_CARDS
        ),
        lifted=lambda need, *_: {"need": replace(need, company=replace(need.company, anti_affinity=""))},
        detail=lambda need, _usage: f"a pod with anti-affinity {quoted(need.company.anti_affinity)}",
        refusal=lambda need, _usage, _cards, short: AntiAffinityInTheWay(
            short, f"open to anti-affinity {quoted(need.company.anti_affinity)}"
        ),
    ),
    CardRule(
        closed=lambda need, inventory, usage: (
            _not_joined(inventory, usage, need.company.has_same_exclusion)
            if need.company.exclusion or usage.company
            else NO_CARDS
        ),
        lifted=lambda need, _inventory, usage: {"usage": _with_equal_exclusion(usage, need.company.exclusion)},
        detail=lambda need, _usage: (
            ""  # the rule for idle cards says why
            if need.idle
            else f"a pod without exclusion {quoted(need.company.exclusion)}"
            if need.company.exclusion
            else "a pod with an exclusion"
        ),
        refusal=lambda need, _usage, _cards, short: ExclusionInTheWay(
            short,
            f"open to exclusion {quoted(need.company.exclusion)}"
            if need.company.exclusion
            else "open to pods without exclusion",
        ),
    ),
    CardRule(
        closed=lambda need, inventory, usage: (
            frozenset(inventory.capacity) - cards_to_name(need.named, inventory, usage) if need.named else NO_CARDS
        ),
        lifted=lambda need, *_: {"need": replace(need, named="")},
        detail=lambda need, usage: (
            f"not named {quoted(need.named)}"
            if _named(need.named, usage)
            else "not idle, as a card for a new name must be"
        ),
        refusal=lambda need, usage, _cards, short: NamedCardInTheWay(
            short,
            f"named {quoted(need.named)}"
            if _named(need.named, usage)
            else f"idle for the new name {quoted(need.named)}",
        ),
    ),
    CardRule(
        closed=lambda need, inventory, usage: (
            frozenset(card for card in inventory.capacity if not usage.is_idle(card)) if need.idle else NO_CARDS
        ),
        lifted=lambda need, *_: {"need": replace(need, idle=False)},
        detail=lambda _need, _usage: "has another pod",
        refusal=lambda _need, _usage, _cards, short: OtherPodsInTheWay(short, "without other pods"),
    ),
    CardRule(
        closed=lambda need, inventory, usage: _filled(need, inventory, usage) if need.unfilled else NO_CARDS,
        lifted=lambda need, *_: {"need": replace(need, unfilled=frozenset())},
        detail=lambda need, _usage: f"no {_unfilled(need)} left",
        refusal=lambda need, _usage, _cards, short: FilledCardsInTheWay(short, f"with any {_unfilled(need)} left"),
    ),
)
"""All rules. The refusal names the first rule without which the pod would fit."""
