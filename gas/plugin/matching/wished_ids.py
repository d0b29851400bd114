"""Device ids for cards: those that a container should get, and those that are left for containers yet to come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gas.cards import Card
from gas.placement.need import Role
from gas.plugin.devices.allocation_policy import PreferredRequest
from gas.plugin.devices.device_ids import DeviceId
from gas.plugin.kubelet.listing import Ids
from gas.plugin.matching.waiting_pods import PodOfNode, Want


def wished_ids(cards: Iterable[Card], request: PreferredRequest) -> tuple[DeviceId, ...]:
    """What kubelet insists on, then one id of every other of these cards that has one to offer; ``size`` at most."""
    ids = sorted(request.must_include)
    there = {id_.card for id_ in ids}
    first: dict[Card, DeviceId] = {}
    for id_ in sorted(request.available):
        first.setdefault(id_.card, id_)
    ids += [first[card] for card in cards if card in first and card not in there]
    return tuple(ids[: request.size])


def promised_cards(pod: PodOfNode, wants: Iterable[Want]) -> Counter[Card]:
    """How many ids of each card these containers of a pod will need; what an init container leaves is used again."""
    staying: Counter[Card] = Counter()
    passing: set[Card] = set()
    for want in wants:
        if (given := pod.decided_for(want.index)) is None:
            continue
        if want.role is Role.INIT:
            passing.update(given.cards)
        else:
            staying.update(given.cards)
    return staying | Counter(passing)


def spared_ids(promised: Mapping[Card, int], request: PreferredRequest) -> Ids:
    """Of the ids offered freely, as many of each card as are promised, as far as there are so many."""
    left = dict(promised)
    spared: set[DeviceId] = set()
    for id_ in sorted(request.available - request.must_include):
        if left.get(id_.card, 0) > 0:
            left[id_.card] -= 1
            spared.add(id_)
    return frozenset(spared)
