"""Find remainders of cards that are of no use: free on a card that is in use, and too small for any pod."""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace

from gas.placement.inventory import NOTHING, Inventory, Usage, free_amounts
from gas.placement.need import ContainerNeed, PodNeed
from gas.placement.place import place
from gas.placement.refusal import Refusal
from gas.values.amounts import Amounts
from gas.values.cards import Card

MOST_STATES = 100_000  # states of cards whose results are remembered


def shapes_of(needs: Iterable[PodNeed]) -> Iterator[PodNeed]:
    """Return what containers of these pods take of one card, as needs of one container; one shape may come twice."""
    for need in needs:
        for container in need.containers:
            if container.count:
                alone = ContainerNeed("", 1, container.per_card, ratios=container.ratios)
                yield PodNeed((alone,), company=need.company)


class StrandedCapacity:
    """The stranded amounts of cards, remembered for cards in equal states. ``shapes`` come from `shapes_of`."""

    def __init__(self, shapes: Iterable[PodNeed]) -> None:
        self.shapes = frozenset(shapes)
        self._known: dict[Hashable, Amounts] = {}

    def of(self, kind: Hashable, inventory: Inventory, usage: Usage, card: Card) -> Amounts:
        """Return the free amounts of a card if it is in use and no shape fits there alone, else nothing.

        Idle cards are not stranded, and neither are cards on which nothing new may start. ``kind`` is equal for equal
        inventories.
        """
        if usage.is_idle(card) or card in inventory.disabled or card not in inventory.capacity:
            return NOTHING
        state = (kind, card, *_booked(usage, card))
        if (known := self._known.get(state)) is None:
            if len(self._known) >= MOST_STATES:
                self._known.clear()
            known = self._known[state] = self._look(inventory, usage, card)
        return known

    def _look(self, inventory: Inventory, usage: Usage, card: Card) -> Amounts:
        free = free_amounts(inventory, usage, card)
        only = replace(inventory, disabled=inventory.disabled | (inventory.capacity.keys() - {card}))
        for shape in self.shapes:
            (container,) = shape.containers
            if any(amount > free.get(name, 0) for name, amount in container.per_card):
                continue  # saves the search
            if not isinstance(place(shape, only, usage), Refusal):
                return NOTHING
        return {name: amount for name, amount in free.items() if amount > 0}


def _booked(usage: Usage, card: Card) -> tuple[Hashable, ...]:
    """Return everything booked on one card that decides what fits there."""
    return (
        tuple(sorted(usage.amounts.get(card, NOTHING).items())),
        usage.tiles.get(card),
        frozenset(usage.company_on(card)),
        frozenset(usage.names.get(card, ())),
    )
