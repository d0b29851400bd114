"""Choose the ids that a container should get: those of its decided cards, the rest by ``--allocation-policy``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from operator import attrgetter
from types import MappingProxyType

from gas.plugin.devices.device_ids import DeviceId, PreferredRequest, in_order, known_ids
from gas.values.cards import Card


class AllocationPolicy(StrEnum):
    """The order in which cards without a decision are taken."""

    NONE = "none"  # kubelet's own order, which is as good as random
    BALANCED = "balanced"  # the card with the most free ids first: containers spread over the cards
    PACKED = "packed"  # the card with the fewest free ids first: one card is filled before the next is begun
    NEAR = "near"  # as balanced, but after a container's first card those that are closest to it


def preferred_ids(
    policy: AllocationPolicy,
    request: PreferredRequest,
    *,
    decided: Iterable[str] = (),
    spared: Collection[str] = (),
    closeness: Callable[[Card], Mapping[Card, int]] = lambda _card: {},
) -> tuple[str, ...]:
    """Return ``size`` ids, or all if fewer are offered: first ``must_include``, then ``decided``, then the policy's.

    Ids in ``spared`` are promised to other containers and taken only when no others are left. Every id is of a
    different card as long as there are enough cards: a second id of the same card gives a container nothing. Source:
    contract P2.7.

    closeness  returns how close other cards are to one, for the policy ``near``
    """
    begun = [*dict.fromkeys([*sorted(request.must_include, key=in_order), *decided])][: request.size]
    if len(begun) == request.size:
        return tuple(begun)
    chosen = [*known_ids(begun)]
    taken = set(chosen)  # a container may want thousands of ids
    left = [id_ for id_ in dict.fromkeys(known_ids(request.offered)) if id_ not in taken]

    close = cache(closeness)

    def near_first(card: Card, free: int) -> tuple[int, ...]:
        near = close(chosen[0].card).get(card, 0) if chosen else 0
        return (-near, *_most_free_first(card, free))

    order = near_first if policy is AllocationPolicy.NEAR else _ORDERS[policy]
    _fill_up(chosen, [id_ for id_ in left if id_ not in spared], request.size, order)
    _fill_up(chosen, [id_ for id_ in left if id_ in spared], request.size, order)
    return tuple(chosen)


def ids_for_cards(cards: Iterable[Card], per_card: int, request: PreferredRequest) -> tuple[str, ...]:
    """Return the ids kubelet insists on, then free ids of these cards, ``per_card`` of each; at most ``size``."""
    must_include = sorted(request.must_include, key=in_order)
    ids: list[str] = [*must_include]
    wanted = dict.fromkeys(cards, per_card)
    for id_ in must_include:
        if id_.card in wanted:
            wanted[id_.card] -= 1
    for card, number in wanted.items():
        ids += _free_ids(card, number, request)
    return tuple(ids[: request.size])


def ids_of_one_card(
    request: PreferredRequest,
    *,
    promised: Mapping[Card, int] = MappingProxyType({}),  # how many ids of each card other containers were promised
    held: Collection[Card] = (),  # the cards that other containers of the pod got: these first
    to_come: int = 0,  # how many ids the pod's containers need, this one and those that follow
) -> tuple[str, ...]:
    """Return ``size`` ids of one card, of the fullest with room; of several only if none has as many free ids."""
    first = {id_.card for id_ in request.must_include} | set(held)
    free = {card: number - promised.get(card, 0) for card, number in request.counts.items()}

    def order(card: Card) -> tuple[object, ...]:
        has_room = free[card] >= request.size
        return (not has_room, card not in first, free[card] < to_come, free[card] if has_room else -free[card], card)

    return ids_for_cards(sorted(free, key=order), request.size, request)


def spared_ids(promised: Mapping[Card, int], request: PreferredRequest) -> frozenset[str]:
    """Return as many free ids of each card as are promised to other containers, or all that there are."""
    return frozenset[str]().union(*(_free_ids(card, number, request) for card, number in promised.items()))


def _free_ids(card: Card, number: int, request: PreferredRequest) -> Sequence[str]:
    """Return up to ``number`` offered ids of a card, without those that kubelet insists on."""
    if not request.must_include:
        return request.first_of(card, number)
    ids = request.first_of(card, number + len(request.must_include))
    return [id_ for id_ in ids if id_ not in request.must_include][: max(number, 0)]


def _fill_up(chosen: list[DeviceId], ids: Iterable[DeviceId], size: int, order: _Order) -> None:
    """Add ids to ``chosen`` until there are ``size`` or none is left."""
    free: dict[Card, list[DeviceId]] = {}
    for id_ in ids:
        free.setdefault(id_.card, []).append(id_)
    for of_card in free.values():
        of_card.sort(key=attrgetter("slot"), reverse=True)
    given = Counter(id_.card for id_ in chosen)
    while len(chosen) < size and free:
        # Of equal cards the first wins; `free` has them in kubelet's order.
        card = min(free, key=lambda card: (given[card], order(card, len(free[card]))))
        chosen.append(free[card].pop())
        given[card] += 1
        if not free[card]:
            del free[card]


_Order = Callable[[Card, int], tuple[int, ...]]  # maps a card and its number of free ids to its sort key


def _most_free_first(card: Card, free: int) -> tuple[int, ...]:
    return (-free, card)


_ORDERS: dict[AllocationPolicy, _Order] = {
    AllocationPolicy.NONE: lambda _card, _free: (),  # kubelet chooses
    AllocationPolicy.BALANCED: _most_free_first,
    AllocationPolicy.PACKED: lambda card, free: (free, card),
}
