"""Whose devices kubelet asks for: the named cases. tests/plugin/test_matching_histories.py has the rest."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.cards import Card
from gas.placement.choice import Given
from gas.plugin.allocation_policy import PreferredRequest
from gas.plugin.confidence import Confidence
from gas.plugin.listing import NO_IDS, Ids, Listing
from gas.plugin.match import Match, Wish
from gas.plugin.matching import Matching
from gas.plugin.pod_objects import NodePod
from gas.plugin.waiting_pods import PodsOfNode
from tests.builders import container
from tests.plugin.model_kubelet import Handed, Kubelet, Plugin
from tests.plugin.pods_for_plugin import decided, ids, node_pod, slots

ONE = container("c", i915=1)


class Node:
    """A node's plugin, without a kubelet: calls are made by hand."""

    def __init__(self, *pods: NodePod) -> None:
        self.pods = PodsOfNode()
        self.matching = Matching(self.pods)
        self.now = 100.0
        self.pods.replaced(list(pods))

    def prefer(
        self,
        size: int,
        available: Ids,
        must_include: Ids = NO_IDS,
        listing: Listing | None = None,
        resource: str = "i915",
    ) -> Wish:
        offered = tuple(sorted(available | must_include))
        request = PreferredRequest(resource=resource, offered=offered, must_include=must_include, size=size)
        return self.matching.prefer(request, listing=listing)

    def allocate(self, *texts: str, resource: str = "i915") -> Match | None:
        self.now += 10
        return self.matching.allocate(resource, ids(*texts), now=self.now)


def named(match: Match | None) -> tuple[str, str, str] | None:
    """(pod, container, confidence)"""
    return (match.pod.written.metadata.name, match.want.container, str(match.confidence)) if match else None


class TestPrefer:
    def test_the_cards_decided_are_wished_for(self) -> None:
        node = Node(node_pod(container("c", i915=2), name="a", annotations=decided("card3,card1")))

        wish = node.prefer(2, slots(4))

        assert wish.ids == tuple(sorted(ids("card1-0", "card3-0"), reverse=True))
        assert named(wish.match) == ("a", "c", "alone")
        assert wish.match is not None
        assert wish.match.given == Given((Card(3), Card(1)))

    def test_any_free_id_of_a_shared_card_will_do(self) -> None:
        node = Node(node_pod(ONE, annotations=decided("card1")))

        assert node.prefer(1, slots(2, 3) - ids("card1-0")).ids == tuple(ids("card1-1"))

    def test_what_kubelet_insists_on_comes_first_and_counts_for_its_card(self) -> None:
        node = Node(node_pod(container("c", i915=2), init=(container("i", i915=1),),
                             annotations=decided("card0,card1", init="card0")))  # fmt: skip
        node.prefer(1, slots(2, 2))
        node.allocate("card0-1")

        assert node.prefer(2, slots(2, 2), ids("card0-1")).ids == (*ids("card0-1"), *ids("card1-0"))

    def test_a_card_that_is_not_free_leaves_its_place_to_the_policy(self) -> None:
        node = Node(node_pod(container("c", i915=2), annotations=decided("card0,card1")))

        wish = node.prefer(2, ids("card1-0", "card2-0"))

        assert wish.ids == tuple(ids("card1-0"))
        assert wish.confidence is Confidence.GUESSED

    def test_without_a_decision_there_is_no_wish_but_the_pod_is_known(self) -> None:
        wish = Node(node_pod(ONE, name="a")).prefer(1, slots(2))

        assert wish.ids == ()
        assert named(wish.match) == ("a", "c", "alone")

    def test_a_pod_without_decision_spares_the_cards_of_those_that_wait(self) -> None:
        both = container("c", i915=2)
        node = Node(
            node_pod(ONE, name="decided", annotations=decided("card0")),
            node_pod(both, name="none"),
            node_pod(ONE, name="there-already", annotations=decided("card1"), started=True),
        )

        assert node.prefer(2, slots(3, 2)).spared == ids("card0-0")

    def test_a_pods_own_later_containers_are_spared_too(self) -> None:
        later = node_pod(
            container("a", i915=1), container("b", i915=1), annotations=decided("card9|card0"), name="later"
        )

        assert Node(later).prefer(1, slots(2)).spared == ids("card0-0")

    def test_nothing_is_wished_for_a_pod_of_the_other_resource(self) -> None:
        wish = Node(node_pod(ONE, annotations=decided("card0"))).prefer(1, slots(2), resource="xe")

        assert wish.match is None
        assert wish.ids == ()
        assert wish.confidence is Confidence.GUESSED

    def test_the_same_question_twice_has_the_same_answer(self) -> None:
        node = Node(node_pod(ONE, annotations=decided("card0")), node_pod(ONE, annotations=decided("card1")))

        assert node.prefer(1, slots(2)) == node.prefer(1, slots(2))


