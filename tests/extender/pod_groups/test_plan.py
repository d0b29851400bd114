"""Plans of groups: every member has room at the same time, and a plan is found where there is one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gas.extender.nodes import Nodes
from gas.extender.pod_groups import plan
from gas.extender.pod_groups.plan import Member, Place, Planner
from gas.extender.verdicts import Verdicts, at_once
from gas.ledger.ledger import Ledger
from gas.placement.choice import Footprint
from gas.placement.need import PodNeed
from gas.values.amounts import sorted_amounts
from gas.values.cards import Card
from gas.vocabularies.known import DEFAULT
from gas.vocabularies.protocol import NeedOptions
from tests.builders import container, node, pod
from tests.listed import list_all


class Room:
    """Nodes n0, n1 and so on, with some millicores free on each of their cards."""

    def __init__(self, *free: Sequence[int]) -> None:
        self.nodes, self.ledger = Nodes(DEFAULT), Ledger()
        self.names = [f"n{at}" for at in range(len(free))]
        shapes = zip(self.names, free, strict=True)
        list_all(self.nodes, [node(n, cards=len(c), i915=9 * len(c), millicores=1000 * len(c)) for n, c in shapes])
        for name, cards in zip(self.names, free, strict=True):
            for at, left in enumerate(cards):
                taken = {Card(at): sorted_amounts({"i915": 1, "millicores": 1000 - left})}
                self.ledger.hold(f"{name}-{at}", "default/other", name, Footprint(amounts=taken))
        self.planner = Planner(self.nodes, Verdicts(self.nodes, self.ledger, step_limit=5000, clock=lambda: 0.0), {})

    def plan(self, *members: Member, needed: int | None = None) -> dict[str, Place]:
        found = at_once(self.planner.plan(members, self.names, needed))
        for name in self.names:
            cards = [place.cards for place in found.values() if place.node == name]
            for card, amounts in self.ledger.sums(name, cards).usage().amounts.items():
                assert amounts["millicores"] <= 1000, f"{card} of {name}"
        return found


def need(millicores: int, cards: int = 1) -> PodNeed:
    return DEFAULT.need(pod(container(i915=cards, millicores=cards * millicores)), NeedOptions())


def members(*sizes: int, offered: frozenset[str] | None = None) -> list[Member]:
    return [Member(f"u{at}", need(size), offered) for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("free", "sizes", "placed"),
    [
        pytest.param([[500], [500]], [500, 500], 2, id="one-each"),
        pytest.param([[500, 500], [300]], [500, 500, 300], 3, id="two-on-one-node"),
        pytest.param([[600, 400]], [400, 600], 2, id="the-larger-first"),
        pytest.param([[600, 500]], [300, 300, 500], 3, id="other-cards-than-the-first-choice"),
        pytest.param([[600, 600, 600]], [600, 600, 600, 600], 3, id="all-but-one"),
        pytest.param([[100]], [200], 0, id="none"),
    ],
)
def test_as_many_members_as_fit_get_places(free: list[list[int]], sizes: list[int], placed: int) -> None:
    assert len(Room(*free).plan(*members(*sizes))) == placed


def test_a_member_gets_only_nodes_that_it_is_offered() -> None:
    room = Room([500], [500], [500])
    first, second = members(500, 500, offered=frozenset({"n2"}))
    found = room.plan(first, second._replace(offered=frozenset({"n1", "n2"})))
    assert {uid: place.node for uid, place in found.items()} == {"u0": "n2", "u1": "n1"}


def test_a_group_that_fits_nowhere_is_given_up_after_a_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    choose = Verdicts.choose

    def counted(*args: Any) -> Any:
        asked.append(args)
        return choose(*args)

    monkeypatch.setattr(Verdicts, "choose", counted)
    monkeypatch.setattr(plan, "MOST_STEPS", 200)
    room = Room(*([[350, 450, 550]] * 6))
    assert len(room.plan(*members(*([150, 250, 350] * 11)))) < 33
    assert len(asked) <= 220


def test_nodes_that_are_alike_are_not_tried_in_every_order(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    choose = Verdicts.choose

    def counted(*args: Any) -> Any:
        asked.append(args)
        return choose(*args)

    monkeypatch.setattr(Verdicts, "choose", counted)
    room = Room(*([[700, 400]] * 4))
    assert len(room.plan(*members(*([400] * 8 + [300] * 5)))) == 12
    assert len(asked) <= 400


@settings(max_examples=300)
@given(
    st.lists(st.lists(st.sampled_from([200, 300, 400, 500, 700]), min_size=1, max_size=2), min_size=1, max_size=3),
    st.lists(st.sampled_from([100, 200, 300, 400, 500]), min_size=1, max_size=5),
)
def test_a_plan_for_all_or_for_the_number_needed_is_found_where_there_is_one(
    free: list[list[int]], sizes: list[int]
) -> None:
    for needed in {len(sizes), max(len(sizes) - 1, 1)}:
        found = Room(*free).plan(*members(*sizes), needed=needed)
        smallest = sorted(sizes)[:needed]
        assert (len(found) >= needed) == any(fits(free, smallest, cards) for cards in ways(free, needed))


def ways(free: list[list[int]], number: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Return every way to put so many pods on cards, as (node, card)."""
    cards = [(at, card) for at, of_node in enumerate(free) for card in range(len(of_node))]
    return itertools.product(cards, repeat=number)


def fits(free: list[list[int]], sizes: list[int], cards: Sequence[tuple[int, int]]) -> bool:
    left = [list(of_node) for of_node in free]
    for (at, card), size in zip(cards, sizes, strict=True):
        left[at][card] -= size
    return all(amount >= 0 for of_node in left for amount in of_node)
