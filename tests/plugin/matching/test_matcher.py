"""Matching the first container of a pod. Whole histories are in test_matcher_histories."""

from __future__ import annotations

import pytest

from gas.objects.stored import Pod
from gas.placement.choice import ContainerChoice
from gas.plugin.devices.device_ids import AllocateRequest
from gas.plugin.kubelet.pod_resources import Listing
from gas.plugin.matching.gpu_pods import GpuPods
from gas.plugin.matching.matcher import Matcher
from gas.plugin.matching.progress import Confidence
from gas.values.cards import Card
from gas.vocabularies.known import DEFAULT
from tests.builders import container
from tests.plugin.called_by_hand import Node, named
from tests.plugin.pods_for_plugin import I915, XE, decided, ids, node_pod, question, slots

ONE = container("c", i915=1)


class TestPrefer:
    def test_the_decided_cards_are_preferred(self) -> None:
        node = Node(node_pod(container("c", i915=2), name="a", annotations=decided("card3,card1")))

        preference = node.prefer(2, slots(4))

        assert preference.ids == tuple(sorted(ids("card1-0", "card3-0"), reverse=True))
        assert named(preference.match) == ("a", "c", "alone")
        assert preference.match.target is not None
        assert preference.match.target.decided == ContainerChoice((Card(3), Card(1)))

    def test_a_card_that_is_not_free_leaves_its_place_to_the_policy(self) -> None:
        node = Node(node_pod(container("c", i915=2), annotations=decided("card0,card1")))

        preference = node.prefer(2, ids("card1-0", "card2-0"))

        assert preference.ids == tuple(ids("card1-0"))
        assert preference.match.confidence is Confidence.GUESSED

    def test_without_a_decision_no_card_is_preferred_but_the_pod_is_known(self) -> None:
        preference = Node(node_pod(ONE, name="a")).prefer(1, slots(2))

        assert preference.ids == ()
        assert named(preference.match) == ("a", "c", "alone")

    # contract A1.16
    def test_a_call_for_no_known_pod_gets_units_of_one_card_if_the_resource_demands_it(self) -> None:
        matcher = Matcher(GpuPods(DEFAULT), one_card={I915})
        asked = question(slots(2, 2) | ids("card1-2"), 2)
        assert matcher.prefer(asked).ids == tuple(sorted(ids("card0-0", "card0-1")))

    def test_a_pod_without_decision_gets_units_of_a_card_with_room_for_all_and_then_of_the_same(self) -> None:
        pods = GpuPods(DEFAULT)
        matcher = Matcher(pods, one_card={I915})
        pods.changed(node_pod(container("a", i915=2), container("b", i915=1)))
        assert matcher.prefer(question(slots(2, 2) | ids("card1-2"), 2)).ids == ("card1-0", "card1-1")
        matcher.allocate(AllocateRequest(resource=I915, ids=ids("card1-0", "card1-1")), now=1.0)
        assert matcher.prefer(question(ids("card0-0", "card1-2", "card1-3"))).ids == ("card1-2",)

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

    def test_a_pod_of_the_other_resource_does_not_match(self) -> None:
        preference = Node(node_pod(ONE, annotations=decided("card0"))).prefer(1, slots(2), resource=XE)

        assert preference.match.target is None
        assert preference.ids == ()
        assert preference.match.confidence is Confidence.NONE
        assert preference.match.question is not None
        assert Node().allocate("card0-0").target is None

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
    pytest.param([], None, id="no-pod-waits"),
]  # fmt: skip


# contract P3.1 to P3.3
@pytest.mark.parametrize(("pods", "expected"), WAITING)
def test_the_pod_whose_first_container_matches_without_a_listing(
    pods: list[Pod], expected: tuple[str, str, str] | None
) -> None:
    assert named(Node(*pods).prefer(1, slots(3)).match) == expected