WAITING = [
    pytest.param(
        [node_pod(ONE, name="a-late", annotations=decided("card0", ts=10)),
         node_pod(ONE, name="b-early", annotations=decided("card1", ts=9))],
        ("b-early", "c", "guessed"),
        id="the-smallest-gas-ts-as-a-number",
    ),
    pytest.param(
        [node_pod(ONE, name="taken", annotations=decided("card7", ts=1)),
         node_pod(ONE, name="free", annotations=decided("card1", ts=2))],
        ("free", "c", "guessed"),
        id="a-pod-whose-card-is-not-free-is-passed-over",
    ),
    pytest.param(
        [node_pod(ONE, name="none", created="2020-01-01T00:00:00Z"),
         node_pod(ONE, name="decided", annotations=decided("card1", ts=2))],
        ("decided", "c", "guessed"),
        id="pods-without-gas-ts-are-passed-over-while-one-with-it-waits",
    ),
    pytest.param(
        [node_pod(ONE, name="none"), node_pod(ONE, name="taken", annotations=decided("card7", ts=2))],
        ("none", "c", "guessed"),
        id="but-not-while-its-card-is-not-free",
    ),
    pytest.param(
        [node_pod(ONE, name="a-younger", created="2026-01-01T00:00:02Z"),
         node_pod(ONE, name="b-older", created="2026-01-01T00:00:01Z")],
        ("b-older", "c", "guessed"),
        id="kubelet-takes-the-older-of-those-it-hears-of-at-once",
    ),
    pytest.param(
        [node_pod(container("c", i915=2), name="two", annotations=decided("card0,card1", ts=1)),
         node_pod(ONE, name="one", annotations=decided("card1", ts=2))],
        ("one", "c", "alone"),
        id="the-number-of-ids-must-be-right",
    ),
    pytest.param(
        [node_pod(container("c", xe=1), name="xe", annotations=decided("card0", ts=1)),
         node_pod(ONE, name="i915", annotations=decided("card1", ts=2))],
        ("i915", "c", "alone"),
        id="the-resource-must-be-right",
    ),
    pytest.param(
        [node_pod(ONE, name="running", annotations=decided("card0", ts=1), phase="Running"),
         node_pod(ONE, name="status", annotations=decided("card0", ts=1), started=True),
         node_pod(ONE, name="failed", annotations=decided("card0", ts=1), phase="Failed"),
         node_pod(ONE, name="waiting", annotations=decided("card1", ts=2))],
        ("waiting", "c", "alone"),
        id="kubelet-is-done-with-pods-that-have-a-status",
    ),
    pytest.param(
        [node_pod(ONE, name="damaged", annotations=decided("card0|card1", ts=1)),
         node_pod(ONE, name="decided", annotations=decided("card1", ts=2))],
        ("decided", "c", "guessed"),
        id="a-damaged-decision-is-none",
    ),
    pytest.param(
        [node_pod(ONE, name="a-untimed", annotations=decided("card0", ts="")),
         node_pod(ONE, name="b-timed", annotations=decided("card1", ts=2))],
        ("b-timed", "c", "guessed"),
        id="also-before-a-decision-without-it",
    ),
    pytest.param([], None, id="nobody-waits"),
]  # fmt: skip


