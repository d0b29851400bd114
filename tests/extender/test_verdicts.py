"""Verdicts are remembered until the node changes, and never differ from fresh ones."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from gas.extender.filter import in_turns
from gas.extender.nodes import Nodes
from gas.extender.verdicts import (
    FEWER_STEPS,
    FITS,
    FITS_PREFERRED,
    MOST_NEEDS,
    NEEDS_BY_NAME,
    TURN,
    NodeStates,
    Verdict,
    Verdicts,
    at_once,
)
from gas.ledger.ledger import Ledger, LedgerState
from gas.placement.choice import Choice, Footprint
from gas.placement.need import ContainerNeed, PodNeed
from gas.placement.place import place
from gas.placement.refusal import NoRoom, NoTimeLeft, Refusal, SearchLimitHit, UnknownNode
from gas.values.amounts import sorted_amounts
from gas.values.cards import Card
from gas.vocabularies.known import DEFAULT
from tests.builders import node
from tests.listed import list_all

TELEMETRY = "telemetry.aware.scheduling.p/"


STEPS = 1000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the millicores of every call of `place`."""
    questions: list[str] = []

    def counting(need: PodNeed, *args: Any, **options: Any) -> Choice | Refusal:
        questions.append(str(dict(need.containers[0].per_card)["millicores"]))
        return place(need, *args, **options)

    monkeypatch.setattr("gas.extender.verdicts.place", counting)
    return questions


def wanting(millicores: int = 600) -> PodNeed:
    return PodNeed((ContainerNeed("main", 1, sorted_amounts({"i915": 1, "millicores": millicores})),))


def taking(*cards: int, millicores: int = 600) -> Footprint:
    return Footprint(amounts={Card(card): sorted_amounts({"i915": 1, "millicores": millicores}) for card in cards})


class Known:
    """Two nodes of two cards; they are not alike."""

    def __init__(
        self, *, clock: Callable[[], float] = lambda: 0.0, on_stale: Callable[[], None] = lambda: None
    ) -> None:
        self.ledger = Ledger(on_change=self.changed)
        self.nodes = Nodes(DEFAULT, on_change=self.changed)
        self.verdicts = Verdicts(self.nodes, self.ledger, step_limit=STEPS, clock=clock, on_stale=on_stale)
        list_all(self.nodes, [node("n1"), node("n2", i915=22, millicores=2000)])

    def changed(self, name: str) -> None:
        self.verdicts.forget(name)

    def judge(self, *names: str, millicores: int = 600) -> list[Verdict]:
        return at_once(self.verdicts.of(wanting(millicores), names))


@pytest.fixture
def known() -> Known:
    return Known()


def test_pods_of_one_template_share_a_verdict(known: Known, asked: list[str]) -> None:
    assert known.judge("n1") == known.judge("n1") == [FITS]
    assert asked == ["600"]
    known.judge("n1", millicores=601)
    assert asked == ["600", "601"]


def test_pods_of_one_template_share_a_choice_on_nodes_in_one_state(known: Known, asked: list[str]) -> None:
    known.nodes.changed(node("n3"))
    chosen = known.verdicts.choose(wanting(), "n1")
    assert known.verdicts.choose(wanting(), "n3") is chosen
    assert asked == ["600"]


@pytest.mark.parametrize("change", ["reserve", "release", "correction", "label", "resource", "gone"])
def test_a_verdict_is_forgotten_only_when_its_node_changes(known: Known, change: str, asked: list[str]) -> None:
    known.ledger.reserve("u1", "default/a", "n1", taking(0))
    known.ledger.hold("u2", "default/b", "n1", taking(1))
    known.judge("n1", "n2")
    match change:
        case "reserve":
            known.ledger.reserve("u3", "default/c", "n1", taking(1))
        case "release":
            known.ledger.release("u2")
        case "correction":
            known.ledger.hold("u2", "default/b", "n1", taking(0))
        case "label":
            known.nodes.changed(node("n1", labels={TELEMETRY + "gas-disable-card0": "x"}))
        case "resource":
            known.nodes.changed(node("n1", i915=8))
        case "gone":
            known.nodes.deleted(node("n1"))
    asked.clear()
    known.judge("n2")
    assert not asked
    (verdict,) = known.judge("n1")
    assert len(asked) == (change != "gone")
    assert isinstance(verdict.refusal, UnknownNode) == (change == "gone")


