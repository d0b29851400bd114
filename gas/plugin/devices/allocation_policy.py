"""Which ids a container should get when no annotation names its cards: ``--allocation-policy``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from gas.cards import Card
from gas.plugin.devices.device_ids import DeviceId


class AllocationPolicy(StrEnum):
    """The order in which cards are taken."""

    NONE = "none"  # kubelet's own order, which is as good as random
    BALANCED = "balanced"  # the card with the most free ids first: containers spread over the cards
    PACKED = "packed"  # the card with the fewest free ids first: one card is filled before the next is begun


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredRequest:
    """What kubelet asks before it gives one container its devices of one resource.

    resource      without prefix
    offered       the ids to choose from, each once, in kubelet's order
    must_include  ids that the container gets in any case: those that the pod's init containers had
    size          how many ids the container gets, ``must_include`` counted
    available     the ids to choose from, as a set
    """

    resource: str
    offered: tuple[DeviceId, ...]
    must_include: frozenset[DeviceId]
    size: int
    available: frozenset[DeviceId] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "available", frozenset(self.offered))


def preferred_ids(
    policy: AllocationPolicy,
    request: PreferredRequest,
    *,
    decided: Iterable[DeviceId] = (),
    spared: Collection[DeviceId] = (),
) -> tuple[DeviceId, ...]:
    """``size`` ids, or all when fewer are offered: first ``must_include``, then those decided, then the policy's.

    decided  ids that the container should get whatever the policy says
    spared   ids that are promised to others: taken only when there are no others left

    As long as cards suffice every id is of another card, as a second id of the same card gives a container
    nothing. Source: contract P2.7.
    """
    chosen = [*dict.fromkeys([*sorted(request.must_include), *decided])][: request.size]
    left = [id_ for id_ in dict.fromkeys(request.offered) if id_ not in chosen]
    _fill_up(chosen, [id_ for id_ in left if id_ not in spared], request.size, _ORDERS[policy])
    _fill_up(chosen, [id_ for id_ in left if id_ in spared], request.size, _ORDERS[policy])
    return tuple(chosen)


def _fill_up(chosen: list[DeviceId], ids: Iterable[DeviceId], size: int, order: _Order) -> None:
    """Add ids to those chosen until there are ``size``, or none is left."""
    free: dict[Card, list[DeviceId]] = {}
    for id_ in ids:
        free.setdefault(id_.card, []).append(id_)
    for of_card in free.values():
        of_card.sort(reverse=True)
    given = Counter(id_.card for id_ in chosen)
    while len(chosen) < size and free:
        # The first of equals wins: `free` has its cards in kubelet's order.
        card = min(free, key=lambda card: (given[card], order(card, len(free[card]))))
        chosen.append(free[card].pop())
        given[card] += 1
        if not free[card]:
            del free[card]


_Order = Callable[[Card, int], tuple[int, ...]]
"""A card and its number of free ids -> what cards are sorted by."""


def _kubelets_order(_card: Card, _free: int) -> tuple[int, ...]:
    return ()


def _most_free_first(card: Card, free: int) -> tuple[int, ...]:
    return (-free, card)


def _fewest_free_first(card: Card, free: int) -> tuple[int, ...]:
    return (free, card)


_ORDERS: dict[AllocationPolicy, _Order] = {
    AllocationPolicy.NONE: _kubelets_order,
    AllocationPolicy.BALANCED: _most_free_first,
    AllocationPolicy.PACKED: _fewest_free_first,
}
