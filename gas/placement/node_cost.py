"""The cost of a node's state: how much of its cards will stay unused, in thousandths of a card.

It is the sum of two parts:

- what is wasted on single cards: remainders that few pods fit into (`gas.placement.waste`);
- what is stranded: cards for which the node has too little CPU, memory or pod slots left, as pods request them.

A pod costs what it adds to that, under the policy `NodeScore.BALANCE`. The best node and card for it are those where it
costs least.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gas.placement.choice import Footprint
from gas.placement.inventory import NOTHING, Inventory, Usage, free_amounts
from gas.placement.node_score import NodeScore
from gas.placement.waste import WHOLE, Mix, share_left
from gas.values.amounts import Amounts, SortedAmounts
from gas.values.cards import Card

RESERVE = 1.05
"""How much more of the host's resources than pods usually request is kept for each free card. Pods without cards take
some as well, wherever others place them."""

PRICE = 0.5
"""How much a card costs, as a part of it, if pods that cannot go elsewhere ask for all such cards."""


class Effect(NamedTuple):
    """The change that a pod makes to the cards of a node. Cards on which nothing may start do not count.

    cards       how many there are
    before      the sum of the shares that are left without the pod, in thousandths of a card
    after       the same with the pod
    waste       how much more of them will stay unused by other pods
    containers  how many containers the cards have with the pod
    per_card    what pods request of the host for each card, by resource
    left        the sum of the shares that are left on the cards of the pod
    """

    cards: int
    before: int
    after: int
    waste: int
    containers: int
    per_card: Mapping[str, float]
    left: int = 0


def effect(mix: Mix, inventory: Inventory, usage: Usage, footprint: Footprint) -> Effect:
    """Return the effect of placing a pod.

    usage      what is booked without the pod
    footprint  what the pod takes
    """
    cards = before = after = waste = containers = left_of_pod = 0
    per_card: Mapping[str, float] = {}
    for card, capacity in inventory.capacity.items():
        if card in inventory.disabled:
            continue
        seen = mix.on(capacity)
        share = _share_left(inventory, usage, card, ())
        cards += 1
        before += share
        containers += usage.containers.get(card, 0) + footprint.containers.get(card, 0)
        per_card = per_card or seen.per_card
        if (taken := footprint.amounts.get(card)) is not None:
            left = _share_left(inventory, usage, card, taken)
            waste += seen.wasted(left) - seen.wasted(share)
            left_of_pod += left
            share = left
        after += share
    return Effect(cards, before, after, waste, containers, per_card, left_of_pod)


def placement_cost(
    policy: NodeScore,
    effect: Effect,
    *,
    host: Amounts | None = None,
    requests: Amounts | None = None,
    pressure: float = 0.0,
) -> int:
    """Return the cost of placing a pod on a node, lowest best. Costs compare only under the same policy and mix.

    host      what the node has free besides its cards without the pod, by resource; None if that is not known
    requests  what the pod requests of that
    pressure  how much the node's cards are asked for by pods that cannot go elsewhere
    """
    match policy:
        case NodeScore.NONE:
            return 0
        case NodeScore.BEST_FIT:
            return effect.after
        case NodeScore.BEST_FIT_CARD:
            return effect.left
        case NodeScore.SPREAD:
            return WHOLE - effect.after // effect.cards if effect.cards else WHOLE
        case NodeScore.LEAST_LOADED:
            return effect.containers * WHOLE // effect.cards if effect.cards else 0
    cost = effect.waste + round(PRICE * pressure * (effect.before - effect.after))
    if host is None:
        return cost
    before = stranded(effect.before, host, effect.per_card)
    return cost + stranded(effect.after, host, effect.per_card, requests or {}) - before


def stranded(left: int, host: Amounts, per_card: Mapping[str, float], requests: Amounts = NOTHING) -> int:
    """Return how much of ``left``, in thousandths of a card, the scarcest resource of the host cannot serve.

    host      what is free besides the cards
    requests  what is taken from it in addition
    """
    served = float(left)
    for name, amount in per_card.items():
        free = host.get(name, 0) - requests.get(name, 0)
        served = min(served, max(free, 0) * WHOLE / (amount * RESERVE))
    return left - int(served)


def _share_left(inventory: Inventory, usage: Usage, card: Card, more: SortedAmounts) -> int:
    """Return which share of a card is left if ``more`` is taken from it."""
    free = free_amounts(inventory, usage, card)
    for name, amount in more:
        free[name] = free.get(name, 0) - amount
    return share_left(inventory.capacity[card], free)
