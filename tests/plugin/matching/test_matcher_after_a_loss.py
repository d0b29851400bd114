"""Matching after the plugin has missed something: a restart, a wrong guess, a lost reply."""

from __future__ import annotations

import pytest

from gas.plugin.kubelet.pod_resources import Listing
from gas.values.cards import Card
from tests.builders import container
from tests.plugin.called_by_hand import Node, named
from tests.plugin.pods_for_plugin import I915, decided, ids, node_pod, slots

ONE = container("c", i915=1)
TWO = node_pod(container("x", i915=1), container("y", i915=1), name="two", annotations=decided("card0|card1", ts=5))
OTHER = node_pod(ONE, name="other", annotations=decided("card2", ts=1))

A_AND_B = (
    node_pod(ONE, name="a", annotations=decided("card0", ts=1)),
    node_pod(ONE, name="b", annotations=decided("card1", ts=2)),
)


def test_a_later_container_is_found_by_what_it_wants() -> None:
    """The plugin was restarted in the middle of the pod, and does not know how far kubelet had come."""
    node = Node(node_pod(ONE, container("d", i915=2), name="a", annotations=decided("card0|card1,card2")))

    assert named(node.prefer(2, slots(4) - ids("card0-0")).match) == ("a", "d", "guessed")


def test_of_equal_containers_the_first_matches() -> None:
    two = container("d", i915=2)
    node = Node(node_pod(ONE, two, container("e", i915=2), annotations=decided("card0|card1,card2|card1,card2")))

    assert named(node.prefer(2, slots(4, 2) - ids("card0-0")).match) == ("pod", "d", "guessed")


def test_a_pod_that_was_guessed_wrongly_is_found_again() -> None:
    node = Node(*A_AND_B)
    node.prefer(1, slots(2))
    node.allocate("card0-0")
    node.pods.changed(node_pod(ONE, name="b", uid=A_AND_B[1].uid, started=True))

    assert named(node.prefer(1, ids("card1-0")).match) == ("a", "c", "guessed")


def test_a_listing_shows_that_a_guess_was_wrong() -> None:
    node = Node(*A_AND_B)
    node.prefer(1, slots(2))
    node.allocate("card0-0")
    listing: Listing = {"default/a": {"c": {}}, "default/b": {"c": {}}}
    assert named(node.prefer(1, slots(2), listing=listing).match) == ("a", "c", "guessed")


def test_kubelet_forgot_its_choice_when_it_was_killed() -> None:
    node = Node(node_pod(ONE, name="a", annotations=decided("card0")))
    node.prefer(1, slots(2))
    node.allocate("card0-0")
    node.matcher.kubelet_restarted()
    assert node.prefer(1, slots(2)).match.target is None

    node.matcher.learn({"default/a": {"c": {}}}, asked=node.now + 5)

    assert named(node.prefer(1, slots(2)).match) == ("a", "c", "alone")


def test_other_ids_in_the_listing_replace_the_recorded_ones() -> None:
    both = node_pod(ONE, container("d", i915=1), name="a", annotations=decided("card0|card1"))
    node = Node(both)
    node.allocate("card0-0")
    node.allocate("card1-0")

    node.matcher.learn({"default/a": {"c": {I915: ids("card1-0")}, "d": {}}}, asked=node.now)

    assert named(node.prefer(1, ids("card0-0", "card2-0")).match) == ("a", "d", "known")


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        pytest.param(None, None, id="not-without-a-listing"),
        pytest.param({"default/a": {"c": {}}}, ("a", "c", "known"), id="when-the-listing-has-no-other-pod"),
        pytest.param({"default/a": {"c": {}}, "default/b": {"c": {}}}, None, id="not-beside-an-unwatched-pod"),
    ],
)
def test_a_pod_with_a_status_is_asked_for_again(listing: Listing | None, expected: tuple[str, str, str] | None) -> None:
    """As when kubelet lost its checkpoint."""
    node = Node(node_pod(ONE, name="a", annotations=decided("card0"), phase="Running"))

    assert named(node.prefer(1, slots(2), listing=listing).match) == expected


def test_of_pods_with_a_status_the_one_that_has_no_devices_is_asked_for_again() -> None:
    node = Node(
        *(node_pod(ONE, name=name, annotations=decided(card, ts=ts), phase="Running")
          for name, card, ts in (("has", "card0", 1), ("lost", "card1", 2)))
    )  # fmt: skip
    listing: Listing = {"default/has": {"c": {I915: ids("card0-0")}}, "default/lost": {"c": {}}}

    assert named(node.prefer(1, ids("card0-1", "card1-0"), listing=listing).match) == ("lost", "c", "known")


def test_a_listing_confirms_a_pod_that_began_as_a_guess() -> None:
    both = (container("x", i915=1), container("y", i915=1))
    node = Node(*(node_pod(*both, name=name, annotations=decided("card0|card1")) for name in "ab"))
    node.prefer(1, slots(2))
    node.allocate("card0-0")
    listing: Listing = {"default/a": {"x": {I915: ids("card0-0")}, "y": {}}}

    assert named(node.prefer(1, ids("card1-0")).match) == ("a", "y", "guessed")
    assert named(node.prefer(1, ids("card1-0"), listing=listing).match) == ("a", "y", "known")


def test_the_cards_of_a_guessed_init_container_are_certain_once_a_listing_confirms_the_pod() -> None:
    pods = [
        node_pod(
            ONE, uid=uid, name=uid, init=(container("i", i915=2),), annotations=decided("card0", init="card0,card1")
        )
        for uid in ("u", "v")
    ]
    node = Node(*pods)
    node.prefer(2, slots(2, 2))
    node.allocate("card0-0", "card1-0")
    node.allocate("card0-0")
    assert node.matcher.init_container_cards("u") == {}

    node.matcher.learn({"default/u": {"c": {I915: ids("card0-0")}}}, asked=node.now)

    assert node.matcher.init_container_cards("u") == {0: {Card(0), Card(1)}}


def test_a_listing_confirms_a_pod_that_has_no_devices_yet() -> None:
    init, annotations = (container("i", i915=1),), decided("card0,card1", init="card0")
    two = container("c", i915=2)
    node = Node(*(node_pod(two, name=name, init=init, annotations=annotations) for name in "ab"))
    node.prefer(1, slots(2))
    node.allocate("card0-0")

    assert named(node.prefer(2, slots(2), ids("card0-0")).match) == ("a", "c", "guessed")
    preference = node.prefer(2, slots(2), ids("card0-0"), listing={"default/a": {"c": {}}})
    assert named(preference.match) == ("a", "c", "known")


def test_cards_of_a_refused_pod_are_not_spared() -> None:
    node = Node(TWO, OTHER)
    listing: Listing = {"default/two": {"x": {}, "y": {}}}
    node.prefer(1, slots(3), listing=listing)
    node.allocate("card0-0")
    node.prefer(1, slots(3), listing={"default/other": {"c": {}}})
    node.allocate("card2-0")
    node.pods.changed(node_pod(container("c", i915=2), name="none"))

    assert node.prefer(2, slots(2)).spared == frozenset()


def test_an_abandoned_pod_may_go_on_after_kubelets_restart() -> None:
    node = Node(TWO)
    node.allocate("card0-0")
    node.pods.changed(OTHER)
    node.prefer(1, slots(3))
    node.allocate("card2-0")
    node.matcher.kubelet_restarted()

    assert named(node.prefer(1, ids("card1-0")).match) == ("two", "y", "alone")
