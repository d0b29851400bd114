"""The shapes of pods that the cluster is asked for, learned from the pods that arrive."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from gas.placement.need import PodNeed
from gas.placement.plan import plan_of
from gas.placement.waste import WHOLE, Asked, Mix, Part, Shape, share_taken
from gas.values.amounts import Amounts

FIRST = 20
"""Arrivals after which the first mix is made; the next ones follow whenever half as many again have arrived."""

MOST_BETWEEN = 1000
"""Arrivals after which the mix is made again at the latest. Making it more often gives out no more cards."""

MEMORY = 4096.0
"""Arrivals that count. When more have come, each of them counts half, so that old habits are forgotten."""

LEAST = 0.1
"""A shape that counts less than this is forgotten."""

Pool = TypeVar("Pool", bound=Hashable)
"""Stands for nodes that are alike in what they have."""

MOST_PRESSURE = 1.5


class Demand:
    """Count arrivals by shape.

    A `Mix` is a snapshot. A new one is made only now and then, since every cost is computed again with it.
    """

    def __init__(self) -> None:
        self._asked: dict[tuple[Shape, Hashable], tuple[float, dict[str, float]]] = {}
        self._weight = 0.0
        self._arrivals = 0
        self._next = FIRST
        self._mix = Mix()

    @property
    def arrivals(self) -> int:
        """How many pods were learned from."""
        return self._arrivals

    def learn(self, need: PodNeed, host: Amounts, restriction: Hashable = None) -> None:
        """Learn from a pod that has arrived. A pod that needs no card teaches nothing.

        host         what it requests besides cards
        restriction  names the rule by which it may use some of the nodes only, None if it may use all
        """
        shape = tuple(Part(request.count, request.per_card, request.ratios) for request in plan_of(need).staying)
        if not shape:
            return
        weight, sums = self._asked.get((shape, restriction), (0.0, {}))
        for name, amount in host.items():
            sums[name] = sums.get(name, 0.0) + amount
        self._asked[shape, restriction] = weight + 1, sums
        self._weight += 1
        self._arrivals += 1
        if self._weight > MEMORY:
            self._halve()

    def mix(self) -> Mix:
        """Return the latest mix, made again if enough pods have come since."""
        if self._arrivals >= self._next:
            self._next = self._arrivals + min(self._arrivals // 2, MOST_BETWEEN)
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

    1 means all of them; more than MOST_PRESSURE is not distinguished. Pools that no restricted pod may use are missing.

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