@pytest.mark.parametrize(("pods", "expected"), WAITING)
def test_whose_first_container_it_is_without_a_listing(
    pods: list[NodePod], expected: tuple[str, str, str] | None
) -> None:
    assert named(Node(*pods).prefer(1, slots(3)).match) == expected


class TestListing:
    """Taken while kubelet waits, it makes a guess certain."""

    PODS = (
        node_pod(ONE, name="a", annotations=decided("card0", ts=1)),
        node_pod(ONE, name="b", annotations=decided("card1", ts=2)),
    )

    def test_the_pod_that_kubelet_has_taken_up_is_it(self) -> None:
        node = Node(*self.PODS, node_pod(container("x"), name="other", namespace="kube-system"))

        wish = node.prefer(1, slots(2), listing={"default/b": {"c": {}}, "kube-system/other": {"x": {}}})

        assert named(wish.match) == ("b", "c", "known")
        assert wish.ids == tuple(ids("card1-0"))

    def test_a_pod_alone_is_confirmed_by_its_own_entry(self) -> None:
        node = Node(self.PODS[0])
        assert node.prefer(1, slots(2)).confidence is Confidence.ALONE

        assert node.prefer(1, slots(2), listing={"default/a": {"c": {}}}).confidence is Confidence.KNOWN

    def test_a_pod_that_the_watch_has_not_shown_is_waited_for(self) -> None:
        node = Node(self.PODS[0])
        listing: Listing = {"default/b": {"c": {}}}

        assert node.prefer(1, slots(2), listing=listing).match is None
        assert node.matching.strangers(listing) == {"default/b"}

        node.pods.changed(self.PODS[1])
        assert node.matching.strangers(listing) == frozenset()
        assert named(node.prefer(1, slots(2), listing=listing).match) == ("b", "c", "known")

    def test_while_it_has_a_stranger_a_pod_alone_may_be_the_wrong_one(self) -> None:
        listing: Listing = {"default/a": {"c": {}}, "default/unseen": {"c": {}}}

        assert named(Node(self.PODS[0]).prefer(1, slots(2), listing=listing).match) == ("a", "c", "guessed")

    def test_devices_of_init_containers_are_not_in_the_entry_of_a_pod(self) -> None:
        init_only = node_pod(container("c"), init=(container("i", i915=1),))

        assert not Node(init_only).prefer(1, slots(1)).one_entry_suffices
        assert Node(self.PODS[0]).prefer(1, slots(1)).one_entry_suffices
        assert not Node(*self.PODS).prefer(1, slots(2)).one_entry_suffices

    def test_an_empty_one_says_nothing(self) -> None:
        assert named(Node(*self.PODS).prefer(1, slots(2), listing={}).match) == ("a", "c", "guessed")

    def test_a_pod_that_has_its_devices_is_not_it(self) -> None:
        """As after a restart of the plugin: pods that still pull their images have no status yet."""
        node = Node(*self.PODS)
        node.matching.learn({"default/a": {"c": {"i915": ids("card0-0")}}}, asked=node.now)

        assert named(node.prefer(1, ids("card1-0")).match) == ("b", "c", "alone")

    def test_a_wrong_guess_is_forgotten(self) -> None:
        node = Node(*self.PODS)
        node.prefer(1, slots(2))
        assert named(node.allocate("card0-0")) == ("a", "c", "guessed")

        node.matching.learn({"default/b": {"c": {"i915": ids("card0-0")}}, "default/a": {"c": {}}}, asked=node.now + 5)

        assert named(node.prefer(1, ids("card1-0")).match) == ("a", "c", "guessed")  # its card is not free any more

    def test_one_that_was_asked_for_too_early_does_not_deny_an_answer(self) -> None:
        node = Node(*self.PODS)
        node.prefer(1, slots(2))
        node.allocate("card0-0")

        node.matching.learn({"default/a": {"c": {}}}, asked=node.now + 0.1)

        assert named(node.prefer(1, ids("card1-0")).match) == ("b", "c", "alone")


