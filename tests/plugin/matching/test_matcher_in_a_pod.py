"""Matching the later containers of a pod."""

from __future__ import annotations

from gas.placement.choice import ContainerChoice
from gas.plugin.kubelet.pod_resources import Listing
from gas.plugin.matching.progress import Confidence
from gas.values.cards import Card
from tests.builders import container
from tests.plugin.called_by_hand import Node, named
from tests.plugin.pods_for_plugin import I915, decided, ids, node_pod, slots

ONE = container("c", i915=1)
TWO = node_pod(container("x", i915=1), container("y", i915=1), name="two", annotations=decided("card0|card1", ts=5))
OTHER = node_pod(ONE, name="other", annotations=decided("card2", ts=1))


class TestInTheMiddleOfAPod:
    def test_its_next_container_comes_before_other_pods(self) -> None:
        node = Node(TWO)
        node.prefer(1, slots(3), listing={"default/two": {"x": {}, "y": {}}})
        node.allocate("card0-0")
        node.pods.changed(OTHER)

        preference = node.prefer(1, slots(3) - ids("card0-0"))

        assert named(preference.match) == ("two", "y", "known")
        assert preference.ids == tuple(ids("card1-0"))

    def test_when_its_ids_are_free_again_it_was_refused(self) -> None:
        node = Node(TWO)
        node.prefer(1, slots(3))
        node.allocate("card0-0")
        node.pods.changed(OTHER)

        assert named(node.prefer(1, slots(3)).match) == ("other", "c", "alone")

    def test_a_refused_pod_does_not_go_on_after_another(self) -> None:
        node = Node(TWO)
        node.prefer(1, slots(3))
        node.allocate("card0-0")
        node.pods.changed(OTHER)
        node.prefer(1, slots(3))
        node.allocate("card2-0")

        assert node.prefer(1, ids("card1-0")).match.confidence is Confidence.GUESSED

    def test_it_goes_on_even_if_it_was_deleted_meanwhile(self) -> None:
        node = Node(TWO)
        node.prefer(1, slots(3), listing={"default/two": {"x": {}, "y": {}}})
        node.pods.deleted(TWO)
        assert named(node.allocate("card0-0")) == ("two", "x", "known")
        node.pods.changed(OTHER)

        assert named(node.prefer(1, slots(3) - ids("card0-0")).match) == ("two", "y", "known")

    def test_after_a_restart_of_kubelet_others_may_come_first(self) -> None:
        node = Node(TWO)
        node.prefer(1, slots(3))
        node.allocate("card0-0")
        node.matcher.kubelet_restarted()
        node.pods.changed(OTHER)
        free = slots(3) - ids("card0-0")

        assert named(node.prefer(1, free).match) == ("other", "c", "guessed")
        assert named(node.allocate("card2-0")) == ("other", "c", "guessed")
        assert named(node.prefer(1, free - ids("card2-0")).match) == ("two", "y", "alone")

    def test_it_is_busy(self) -> None:
        node = Node(TWO)
        uid = TWO.uid
        busy = [node.matcher.is_busy_with(uid)]
        for card in ("card0-0", "card1-0"):
            node.allocate(card)
            busy.append(node.matcher.is_busy_with(uid))

        assert busy == [False, True, False]


class TestInitContainers:
    """Later containers get the ids of ended init containers without a question."""

    def test_an_app_container_that_takes_it_over_is_known(self) -> None:
        pod = node_pod(container("a", i915=1), container("b", i915=1), init=(container("i", i915=1),),
                       annotations=decided("card2|card1", init="card2"))  # fmt: skip
        node = Node(pod)
        node.prefer(1, slots(3))
        matches = [node.allocate("card2-0"), node.allocate("card2-0")]
        matches.append(node.prefer(1, ids("card0-0", "card1-0")).match)

        assert [named(match) for match in matches] == [("pod", name, "alone") for name in "iab"]

    def test_a_sidecar_keeps_what_it_has(self) -> None:
        pod = node_pod(container("a", i915=1), init=(container("s", i915=1, always=True),),
                       annotations=decided("card1", init="card2"))  # fmt: skip
        node = Node(pod)
        node.prefer(1, slots(3))
        node.allocate("card2-0")

        preference = node.prefer(1, slots(3) - ids("card2-0"))

        assert preference.match.target is not None
        assert preference.match.target.demand.container == "a"
        assert preference.ids == tuple(ids("card1-0"))

    def test_their_cards_are_remembered(self) -> None:
        pod = node_pod(container("a", i915=1), uid="u", init=(container("none"), container("i", i915=2)),
                       annotations=decided("card1", init="|card1,card2"))  # fmt: skip
        node = Node(pod)
        assert node.matcher.init_container_cards("u") == {}
        node.prefer(2, slots(3))
        node.allocate("card1-0", "card2-0")

        assert node.matcher.init_container_cards("u") == {1: {Card(1), Card(2)}}
        assert node.matcher.init_container_cards("of another node") == {}

    def test_after_a_guess_their_cards_are_unknown(self) -> None:
        pods = [node_pod(container("a"), uid=uid, name=uid, init=(container("i", i915=1),)) for uid in ("u", "v")]
        node = Node(*pods)
        node.prefer(1, slots(3))
        node.allocate("card1-0")

        assert node.matcher.init_container_cards("u") == {}

    def test_after_a_restart_of_the_plugin_the_listing_shows_where_kubelet_is(self) -> None:
        """The init container's ids are nowhere to be read; the sidecar's and those of the first app container are."""
        pod = node_pod(
            container("a", i915=1), container("b", i915=1),
            init=(container("i", i915=1), container("s", i915=1, always=True)),
            annotations=decided("card1|card0", init="card2|card2"),
        )  # fmt: skip
        node = Node(pod)
        listing: Listing = {"default/pod": {"s": {I915: ids("card2-0")}, "a": {I915: ids("card1-0")}, "b": {}}}
        node.matcher.learn(listing, asked=node.now)

        preference = node.prefer(1, ids("card0-0"))

        assert named(preference.match) == ("pod", "b", "alone")
        assert preference.ids == tuple(ids("card0-0"))