class TestListing:
    """Taken while kubelet waits, it makes a guess certain."""

    PODS = (
        node_pod(ONE, name="a", annotations=decided("card0", ts=1)),
        node_pod(ONE, name="b", annotations=decided("card1", ts=2)),
    )

    def test_the_pod_that_kubelet_lists_matches(self) -> None:
        node = Node(*self.PODS, node_pod(container("x"), name="other", namespace="kube-system"))

        preference = node.prefer(1, slots(2), listing={"default/b": {"c": {}}, "kube-system/other": {"x": {}}})

        assert named(preference.match) == ("b", "c", "known")
        assert preference.ids == tuple(ids("card1-0"))

    def test_a_pod_alone_is_confirmed_by_its_own_entry(self) -> None:
        node = Node(self.PODS[0])
        assert node.prefer(1, slots(2)).match.confidence is Confidence.ALONE

        assert node.prefer(1, slots(2), listing={"default/a": {"c": {}}}).match.confidence is Confidence.KNOWN

    def test_a_pod_that_the_watch_has_not_shown_is_waited_for(self) -> None:
        node = Node(self.PODS[0])
        listing: Listing = {"default/b": {"c": {}}}

        assert node.prefer(1, slots(2), listing=listing).match.target is None
        assert node.matcher.unwatched_pods(listing) == {"default/b"}
        both: Listing = {**listing, "default/a": {"c": {}}}
        match = node.prefer(1, slots(2), listing=both).match
        assert match.doubt == "the watch has not shown default/b yet, which kubelet lists"

        node.pods.changed(self.PODS[1])
        assert node.matcher.unwatched_pods(listing) == frozenset()
        assert named(node.prefer(1, slots(2), listing=listing).match) == ("b", "c", "known")

    def test_with_an_unwatched_pod_in_the_listing_a_pod_alone_is_a_guess(self) -> None:
        listing: Listing = {"default/a": {"c": {}}, "default/unseen": {"c": {}}}

        assert named(Node(self.PODS[0]).prefer(1, slots(2), listing=listing).match) == ("a", "c", "guessed")

    def test_devices_of_init_containers_are_not_in_the_entry_of_a_pod(self) -> None:
        init_only = node_pod(container("c"), init=(container("i", i915=1),))

        assert Node(init_only).prefer(1, slots(1)).match.confirming_pod is None
        assert Node(self.PODS[0]).prefer(1, slots(1)).match.confirming_pod is not None
        assert Node(*self.PODS).prefer(1, slots(2)).match.confirming_pod is None

    def test_an_empty_listing_does_not_count(self) -> None:
        assert named(Node(*self.PODS).prefer(1, slots(2), listing={}).match) == ("a", "c", "guessed")

    def test_a_pod_that_has_its_devices_does_not_match(self) -> None:
        """As after a restart of the plugin: pods that still pull their images have no status yet."""
        node = Node(*self.PODS)
        node.matcher.learn({"default/a": {"c": {I915: ids("card0-0")}}}, asked=node.now)

        assert named(node.prefer(1, ids("card1-0")).match) == ("b", "c", "alone")

    def test_a_wrong_guess_is_forgotten(self) -> None:
        node = Node(*self.PODS)
        node.prefer(1, slots(2))
        assert named(node.allocate("card0-0")) == ("a", "c", "guessed")

        node.matcher.learn({"default/b": {"c": {I915: ids("card0-0")}}, "default/a": {"c": {}}}, asked=node.now + 5)

        assert named(node.prefer(1, ids("card1-0")).match) == ("a", "c", "guessed")  # its card is not free any more

    def test_a_listing_requested_too_early_does_not_contradict_an_allocate(self) -> None:
        node = Node(*self.PODS)
        node.prefer(1, slots(2))
        node.allocate("card0-0")

        node.matcher.learn({"default/a": {"c": {}}}, asked=node.now + 0.1)

        assert named(node.prefer(1, ids("card1-0")).match) == ("b", "c", "alone")


class TestHolders:
    def test_ids_lead_to_the_pod_whose_container_got_them(self) -> None:
        node = Node(node_pod(ONE, name="a", uid="a", annotations=decided("card0")))
        assert node.matcher.holders(I915, ids("card0-0")) == []
        node.prefer(1, slots(2))
        node.allocate("card0-0")
        ((pod, is_certain),) = node.matcher.holders(I915, ids("card0-0"))
        assert (pod.uid, is_certain) == ("a", False), "the watch may not have shown all pods"
        node.matcher.learn({"default/a": {"c": {I915: ids("card0-0")}}}, asked=1000.0)
        ((pod, is_certain),) = node.matcher.holders(I915, ids("card0-0"))
        assert (pod.uid, is_certain) == ("a", True)
        assert node.matcher.holders(XE, ids("card0-0")) == []
        assert node.matcher.holders(I915, ids("card0-1")) == []

    def test_init_containers_are_remembered_too(self) -> None:
        node = Node(node_pod(ONE, init=(container("i", i915=1),), uid="a", annotations=decided("card0", init="card1")))
        node.prefer(1, slots(2))
        node.allocate("card1-0")
        assert [holder.pod.uid for holder in node.matcher.holders(I915, ids("card1-0"))] == ["a"]


def test_the_users_of_a_card_are_those_by_receipt() -> None:
    receipt = {"gas-allocated-cards": "card1"}
    texts = {"other": decided("card0") | receipt, "undecided": receipt, "as-decided": decided("card0")}
    pods = [node_pod(ONE, uid=uid, annotations=each, started=True) for uid, each in texts.items()]
    assert Node(*pods).matcher.users() == {Card(0): {"as-decided"}, Card(1): {"other", "undecided"}}


def test_the_users_of_a_card_are_the_admitted_pods_that_were_given_it() -> None:
    admitted = node_pod(ONE, uid="u", name="u", annotations=decided("card1"), started=True)
    node = Node(admitted, node_pod(ONE, uid="v", name="v", annotations=decided("card1")))
    assert node.matcher.users() == {Card(1): {"u"}}
    assert [pod.uid for pod in node.matcher] == ["u", "v"]


def test_a_pod_that_kubelet_lists_without_devices_is_asked_for_again() -> None:
    node = Node(node_pod(ONE, name="there", uid="t", started=True), node_pod(ONE, name="a"))
    for card in (0, 1):
        assert named(node.allocate(f"card{card}-0")) == ("a", "c", "guessed")
        node.matcher.learn({"default/a": {"c": {}}}, asked=1000.0)
