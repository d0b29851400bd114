"""The life of a pod's cards: every event in every state does what the table says, and the ledger follows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.extender.bookings import MAY_BE_STORED, RESERVED, TABLE, Bookings, Event, Move, SentBinding, State
from gas.ledger.ledger import AlreadyBooked, Ledger
from gas.ledger.ledger import State as Booked
from gas.placement.choice import Footprint
from gas.values.cards import Card

CARDS = Footprint(amounts={Card(0): (("i915", 1),)})
OTHERS = Footprint(amounts={Card(1): (("i915", 1),)})


class Life:
    """The bookings of a pod, and what they reported."""

    def __init__(self) -> None:
        self.moves: list[Move] = []
        self.freed: list[str] = []
        self.ledger = Ledger()
        self.bookings = Bookings(self.ledger, on_move=self.moves.append, on_freed=self.freed.append)

    @property
    def state(self) -> State:
        return self.bookings.state("u1")

    def happens(self, event: Event) -> None:
        match event:
            case Event.BIND | Event.REVIEW:
                sent = SentBinding("n1", {"gas-container-cards": "card0"}, is_reviewed=event is Event.REVIEW)
                self.bookings.reserve("u1", "default/pod", CARDS, sent)
            case Event.BOUND if self.ledger.booking("u1") is None:
                self.bookings.hold("u1", "default/pod", "n1", CARDS)
            case Event.NOMINATED | Event.NOT_NOMINATED:
                self.bookings.nominate("u1", "default/pod", "n1" if event is Event.NOMINATED else "")
            case _:
                self.bookings.report("u1", event, "default/pod")


WAYS = {  # to each state
    State.UNKNOWN: (),
    State.PROMISED: (Event.NOMINATED,),
    State.WRITING: (Event.BIND,),
    State.COPIED: (Event.BIND, Event.COPY),
    State.REVIEWED: (Event.REVIEW,),
    State.SETTLING: (Event.BIND, Event.NO_RESPONSE),
    State.WRITTEN: (Event.BIND, Event.STORED),
    State.HELD: (Event.BOUND,),
}


def in_state(state: State) -> Life:
    life = Life()
    for event in WAYS[state]:
        life.happens(event)
    assert life.state is state
    return life


@pytest.mark.parametrize("event", Event, ids=lambda event: event.name)
@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_an_event_does_what_the_table_says(state: State, event: Event) -> None:
    life = in_state(state)
    life.freed.clear()
    if event in (Event.BIND, Event.REVIEW) and event not in TABLE[state]:
        with pytest.raises(AlreadyBooked):
            life.happens(event)
        assert life.state is state
        return
    life.happens(event)
    after = TABLE[state].get(event, state)
    assert life.state is after
    if event not in (Event.NOMINATED, Event.NOT_NOMINATED) or state is not after:
        assert life.moves[-1] == Move("u1", "default/pod", event, life.moves[-1].before, after)
    booked = life.ledger.booking("u1")
    assert (booked is not None) == (after in RESERVED | {State.HELD})
    assert booked is None or (booked.state is Booked.HELD) == (after is State.HELD)
    assert (life.bookings.sent("u1") is not None) == (after in MAY_BE_STORED)
    assert not (life.bookings.is_nominated("u1") and event in (Event.BOUND, Event.ELSEWHERE, Event.GONE))
    lost_cards = state in RESERVED | {State.HELD} and after is State.UNKNOWN
    assert ("n1" in life.freed) == (lost_cards or (state is State.PROMISED and not life.bookings.nominated("n1")))


@given(st.lists(st.sampled_from(Event), max_size=12))
def test_after_any_events_nothing_is_left_of_a_pod_that_is_gone(events: list[Event]) -> None:
    life = Life()
    for event in (*events, Event.GONE):
        if event not in (Event.BIND, Event.REVIEW) or event in TABLE[life.state]:
            life.happens(event)
    assert life.state is State.UNKNOWN
    assert life.bookings.sent("u1") is None
    assert not life.bookings.nominated_nodes()
    assert not life.ledger.nodes()


def test_a_pod_whose_booking_ends_is_promised_cards_again_while_its_nomination_stands() -> None:
    life = in_state(State.PROMISED)
    life.happens(Event.BIND)
    life.happens(Event.REFUSED)
    assert life.state is State.PROMISED
    life.happens(Event.BIND)
    life.happens(Event.BOUND)
    assert not life.bookings.nominated("n1")


def test_pods_are_nominated_for_one_node_in_the_order_in_which_they_were() -> None:
    bookings = Life().bookings
    for uid, node in (("b", "n1"), ("a", "n1"), ("c", "n2"), ("c", "n1"), ("b", "n1")):
        bookings.nominate(uid, f"default/{uid}", node)
    assert list(bookings.nominated("n1")) == ["b", "a", "c"]
    assert list(bookings.nominated_nodes()) == ["n1"]


def test_cards_are_free_when_a_bound_pod_has_others_than_were_reserved() -> None:
    life = in_state(State.WRITTEN)
    life.bookings.hold("u1", "default/pod", "n1", CARDS)
    assert not life.freed
    life.bookings.hold("u1", "default/pod", "n1", OTHERS)
    assert life.freed == ["n1"]


def test_the_nodes_of_reviewed_bindings_are_in_doubt_until_they_are_settled() -> None:
    life = in_state(State.REVIEWED)
    assert life.bookings.in_doubt() == {"u1": "n1"}
    life.happens(Event.END_REVIEW)
    assert life.bookings.in_doubt() == {"u1": "n1"}
    life.happens(Event.FREE)
    assert not life.bookings.in_doubt()
    assert not in_state(State.SETTLING).bookings.in_doubt()