class TestInTheMiddleOfAPod:
    TWO = node_pod(container("x", i915=1), container("y", i915=1), name="two", annotations=decided("card0|card1", ts=5))
    OTHER = node_pod(ONE, name="other", annotations=decided("card2", ts=1))

    def test_its_next_container_comes_before_other_pods(self) -> None:
        node = Node(self.TWO)
        node.prefer(1, slots(3), listing={"default/two": {"x": {}, "y": {}}})
        node.allocate("card0-0")
        node.pods.changed(self.OTHER)

        wish = node.prefer(1, slots(3) - ids("card0-0"))

        assert named(wish.match) == ("two", "y", "known")
        assert wish.ids == tuple(ids("card1-0"))

    def test_when_its_ids_are_free_again_it_was_refused(self) -> None:
        node = Node(self.TWO)
        node.prefer(1, slots(3))
        node.allocate("card0-0")
        node.pods.changed(self.OTHER)

        assert named(node.prefer(1, slots(3)).match) == ("other", "c", "alone")

    def test_a_refused_pod_does_not_go_on_after_another(self) -> None:
        node = Node(self.TWO)
        node.prefer(1, slots(3))
        node.allocate("card0-0")
        node.pods.changed(self.OTHER)
        node.prefer(1, slots(3))
        node.allocate("card2-0")

        assert node.prefer(1, ids("card1-0")).confidence is Confidence.GUESSED

    def test_it_goes_on_though_it_was_deleted_meanwhile(self) -> None:
        node = Node(self.TWO)
        node.prefer(1, slots(3), listing={"default/two": {"x": {}, "y": {}}})
        node.pods.deleted(self.TWO)
        assert named(node.allocate("card0-0")) == ("two", "x", "known")
        node.pods.changed(self.OTHER)

        assert named(node.prefer(1, slots(3) - ids("card0-0")).match) == ("two", "y", "known")

    def test_after_a_restart_of_kubelet_others_may_come_first(self) -> None:
        node = Node(self.TWO)
        node.prefer(1, slots(3))
        node.allocate("card0-0")
        node.matching.kubelet_restarted()
        node.pods.changed(self.OTHER)
        free = slots(3) - ids("card0-0")

        assert named(node.prefer(1, free).match) == ("other", "c", "guessed")
        assert named(node.allocate("card2-0")) == ("other", "c", "guessed")
        assert named(node.prefer(1, free - ids("card2-0")).match) == ("two", "y", "alone")

    def test_it_is_said_to_be_busy(self) -> None:
        node = Node(self.TWO)
        uid = self.TWO.uid
        busy = [node.matching.is_busy_with(uid)]
        for card in ("card0-0", "card1-0"):
            node.allocate(card)
            busy.append(node.matching.is_busy_with(uid))

        assert busy == [False, True, False]


class TestInitContainers:
    """What an ended init container leaves is given on without a question."""

    def test_an_app_container_that_takes_it_over_is_known(self) -> None:
        pod = node_pod(container("a", i915=1), container("b", i915=1), init=(container("i", i915=1),),
                       annotations=decided("card2|card1", init="card2"))  # fmt: skip
        node = Node(pod)
        node.prefer(1, slots(3))
        matches = [node.allocate("card2-0"), node.allocate("card2-0")]
        matches.append(node.prefer(1, ids("card0-0", "card1-0")).match)

        assert [match.want.container for match in matches if match] == ["i", "a", "b"]

    def test_a_sidecar_keeps_what_it_has(self) -> None:
        pod = node_pod(container("a", i915=1), init=(container("s", i915=1, always=True),),
                       annotations=decided("card1", init="card2"))  # fmt: skip
        node = Node(pod)
        node.prefer(1, slots(3))
        node.allocate("card2-0")

        wish = node.prefer(1, slots(3) - ids("card2-0"))

        assert wish.match is not None
        assert wish.match.want.container == "a"
        assert wish.ids == tuple(ids("card1-0"))

    def test_only_we_know_what_they_had(self) -> None:
        pod = node_pod(container("a", i915=1), uid="u", init=(container("none"), container("i", i915=2)),
                       annotations=decided("card1", init="|card1,card2"))  # fmt: skip
        node = Node(pod)
        assert node.matching.given_to_init_containers("u") == {}
        node.prefer(2, slots(3))
        node.allocate("card1-0", "card2-0")

        assert node.matching.given_to_init_containers("u") == {1: {Card(1), Card(2)}}

    def test_a_guess_says_nothing_about_them(self) -> None:
        pods = [node_pod(container("a"), uid=uid, name=uid, init=(container("i", i915=1),)) for uid in ("u", "v")]
        node = Node(*pods)
        node.prefer(1, slots(3))
        node.allocate("card1-0")

        assert node.matching.given_to_init_containers("u") == {}

    def test_after_a_restart_of_the_plugin_the_listing_tells_where_kubelet_is(self) -> None:
        """The init container's ids are nowhere to be read; the sidecar's and those of the first app container are."""
        pod = node_pod(
            container("a", i915=1), container("b", i915=1),
            init=(container("i", i915=1), container("s", i915=1, always=True)),
            annotations=decided("card1|card0", init="card2|card2"),
        )  # fmt: skip
        node = Node(pod)
        listing: Listing = {"default/pod": {"s": {"i915": ids("card2-0")}, "a": {"i915": ids("card1-0")}, "b": {}}}
        node.matching.learn(listing, asked=node.now)

        wish = node.prefer(1, ids("card0-0"))

        assert named(wish.match) == ("pod", "b", "alone")
        assert wish.ids == tuple(ids("card0-0"))


