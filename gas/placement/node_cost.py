"""Estimate the cost of a node's state: how much of its cards will stay unused, in thousandths of a card.

It is the sum of two parts:

- what is wasted on single cards: remainders that few pods fit into (`gas.placement.waste`);
- what is stranded: cards for which the node has too little CPU, memory or pod slots left, as pods request them.

A pod costs what it adds to that, under the policy `NodeScore.BALANCE`. The best node and card for it are those where it
costs least. `Arrivals` learns from the pods that arrive which pods to expect.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from gas.placement.choice import Footprint
from gas.placement.inventory import NOTHING, Inventory, Usage, free_amounts
from gas.placement.need import PodNeed
from gas.placement.order import NodeScore
from gas.placement.plan import plan_of
from gas.placement.waste import WHOLE, Asked, Mix, Shape, Slice, share_left, share_taken
from gas.values.amounts import Amounts
from gas.values.cards import Card

RESERVE = 1.05
"""How much more of the host's resources than pods usually request is kept for each free card. Pods without cards take
some as well, wherever others place them."""

PRICE = 0.5  # how much a card costs, as a part of it, if pods that cannot go elsewhere ask for all such cards


class Effect(NamedTuple):
    """The change that a pod makes to the cards of a node. Cards on which nothing may start do not count."""

    cards: int  # how many there are
    before: int  # the sum of the shares that are left without the pod, in thousandths of a card
    after: int  # the same with the pod
    waste: int  # how much more of them will stay unused by other pods
    containers: int  # how many containers the cards have with the pod
    per_card: Mapping[str, float]  # what pods request of the host for each card, by resource
    left: int = 0  # the sum of the shares that are left on the cards of the pod


def shares_left(inventory: Inventory, usage: Usage) -> dict[Card, int]:
    """Return which share of each card is left, without cards on which nothing may start."""
    return {
        card: share_left(capacity, free_amounts(inventory, usage, card))
        for card, capacity in inventory.capacity.items()
        if card not in inventory.disabled
    }


def effect(
    mix: Mix, inventory: Inventory, usage: Usage, footprint: Footprint, shares: Mapping[Card, int] | None = None
) -> Effect:
    """Return the effect of placing a pod that takes ``footprint``; ``usage`` is what is booked without it.

    shares  `shares_left` of the same inventory and usage, if the caller has it already
    """
    shares = shares_left(inventory, usage) if shares is None else shares
    before = after = sum(shares.values())
    waste = left_of_pod = 0
    for card, taken in footprint.amounts.items():
        if (share := shares.get(card)) is not None:
            capacity = inventory.capacity[card]
            left = share_left(capacity, free_amounts(inventory, usage, card), dict(taken))
            seen = mix.on(capacity)
            waste += seen.wasted(left) - seen.wasted(share)
            left_of_pod += left
            after += left - share
    containers = sum(usage.containers.get(card, 0) + footprint.containers.get(card, 0) for card in shares)
    known = (mix.on(inventory.capacity[card]).per_card for card in shares)
    return Effect(len(shares), before, after, waste, containers, next(filter(None, known), {}), left_of_pod)


def placement_cost(
    policy: NodeScore,
    effect: Effect,
    *,
    # what the node has free besides its cards without the pod, by resource; None if that is not known
    host: Amounts | None = None,
    requests: Amounts | None = None,  # what the pod requests of that
    pressure: float = 0.0,  # how much the node's cards are asked for by pods that cannot go elsewhere
) -> int:
    """Return the cost of placing a pod on a node, lowest best. Costs compare only under the same policy and mix."""
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
    """Return how much of ``left``, in thousandths of a card, the host cannot serve with what ``requests`` leave."""
    served = float(left)
    for name, amount in per_card.items():
        free = host.get(name, 0) - requests.get(name, 0)
        served = min(served, max(free, 0) * WHOLE / (amount * RESERVE))
    return left - int(served)


FIRST = 20  # arrivals after which the first mix is made; the next ones follow whenever half as many again have arrived
MOST_BETWEEN = 1000  # Arrivals after which the mix is made again at the latest. More often gives out no more cards.
MEMORY = 4096.0  # Arrivals that count. When more have come, each of them counts half, so that old habits are forgotten.
LEAST = 0.1  # a shape that counts less than this is forgotten
Pool = TypeVar("Pool", bound=Hashable)  # stands for nodes that are alike in what they have

MOST_PRESSURE = 1.5


class Arrivals:
    """Count arrivals by shape. A new `Mix` is made only now and then, since every cost is computed again with it."""

    def __init__(self) -> None:
        self._asked: dict[tuple[Shape, Hashable], tuple[float, dict[str, float]]] = {}
        self._weight = 0.0
        self.arrivals = 0
        self._next = FIRST
        self._mix = Mix()

    def learn(self, need: PodNeed, host: Amounts, restriction: Hashable = None) -> None:
        """Learn from a pod that has arrived, and requests ``host`` besides cards; one without cards is ignored."""
        shape = tuple(Slice(request.count, request.per_card, request.ratios) for request in plan_of(need).staying)
        if not shape:
            return
        weight, sums = self._asked.get((shape, restriction), (0.0, {}))
        for name, amount in host.items():
            sums[name] = sums.get(name, 0.0) + amount
        self._asked[shape, restriction] = weight + 1, sums
        self._weight += 1
        self.arrivals += 1
        if self._weight > MEMORY:
            self._halve()

    def mix(self) -> Mix:
        """Return the latest mix, made again if enough pods have come since."""
        if self.arrivals >= self._next:
            self._next = self.arrivals + min(self.arrivals // 2, MOST_BETWEEN)
            self._mix = Mix(
                tuple(
                    Asked(shape, restriction, weight, tuple(sorted(sums.items())))
                    for (shape, restriction), (weight, sums) in self._asked.items()
                )
            )
        return self._mix

    def _halve(self) -> None:
        self._asked = {
            what: (weight / 2, {name: amount / 2 for name, amount in sums.items()})
            for what, (weight, sums) in self._asked.items()
            if weight / 2 >= LEAST
        }
        self._weight = sum(weight for weight, _ in self._asked.values())


def pressures(
    mix: Mix, card: Amounts, cards: Mapping[Pool, int], admitted: Mapping[Hashable, Iterable[Pool]]
) -> dict[Pool, float]:
    """Return how much of each pool's cards would be asked for by pods that cannot go everywhere, at full demand.

    1 means all of them; the result is at most MOST_PRESSURE. Pools that no restricted pod may use are missing.

    card      the capacity that amounts are compared with, that of the most common card
    cards     how many cards each pool has
    admitted  restriction -> the pools that its pods may use
    """
    demand: dict[Hashable, float] = {}
    for each in mix.asked:
        taken = sum(part.cards * min(share_taken(card, part), WHOLE) for part in each.shape)
        demand[each.restriction] = demand.get(each.restriction, 0.0) + each.weight * taken
    total = sum(demand.values())
    found: dict[Pool, float] = {}
    for restriction, asked in demand.items():
        pools = set(admitted.get(restriction, ())) & cards.keys()
        room = sum(cards[pool] for pool in pools)
        if restriction is None or not room or not total or len(pools) == len(cards):
            continue
        for pool in pools:
            found[pool] = found.get(pool, 0.0) + asked / total * sum(cards.values()) / room
    return {pool: min(pressure, MOST_PRESSURE) for pool, pressure in found.items()}
