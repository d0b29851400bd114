from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.plugin.devices.allocation_policy import (
    AllocationPolicy,
    ids_for_cards,
    ids_of_one_card,
    preferred_ids,
    spared_ids,
)
from gas.plugin.devices.device_ids import NO_IDS, DeviceId, PreferredRequest, known_ids
from gas.values.cards import Card
from gas.vocabularies.combined import closeness_to
from tests.plugin.gpus import gpu


def asked(offered: str, size: int, must_include: str = "") -> PreferredRequest:
    return PreferredRequest(
        resource="i915",
        offered=known_ids(offered.split()),
        must_include=frozenset(known_ids(must_include.split())),
        size=size,
    )


# contract P2.7
@pytest.mark.parametrize(
    ("policy", "request_", "expected"),
    [
        pytest.param("none", asked("card1-1 card0-0 card1-0", 1), "card1-0", id="none: the card kubelet names first"),
        pytest.param("none", asked("card1-0 card1-1 card0-0", 2), "card1-0 card0-0", id="none: different cards first"),
        pytest.param(
            "balanced", asked("card0-0 card1-0 card1-1", 1), "card1-0", id="balanced: the card with most free ids"
        ),
        pytest.param("balanced", asked("card10-0 card2-0", 1), "card2-0", id="balanced: of equals the first card"),
        pytest.param(
            "balanced",
            asked("card0-0 card0-1 card0-2 card1-0", 2),
            "card0-0 card1-0",
            id="balanced: a second id of a card gives nothing while there are others",
        ),
        pytest.param("packed", asked("card0-0 card0-1 card1-1", 1), "card1-1", id="packed: the fullest card"),
        pytest.param("packed", asked("card10-0 card2-0", 1), "card2-0", id="packed: of equals the first card"),
        pytest.param(
            "packed",
            asked("card0-0 card0-1 card1-0 card1-1", 3),
            "card0-0 card1-0 card0-1",
            id="packed: cards twice only when there are not enough",
        ),
        pytest.param(
            "balanced",
            asked("card0-0 card0-1 card0-2 card1-0", 2, "card0-1"),
            "card0-1 card1-0",
            id="what must be included comes first and counts as that card",
        ),
        pytest.param("balanced", asked("card0-0", 3), "card0-0", id="fewer when fewer are offered"),
        pytest.param("packed", asked("", 1), "", id="nothing when nothing is offered"),
    ],
)
def test_policies(policy: str, request_: PreferredRequest, expected: str) -> None:
    assert " ".join(map(str, preferred_ids(AllocationPolicy(policy), request_))) == expected


# contract D1.14, D1.23
@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, "card1-0"),
        (2, "card1-0 card3-0"),
        (3, "card1-0 card3-0 card2-0"),
        (5, "card1-0 card3-0 card2-0 card0-0 card1-1"),
    ],
)
def test_near_cards_follow_the_card_with_most_free_ids(size: int, expected: str) -> None:
    cards = [gpu(0), gpu(1, links=(Card(3),), numa_node=0), gpu(2, numa_node=0), gpu(3, links=(Card(1),))]
    offered = asked("card0-0 card1-0 card1-1 card2-0 card3-0", size)
    chosen = preferred_ids(AllocationPolicy.NEAR, offered, closeness=lambda card: closeness_to(card, cards))
    assert " ".join(map(str, chosen)) == expected


# contract P3.5
def test_decided_ids_come_before_the_policys() -> None:
    chosen = preferred_ids(
        AllocationPolicy.BALANCED, asked("card0-0 card0-1 card1-0 card2-0", 2), decided=known_ids(["card2-0"])
    )
    assert chosen == known_ids(["card2-0", "card0-0"])


def test_spared_ids_are_taken_last() -> None:
    request = asked("card0-0 card1-0 card1-1", 2)
    spared = known_ids(["card0-0"])
    assert preferred_ids(AllocationPolicy.PACKED, request, spared=spared) == known_ids(["card1-0", "card1-1"])
    everything = asked("card0-0 card1-0 card1-1", 3)
    assert preferred_ids(AllocationPolicy.PACKED, everything, spared=spared)[-1:] == spared


def test_a_card_is_not_taken_for_one_whose_number_begins_alike() -> None:
    request = asked("card10-0 card1-0 card1-1", 2)
    assert ids_for_cards([Card(1)], 2, request) == known_ids(["card1-0", "card1-1"])
    assert not request.has(Card(1), 3)


device_ids = st.builds(DeviceId, st.integers(0, 5).map(Card), st.integers(0, 3))


@st.composite
def requests(draw: st.DrawFn) -> PreferredRequest:
    offered = draw(st.lists(device_ids, unique=True))
    size = draw(st.integers(0, 8))
    must_include = draw(st.frozensets(st.sampled_from(offered), max_size=size)) if offered else frozenset()
    return PreferredRequest(resource="i915", offered=tuple(offered), must_include=must_include, size=size)


