"""Device ids for cards."""

from __future__ import annotations

from collections import Counter

from gas.cards import Card
from gas.plugin.devices.allocation_policy import PreferredRequest
from gas.plugin.kubelet.listing import NO_IDS, Ids
from gas.plugin.matching.wished_ids import promised_cards, spared_ids, wished_ids
from tests.builders import container
from tests.plugin.pods_for_plugin import decided, ids, seen, slots


def request(size: int, available: Ids, must_include: Ids = NO_IDS) -> PreferredRequest:
    offered = tuple(sorted(available))
    return PreferredRequest(resource="i915", offered=offered, must_include=must_include, size=size)


def test_a_wish_is_never_longer_than_asked() -> None:
    cards = (Card(0), Card(1), Card(2))

    assert wished_ids(cards, request(2, slots(3))) == tuple(sorted(ids("card0-0", "card1-0")))


def test_ids_that_an_init_container_leaves_are_promised_once() -> None:
    pod = seen(
        container("a", i915=1),
        container("b", i915=1),
        init=(container("i", i915=2),),
        annotations=decided("card0|card0", init="card0,card1"),
    )

    assert promised_cards(pod, pod.wants) == Counter({Card(0): 2, Card(1): 1})


def test_a_container_without_decision_was_promised_nothing() -> None:
    pod = seen(container("a", i915=1))

    assert promised_cards(pod, pod.wants) == Counter()


def test_as_many_ids_are_spared_as_are_promised_and_offered_freely() -> None:
    free = ids("card0-0", "card0-1", "card0-2", "card1-1", "card2-0")
    promised = {Card(0): 1, Card(1): 5, Card(3): 1}

    assert spared_ids(promised, request(1, free, ids("card0-0"))) == ids("card0-1", "card1-1")
