"""Estimate how much of what is left on a card pods will not be able to use.

All shares are thousandths of a card. A card on which only a fifth of one resource is left has a fifth left, however
much there is of its other resources.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from gas.placement.inventory import NOTHING
from gas.placement.ratio import Ratio, amounts_on
from gas.values.amounts import Amounts, SortedAmounts

WHOLE = 1000  # a whole card
_STEP = 10  # wastes are kept for every hundredth of a card

_STEPS = WHOLE // _STEP

LEFT_UNUSED = 0.18
"""Pods are imagined to come to a card, one after the other, until this part of all remainders together is left. A pod
that does not fit goes elsewhere. With fewer pods, remainders that only a rare pod fills look worse than they are; with
many more, nothing looks wasted."""

MOST_DRAWS = 24  # the most pods that are imagined to come: large ones never fill small remainders
PRIOR = 10.0  # imagined pods of all sizes alike, added to those that were seen, so that a few do not decide alone


class Slice(NamedTuple):
    """The cards that one container holds to the end of its pod, or several containers that share a card."""

    cards: int  # how many different ones
    per_card: SortedAmounts  # what is taken of each
    ratios: tuple[Ratio, ...] = ()  # the same as parts of what the card has


Shape = tuple[Slice, ...]  # the cards that one pod holds to its end


class Asked(NamedTuple):
    """Equal pods that the cluster was asked for."""

    shape: Shape
    restriction: Hashable  # names the rule by which they may use only some of the nodes, None if they may use all
    weight: float  # their number; older pods count for less than one
    host: tuple[tuple[str, float], ...]  # what they request together besides cards


class CardMix(NamedTuple):
    """The same pods as seen by cards of one kind."""

    waste: tuple[int, ...]  # by hundredths of a card that are left: the thousandths that will stay unused
    per_card: Mapping[str, float]  # what pods request of each resource besides a whole card

    def wasted(self, share: int) -> int:
        """Return how much of this share, left on a card, will stay unused."""
        return self.waste[share // _STEP]


@dataclass(frozen=True)
class Mix:
    """The pods that the cluster was asked for at one time."""

    asked: tuple[Asked, ...] = ()
    _by_capacity: dict[tuple[tuple[str, int], ...], CardMix] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.asked)

    def on(self, capacity: Amounts) -> CardMix:
        """Return the mix as seen by a card of this capacity."""
        key = tuple(capacity.items())
        if (mix := self._by_capacity.get(key)) is None:
            mix = self._by_capacity[key] = self._seen_by(capacity)
        return mix

    def _seen_by(self, capacity: Amounts) -> CardMix:
        sizes: dict[int, float] = {}
        cards = 0.0
        host: dict[str, float] = {}
        for each in self.asked:
            taken = [(part.cards, share_taken(capacity, part)) for part in each.shape]
            if any(share > WHOLE for _, share in taken):
                continue
            cards += each.weight * sum(count * share for count, share in taken) / WHOLE
            for name, amount in each.host:
                host[name] = host.get(name, 0.0) + amount
            for count, share in taken:
                if 0 < share < WHOLE:
                    sizes[share] = sizes.get(share, 0.0) + each.weight * count
        per_card = {name: amount / cards for name, amount in host.items() if amount > 0} if cards > 0 else {}
        return CardMix(waste_table(sizes), per_card)


def share_left(capacity: Amounts, free: Amounts, taken: Amounts = NOTHING) -> int:
    """Return which share of a card is left, once ``taken`` is taken from it: that of its scarcest resource."""
    share = WHOLE
    for name, has in capacity.items():
        if has > 0 and (left := (free[name] - taken.get(name, 0)) * WHOLE // has) < share:
            share = left
    return max(share, 0)


def share_taken(capacity: Amounts, part: Slice) -> int:
    """Return which share of a card a part takes, rounded up; more than WHOLE if it does not fit on it."""
    takes = amounts_on(capacity, dict(part.per_card), part.ratios) if part.ratios else dict(part.per_card)
    share = 0
    for name, amount in takes.items():
        has = capacity.get(name, 0)
        if has <= 0:
            return WHOLE + 1
        share = max(share, -(-amount * WHOLE // has))
    return share


def waste_table(sizes: Mapping[int, float]) -> tuple[int, ...]:
    """Return, by hundredths of a card that are left, the thousandths that will stay unused.

    It is the mean of what is left after some pods, drawn by their weights, have taken their share wherever it fits.
    ``sizes`` are the weights by shares of a card below WHOLE.
    """
    weights: dict[int, float] = {}
    for share, weight in sizes.items():
        steps = -(-share // _STEP)
        if steps < _STEPS:
            weights[steps] = weights.get(steps, 0.0) + weight
    total = PRIOR + sum(weights.values())
    chances = sorted((steps, weight / total) for steps, weight in weights.items())
    of_any_size = PRIOR / (_STEPS - 1) / total
    left = [float(steps * _STEP) for steps in range(_STEPS + 1)]
    enough = LEFT_UNUSED * sum(left)
    for _ in range(MOST_DRAWS):
        if sum(left) <= enough:
            break
        after = []
        smaller = 0.0  # the sum of `left` below this number of steps
        for steps, rest in enumerate(left):
            taken = of_any_size * min(steps, _STEPS - 1)  # a size of _STEPS would be a whole card
            expected = of_any_size * smaller
            for size, chance in chances:
                if size > steps:
                    break
                taken += chance
                expected += chance * left[steps - size]
            after.append(expected + (1.0 - taken) * rest)
            smaller += rest
        left = after
    return tuple(round(each) for each in left)
