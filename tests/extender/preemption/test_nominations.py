"""Room is kept for nominated pods while their victims leave, card by card."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gas.extender.bookings import Event
from gas.extender.debug import books_json
from gas.extender.decider import Options
from gas.extender.hooks import Change, Observer
from gas.extender.verdicts import Verdicts, at_once
from gas.extender.wire import BindingArgs, FilterArgs, SentNode
from gas.objects.stored import HostPod, Node
from gas.placement.choice import Choice
from gas.placement.place import place
from gas.values.cards import Card
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.vendor.vocabulary import VENDOR
from tests.builders import container, described_node, node_json, requesting
from tests.extender.preemption.setting import PreemptingCluster, priority_pod
from tests.listed import list_all


def share(millicores: int, cards: int = 1) -> dict[str, Any]:
    return container(i915=cards, millicores=cards * millicores)


@pytest.fixture
def cluster() -> PreemptingCluster:
    """Return a cluster with one node ``n`` of two cards; card0 is full of ``low``, 500 of card1 is free."""
    cluster = PreemptingCluster()
    cluster.add_node(cards=2, i915=20, millicores=2000)
    cluster.run("low", share(1000), priority=1)
    cluster.run("other", share(500), priority=99)
    return cluster


def high(**fields: Any) -> dict[str, Any]:
    return priority_pod("high", share(1000), priority=50, **fields)


def preempt_for_high(cluster: PreemptingCluster) -> None:
    """Do what kube-scheduler does: ask, nominate the pod, and start to delete its victim."""
    cluster.see(high())
    assert cluster.victims(high(), "low") == "low"
    cluster.see(high(nominated="n"))
    cluster.start_deleting("low")


@pytest.fixture
def freed(cluster: PreemptingCluster) -> PreemptingCluster:
    """Return the cluster after the victim of ``high`` has gone."""
    preempt_for_high(cluster)
    cluster.delete("low")
    return cluster


class Freed(Observer):
    def __init__(self) -> None:
        self.nodes: list[str] = []

    def node_changed(self, node: str, change: Change) -> None:
        if Change.FREED in change:
            self.nodes.append(node)


def kept_cards(cluster: PreemptingCluster, node: str = "n") -> list[list[str]]:
    """Return the cards that are kept on a node for each pod that is nominated for it."""
    return [[str(card) for card in kept.footprint.amounts] for kept in cluster.decider.promises.on(node)]


def equal(millicores: int = 600, **fields: Any) -> dict[str, Any]:
    return priority_pod("equal", share(millicores), priority=50, **fields)


def test_the_room_of_the_victims_is_kept_when_they_are_gone(freed: PreemptingCluster) -> None:
    assert not freed.fits(equal())
    assert not freed.can_bind(equal())
    assert freed.fits(high(nominated="n"))


def test_it_is_kept_card_by_card(freed: PreemptingCluster) -> None:
    assert freed.fits(equal(500))  # on card1
    freed.bind(equal(500))
    freed.bind(high(nominated="n"))
    assert freed.pods["high"]["metadata"]["annotations"]["gas-container-cards"] == "card0"


def test_of_two_nominated_pods_the_more_important_one_gets_the_card(cluster: PreemptingCluster) -> None:
    cluster.delete("low")
    for name, priority in (("a", 40), ("z", 60)):
        cluster.see(priority_pod(name, share(1000), priority=priority, nominated="n"))
    assert [room.nominated.uid for room in cluster.decider.promises.on("n")] == ["z", "a"]
    assert kept_cards(cluster) == [["card0"], []]


def test_a_pod_of_higher_priority_may_have_it(freed: PreemptingCluster) -> None:
    assert freed.fits(priority_pod("higher", share(600), priority=51))
    assert freed.can_bind(priority_pod("higher", share(600), priority=51))


@pytest.mark.parametrize("end", ["bound-here", "bound-elsewhere", "deleted", "being-deleted", "nominated-elsewhere"])
def test_it_is_kept_until_the_pod_has_other_plans(cluster: PreemptingCluster, end: str) -> None:
    cluster.add_node("m", cards=1)
    preempt_for_high(cluster)
    cluster.delete("low")
    freed = Freed()
    cluster.decider.observers.add(freed)
    match end:
        case "bound-here":
            cluster.bind(high(nominated="n"))
        case "bound-elsewhere":
            cluster.bind(high(nominated="n"), "m")
        case "deleted":
            cluster.delete("high")
        case "being-deleted":
            cluster.start_deleting("high")
        case "nominated-elsewhere":
            cluster.see(high(nominated="m"))
    assert "n" in freed.nodes
    assert cluster.fits(equal()) == (end != "bound-here")
    assert not kept_cards(cluster)
    assert bool(kept_cards(cluster, "m")) == (end == "nominated-elsewhere")


def test_a_pod_that_is_booked_is_not_counted_twice(cluster: PreemptingCluster) -> None:
    cluster.delete("low")
    half = priority_pod("half", share(500), priority=50, nominated="n")
    two_cards = priority_pod("two-cards", share(500, 2), priority=50)
    cluster.see(half)
    assert not cluster.fits(equal())
    assert cluster.fits(two_cards)
    cluster.decider.reserve(BindingArgs("half", "default", "half", "n"), _decoded(half), now=1.0)
    assert cluster.fits(two_cards)  # although the watch does not show the bind yet


DISABLED = "telemetry.aware.scheduling.p/gas-disable-"


@pytest.mark.parametrize("gone", ["taken", "disabled", "excluded"])
def test_other_cards_are_kept_when_the_chosen_ones_cannot_be_had(cluster: PreemptingCluster, gone: str) -> None:
    preempt_for_high(cluster)
    cluster.delete("low")
    match gone:
        case "taken":
            cluster.run("higher", share(1000), priority=100)
        case "disabled":
            cluster.add_node(cards=2, i915=20, millicores=2000, labels={f"{DISABLED}card0": "true"})
        case "excluded":
            alone = {"gas-card-exclusion": "alone", "gas-allow": "card0"}
            cluster.run("higher", container(i915=1), priority=100, annotations=alone)
    assert kept_cards(cluster) == [[]]
    cluster.delete("other")
    assert kept_cards(cluster) == [["card1"]]
    assert not cluster.fits(equal())
    assert cluster.fits(high(nominated="n"))


def test_a_chosen_tile_that_a_pod_of_higher_priority_takes_is_not_kept() -> None:
    cluster = PreemptingCluster()
    cluster.add_node(cards=1, i915=20, tiles=2)
    tile = container(i915=1, tiles=1)
    for name, priority in (("low", 1), ("other", 99)):
        cluster.run(name, tile, priority=priority)
    nominated = priority_pod("high", tile, priority=50)
    cluster.see(nominated)
    assert cluster.victims(nominated, "low") == "low"
    cluster.see(priority_pod("high", tile, priority=50, nominated="n"))
    cluster.delete("low")
    (kept,) = cluster.decider.promises.on("n")
    assert list(kept.footprint.tiles.values()) == [{0}]
    cluster.run("higher", tile, priority=100)
    cluster.delete("other")
    (kept,) = cluster.decider.promises.on("n")
    assert list(kept.footprint.tiles.values()) == [{1}]


def test_a_chosen_tile_is_kept_on_a_card_that_has_become_free() -> None:
    cluster = PreemptingCluster()
    cluster.add_node(cards=1, i915=20, tiles=2)
    cluster.run("low", container(i915=1, tiles=2), priority=1)
    nominated = priority_pod("high", container(i915=1, tiles=1), priority=50)
    cluster.see(nominated)
    assert cluster.victims(nominated, "low") == "low"
    cluster.see(priority_pod("high", container(i915=1, tiles=1), priority=50, nominated="n"))
    cluster.delete("low")
    (kept,) = cluster.decider.promises.on("n")
    assert list(kept.footprint.tiles.values()) == [{0}]


def test_the_chosen_cards_are_kept_before_the_victims_start_to_leave(cluster: PreemptingCluster) -> None:
    assert cluster.victims(high(), "low") == "low"
    cluster.see(high(nominated="n"))
    assert kept_cards(cluster) == [["card0"]]


def test_the_chosen_card_is_kept_although_its_company_has_lower_priority() -> None:
    cluster = PreemptingCluster()
    cluster.add_node(cards=1, i915=20, millicores=1000)
    with_a = {"gas-card-affinity": "a"}
    cluster.run("friend", share(200), priority=1, annotations=with_a)
    cluster.run("low", share(600), priority=0, annotations=with_a)
    cluster.run("plain", share(100), priority=99)
    sent = priority_pod("high", share(500), priority=50, annotations=with_a)
    cluster.see(sent)
    assert cluster.victims(sent, "low") == "low"
    cluster.see(priority_pod("high", share(500), priority=50, annotations=with_a, nominated="n"))
    assert kept_cards(cluster) == [["card0"]]


def test_a_part_of_a_card_is_kept_as_its_amount() -> None:
    cluster = PreemptingCluster(Options(vocabularies=Vocabularies((VENDOR,))))
    cluster.decider.node_handlers.changed(msgspec.convert(described_node("n", {"nvidia.com/gpu": 1}), Node))
    whole_card = requesting({"nvidia.com/gpu": 1})
    cluster.run("low", whole_card, priority=1)
    assert cluster.victims(priority_pod("high", whole_card, priority=50), "low") == "low"
    cluster.see(priority_pod("high", whole_card, priority=50, nominated="n"))
    (kept,) = cluster.decider.promises.on("n")
    assert kept.footprint.amounts == {Card(0): (("millicores", 1000), ("nvidia-gpu", 1))}


def test_after_a_restart_the_room_of_leaving_pods_is_kept(cluster: PreemptingCluster) -> None:
    preempt_for_high(cluster)
    restarted = PreemptingCluster()
    restarted.add_node(cards=2, i915=20, millicores=2000)
    for name in ("high", "low", "other"):
        restarted.see(cluster.pods[name])
    assert kept_cards(restarted) == [["card0"]]
    restarted.delete("low")
    assert not restarted.fits(equal())
    assert restarted.fits(equal(500))


def test_only_pods_of_lower_priority_leave_room_for_a_nominated_pod(cluster: PreemptingCluster) -> None:
    cluster.see(high(nominated="n"))
    cluster.run("more-important", share(500), priority=60)
    cluster.start_deleting("more-important")
    cluster.start_deleting("other")
    assert kept_cards(cluster) == [[]]
    cluster.start_deleting("low")
    assert kept_cards(cluster) == [["card0"]]


def test_two_nominated_pods_never_wait_for_each_other(cluster: PreemptingCluster) -> None:
    """Both were promised card0 before either nomination was seen; only the first keeps it."""
    twin = priority_pod("twin", share(1000), priority=50)
    assert cluster.victims(high(), "low") == "low"
    assert cluster.victims(twin, "low") == "low"
    cluster.see(high(nominated="n"))
    cluster.see(priority_pod("twin", share(1000), priority=50, nominated="n"))
    cluster.delete("low")
    assert kept_cards(cluster) == [["card0"], []]
    assert cluster.fits(high(nominated="n"))
    assert not cluster.fits(twin)


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        pytest.param({}, {}, "at once", id="no-labels"),
        pytest.param({"exclusion": "a"}, {"exclusion": "a"}, "at once", id="the-same-exclusion"),
        pytest.param({"exclusion": "a"}, {"exclusion": "b"}, "never", id="other-exclusions"),
        pytest.param({"exclusion": "a"}, {}, "never", id="one-exclusion"),
        pytest.param({"anti-affinity": "a"}, {"anti-affinity": "a"}, "never", id="the-same-anti-affinity"),
        pytest.param({"anti-affinity": "a"}, {"anti-affinity": "b"}, "at once", id="other-anti-affinities"),
        pytest.param({"affinity": "a"}, {"affinity": "a"}, "later", id="the-same-affinity"),
        pytest.param({"affinity": "a"}, {"affinity": "b"}, "never", id="other-affinities"),
        pytest.param({}, {"affinity": "a"}, "never", id="affinity-of-the-second"),
        pytest.param({"affinity": "a"}, {}, "later", id="affinity-of-the-first"),
        pytest.param({"name": "a"}, {"name": "a"}, "later", id="the-same-name"),
        pytest.param({"name": "a"}, {"name": "b"}, "never", id="other-names"),
        pytest.param({"name": "a"}, {}, "later", id="name-of-the-first"),
    ],
)
def test_two_nominated_pods_share_a_card_only_if_they_may(
    first: dict[str, str], second: dict[str, str], kept: str
) -> None:
    """Both were promised card0 before either nomination was seen; card1 is full of a pod that stays."""
    cluster = PreemptingCluster()
    cluster.add_node(cards=2, i915=20, millicores=2000)
    cluster.run("low", share(1000), priority=1)
    cluster.run("stays", share(1000), priority=99)

    def pod(name: str, **fields: Any) -> dict[str, Any]:
        labels = first if name == "first" else second
        annotations = {f"gas-card-{label}": value for label, value in labels.items()}
        return priority_pod(name, share(400), priority=50, annotations=annotations, **fields)

    for name in ("first", "second"):
        assert cluster.victims(pod(name), "low") == "low"
    for name in ("first", "second"):
        cluster.see(pod(name, nominated="n"))
    cluster.delete("low")
    assert list(map(bool, kept_cards(cluster))) == [True, kept == "at once"]
    assert cluster.fits(pod("first", nominated="n"))
    assert cluster.fits(pod("second", nominated="n")) == (kept == "at once")
    cluster.bind(pod("first", nominated="n"))
    assert list(map(bool, kept_cards(cluster))) == [kept != "never"]
    assert cluster.fits(pod("second", nominated="n")) == (kept != "never")


@pytest.mark.parametrize("label", ["gas-card-affinity", "gas-card-name"])
def test_no_pod_joins_a_card_that_must_be_idle_for_a_nominated_pod(label: str) -> None:
    cluster = PreemptingCluster()
    cluster.add_node(cards=1, i915=20, millicores=1000)
    cluster.run("low", share(1000), priority=1)
    sent = priority_pod("high", share(200), priority=50, annotations={label: "a"}, nominated="n")
    assert cluster.victims(sent, "low") == "low"
    cluster.see(sent)
    cluster.delete("low")
    assert not cluster.fits(priority_pod("small", share(100), priority=50))
    assert not cluster.can_bind(priority_pod("small", share(100), priority=50))
    cluster.bind(sent)
    assert cluster.fits(priority_pod("small", share(100), priority=50))


def test_a_pod_that_is_edited_while_nominated_keeps_the_cards_that_it_may_have_now(freed: PreemptingCluster) -> None:
    freed.delete("other")
    freed.see(high(nominated="n", annotations={"gas-deny": "card0"}))
    assert kept_cards(freed) == [["card1"]]


def test_room_is_kept_again_when_a_bind_elsewhere_fails(cluster: PreemptingCluster) -> None:
    cluster.add_node("m", cards=1)
    preempt_for_high(cluster)
    cluster.delete("low")
    cluster.decider.reserve(BindingArgs("high", "default", "high", "m"), _decoded(high(nominated="n")), now=1.0)
    assert cluster.fits(equal())
    cluster.decider.bookings.report("high", Event.REFUSED)
    assert not cluster.fits(equal())


def test_room_is_kept_on_a_node_that_a_request_describes(freed: PreemptingCluster) -> None:
    described = node_json("n", cards=2, i915=20, millicores=2000)
    sent = SentNode(msgspec.convert(described, Node), msgspec.Raw(b"{}"))

    def passing(pod: dict[str, Any]) -> list[str]:
        args = FilterArgs(msgspec.convert(pod, HostPod), None, [sent])
        return list(at_once(freed.decider.filter(args, now=1.0)).passing)

    assert passing(equal()) == []
    assert passing(equal(500)) == ["n"]


def test_details_of_a_refusal_count_what_is_kept(freed: PreemptingCluster) -> None:
    refusal = freed.filter(equal()).refusal
    assert refusal is not None
    assert "card0" in refusal.details["n"][0]
    assert "0 millicores" in refusal.details["n"][0]


def test_a_nominated_pod_that_needs_no_cards_keeps_only_other_resources(cluster: PreemptingCluster) -> None:
    cluster.see(priority_pod("plain", container(), priority=100, nominated="n"))
    cluster.see(
        priority_pod("bad", share(1), priority=100, nominated="n", annotations={"gas-card-order": "none of these"})
    )
    assert kept_cards(cluster) == []
    assert cluster.fits(equal(500))


def test_no_cards_of_a_node_that_is_not_known_are_kept(cluster: PreemptingCluster) -> None:
    cluster.see(high(nominated="unknown"))
    assert kept_cards(cluster, "unknown") == []


def test_a_list_without_a_nominated_pod_gives_its_room_up(freed: PreemptingCluster) -> None:
    freed.pods.pop("high")
    list_all(freed.decider.pod_handlers, [msgspec.convert(sent, HostPod) for sent in freed.pods.values()])
    assert freed.fits(equal())


def test_the_ledger_shows_what_is_kept(cluster: PreemptingCluster) -> None:
    preempt_for_high(cluster)
    assert json.loads(books_json(cluster.decider))["promised"] == {
        "high": {
            "pod": "default/high",
            "node": "n",
            "priority": 50,
            "cards": {"card0": {"amounts": {"i915": 1, "millicores": 1000}, "tiles": []}},
        }
    }
    cluster.delete("high")
    assert json.loads(books_json(cluster.decider))["promised"] == {}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["bind", "nominate", "unnominate", "leave", "delete", "preempt", "ask", "reserve", "cancel", "disable"]
        ),
        st.integers(0, 5),
        st.sampled_from([200, 500, 1000]),
        st.integers(0, 2),
        st.sampled_from(
            [{}, {}, {"gas-card-affinity": "a"}, {"gas-card-exclusion": "a"}, {"gas-card-anti-affinity": "a"}]
        ),
    ),
    max_size=25,
)


@settings(max_examples=150)
@given(STEPS)
def test_remembered_verdicts_are_right_whatever_is_kept(
    steps: list[tuple[str, int, int, int, dict[str, str]]],
) -> None:
    cluster = PreemptingCluster()
    cluster.add_node(cards=2, i915=8, millicores=2000)
    cluster.add_node("m", cards=2, i915=8, millicores=2000)
    decider = cluster.decider
    for kind, number, millicores, priority, company in steps:
        name = f"p{number}"
        sent = cluster.pods.get(name) or priority_pod(
            name, share(millicores), priority=priority, annotations=dict(company)
        )
        is_bound = bool(sent["spec"].get("nodeName"))
        node = "nm"[number % 2]
        if kind == "bind" and decider.ledger.booking(name) is None and cluster.fits(sent, node):
            cluster.bind(sent, node)
        elif kind in ("nominate", "unnominate") and not is_bound:
            sent["status"]["nominatedNodeName"] = node if kind == "nominate" else ""
            cluster.see(sent)
        elif kind == "leave" and name in cluster.pods:
            cluster.start_deleting(name)
        elif kind == "delete" and name in cluster.pods:
            cluster.delete(name)
        elif kind == "preempt" and not is_bound:
            cluster.preempt(sent, {node: [other for other in cluster.pods if other != name]})
        elif kind == "reserve" and not is_bound and decider.ledger.booking(name) is None and cluster.fits(sent, node):
            decider.reserve(BindingArgs(name, "default", name, node), _decoded(sent), now=1.0)
        elif kind == "cancel":
            decider.bookings.report(name, Event.REFUSED)
        elif kind == "disable":
            labels = {f"{DISABLED}card{number % 2}": "true"} if priority else {}
            cluster.add_node(node, cards=2, i915=8, millicores=2000, labels=labels)
        promises = decider.promises
        remembered = {at: promises.on(at) for at in "nm"}
        promises._known.clear()
        assert remembered == {at: promises.on(at) for at in "nm"}
        asking = priority_pod("asking", share(millicores), priority=priority, annotations=dict(company))
        need = decider.need(_decoded(asking))
        nominated = decider.promises.to_others(_decoded(asking))
        fresh = at_once(
            Verdicts(decider.nodes, decider.ledger, step_limit=5000, clock=lambda: 0.0).of(need, ["n", "m"], nominated)
        )
        passing = list(cluster.filter(asking, "n", "m").passing)
        assert passing == [at for at, verdict in zip("nm", fresh, strict=True) if verdict.refusal is None]
        for at in "nm":
            sums = decider.ledger.sums(at, nominated.get(at, ()))
            facts = decider.nodes.facts(at)
            assert facts is not None
            assert (at in passing) == isinstance(place(need, facts.inventory, sums.usage()), Choice)
            assert cluster.can_bind(asking, at) == (at in passing)


def _decoded(sent: dict[str, Any]) -> Any:
    return msgspec.convert(sent, HostPod)
