"""The ledger: every transition of the diagram, each possibly repeated, and sums that are those of the bookings."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gas.ledger.ledger import AlreadyBooked, Ledger, State
from gas.placement.choice import Footprint
from gas.placement.inventory import NO_COMPANY, Company
from gas.values.cards import Card


def held(card: int, millicores: int = 100, tiles: frozenset[int] = frozenset(), containers: int = 1) -> Footprint:
    return Footprint(
        containers={Card(card): containers},
        amounts={Card(card): (("i915", 1), ("millicores", millicores))},
        tiles={Card(card): tiles} if tiles else {},
    )


def test_a_reservation_counts_at_once() -> None:
    ledger = Ledger()
    ledger.reserve("u1", "default/a", "n1", held(0, 300, frozenset({1})))
    assert ledger.usage("n1").amounts == {Card(0): {"i915": 1, "millicores": 300}}
    assert ledger.usage("n1").tiles == {Card(0): frozenset({1})}
    assert ledger.holders("n1") == {Card(0): 1}


def test_the_containers_of_each_card_are_counted_and_belong_to_the_state() -> None:
    ledger = Ledger()
    ledger.reserve("u1", "default/a", "n1", held(0, containers=2))
    ledger.reserve("u2", "default/b", "n1", held(0, containers=3))
    ledger.reserve("u3", "default/c", "n2", held(0, millicores=200, containers=3))
    ledger.release("u1")
    assert ledger.usage("n1").containers == {Card(0): 3}
    ledger.release("u3")
    ledger.reserve("u3", "default/c", "n2", held(0, containers=2))
    assert ledger.usage("n1").amounts == ledger.usage("n2").amounts
    assert ledger.state("n1") != ledger.state("n2")
    assert ledger.state("absent") == ()


def test_a_second_reservation_of_a_pod_is_refused_and_changes_nothing() -> None:
    ledger = Ledger()
    ledger.reserve("u1", "default/a", "n1", held(0))
    with pytest.raises(AlreadyBooked, match=r"pod default/a \(u1\) is already reserved on node n1"):
        ledger.reserve("u1", "default/a", "n2", held(1))
    assert ledger.nodes() == ("n1",)


def test_bookings_of_pods_are_known_apart() -> None:
    ledger = Ledger()
    ledger.reserve("u1", "default/a", "n1", held(0))
    ledger.hold("c1", "default/claim", "n1", held(1), kind="claim")
    assert [uid for uid, _ in ledger.of_pods()] == ["u1"]
    assert ledger.holders("n1") == {Card(0): 1, Card(1): 1}


def test_hold_replaces_a_reservation_elsewhere() -> None:
    ledger = Ledger()
    ledger.reserve("u1", "default/a", "n1", held(0))
    ledger.hold("u1", "default/a", "n2", held(3))
    assert ledger.nodes() == ("n2",)
    assert ledger.on_node("n2")["u1"].state is State.HELD


def test_a_pod_of_the_same_name_and_another_uid_is_another_pod() -> None:
    ledger = Ledger()
    ledger.hold("old", "default/web-0", "n1", held(0, 400))
    ledger.reserve("new", "default/web-0", "n1", held(0, 400))
    released = ledger.release("old")
    assert released is not None
    assert released.node == "n1"
    assert ledger.usage("n1").amounts[Card(0)]["millicores"] == 400
    assert ledger.release("old") is None


def test_every_change_of_the_bookings_is_reported_and_nothing_else() -> None:
    told: list[str] = []
    ledger = Ledger(told.append)
    ledger.reserve("u1", "default/a", "n1", held(0))
    ledger.confirm("u1")
    ledger.hold("u1", "default/a", "n1", held(0))
    assert told == ["n1"]
    ledger.hold("u1", "default/a", "n1", held(1))
    assert told == ["n1", "n1", "n1"]
    ledger.release("u1")
    ledger.release("u1")
    assert told == ["n1", "n1", "n1", "n1"]
    ledger.reserve("u2", "default/b", "n2", held(0))
    ledger.hold("u2", "default/b", "n2", held(0))
    assert told[4:] == ["n2"]


def test_separate_sums_count_further_footprints_and_do_not_change_the_ledger() -> None:
    ledger = Ledger()
    ledger.reserve("u1", "default/a", "n1", held(0, 300))
    sums = ledger.sums("n1", [held(0, 200, containers=2), held(1)])
    assert sums.usage().amounts[Card(0)] == {"i915": 2, "millicores": 500}
    assert (sums.holders, sums.containers) == ({Card(0): 2, Card(1): 1}, {Card(0): 3, Card(1): 1})
    assert len(sums.uids) == 3
    sums.take("u1", held(0, 300))
    assert ledger.usage("n1").amounts[Card(0)] == {"i915": 1, "millicores": 300}


@pytest.mark.parametrize(
    "difference",
    [
        {
            "amounts": {Card(1): (("millicores", 1),)},
            "tiles": {Card(1): frozenset({0})},
            "containers": {Card(1): 1},
        },
        {"amounts": {Card(0): (("millicores", 2),)}},
        {"amounts": {Card(0): (("i915", 1),)}},
        {"tiles": {Card(0): frozenset({1})}},
        {"tiles": {}},
        {"containers": {Card(0): 2}},
        {"company": Company(exclusion="x")},
        {"company": NO_COMPANY},
        {"named": "two"},
        {"named": ""},
    ],
    ids=str,
)
def test_every_fact_of_a_booking_belongs_to_the_state(difference: dict[str, Any]) -> None:
    card = Card(0)
    footprint = Footprint(
        containers={card: 1},
        amounts={card: (("millicores", 1),)},
        tiles={card: frozenset({0})},
        company=Company(affinity="a"),
        named="one",
    )
    ledger = Ledger()
    ledger.reserve("u1", "default/a", "n1", footprint)
    ledger.reserve("u2", "default/b", "n2", replace(footprint, **difference))
    assert ledger.state("n1") != ledger.state("n2")
    ledger.hold("u2", "default/b", "n2", footprint)
    assert ledger.state("n1") == ledger.state("n2")


UIDS = st.sampled_from(["u1", "u2", "u3", "u4"])
NODES = st.sampled_from(["n1", "n2"])
HOLDINGS = st.builds(
    Footprint,
    amounts=st.dictionaries(
        st.integers(0, 2).map(Card),
        st.integers(0, 5).map(lambda amount: (("i915", 1), ("millicores", amount))),
        min_size=1,
    ),
    tiles=st.dictionaries(st.integers(0, 2).map(Card), st.frozensets(st.integers(0, 3), min_size=1), max_size=2),
    company=st.sampled_from([NO_COMPANY, Company(affinity="a"), Company(affinity="a", exclusion="x")]),
    named=st.sampled_from(["", "", "one", "two"]),
)


class Books(RuleBasedStateMachine):
    """Any history of transitions: the sums are those of the bookings, and equal ledgers are equal however made."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.model: dict[str, tuple[str, Footprint, State]] = {}

    @rule(uid=UIDS, node=NODES, what=HOLDINGS)
    def reserve(self, uid: str, node: str, what: Footprint) -> None:
        if uid in self.model:
            with pytest.raises(AlreadyBooked):
                self.ledger.reserve(uid, f"default/{uid}", node, what)
        else:
            self.ledger.reserve(uid, f"default/{uid}", node, what)
            self.model[uid] = (node, what, State.RESERVED)

    @rule(uid=UIDS, node=NODES, what=HOLDINGS)
    def hold(self, uid: str, node: str, what: Footprint) -> None:
        self.ledger.hold(uid, f"default/{uid}", node, what)
        self.model[uid] = (node, what, State.HELD)

    @rule(uid=UIDS)
    def confirm(self, uid: str) -> None:
        was_reserved = uid in self.model and self.model[uid][2] is State.RESERVED
        assert self.ledger.confirm(uid) == was_reserved
        if uid in self.model:
            self.model[uid] = (*self.model[uid][:2], State.HELD)

    @rule(uid=UIDS)
    def release(self, uid: str) -> None:
        self.ledger.release(uid)
        self.model.pop(uid, None)

    @invariant()
    def sums_are_those_of_the_bookings(self) -> None:
        for node in ("n1", "n2"):
            amounts: dict[Card, dict[str, int]] = defaultdict(lambda: defaultdict(int))
            tiles: dict[Card, set[int]] = defaultdict(set)
            holders: dict[Card, int] = defaultdict(int)
            containers: dict[Card, int] = defaultdict(int)
            company: dict[Card, set[Company]] = defaultdict(set)
            names: dict[Card, set[str]] = defaultdict(set)
            for where, what, _ in self.model.values():
                if where != node:
                    continue
                for card, needs in what.amounts.items():
                    holders[card] += 1
                    company[card].add(what.company)
                    if what.named:
                        names[card].add(what.named)
                    containers[card] += what.containers.get(card, 0)
                    for name, amount in needs:
                        amounts[card][name] += amount
                for card, indexes in what.tiles.items():
                    tiles[card] |= indexes
            usage = self.ledger.usage(node)
            assert {card: {n: a for n, a in m.items() if a} for card, m in amounts.items()} == {
                card: dict(m) for card, m in usage.amounts.items()
            }
            assert {card: frozenset(t) for card, t in tiles.items()} == usage.tiles
            assert dict(self.ledger.holders(node)) == dict(holders)
            assert usage.containers == containers
            assert usage.company == {card: labels for card, labels in company.items() if labels != {NO_COMPANY}}
            assert usage.names == names
        assert {uid: (b.node, b.footprint, b.state) for uid, b in self.ledger.bookings()} == self.model


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBooks = Books.TestCase