def test_after_looking_ahead_a_question_reads_no_bookings(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_into: list[str] = []
    state = Ledger.state

    def looking(ledger: Ledger, name: str) -> LedgerState:
        looked_into.append(name)
        return state(ledger, name)

    monkeypatch.setattr(Ledger, "state", looking)
    monkeypatch.setattr("gas.extender.verdicts.NODES_A_TURN", 1)
    assert len(list(known.verdicts.look_ahead())) == 2, "others get their turn after each node"
    assert looked_into == ["n1", "n2"]
    assert at_once(known.verdicts.of(wanting(), ["n1", "n2"])) == [FITS, FITS]
    assert looked_into == ["n1", "n2"]


class TestByName:
    """A need that is asked about again and again has its verdicts by name."""

    @pytest.fixture
    def looked_up(self, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
        """Return the names of every look-up by state."""
        looked_up: list[Sequence[str]] = []
        look_up = NodeStates.look_up

        def counting(states: NodeStates, names: Sequence[str], results: Mapping[int, Verdict]) -> list[Verdict | None]:
            looked_up.append(names)
            return look_up(states, names, results)

        monkeypatch.setattr(NodeStates, "look_up", counting)
        return looked_up

    def test_the_third_question_looks_up_no_state(self, known: Known, looked_up: list[Sequence[str]]) -> None:
        for _ in range(5):
            assert known.judge("n1", "n2", "n1") == [FITS, FITS, FITS]
        assert len(looked_up) == 2

    @pytest.mark.parametrize(("needs", "looks"), [(NEEDS_BY_NAME, 2), (NEEDS_BY_NAME + 1, 3)])
    def test_a_need_that_is_asked_about_now_and_then_is_looked_up_by_state(
        self, known: Known, looked_up: list[Sequence[str]], asked: list[str], needs: int, looks: int
    ) -> None:
        for millicores in [*range(1, needs + 1)] * 3:
            known.judge("n1", millicores=millicores)
        assert len(looked_up) == looks * needs
        assert len(asked) == needs
        assert any(known.verdicts._by_name.values()) == (looks == 2)

    def test_only_the_node_that_changed_is_judged_again(
        self, known: Known, looked_up: list[Sequence[str]], asked: list[str]
    ) -> None:
        for _ in range(3):
            known.judge("n1", "n2")
        asked.clear()
        looked_up.clear()
        known.ledger.hold("u1", "default/a", "n1", taking(0, 1))
        for _ in range(2):
            assert [verdict.refusal is None for verdict in known.judge("n1", "n2")] == [False, True]
        assert len(asked) == 1
        assert not looked_up

    def test_names_without_a_node_are_not_kept(self, known: Known) -> None:
        for number in range(10):
            known.judge("n1", f"absent-{number}")
        known.nodes.deleted(node("n1"))
        known.judge("n1")
        at_once(known.verdicts.refresh())
        (by_name,) = known.verdicts._by_name.values()
        assert not by_name

    def test_a_changed_node_is_judged_before_the_next_question(self, asked: list[str]) -> None:
        known = Known(on_stale=lambda: asked.append("stale"))
        for millicores in (600, 700):
            for _ in range(3):
                known.judge("n1", "n2", millicores=millicores)
        asked.clear()
        known.ledger.hold("u1", "default/a", "n1", taking(0, 1))
        at_once(known.verdicts.refresh())
        assert [verdict.refusal is None for verdict in known.judge("n1", "n2", millicores=700)] == [False, True]
        assert asked == ["stale", "700"]

    def test_a_node_that_changes_while_others_get_their_turn_is_judged_again(self) -> None:
        ticks = itertools.count(step=2 * TURN)
        known = Known(clock=lambda: next(ticks))
        for _ in range(3):
            known.judge("n1", "n2")
        known.ledger.hold("u1", "default/a", "n1", taking(0))
        refreshing = known.verdicts.refresh()
        next(refreshing)
        known.ledger.hold("u2", "default/b", "n1", taking(1))
        at_once(refreshing)
        assert [verdict.refusal is None for verdict in known.judge("n1", "n2")] == [False, True]


def test_a_confirmed_reservation_changes_no_verdict(known: Known, asked: list[str]) -> None:
    known.ledger.reserve("u1", "default/a", "n1", taking(0))
    known.judge("n1")
    known.ledger.hold("u1", "default/a", "n1", taking(0))
    known.judge("n1")
    assert len(asked) == 1


def test_equal_nodes_share_a_verdict_whichever_pods_hold_their_cards(known: Known, asked: list[str]) -> None:
    known.nodes.changed(node("n2"))
    known.ledger.hold("u1", "default/a", "n1", taking(0))
    known.ledger.hold("u2", "default/b", "n2", taking(0))
    assert known.judge("n1", "n2") == [FITS, FITS]
    assert len(asked) == 1
    known.ledger.hold("u3", "default/c", "n2", taking(1))
    assert [verdict.refusal is None for verdict in known.judge("n1", "n2")] == [True, False]
    assert len(asked) == 2
    known.ledger.release("u3")
    assert known.judge("n1", "n2") == [FITS, FITS]
    assert len(asked) == 2


def test_a_full_node_is_refused_with_its_sentence(known: Known) -> None:
    known.ledger.hold("u1", "default/a", "n1", taking(0, 1))
    (verdict,) = known.judge("n1")
    assert isinstance(verdict.refusal, NoRoom)
    assert verdict.sentence == str(verdict.refusal)
    assert verdict.sentence


def test_a_node_is_known_as_soon_as_it_is_there(known: Known) -> None:
    (verdict,) = known.judge("n3")
    assert isinstance(verdict.refusal, UnknownNode)
    known.nodes.changed(node("n3"))
    assert known.judge("n3") == [FITS]


def test_verdicts_come_in_the_order_of_the_names(known: Known) -> None:
    known.ledger.hold("u1", "default/a", "n1", taking(0, 1))
    verdicts = known.judge("n2", "absent", "n1", "n2")
    assert [type(verdict.refusal) for verdict in verdicts] == [type(None), UnknownNode, NoRoom, type(None)]


def test_a_fit_on_the_preferred_card_is_a_verdict_of_its_own(known: Known) -> None:
    known.nodes.changed(node("n1", labels={TELEMETRY + "gas-prefer-gpu": "card1"}))
    assert known.judge("n1", "n2") == [FITS_PREFERRED, FITS]


def test_nodes_as_sent_are_judged_with_the_bookings_of_their_name_and_not_remembered(known: Known) -> None:
    known.ledger.hold("u1", "default/a", "n1", taking(0, 1))
    facts = known.nodes.facts("n2")
    assert facts is not None
    assert at_once(known.verdicts.as_sent(wanting(), {"n1": facts}))[0].refusal is not None
    assert at_once(known.verdicts.as_sent(wanting(), {"n9": facts}))[0] is FITS
    (verdict,) = known.judge("n9")
    assert isinstance(verdict.refusal, UnknownNode)


def test_equal_nodes_as_sent_share_a_verdict_within_one_filter_only(known: Known, asked: list[str]) -> None:
    known.ledger.hold("u1", "default/a", "n3", taking(0, 1))
    sent = known.nodes.as_sent([*map(node, ("n1", "n2", "n3")), node("n4", millicores=200)])
    verdicts = at_once(known.verdicts.as_sent(wanting(), sent))
    assert [verdict.refusal is None for verdict in verdicts] == [True, True, False, False]
    assert len(asked) == 3
    at_once(known.verdicts.as_sent(wanting(), sent))
    assert len(asked) == 6
    assert at_once(known.verdicts.hopeless(wanting(), sent, sent.get)) == {"n4"}
    assert len(asked) == 8


def test_what_fits_beside_nominated_cards_depends_on_which_they_are(known: Known) -> None:
    for cards, fits in (((0,), True), ((0, 1), False), ((1,), True)):
        (verdict,) = at_once(known.verdicts.of(wanting(600), ["n1"], {"n1": [taking(*cards)]}))
        assert (verdict is FITS) is fits
    assert known.judge("n1") == [FITS]
    facts = known.nodes.facts("n1")
    assert facts is not None
    full, free = at_once(known.verdicts.as_sent(wanting(600), {"n1": facts, "n2": facts}, {"n1": [taking(0, 1)]}))
    assert full.refusal is not None
    assert free is FITS


def test_what_never_fits_a_node_as_it_is_sent_may_fit_the_known_one(known: Known) -> None:
    small = known.nodes.as_sent([node("n1", i915=2, millicores=200)])
    assert at_once(known.verdicts.hopeless(wanting(), ["n1"], small.get)) == {"n1"}
    assert known.judge("n1") == [FITS]
    assert isinstance(known.judge("absent")[0].refusal, UnknownNode)


def test_the_need_asked_about_longest_ago_is_forgotten_first(known: Known, asked: list[str]) -> None:
    for millicores in [*range(1, MOST_NEEDS + 1), 1, MOST_NEEDS + 1]:
        known.judge("n1", millicores=millicores)
    asked.clear()
    known.judge("n1", millicores=1)
    assert not asked
    known.judge("n1", millicores=2)
    assert asked == ["2"]


def test_needs_are_forgotten_too_when_those_known_are_asked_about_more_nodes(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gas.extender.verdicts.MOST_VERDICTS", 4)
    known = Known()
    for millicores in (1, 2, 3, 4):
        known.judge("n1", millicores=millicores)
    known.judge("n2", millicores=4)
    asked.clear()
    for millicores in (2, 3, 4):
        known.judge("n1", millicores=millicores)
    assert not asked
    known.judge("n1", millicores=1)
    assert asked == ["1"]


def test_verdicts_of_nodes_that_change_again_and_again_are_forgotten_too(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gas.extender.verdicts.MOST_VERDICTS", 4)
    for millicores in range(10):
        known.ledger.hold("u1", "default/a", "n1", taking(0, millicores=millicores))
        for _ in range(3):
            assert known.judge("n1") == [FITS]
        assert sum(map(len, known.verdicts._remembered.values())) <= 4


def test_verdicts_of_states_that_no_node_is_in_any_more_are_forgotten(
    known: Known, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gas.extender.verdicts.SPARE_STATES", 0)
    for millicores in range(20):
        known.ledger.hold("u1", "default/a", "n1", taking(0, millicores=millicores))
        known.judge("n1", "n2")
        known.verdicts._by_name.clear()
    assert len(asked) == 20 + 1
    (remembered,) = known.verdicts._remembered.values()
    assert len(remembered) <= known.verdicts.states.most + 1


class TestHardSearches:
    """A pod made to be hard must not stop other work: `TimeBudget` says how many steps each node gets."""

    @pytest.fixture
    def time_goes_by(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Let each search take a second; return the steps that each was allowed."""
        allowed: list[int] = []

        def gives_up(*_args: object, step_limit: int, **_options: object) -> Refusal:
            allowed.append(step_limit)
            return SearchLimitHit(step_limit)

        monkeypatch.setattr("gas.extender.verdicts.place", gives_up)
        return allowed

    NAMES = tuple(f"n{number}" for number in range(5))

    def hard(self, allowed: list[int]) -> Known:
        known = Known(clock=lambda: float(len(allowed)))
        list_all(known.nodes, [node(name, i915=22 + number, millicores=2000) for number, name in enumerate(self.NAMES)])
        return known

    def test_the_first_search_gets_all_steps_the_next_fewer_and_the_last_none(self, time_goes_by: list[int]) -> None:
        verdicts = self.hard(time_goes_by).judge(*self.NAMES)
        assert time_goes_by == [STEPS, STEPS // FEWER_STEPS, STEPS // FEWER_STEPS]
        assert [type(verdict.refusal) for verdict in verdicts] == [SearchLimitHit] * 3 + [NoTimeLeft] * 2

    def test_complete_searches_are_remembered_so_the_next_filter_gets_further(self, time_goes_by: list[int]) -> None:
        known = self.hard(time_goes_by)
        for _ in self.NAMES:
            known.judge(*self.NAMES)
        time_goes_by.clear()
        known.judge(*self.NAMES)
        assert not time_goes_by

    def test_a_search_that_was_cut_short_is_made_again_with_all_steps(self, time_goes_by: list[int]) -> None:
        known = self.hard(time_goes_by)
        known.judge(*self.NAMES[:2])
        time_goes_by.clear()
        known.judge(self.NAMES[1])
        assert time_goes_by == [STEPS]

    def test_one_that_is_cut_short_makes_no_node_hopeless(self, time_goes_by: list[int]) -> None:
        known = self.hard(time_goes_by)
        assert at_once(known.verdicts.hopeless(wanting(), self.NAMES, known.nodes.facts)) == set()
        assert time_goes_by == [STEPS, STEPS // FEWER_STEPS, STEPS // FEWER_STEPS]
        time_goes_by.clear()
        known.judge(self.NAMES[0])
        assert time_goes_by == [STEPS]

    def test_nodes_as_sent_get_no_more_steps(self, time_goes_by: list[int]) -> None:
        known = self.hard(time_goes_by)
        facts = dict(known.nodes)
        verdicts = at_once(known.verdicts.as_sent(wanting(), facts))
        assert len(time_goes_by) == 3
        assert isinstance(verdicts[4].refusal, NoTimeLeft)


async def test_other_work_runs_between_the_nodes_of_a_long_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def slow(*_args: object, **_options: object) -> Refusal:
        nonlocal now
        now += TURN
        return SearchLimitHit(1)

    monkeypatch.setattr("gas.extender.verdicts.place", slow)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await in_turns(Known(clock=lambda: now).verdicts.of(wanting(), ["n1", "n2"]))
    task.cancel()
    assert turns >= 2