@given(st.sampled_from(AllocationPolicy), requests())
def test_the_preference_is_one_that_kubelet_can_follow(policy: AllocationPolicy, request: PreferredRequest) -> None:
    chosen = preferred_ids(policy, request)
    assert len(set(chosen)) == len(chosen) == min(request.size, len(request.offered))
    assert request.must_include <= set(chosen) <= request.available


@given(st.sampled_from(AllocationPolicy), requests())
def test_cards_differ_as_long_as_they_suffice(policy: AllocationPolicy, request: PreferredRequest) -> None:
    chosen = preferred_ids(policy, request)
    forced = {id_.card for id_ in request.must_include}
    others = request.counts.keys() - forced
    possible = len(forced) + min(len(others), len(chosen) - len(request.must_include))
    assert len({id_.card for id_ in known_ids(chosen)}) == possible


def test_the_ids_for_cards_are_never_more_than_requested() -> None:
    cards = (Card(0), Card(1), Card(2))

    assert ids_for_cards(cards, 1, asked("card0-0 card1-0 card2-0", 2)) == known_ids(["card0-0", "card1-0"])


@given(st.data())
def test_ids_for_cards_and_spared_ids_are_those_of_the_definition(data: st.DataObject) -> None:
    ids = st.builds(DeviceId, st.integers(0, 3).map(Card), st.integers(0, 5))
    offered = data.draw(st.lists(ids, unique=True))
    must_include = frozenset(data.draw(st.lists(st.sampled_from(offered)))) if offered else NO_IDS
    size = data.draw(st.integers(0, 12))
    request = PreferredRequest(resource="r/x", offered=tuple(offered), must_include=must_include, size=size)
    promised = data.draw(st.dictionaries(st.integers(0, 4).map(Card), st.integers(-1, 4)))
    per_card = data.draw(st.integers(0, 4))

    free = {card: [id_ for id_ in offered if id_.card == card and id_ not in must_include] for card in promised}
    spared = {id_ for card, number in promised.items() for id_ in free[card][: max(number, 0)]}
    assert spared_ids(promised, request) == spared

    expected = sorted(must_include)
    for card in promised:
        had = sum(id_.card == card for id_ in must_include)
        expected += free[card][: max(per_card - had, 0)]
    assert ids_for_cards(promised, per_card, request) == tuple(expected[:size])
    assert request.counts == Counter(id_.card for id_ in offered)


@given(st.lists(device_ids, unique=True), st.lists(st.tuples(st.integers(0, 6).map(Card), st.integers(-1, 5))))
def test_the_first_ids_of_a_card_are_the_same_whatever_was_asked_before(
    offered: list[DeviceId], asked: list[tuple[Card, int]]
) -> None:
    request = PreferredRequest(resource="r/x", offered=offered, must_include=NO_IDS, size=1)
    for card, number in asked:
        assert request.first_of(card, number) == [id_ for id_ in offered if id_.card == card][: max(number, 0)]


def test_as_many_ids_are_spared_as_are_promised_and_free() -> None:
    free = "card0-0 card0-1 card0-2 card1-1 card2-0"
    promised = {Card(0): 1, Card(1): 5, Card(3): 1}

    assert spared_ids(promised, asked(free, 1, "card0-0")) == frozenset(known_ids(["card0-1", "card1-1"]))


# contract A1.16
@pytest.mark.parametrize(
    ("request_", "options", "expected"),
    [
        pytest.param(asked("card0-0 card0-1 card0-2 card1-0 card1-1", 2), {}, "card1-0 card1-1", id="the fullest"),
        pytest.param(asked("card1-0 card0-0 card0-1", 2), {}, "card0-0 card0-1", id="with room"),
        pytest.param(asked("card1-0 card0-0", 1), {}, "card0-0", id="of equals the first card"),
        pytest.param(
            asked("card0-0 card0-1 card1-0", 1), {"promised": {Card(1): 1}}, "card0-0", id="promised ids are no room"
        ),
        pytest.param(
            asked("card0-0 card0-1 card1-0", 1), {"held": {Card(0)}}, "card0-0", id="the card of the same pod first"
        ),
        pytest.param(asked("card0-0 card1-0 card1-1", 1), {"to_come": 2}, "card1-0", id="with room for the whole pod"),
        pytest.param(
            asked("card0-0 card0-1 card0-2 card1-0 card1-1", 2, "card0-1"),
            {},
            "card0-1 card0-0",
            id="the card of what must be included",
        ),
        pytest.param(
            asked("card0-0 card1-0 card1-1 card2-0", 3), {}, "card1-0 card1-1 card0-0", id="few cards if none has room"
        ),
    ],
)
def test_ids_of_one_card(request_: PreferredRequest, options: dict[str, Any], expected: str) -> None:
    assert " ".join(map(str, ids_of_one_card(request_, **options))) == expected