class TestPool:
    """The ids that kubelet insists on show which pod's init containers have ended."""

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

    def test_with_the_pool_it_is_this_pod_even_after_a_restart_of_kubelet(self) -> None:
        node = self.begun()
        node.matcher.kubelet_restarted()

        preference = node.prefer(2, slots(4), ids("card0-0"))

        assert named(preference.match) == ("first", "a", "guessed")
        assert preference.ids == (*ids("card0-0"), *ids("card1-0"))

    def test_without_decisions_the_pool_alone_decides(self) -> None:
        two = container("c", i915=2)
        node = Node(node_pod(two, name="begun", init=(container("i", i915=1),), created="2026-01-01T00:00:02Z"))
        node.prefer(1, slots(4))
        node.allocate("card0-0")
        node.pods.changed(node_pod(two, name="older", created="2026-01-01T00:00:01Z"))
        node.matcher.kubelet_restarted()

        assert named(node.prefer(2, slots(4), ids("card0-0")).match) == ("begun", "c", "guessed")

    def test_an_allocate_of_other_ids_is_not_for_its_next_container(self) -> None:
        node = Node(node_pod(ONE, name="a", init=(container("i", i915=1),), annotations=decided("card0", init="card0")))
        node.prefer(1, slots(4))
        node.allocate("card0-0")
        node.pods.changed(node_pod(ONE, name="b", annotations=decided("card1")))

        assert named(node.allocate("card1-0")) == ("b", "c", "guessed")

    def test_an_unknown_pool_fits_every_question(self) -> None:
        pod = node_pod(
            container("a", i915=2), init=(container("i", i915=2), container("s", i915=1, always=True)),
            annotations=decided("card1,card2", init="card0,card1|card0"),
        )  # fmt: skip
        node = Node(pod)
        node.matcher.learn({"default/pod": {"s": {I915: ids("card0-0")}, "a": {}}}, asked=node.now)

        assert named(node.prefer(2, slots(3) - ids("card0-0"), ids("card1-0")).match) == ("pod", "a", "alone")

    def test_cards_that_kubelet_insists_on_favour_the_pod_that_was_promised_them(self) -> None:
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

        preference = node.prefer(2, slots(3), ids("card2-0"))

        assert preference.ids == (*ids("card2-0"), *ids("card0-0"))
        assert named(preference.match) == ("a", "c", "guessed")


def test_an_allocate_that_does_not_follow_its_question_is_matched_anew() -> None:
    node = Node(
        node_pod(ONE, name="one", annotations=decided("card0")),
        node_pod(container("c", i915=2), name="two", annotations=decided("card1,card2")),
    )
    node.prefer(1, slots(3))

    assert named(node.allocate("card1-0", "card2-0")) == ("two", "c", "guessed")


def test_other_ids_than_preferred_still_match_by_the_question() -> None:
    """Kubelet may take other ids than preferred; the question still shows which container they are for."""
    node = Node(node_pod(ONE, name="a", annotations=decided("card0")))
    node.prefer(1, slots(3))

    match = node.allocate("card2-0")

    assert named(match) == ("a", "c", "alone")
    assert match.target is not None
    assert match.target.decided == ContainerChoice((Card(0),))


def test_a_pod_that_is_gone_is_forgotten() -> None:
    pod = node_pod(ONE, annotations=decided("card0"))
    node = Node(pod)
    node.prefer(1, slots(1))
    node.allocate("card0-0")
    node.pods.deleted(pod)
    assert node.prefer(1, slots(1)).match.target is None

    node.pods.changed(pod)  # as in a cluster that was restored from a backup

    assert named(node.prefer(1, slots(1)).match) == ("pod", "c", "alone")


def test_a_pod_deleted_before_its_allocate_is_forgotten_after_it() -> None:
    """The watch shows nothing more meanwhile."""
    pods = [node_pod(ONE, name=name, annotations=decided("card0")) for name in ("a", "b")]
    node = Node(*pods)
    node.prefer(1, slots(1))
    for pod in pods:
        node.pods.deleted(pod)
    assert named(node.allocate("card0-0")) == ("a", "c", "guessed")

    assert node.prefer(1, slots(1)).match.target is None
