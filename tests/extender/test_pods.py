"""How the ledger follows the cluster's pods: every transition, whatever watch, lists and the pods' owners do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.extender.bookings import Bookings, Event, Move
from gas.extender.debug import differences
from gas.extender.hooks import Change, Corrected, Mismatch, Observer, Problem
from gas.extender.pods import Pods
from gas.ledger.ledger import Ledger
from gas.objects.stored import Pod
from gas.placement.choice import Choice, Footprint
from gas.placement.inventory import Inventory
from gas.placement.place import place
from gas.values.amounts import sorted_amounts
from gas.values.cards import Card
from gas.vocabularies.known import DEFAULT, switched_off
from gas.vocabularies.protocol import NeedOptions, NodeFacts
from tests.builders import container, pod, requesting
from tests.listed import list_all
from tests.other_words import GPU_MEM, sharing

UNREADABLE = "its annotations were changed after binding and cannot be read"


class Followed(Observer):
    """Pods with their ledger, and what they reported."""

    def __init__(self, facts: NodeFacts | None = None) -> None:
        self.ledger = Ledger()
        self.changed: list[str] = []
        self.freed: list[str] = []
        self.gone: list[str] = []
        self.mismatches: list[str] = []
        self.vanished: list[tuple[str, str]] = []
        self.corrections = 0
        self.bookings = Bookings(self.ledger, on_move=self.moved, on_freed=self.freed.append)
        self.pods = Pods(
            self.ledger,
            self.bookings,
            DEFAULT,
            off=switched_off(DEFAULT),
            facts=lambda _node: facts,
            observer=self,
            on_gone=self.gone.append,
        )

    def node_changed(self, node: str, _change: Change) -> None:
        self.changed.append(node)

    def found(self, problem: Problem) -> None:
        match problem:
            case Corrected():
                self.corrections += 1
            case Mismatch(pod, sentence):
                self.mismatches.append(f"{pod.key}: {sentence}")

    def moved(self, move: Move) -> None:
        if move.event is Event.VANISHED:
            self.vanished.append((move.uid, move.pod))

    def booked(self, uid: str = "u1") -> str:
        booking = self.ledger.booking(uid)
        if booking is None:
            return "nothing"
        return f"{','.join(map(str, booking.footprint.amounts))} on {booking.node}, {booking.state.value}"

    def books(self) -> dict[str, Any]:
        return dict(self.ledger.bookings())

    def rebuilt(self) -> dict[str, Any]:
        return dict(self.pods.rebuilt_ledger().bookings())


def seen(*pods: Pod, facts: NodeFacts | None = None) -> Followed:
    """Return what follows from these pods, shown one after the other."""
    followed = Followed(facts)
    for each in pods:
        followed.pods.changed(each)
    return followed


def gpu_pod(cards: str | None = None, *, node: str | None = "n1", uid: str = "u1", **fields: Any) -> Pod:
    """Return a pod that needs one card; ``cards`` is its annotation."""
    annotations = dict(fields.pop("annotations", {}))
    if cards is not None:
        annotations |= {"gas-container-cards": cards, "gas-ts": "1"}
    return pod(container(i915=1, millicores=300), node=node, uid=uid, annotations=annotations, **fields)


def waiting_pod(**fields: Any) -> Pod:
    return gpu_pod(node=None, **fields)


def reserve(followed: Followed, card: int = 0, node: str = "n1", uid: str = "u1") -> None:
    amounts = {Card(card): sorted_amounts({"i915": 1, "millicores": 300})}
    held = Footprint(amounts=amounts, containers={Card(card): 1})
    followed.ledger.reserve(uid, "default/pod", node, held)


def test_bound_pods_share_the_texts_of_their_node_and_namespace() -> None:
    followed = seen(*(gpu_pod("card0", uid=uid, node="".join("n1"), namespace="".join("ns")) for uid in ("u1", "u2")))
    one, other = (bound.object for _, bound in followed.pods.bound())
    assert one.spec.node_name is other.spec.node_name
    assert one.metadata.namespace is other.metadata.namespace


# contract E9.5
def test_a_pod_waits_then_is_bound_then_ends() -> None:
    followed = seen(waiting_pod())
    assert list(followed.pods.waiting) == ["u1"]
    assert followed.booked() == "nothing"
    followed.pods.changed(gpu_pod("card0"))
    assert not followed.pods.waiting
    assert followed.gone == ["u1"]
    assert followed.booked() == "card0 on n1, held"
    assert followed.changed == ["n1"]
    followed.pods.changed(gpu_pod("card0", phase="Succeeded"))
    assert followed.booked() == "nothing"
    assert followed.freed == ["n1"]
    assert followed.pods.bound_pod("u1") is None
    assert not followed.pods.knows("u1")


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda pods: pods.deleted(gpu_pod("card0")), id="deleted"),
        pytest.param(lambda pods: pods.changed(gpu_pod("card0", phase="Succeeded")), id="succeeded"),
        pytest.param(lambda pods: pods.changed(gpu_pod("card0", phase="Failed")), id="failed"),
        pytest.param(lambda pods: list_all(pods, []), id="not-in-the-next-list"),
    ],
)
def test_cards_are_free_once_and_only_once(end: Callable[[Pods], None]) -> None:
    followed = seen(gpu_pod("card0"))
    end(followed.pods)
    assert followed.booked() == "nothing"
    assert not followed.ledger.usage("n1").amounts
    end(followed.pods)
    followed.pods.deleted(gpu_pod("card0"))
    assert followed.freed == ["n1"]


def test_a_reservation_is_confirmed_by_the_bound_pod_and_nothing_is_booked_twice() -> None:
    followed = seen(waiting_pod())
    reserve(followed)
    before = dict(followed.ledger.usage("n1").amounts[Card(0)])
    followed.pods.changed(gpu_pod("card0"))
    assert followed.booked() == "card0 on n1, held"
    assert followed.ledger.usage("n1").amounts == {Card(0): before}
    assert not followed.freed


def test_a_reserved_pod_that_is_deleted_before_it_is_seen_bound_is_released() -> None:
    followed = seen(waiting_pod())
    reserve(followed)
    followed.pods.deleted(waiting_pod())
    assert followed.booked() == "nothing"
    assert followed.freed == ["n1"]


def test_a_pod_bound_elsewhere_with_cards_is_booked_there_and_its_reservation_is_freed() -> None:
    followed = Followed()
    reserve(followed, node="n1")
    followed.pods.changed(gpu_pod("card3", node="n2"))
    assert followed.booked() == "card3 on n2, held"
    assert followed.ledger.nodes() == ("n2",)
    assert followed.freed == ["n1"]


def test_a_pod_bound_elsewhere_without_cards_books_nothing_and_its_reservation_is_freed() -> None:
    followed = Followed()
    reserve(followed, node="n1")
    followed.pods.changed(gpu_pod(node="n2"))
    assert followed.booked() == "nothing"
    assert followed.freed == ["n1"]
    assert followed.pods.in_trouble["u1"].trouble is not None
    assert followed.pods.in_trouble["u1"].trouble.unannotated


def test_a_pod_that_another_one_bound_with_other_cards_is_booked_as_written() -> None:
    followed = Followed()
    reserve(followed, card=0)
    followed.pods.changed(gpu_pod("card1"))
    assert followed.booked() == "card1 on n1, held"
    assert set(followed.ledger.usage("n1").amounts) == {Card(1)}
    assert followed.freed == ["n1"]
    assert followed.rebuilt() == followed.books()


def test_a_receipt_is_believed_counted_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    followed = seen(gpu_pod("card0"), gpu_pod("card0", annotations={"gas-allocated-cards": "card1"}))
    assert followed.booked() == "card1 on n1, held"
    assert followed.corrections == 1
    (log,) = (vars(each) for each in caplog.records)
    assert log["message"].startswith("kubelet gave a pod other cards")
    assert (log["pod"], log["node"]) == ("default/pod", "n1")
    assert followed.freed == ["n1"]
    assert not followed.pods.in_trouble
    assert followed.rebuilt() == followed.books()


def test_a_receipt_that_says_what_was_decided_changes_nothing() -> None:
    followed = seen(gpu_pod("card0"), gpu_pod("card0", annotations={"gas-allocated-cards": "card0"}))
    assert followed.booked() == "card0 on n1, held"
    assert followed.corrections == 0
    assert not followed.freed


def test_a_receipt_books_a_pod_without_a_decision() -> None:
    followed = seen(gpu_pod())
    assert followed.booked() == "nothing"
    followed.pods.changed(gpu_pod(annotations={"gas-allocated-cards": "card1"}))
    assert followed.booked() == "card1 on n1, held"
    assert not followed.pods.in_trouble


EDITS = [
    pytest.param("card1", "its annotations were changed after binding; its booking", id="changed"),
    pytest.param("card0,card1", UNREADABLE, id="too-many-cards"),
    pytest.param("card0|card1", UNREADABLE, id="too-many-containers"),
    pytest.param("CARD0", UNREADABLE, id="no-card"),
    pytest.param("card0\x00\x1b[2J\r\n", UNREADABLE, id="control-characters"),
    pytest.param("card0," * 40_000, UNREADABLE, id="256-KiB"),
    pytest.param("", "its annotations were removed after binding", id="emptied"),
    pytest.param(None, "its annotations were removed after binding", id="removed"),
]


# contract E9.4
@pytest.mark.parametrize(("text", "sentence"), EDITS)
def test_an_edit_of_a_bound_pod_is_reported_not_believed(text: str | None, sentence: str) -> None:
    followed = seen(gpu_pod("card0"))
    books = followed.books()
    followed.pods.changed(gpu_pod(text))
    assert followed.books() == books
    assert len(followed.mismatches) == 1
    assert sentence in followed.mismatches[0]
    assert len(followed.mismatches[0]) < 300
    assert followed.mismatches[0].isprintable()
    followed.pods.changed(gpu_pod(text))
    assert len(followed.mismatches) == 1
    followed.pods.changed(gpu_pod("card0"))
    assert not followed.pods.in_trouble
    followed.pods.deleted(gpu_pod("card0"))
    assert followed.booked() == "nothing"


HOSTILE = {str(edit.id): edit.values[0] for edit in EDITS if edit.values[1] == UNREADABLE}


# contract E9.6
@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(name, text, id=f"{name}-{what}")
        for name in ("gas-container-cards", "gas-allocated-cards")
        for what, text in HOSTILE.items()
        if (name, what) != ("gas-allocated-cards", "too-many-cards")  # kubelet may give more than was asked for
    ],
)
def test_unreadable_annotations_of_a_bound_pod_book_nothing_and_affect_no_other_pod(name: str, text: str) -> None:
    followed = Followed()
    list_all(followed.pods, [gpu_pod(annotations={name: text}), gpu_pod("card1", uid="u2", name="other")])
    assert followed.booked("u1") == "nothing"
    assert followed.booked("u2") == "card1 on n1, held"
    assert "its cards are not booked" in followed.mismatches[0]
    assert followed.rebuilt() == followed.books()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_reserved_pod_keeps_its_cards_whatever_its_annotations_say(text: str) -> None:
    followed = Followed()
    reserve(followed)
    followed.pods.changed(gpu_pod(text))
    assert followed.booked() == "card0 on n1, held"
    assert followed.pods.in_trouble


def test_a_pod_without_annotations_is_shown_as_such_and_books_nothing() -> None:
    followed = seen(gpu_pod())
    assert followed.booked() == "nothing"
    assert [found.trouble and found.trouble.unannotated for found in followed.pods.in_trouble.values()] == [True]
    assert followed.mismatches == ["default/pod: it is bound without cards written on it, so its cards are not booked"]


def test_a_bound_pod_with_an_invalid_need_is_shown_until_it_is_gone() -> None:
    followed = Followed()
    senseless = pod(container(i915=-1), node="n1", uid="u1", annotations={"gas-container-cards": "card0"})
    followed.pods.changed(senseless)
    assert "its requests cannot be read" in followed.mismatches[0]
    followed.pods.changed(pod(container(i915=-1), node="n1", uid="u1"))
    assert followed.booked() == "nothing"
    assert "u1" in followed.pods.in_trouble
    followed.pods.deleted(senseless)
    assert not followed.pods.in_trouble


@pytest.mark.parametrize(
    "without_cards",
    [
        pytest.param(pod(container(), node="n1", uid="u1"), id="no-gpu-resource"),
        pytest.param(pod(node="n1", uid="u1"), id="no-containers"),
        pytest.param(pod(container(i915_monitoring=1), node="n1", uid="u1"), id="monitoring-only"),
        pytest.param(pod(container(millicores=100), node="n1", uid="u1"), id="no-count-resource"),
    ],
)
def test_a_bound_pod_without_cards_is_not_in_trouble(without_cards: Pod) -> None:
    followed = seen(without_cards)
    followed.pods.deleted(without_cards)
    assert not followed.mismatches
    assert not followed.changed
    assert not followed.freed


# contract E9.2
def test_a_recreated_pod_of_the_same_name_is_another_pod() -> None:
    followed = seen(gpu_pod("card0", uid="old"), waiting_pod(uid="new"), gpu_pod("card1", uid="new"))
    followed.pods.deleted(gpu_pod("card0", uid="old"))
    assert followed.booked("old") == "nothing"
    assert followed.booked("new") == "card1 on n1, held"


# contract E9.3
def test_pods_that_have_ended_before_the_start_are_not_booked() -> None:
    followed = Followed()
    list_all(followed.pods, [gpu_pod("card0", phase="Succeeded"), gpu_pod("card0", uid="u2", phase="Failed")])
    assert not followed.books()
    assert not followed.freed


# contract E9.5
def test_a_pod_that_is_being_deleted_keeps_its_cards_until_it_is_gone() -> None:
    followed = seen(gpu_pod("card0"), gpu_pod("card0", deleting=True))
    assert followed.booked() == "card0 on n1, held"
    followed.pods.deleted(gpu_pod("card0", deleting=True))
    assert followed.booked() == "nothing"


def test_a_list_releases_pods_that_vanished_and_keeps_the_others() -> None:
    followed = Followed()
    list_all(followed.pods, [gpu_pod("card0"), gpu_pod("card1", uid="u2", name="other"), waiting_pod(uid="u3")])
    list_all(followed.pods, [gpu_pod("card1", uid="u2", name="other")])
    assert followed.booked("u1") == "nothing"
    assert followed.booked("u2") == "card1 on n1, held"
    assert not followed.pods.waiting
    assert followed.freed == ["n1"]
    assert {"u1", "u3"} <= set(followed.gone)


def test_a_list_releases_pods_in_the_order_in_which_they_came() -> None:
    followed = Followed()
    nodes = [f"n{number}" for number in range(20)]
    list_all(followed.pods, [gpu_pod("card0", uid=f"u-{node}", name=f"p-{node}", node=node) for node in nodes])
    list_all(followed.pods, [])
    assert followed.freed == nodes


def test_a_list_hands_reserved_pods_that_it_does_not_have_to_settling() -> None:
    followed = Followed()
    list_all(followed.pods, [waiting_pod()])
    reserve(followed)
    reserve(followed, card=1, uid="u2")
    list_all(followed.pods, [waiting_pod(uid="u2")])
    assert followed.booked("u1") == "nothing", "it waited before, so the list says that it is gone"
    reserve(followed, uid="u4")
    list_all(followed.pods, [waiting_pod(uid="u2")])
    assert followed.vanished == [("u4", "default/pod")]
    assert followed.booked("u4") == "card0 on n1, reserved"
    assert followed.booked("u2") == "card1 on n1, reserved"


class TestOlderNews:
    """Responses to single requests, and lists beside the watch, may be older or newer than what the watch has shown."""

    def test_a_pod_known_to_be_bound_does_not_wait_again(self) -> None:
        followed = seen(gpu_pod("card0"))
        for hear in (followed.pods.changed, lambda old: followed.pods.learn([old])):
            hear(waiting_pod())
            assert not followed.pods.waiting
            assert followed.booked() == "card0 on n1, held"

    @pytest.mark.parametrize(
        "end",
        [
            pytest.param(lambda pods: pods.deleted(gpu_pod("card0")), id="deleted"),
            pytest.param(lambda pods: pods.changed(gpu_pod("card0", phase="Succeeded")), id="succeeded"),
        ],
    )
    @pytest.mark.parametrize("old", [gpu_pod("card0"), waiting_pod()], ids=["bound", "waiting"])
    def test_a_pod_known_to_be_gone_does_not_come_back(self, end: Callable[[Pods], None], old: Pod) -> None:
        followed = seen(gpu_pod("card0"))
        end(followed.pods)
        followed.pods.changed(old)
        followed.pods.learn([old])
        assert not followed.books()
        assert not followed.pods.waiting

    def test_a_pod_whose_end_is_all_that_the_watch_has_shown_does_not_come_back(self) -> None:
        followed = Followed()
        followed.pods.deleted(gpu_pod("card0"))
        followed.pods.changed(gpu_pod("card0"))
        assert not followed.books()

    def test_a_pod_that_a_side_list_does_not_have_stays(self) -> None:
        followed = seen(gpu_pod("card0"), waiting_pod(uid="u2"))
        reserve(followed, card=1, uid="u3")
        followed.pods.learn([])
        assert followed.booked("u1") == "card0 on n1, held"
        assert list(followed.pods.waiting) == ["u2"]
        assert not followed.vanished

    def test_a_side_list_shows_what_the_watch_has_not_shown_yet(self) -> None:
        followed = seen(waiting_pod())
        followed.pods.learn([gpu_pod("card0"), waiting_pod(uid="u2")])
        assert followed.booked() == "card0 on n1, held"
        assert list(followed.pods.waiting) == ["u2"]

    def test_a_side_list_shows_that_a_pod_has_ended(self) -> None:
        followed = seen(gpu_pod("card0"))
        followed.pods.learn([gpu_pod("card0", phase="Succeeded")])
        assert not followed.books()

    def test_pods_newer_than_the_list_that_is_being_read_are_not_taken_for_gone(self) -> None:
        followed = Followed()
        for _ in range(2):
            followed.pods.learn([gpu_pod("card0"), waiting_pod(uid="u2")])
        list_all(followed.pods, [])
        assert sorted(followed.vanished) == [("u1", "default/pod"), ("u2", "default/pod")]
        assert followed.booked() == "card0 on n1, held"
        followed.pods.changed(gpu_pod("card1", uid="u2"))
        assert followed.booked("u2") == "card1 on n1, held"
        list_all(followed.pods, [gpu_pod("card0")])
        assert not followed.pods.knows("u2"), "the watch has shown it, so the list says that it is gone"

    def test_an_older_side_list_does_not_take_a_receipt_back(self) -> None:
        followed = seen(gpu_pod("card0", annotations={"gas-allocated-cards": "card1"}))
        followed.pods.learn([gpu_pod("card0")])
        assert followed.booked() == "card1 on n1, held"
        assert not followed.mismatches

    def test_a_list_of_a_cluster_restored_from_a_backup_brings_pods_back(self) -> None:
        followed = seen(gpu_pod("card0"))
        followed.pods.deleted(gpu_pod("card0"))
        list_all(followed.pods, [gpu_pod("card0")])
        assert followed.booked() == "card0 on n1, held"


def test_a_repeated_event_changes_nothing() -> None:
    followed = Followed()
    for _ in range(2):
        followed.pods.changed(gpu_pod("card0"))
    assert followed.changed == ["n1"]
    assert followed.ledger.usage("n1").amounts[Card(0)]["millicores"] == 300


def test_only_the_part_of_a_bound_pod_that_matters_is_kept() -> None:
    followed = seen(gpu_pod("card0", labels={"app": "x" * 60}, annotations={"notes": "y" * 10_000}))
    bound = followed.pods.bound_pod("u1")
    assert bound is not None
    assert bound.object.annotations == {"gas-container-cards": "card0", "gas-ts": "1"}
    assert bound.object.metadata.labels is None
    assert bound.object.spec.containers is None


def test_pods_that_take_the_same_of_the_same_cards_share_their_footprint() -> None:
    followed = Followed()
    for uid, card in (("u1", "card0"), ("u2", "card0"), ("u3", "card1")):
        followed.pods.changed(gpu_pod(card, uid=uid, name=uid))
    first, second, other = (booking.footprint for _, booking in followed.ledger.bookings())
    assert first is second
    assert first != other


def test_pods_of_one_template_share_their_need() -> None:
    followed = Followed()
    list_all(followed.pods, [gpu_pod("card0"), gpu_pod("card1", uid="u2")])
    first, second = (followed.pods.bound_pod(uid) for uid in ("u1", "u2"))
    assert first is not None
    assert second is not None
    assert first.need is second.need


def test_a_pod_that_asks_for_cards_only_in_init_containers_counts() -> None:
    followed = Followed()
    written = {"gas-init-container-cards": "card0", "gas-container-cards": ""}
    followed.pods.changed(
        pod(container(), init=(container("first", i915=1),), node="n1", uid="u1", annotations=written)
    )
    assert followed.booked() == "card0 on n1, held"


class TestAnnotationsAndTheNodesCards:
    """A node with card0 and card1 of two tiles each. Any user may write anything on a pod."""

    def followed(self) -> Followed:
        return Followed(NodeFacts(inventory=Inventory(capacity={Card(0): {"tiles": 2}, Card(1): {"tiles": 2}})))

    def test_a_decision_about_a_missing_card_is_booked_and_reported(self, caplog: pytest.LogCaptureFixture) -> None:
        followed = self.followed()
        followed.pods.changed(gpu_pod("card77"))
        assert "node n1 does not have 'card77'" in caplog.text
        assert [(vars(each)["pod"], vars(each)["node"]) for each in caplog.records] == [("default/pod", "n1")]
        assert followed.booked() == "card77 on n1, held"
        assert "node n1 does not have 'card77'" in followed.mismatches[0]
        assert followed.rebuilt() == followed.books()

    def test_a_receipt_about_a_missing_card_is_not_believed(self) -> None:
        followed = self.followed()
        followed.pods.changed(gpu_pod("card0"))
        followed.pods.changed(gpu_pod("card0", annotations={"gas-allocated-cards": "card5"}))
        assert followed.booked() == "card0 on n1, held"
        assert followed.corrections == 0
        assert "its receipt is ignored: node n1 does not have 'card5'" in followed.mismatches[0]
        assert followed.rebuilt() == followed.books()

    @pytest.mark.parametrize("decided", ["card0", None])
    def test_a_receipt_is_believed_once_its_card_comes_back(self, decided: str | None) -> None:
        capacity = {Card(0): {"tiles": 2}}
        followed = Followed(NodeFacts(inventory=Inventory(capacity=capacity)))
        followed.pods.changed(gpu_pod(decided, annotations={"gas-allocated-cards": "card1"}))
        assert followed.booked() == ("card0 on n1, held" if decided else "nothing")
        capacity[Card(1)] = {"tiles": 2}
        followed.pods.node_changed("n2")
        assert followed.pods.in_trouble
        followed.pods.node_changed("n1")
        assert followed.booked() == "card1 on n1, held"
        assert not followed.pods.in_trouble
        assert followed.rebuilt() == followed.books()

    def test_a_missing_card_is_reported_until_it_comes_back(self) -> None:
        capacity = {Card(0): {"tiles": 2}}
        followed = Followed(NodeFacts(inventory=Inventory(capacity=capacity)))
        followed.pods.changed(gpu_pod("card1"))
        followed.pods.node_changed("n1")
        assert len(followed.mismatches) == 1
        capacity[Card(1)] = {"tiles": 2}
        followed.pods.node_changed("n1")
        assert not followed.pods.in_trouble

    @pytest.mark.parametrize(("decided", "booked"), [("card0", "card0 on n1, held"), (None, "nothing")])
    def test_with_a_damaged_receipt_the_decision_counts_after_a_restart_too(
        self, decided: str | None, booked: str
    ) -> None:
        followed = self.followed()
        followed.pods.changed(gpu_pod(decided, annotations={"gas-allocated-cards": "card0,card0"}))
        assert followed.booked() == booked
        assert "its receipt is ignored" in followed.mismatches[0]

    def test_while_nothing_is_known_of_the_node_its_annotations_are_believed(self) -> None:
        followed = seen(gpu_pod("card77"))
        assert followed.booked() == "card77 on n1, held"
        assert not followed.mismatches


class TestMalformedTiles:
    """Readable cards count although the annotation of tiles beside them cannot be read."""

    def tiled(self, tiles: str, *, cards: str = "card1", receipt: str = "") -> Pod:
        written = {"gas-container-cards": cards, "gas-container-tiles": tiles, "gas-allocated-cards": receipt}
        return pod(container(i915=1, tiles=1), node="n1", uid="u1", annotations=written)

    # contract E9.9
    @pytest.mark.parametrize("tiles", ["card1:gt", "card0:gt0", "card1:gt0+gt1", "card1:gt0|card1:gt1"])
    def test_the_cards_are_booked_and_the_tiles_are_reported(self, tiles: str) -> None:
        followed = seen(self.tiled(tiles))
        assert followed.booked() == "card1 on n1, held"
        assert followed.ledger.usage("n1").amounts[Card(1)] == {"i915": 1, "tiles": 1}
        assert "its cards are booked, but not its tiles: annotation gas-container-tiles" in followed.mismatches[0]
        assert followed.rebuilt() == followed.books()

    def test_a_tile_of_a_card_without_tiles_is_reported(self) -> None:
        followed = Followed(NodeFacts(inventory=Inventory(capacity={Card(1): {}})))
        followed.pods.changed(self.tiled("card1:gt0"))
        assert "node n1 does not have 'gt0 of card1'" in followed.mismatches[0]

    # contract E9.9
    def test_tiles_are_booked_once_an_edit_makes_them_readable(self) -> None:
        followed = seen(self.tiled("card1:gt"))
        followed.pods.changed(self.tiled(""))  # removed, then written anew
        followed.pods.changed(self.tiled("card1:gt1"))
        assert followed.ledger.usage("n1").tiles == {Card(1): {1}}
        assert followed.rebuilt() == followed.books()
        assert not followed.pods.in_trouble
        followed.pods.changed(self.tiled("card1:gt0"))
        assert followed.ledger.usage("n1").tiles == {Card(1): {1}}, "a second edit is not believed"
        assert "its annotations were changed after binding" in followed.mismatches[-1]

    def test_readable_tiles_of_another_card_are_not_booked(self) -> None:
        followed = seen(self.tiled("card1:gt"))
        books = followed.books()
        followed.pods.changed(self.tiled("card0:gt1", cards="card0"))
        assert followed.books() == books
        assert "its annotations were changed after binding" in followed.mismatches[-1]

    def test_a_pod_whose_tiles_are_known_keeps_them_whatever_is_written_later(self) -> None:
        followed = seen(self.tiled("card1:gt0"), self.tiled("card1:gt"), self.tiled("card1:gt1"))
        assert followed.ledger.usage("n1").tiles == {Card(1): {0}}
        assert "its annotation of tiles was changed after binding and cannot be read" in followed.mismatches[0]

    def test_a_pod_that_is_gone_and_comes_back_is_booked_anew(self) -> None:
        followed = seen(self.tiled("card1:gt"))
        list_all(followed.pods, [])
        list_all(followed.pods, [self.tiled("card1:gt0")])
        followed.pods.changed(self.tiled("card1:gt1"))
        assert followed.ledger.usage("n1").tiles == {Card(1): {0}}

    # contract E9.1, E9.9
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["card1", "card0", "card9x", ""]),
                st.sampled_from(["card1:gt", "card1:gt0|", "card1:gt0", "card1:gt1", "card0:gt0", ""]),
                st.sampled_from(["", "", "card1", "card0", "card0,card0"]),
            ),
            max_size=8,
        )
    )
    def test_after_any_edits_a_pod_without_trouble_is_booked_as_after_a_restart(
        self, history: list[tuple[str, str, str]]
    ) -> None:
        followed = Followed()
        for cards, tiles, receipt in history:
            followed.pods.changed(self.tiled(tiles, cards=cards, receipt=receipt))
            assert followed.pods.in_trouble or followed.rebuilt() == followed.books()

    # contract E9.1, E9.9
    @given(st.lists(st.sampled_from(["card1:gt", "card0:gt0", "card1:gt0|", ""]), max_size=8))
    def test_after_any_damage_the_first_readable_tiles_count(self, damaged: list[str]) -> None:
        followed = Followed()
        for tiles in ["card1:gt", *damaged]:
            followed.pods.changed(self.tiled(tiles))
            assert followed.rebuilt() == followed.books()
        followed.pods.changed(self.tiled("card1:gt1"))
        fresh = Followed()
        fresh.pods.changed(self.tiled("card1:gt1"))
        assert followed.books() == followed.rebuilt() == fresh.books()
        assert not followed.pods.in_trouble

    def test_a_receipt_beside_them_is_believed(self) -> None:
        followed = seen(self.tiled("card1:gt", receipt="card0"))
        assert followed.booked() == "card0 on n1, held"


# What a vocabulary that is switched off has decided

DECIDED = {"gas-container-cards": "card1", "gas-ts": "1"}
OFF = "its cards stay booked, but its vocabulary koordinator is switched off; add it to --vocabularies"
UNREAD = "its cards count as full, because the vocabulary that it is written in is not among --vocabularies"
SHARE = sharing(core=30, memory="12Gi")["resources"]["requests"]


@pytest.mark.parametrize(
    ("requests", "annotations", "booked", "trouble"),
    [
        pytest.param(SHARE, DECIDED, {"memory.max": 12 * 2**30, "millicores": 300}, OFF, id="known"),
        pytest.param({GPU_MEM: 12}, DECIDED, {"millicores": 1000}, UNREAD, id="its-unit-is-a-flag"),
        pytest.param({"example.com/share": 3}, DECIDED, {"millicores": 1000}, UNREAD, id="unknown"),
        pytest.param({GPU_MEM: 12}, {"gas-ts": "1"}, None, None, id="no-cards"),
        pytest.param({GPU_MEM: 12}, {"gas-container-cards": "card1"}, None, None, id="not-by-gas"),
        pytest.param({"example.com/share": 0}, DECIDED, None, None, id="none-of-a-device"),
        pytest.param({"cpu": 1, "storage.kubernetes.io/x": 1}, DECIDED, None, None, id="no-devices"),
    ],
)
def test_a_pod_keeps_its_cards_whatever_vocabularies_are_on(
    requests: dict[str, Any], annotations: dict[str, str], booked: dict[str, int] | None, trouble: str | None
) -> None:
    bound = pod(requesting(requests), node="n1", uid="u1", annotations=annotations)
    card = {"memory.max": 16 * 2**30, "millicores": 1000}
    followed = seen(bound, facts=NodeFacts(inventory=Inventory(capacity={Card(0): card, Card(1): card})))
    booking = followed.ledger.booking("u1")
    assert (booking is not None) == (booked is not None) == followed.pods.needs(bound)
    if booking is not None and booked is not None:
        amounts = dict(booking.footprint.amounts[Card(1)])
        assert booked.items() <= amounts.items()
        assert not followed.pods.needs(pod(requesting(requests), uid="u2", annotations=annotations)), "it waits"
    assert followed.mismatches == ([f"default/pod: {trouble}"] if trouble else [])
    assert followed.rebuilt() == followed.books()
    followed.pods.deleted(bound)
    assert not followed.books()


def test_init_containers_of_unknown_words_hold_their_cards() -> None:
    share = requesting({"example.com/share": 3})
    cards = DECIDED | {"gas-init-container-cards": "card0"}
    bound = pod(
        share, init=(requesting({"example.com/share": 3}, name="init"),), node="n1", uid="u1", annotations=cards
    )
    assert seen(bound).booked() == "card0,card1 on n1, held"


def test_a_waiting_pod_whose_words_are_removed_may_get_them_again() -> None:
    words, without = waiting_pod(uid="u1"), pod(container(), uid="u1")
    followed = seen(words, without)
    assert not followed.pods.waiting
    followed.pods.changed(words)
    assert followed.pods.waiting


def test_no_pod_joins_a_card_of_unknown_words() -> None:
    bound = pod(requesting({"example.com/share": 3}), node="n1", uid="u1", annotations=DECIDED)
    card = {"i915": 10, "memory.max": 16 * 2**30}  # nothing of what the pod is booked with
    facts = NodeFacts(inventory=Inventory(capacity={Card(0): card, Card(1): card}))
    followed = seen(bound, facts=facts)
    for cards, fits in ((1, True), (2, False)):
        need = DEFAULT.need(pod(container(i915=cards)), NeedOptions())
        assert isinstance(place(need, facts.inventory, followed.ledger.usage("n1")), Choice) == fits


@pytest.mark.parametrize("cards", ["card0|card1", "nonsense"])
def test_cards_of_unknown_words_that_cannot_be_read_are_reported(cards: str) -> None:
    followed = seen(
        pod(
            requesting({"example.com/share": 3}),
            node="n1",
            uid="u1",
            annotations=DECIDED | {"gas-container-cards": cards},
        )
    )
    assert followed.booked() == "nothing"
    assert "annotation gas-container-cards: expected" in followed.mismatches[0]


# Other holders


def test_what_becomes_of_pods_never_touches_the_cards_of_other_holders() -> None:
    followed = seen(gpu_pod("card0"))
    held = Footprint(amounts={Card(1): sorted_amounts({"i915": 1})}, containers={Card(1): 1})
    for number, hold in enumerate((followed.ledger.hold, followed.ledger.reserve)):
        hold(f"c{number}", "default/claim", "n1", held, kind="claim")
    list_all(followed.pods, [])
    assert {uid for uid, _ in followed.ledger.bookings()} == {"c0", "c1"}
    assert not followed.vanished
    assert not differences(followed.pods, followed.ledger)
