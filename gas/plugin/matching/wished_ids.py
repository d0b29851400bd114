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
    wanted = dict.fromkeys(cards)
    for id_ in ids:
        wanted.pop(id_.card, None)
    first: dict[Card, DeviceId] = {}
    for id_ in sorted(id_ for id_ in request.available if id_.card in wanted):
        first.setdefault(id_.card, id_)
    ids += [first[card] for card in wanted if card in first]
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
    for id_ in sorted(id_ for id_ in request.available if id_.card in left and id_ not in request.must_include):
        if left.get(id_.card, 0) > 0:
            left[id_.card] -= 1
            spared.add(id_)
    return frozenset(spared)