class TestSomethingWasMissed:
    def test_a_later_container_is_found_by_what_it_wants(self) -> None:
        """The plugin was restarted in the middle of the pod, and nobody tells how far it had come."""
        node = Node(node_pod(ONE, container("d", i915=2), name="a", annotations=decided("card0|card1,card2")))

        assert named(node.prefer(2, slots(4) - ids("card0-0")).match) == ("a", "d", "guessed")

    def test_of_equal_containers_the_first_is_it(self) -> None:
        two = container("d", i915=2)
        node = Node(node_pod(ONE, two, container("e", i915=2), annotations=decided("card0|card1,card2|card1,card2")))

        assert named(node.prefer(2, slots(4, 2) - ids("card0-0")).match) == ("pod", "d", "guessed")

    def test_a_pod_that_was_guessed_wrongly_is_found_again(self) -> None:
        node = Node(*TestListing.PODS)
        node.prefer(1, slots(2))
        node.allocate("card0-0")
        node.pods.changed(node_pod(ONE, name="b", uid=TestListing.PODS[1].uid, started=True))

        assert named(node.prefer(1, ids("card1-0")).match) == ("a", "c", "guessed")

    def test_kubelet_forgot_its_choice_when_it_was_killed(self) -> None:
        node = Node(node_pod(ONE, name="a", annotations=decided("card0")))
        node.prefer(1, slots(2))
        node.allocate("card0-0")
        node.matching.kubelet_restarted()
        assert node.prefer(1, slots(2)).match is None

        node.matching.learn({"default/a": {"c": {}}}, asked=node.now + 5)

        assert named(node.prefer(1, slots(2)).match) == ("a", "c", "alone")

    def test_other_ids_in_the_listing_are_believed(self) -> None:
        both = node_pod(ONE, container("d", i915=1), name="a", annotations=decided("card0|card1"))
        node = Node(both)
        node.allocate("card0-0")
        node.allocate("card1-0")

        node.matching.learn({"default/a": {"c": {"i915": ids("card1-0")}, "d": {}}}, asked=node.now)

        assert named(node.prefer(1, ids("card0-0", "card2-0")).match) == ("a", "d", "known")

    @pytest.mark.parametrize(
        ("listing", "expected"),
        [
            pytest.param(None, None, id="not-without-a-listing"),
            pytest.param({"default/a": {"c": {}}}, ("a", "c", "known"), id="when-the-listing-has-nobody-else"),
            pytest.param({"default/a": {"c": {}}, "default/b": {"c": {}}}, None, id="not-beside-a-stranger"),
        ],
    )
    def test_a_pod_with_a_status_is_asked_for_again(
        self, listing: Listing | None, expected: tuple[str, str, str] | None
    ) -> None:
        """As when kubelet lost its checkpoint."""
        node = Node(node_pod(ONE, name="a", annotations=decided("card0"), phase="Running"))

        assert named(node.prefer(1, slots(2), listing=listing).match) == expected

    def test_a_listing_makes_sure_of_a_pod_that_was_begun_as_a_guess(self) -> None:
        both = (container("x", i915=1), container("y", i915=1))
        node = Node(*(node_pod(*both, name=name, annotations=decided("card0|card1")) for name in "ab"))
        node.prefer(1, slots(2))
        node.allocate("card0-0")
        listing: Listing = {"default/a": {"x": {"i915": ids("card0-0")}, "y": {}}}

        assert named(node.prefer(1, ids("card1-0")).match) == ("a", "y", "guessed")
        assert named(node.prefer(1, ids("card1-0"), listing=listing).match) == ("a", "y", "known")

    def test_what_a_guessed_init_container_had_is_told_once_a_listing_confirms_the_pod(self) -> None:
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
        assert node.matching.given_to_init_containers("u") == {}

        node.matching.learn({"default/u": {"c": {"i915": ids("card0-0")}}}, asked=node.now)

        assert node.matching.given_to_init_containers("u") == {0: {Card(0), Card(1)}}

    def test_a_pod_that_kubelet_turned_from_may_go_on_after_its_restart(self) -> None:
        node = Node(TestInTheMiddleOfAPod.TWO)
        node.allocate("card0-0")
        node.pods.changed(TestInTheMiddleOfAPod.OTHER)
        node.prefer(1, slots(3))
        node.allocate("card2-0")
        assert node.prefer(1, ids("card1-0")).spared == frozenset()
        node.matching.kubelet_restarted()

        assert named(node.prefer(1, ids("card1-0")).match) == ("two", "y", "alone")


class TestPool:
    """What kubelet insists on tells whose init containers have ended."""

    OTHER = node_pod(container("c", i915=2), name="other", annotations=decided("card2,card3", ts=1))
    FIRST = node_pod(container("a", i915=2), name="first", init=(container("i", i915=1),),
                     annotations=decided("card0,card1", init="card0", ts=5))  # fmt: skip

    def begun(self) -> Node:
        node = Node(self.FIRST)
        node.prefer(1, slots(4))
        node.allocate("card0-0")
        node.pods.changed(self.OTHER)
        return node

    def test_without_the_pool_it_is_another_pod(self) -> None:
        assert named(self.begun().prefer(2, slots(4) - ids("card0-0")).match) == ("other", "c", "alone")

    def test_with_it_it_is_this_one_even_after_a_restart_of_kubelet(self) -> None:
        node = self.begun()
        node.matching.kubelet_restarted()

        wish = node.prefer(2, slots(4), ids("card0-0"))

        assert named(wish.match) == ("first", "a", "guessed")
        assert wish.ids == (*ids("card0-0"), *ids("card1-0"))

    def test_an_allocate_of_other_ids_is_not_for_its_next_container(self) -> None:
        node = Node(node_pod(ONE, name="a", init=(container("i", i915=1),), annotations=decided("card0", init="card0")))
        node.prefer(1, slots(4))
        node.allocate("card0-0")
        node.pods.changed(node_pod(ONE, name="b", annotations=decided("card1")))

        assert named(node.allocate("card1-0")) == ("b", "c", "guessed")

    def test_a_pool_that_nobody_knows_fits_every_question(self) -> None:
        pod = node_pod(
            container("a", i915=2), init=(container("i", i915=2), container("s", i915=1, always=True)),
            annotations=decided("card1,card2", init="card0,card1|card0"),
        )  # fmt: skip
        node = Node(pod)
        node.matching.learn({"default/pod": {"s": {"i915": ids("card0-0")}, "a": {}}}, asked=node.now)

        assert named(node.prefer(2, slots(3) - ids("card0-0"), ids("card1-0")).match) == ("pod", "a", "alone")

    def test_cards_that_kubelet_insists_on_speak_for_the_pod_that_was_promised_them(self) -> None:
        two = container("c", i915=2)
        node = Node(
            node_pod(two, name="a", annotations=decided("card1,card2", ts=1)),
            node_pod(two, name="b", annotations=decided("card0,card1", ts=2)),
        )

        assert named(node.prefer(2, slots(3), ids("card0-0")).match) == ("b", "c", "guessed")


class TestTopologyHints:
    """Kubelet's topology manager may choose before it asks."""

    def test_an_allocate_without_a_question_is_matched(self) -> None:
        node = Node(node_pod(ONE, name="a", annotations=decided("card0")))

        assert named(node.allocate("card1-0")) == ("a", "c", "guessed")

    def test_ids_that_kubelet_insists_on_beside_the_pool_are_kept(self) -> None:
        node = Node(node_pod(container("c", i915=2), name="a", annotations=decided("card0,card1")))

        wish = node.prefer(2, slots(3), ids("card2-0"))

        assert wish.ids == (*ids("card2-0"), *ids("card0-0"))
        assert named(wish.match) == ("a", "c", "guessed")


def test_an_allocate_that_does_not_follow_its_question_is_looked_at_anew() -> None:
    node = Node(
        node_pod(ONE, name="one", annotations=decided("card0")),
        node_pod(container("c", i915=2), name="two", annotations=decided("card1,card2")),
    )
    node.prefer(1, slots(3))

    assert named(node.allocate("card1-0", "card2-0")) == ("two", "c", "guessed")


def test_kubelets_own_choice_is_matched_all_the_same() -> None:
    """It may take other ids than it was answered: whose they are is known from the question."""
    node = Node(node_pod(ONE, name="a", annotations=decided("card0")))
    node.prefer(1, slots(3))

    match = node.allocate("card2-0")

    assert named(match) == ("a", "c", "alone")
    assert match is not None
    assert match.given == Given((Card(0),))


def test_a_pod_that_is_gone_is_forgotten() -> None:
    pod = node_pod(ONE, annotations=decided("card0"))
    node = Node(pod)
    node.prefer(1, slots(1))
    node.allocate("card0-0")
    node.pods.deleted(pod)
    assert node.prefer(1, slots(1)).match is None

    node.pods.changed(pod)  # as in a cluster that was restored from a backup

    assert named(node.prefer(1, slots(1)).match) == ("pod", "c", "alone")


SHAPES: list[dict[str, Any]] = [
    {"containers": [1], "init": []},
    {"containers": [2], "init": []},
    {"containers": [1, 1], "init": [3]},
    {"containers": [4], "init": [4]},
]


@given(st.permutations(range(4)), st.permutations(range(4)), st.randoms(use_true_random=False))
def test_pods_of_different_sizes_get_their_cards_in_any_order_without_a_listing(
    kubelets_order: list[int], ts: list[int], chance: random.Random
) -> None:
    cards = iter(range(10))
    pods = []
    for number, shape in enumerate(SHAPES):
        init = [[f"card{next(cards)}" for _ in range(size)] for size in shape["init"]]
        if number == 2:
            apps = [[init[0][0]], [init[0][1]]]
        elif number == 3:
            apps = init
        else:
            apps = [[f"card{next(cards)}" for _ in range(size)] for size in shape["containers"]]
        pods.append(
            node_pod(
                *(container(f"c{at}", i915=size) for at, size in enumerate(shape["containers"])),
                name=f"pod{number}",
                init=tuple(container(f"i{at}", i915=size) for at, size in enumerate(shape["init"])),
                annotations=decided("|".join(map(",".join, apps)), init="|".join(map(",".join, init)), ts=ts[number]),
            )
        )
    kubelet = Kubelet({"i915": slots(10)}, chance)
    plugin = Plugin(PodsOfNode(), None)
    plugin.pods.replaced(pods)

    handed: list[Handed] = []
    for number in kubelets_order:
        handed += [each for each in kubelet.admit(pods[number], plugin) if each is not None]

    assert len(handed) == 8 - 1
    for each in handed:
        assert each.match is not None
        assert (each.match.pod.uid, each.match.want) == (each.pod.uid, each.want)
        if not each.by_chance:
            assert each.match.given is not None
            assert {id_.card for id_ in each.ids} == set(each.match.given.cards)
