"""Which pods are evicted so that a pod of higher priority gets its cards."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gas.extender.decider import Decider
from gas.extender.filter import Filter, PendingBinds
from gas.extender.metrics import Metrics
from gas.extender.preemption.disruption import selects
from gas.extender.preemption.wire import Proposal
from gas.extender.wire import BindingArgs
from gas.objects.stored import DisruptionBudget, HostPod, LabelSelector, Node
from tests.builders import container, node_json
from tests.extender.preemption.setting import PREEMPTING, PreemptingCluster, budget, priority_pod, with_requests
from tests.listed import list_all

MEMORY = 8_000_000_000


def share(millicores: int) -> dict[str, Any]:
    return container(i915=1, millicores=millicores)


@pytest.fixture
def cluster() -> PreemptingCluster:
    """Return a cluster with one node ``n`` of two cards, each for up to 10 pods."""
    cluster = PreemptingCluster()
    cluster.add_node(cards=2, i915=20, millicores=2000, memory_max=2 * MEMORY)
    return cluster


@pytest.fixture
def full(cluster: PreemptingCluster) -> PreemptingCluster:
    """Return the cluster with five pods on its two cards: a, b, c on card0 and d, e on card1."""
    for name, millicores, priority in (("a", 300, 20), ("b", 300, 20), ("c", 400, 20), ("d", 700, 10), ("e", 300, 20)):
        cluster.run(name, share(millicores), priority=priority)
    return cluster


def test_the_one_right_pod_of_five_is_evicted(full: PreemptingCluster) -> None:
    high = priority_pod("high", share(600), priority=100)
    assert not full.fits(high)
    # By the sums of the node 600 millicores are free without a and b, but those are on one card with c.
    assert full.preempt(high, {"n": ["a", "b"]}) == {"n": Proposal(("d",), 0)}


def test_pods_of_equal_or_higher_priority_stay(full: PreemptingCluster) -> None:
    assert full.victims(priority_pod("high", share(1000), priority=21), "d") == "e d"
    assert full.victims(priority_pod("high", share(700), priority=11), "d") == "d"
    assert full.victims(priority_pod("high", share(800), priority=20), "d") == "dropped"
    assert full.victims(priority_pod("high", share(300), priority=10), "d") == "dropped"


def test_victims_are_named_the_most_important_first(cluster: PreemptingCluster) -> None:
    cluster.run("young", share(300), priority=5, started="2026-01-02T00:00:00Z")
    cluster.run("old", share(300), priority=5, started="2026-01-01T00:00:00Z")
    cluster.run("higher", share(300), priority=6, started="2026-01-03T00:00:00Z")
    cluster.run("elsewhere", share(1000), priority=90)
    high = priority_pod("high", share(1000), priority=50)
    assert cluster.victims(high, "young") == "higher old young"


@pytest.mark.parametrize("started", ["2026-01-02T00:00:00Z", "", "today"])
def test_of_equal_pods_the_younger_one_is_evicted(cluster: PreemptingCluster, started: str) -> None:
    cluster.run("senior", share(600), started="2026-01-01T00:00:00Z")
    cluster.run("junior", share(600), started=started)
    assert cluster.victims(priority_pod("high", share(600), priority=1), "senior") == "junior"


def test_two_pods_are_evicted_rather_than_one_that_is_more_important(cluster: PreemptingCluster) -> None:
    cluster.run("important", share(1000), priority=2)
    cluster.run("low", share(500), priority=1)
    cluster.run("lower", share(500), priority=0)
    assert cluster.victims(priority_pod("high", share(1000), priority=3), "important") == "low lower"


def test_a_node_on_which_no_pod_needs_to_go_is_dropped(cluster: PreemptingCluster) -> None:
    cluster.run("a", share(300))
    assert cluster.preempt(priority_pod("high", share(600), priority=9), {"n": ["a"]}) == {}


def test_a_node_where_nothing_helps_is_dropped(full: PreemptingCluster) -> None:
    assert full.preempt(priority_pod("high", share(1001), priority=99), {"n": ["a", "b", "c", "d", "e"]}) == {}


def test_a_node_that_is_not_known_is_dropped(full: PreemptingCluster) -> None:
    high = priority_pod("high", share(600), priority=99)
    assert set(full.preempt(high, {"n": ["a"], "other": ["x"]})) == {"n"}


def test_without_time_left_the_remaining_nodes_are_dropped() -> None:
    """Each search may take 0.2 s, and all together 3 s; every look at the clock takes 0.03 s here."""
    moments = itertools.count()
    cluster = PreemptingCluster(clock=lambda: next(moments) * 0.03)
    names = [f"n{number}" for number in range(50)]
    for name in names:
        cluster.add_node(name, cards=1)
        cluster.run(f"low-{name}", node=name)
    found = cluster.preempt(priority_pod("high", priority=9), {name: [f"low-{name}"] for name in names})
    assert 0 < len(found) < 50
    assert list(found) == names[: len(found)]


def test_a_search_for_cards_stops_at_its_limit() -> None:
    cluster = PreemptingCluster(replace(PREEMPTING, step_limit=1))
    cluster.add_node(cards=2, i915=20, millicores=2000)
    cluster.run("low", share(1000))
    high = priority_pod("high", share(500), share(400), share(600), share(500), priority=9)
    assert cluster.victims(high, "low") == "dropped"


def test_a_pod_without_need_for_cards_gets_the_proposal_back(full: PreemptingCluster) -> None:
    plain = with_requests(priority_pod("plain", container(), priority=99), cpu="60")
    assert full.preempt(plain, {"n": ["a", "x"], "m": ["y"]}, violations=2) == {
        "n": Proposal(("a", "x"), 2),
        "m": Proposal(("y",), 2),
    }


def test_a_pod_whose_need_cannot_be_read_gets_no_node(full: PreemptingCluster) -> None:
    bad = priority_pod("bad", share(1), priority=99, annotations={"gas-card-order": "none of these"})
    assert full.preempt(bad, {"n": ["a"]}) == {}


def test_a_bound_pod_whose_resize_waits_gets_the_node_as_proposed(full: PreemptingCluster) -> None:
    assert full.preempt(full.pods["a"] | {}, {"n": ["d"]}) == {"n": Proposal(("d",), 0)}


def test_a_pod_that_has_its_cards_already_gets_no_node(full: PreemptingCluster) -> None:
    waiting = full.pods["a"] | {"spec": {**full.pods["a"]["spec"], "nodeName": None}}
    assert full.preempt(waiting, {"n": ["d"]}) == {}


def test_a_proposed_pod_whose_bind_the_watch_does_not_show_yet_is_a_victim_like_others(
    cluster: PreemptingCluster,
) -> None:
    for name in ("a", "b"):
        cluster.see(priority_pod(name, share(1000), priority=1))
        args = BindingArgs(name, "default", name, "n")
        cluster.decider.reserve(args, msgspec.convert(cluster.pods[name], HostPod), now=1.0)
    high = priority_pod("high", share(500), priority=9)
    assert cluster.victims(high, "a") == "a"
    assert cluster.victims(high, "a", "b") == "b"
    assert cluster.victims(high) == "dropped"  # kube-scheduler may not know them on this node yet


def test_proposed_pods_without_cards_and_unknown_ones_stay_victims(full: PreemptingCluster) -> None:
    full.run("plain", container(), priority=5)
    high = priority_pod("high", share(600), priority=100)
    assert full.victims(high, "a", "plain", "not-known") == "d plain not-known"


def test_they_are_all_the_victims_if_the_cards_are_free(cluster: PreemptingCluster) -> None:
    cluster.run("gpu", share(100))
    cluster.run("plain", container())
    assert cluster.victims(priority_pod("high", share(600), priority=9), "gpu", "plain") == "plain"


def test_a_pod_without_cards_that_was_not_proposed_stays(full: PreemptingCluster) -> None:
    full.run("plain", container(), priority=-9)
    assert full.victims(priority_pod("high", share(600), priority=100), "a") == "d"


@pytest.mark.parametrize(
    ("resource", "held", "wanted"),
    [("cpu", "30", "40"), ("memory", "100Gi", "200Gi")],
)
def test_gpu_pods_are_evicted_where_the_node_lacks_cpu_or_memory(
    cluster: PreemptingCluster, resource: str, held: str, wanted: str
) -> None:
    cluster.bind(with_requests(priority_pod("small", share(100)), **{resource: "1"}))
    cluster.bind(with_requests(priority_pod("large", share(100)), **{resource: held}))
    high = with_requests(priority_pod("high", share(500), priority=9), **{resource: wanted})
    assert cluster.fits(high)  # the cards have room
    assert cluster.victims(high, "large") == "large"


def test_gpu_pods_are_evicted_where_the_node_lacks_pod_slots() -> None:
    cluster = PreemptingCluster()
    cluster.add_node(cards=2, pods="2")
    cluster.run("plain", container(), priority=50)
    cluster.run("gpu", container(i915=1), priority=1)
    assert cluster.victims(priority_pod("high", priority=9), "gpu") == "gpu"


RULES: list[tuple[str, dict[str, Any]]] = [
    ("host port", {"containers": [share(100) | {"ports": [{"containerPort": 80, "hostPort": 80}]}]}),
    (
        "anti-affinity",
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]}}},
    ),
    ("spreading", {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}]}),
]


@pytest.mark.parametrize("rule", [rule for _, rule in RULES], ids=[name for name, _ in RULES])
def test_a_proposed_pod_that_is_in_the_way_of_such_a_pod_stays_a_victim(
    cluster: PreemptingCluster, rule: dict[str, Any]
) -> None:
    # The node lists neither a dongle nor a cable.
    cluster.bind(with_requests(priority_pod("in-the-way", share(100), priority=1), **{"example.com/dongle": "1"}))
    cluster.run("d", share(1000), priority=1)
    cluster.run("e", share(900), priority=5)
    fits = priority_pod("fits", share(0), priority=9)
    assert cluster.victims(fits, "in-the-way") == "dropped"
    fits["spec"] |= rule
    fits["spec"]["containers"][0]["resources"] = share(0)["resources"]
    with_requests(fits, **{"example.com/cable": "1"})
    assert cluster.victims(fits, "in-the-way") == "in-the-way"
    wide = priority_pod("wide", share(1000), priority=9)
    wide["spec"] |= rule
    wide["spec"]["containers"][0]["resources"] = share(1000)["resources"]
    # All 1000 millicores of d are needed, so resources alone explain why kube-scheduler proposes it.
    assert cluster.victims(wide, "in-the-way", "d") == "d in-the-way"
    assert cluster.victims(wide, "d") == "d"
    assert cluster.victims(wide, "in-the-way", "e") == "d"


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"x": 1}}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"affinity": None, "topologySpreadConstraints": None},
    ],
)
def test_softer_rules_keep_no_victim(cluster: PreemptingCluster, spec: dict[str, Any]) -> None:
    cluster.run("a", share(100), priority=1)
    high = priority_pod("high", share(100), priority=9)
    high["spec"] |= spec
    assert cluster.victims(high, "a") == "dropped"


def test_the_overhead_of_a_pods_runtime_class_counts(cluster: PreemptingCluster) -> None:
    cluster.bind(with_requests(priority_pod("a", share(100)), cpu="60"))
    high = with_requests(priority_pod("high", share(100), priority=9), cpu="2")
    assert cluster.victims(high, "a") == "dropped"
    high["spec"]["overhead"] = {"cpu": "3"}
    assert cluster.victims(high, "a") == "a"


def test_disruption_budgets_come_first(full: PreemptingCluster) -> None:
    full.label("d", app="guarded")
    high = priority_pod("high", share(600), priority=100)
    for name in ("b", "c"):
        full.label(name, app="free")
    list_all(full.preemption.budgets, [budget("b", 0, app="guarded"), budget("free", 2, app="free")])
    assert full.preempt(high, {"n": ["a"]}) == {"n": Proposal(("b", "c"), 0)}
    full.preemption.budgets.changed(budget("b", 1, app="guarded"))
    assert full.preempt(high, {"n": ["a"]}) == {"n": Proposal(("d",), 0)}
    full.preemption.budgets.changed(budget("b", 0, disrupted=["d"], app="guarded"))
    assert full.preempt(high, {"n": ["a"]}) == {"n": Proposal(("d",), 0)}


def test_budgets_of_one_name_in_two_namespaces_are_two(cluster: PreemptingCluster) -> None:
    for priority, namespace in enumerate(("guarded", "default")):
        cluster.run(namespace, share(1000), priority=priority, namespace=namespace, labels={"app": "x"})
    budgets = [budget("b", 1, app="x"), budget("b", 0, app="x", namespace="guarded")]
    list_all(cluster.preemption.budgets, budgets)
    assert cluster.victims(priority_pod("high", share(1000), priority=9), "guarded") == "default"


def test_violations_are_counted_for_all_victims(full: PreemptingCluster) -> None:
    full.run("plain", container(), priority=7, labels={"app": "guarded"})
    full.label("d", app="guarded")
    full.label("e", app="guarded")
    list_all(full.preemption.budgets, [budget("b", 1, app="guarded")])
    high = priority_pod("high", share(1000), priority=100, annotations={"gas-allow": "card1"})
    assert full.preempt(high, {"n": ["plain"]}, violations=5) == {"n": Proposal(("e", "d", "plain"), 2)}


def test_a_pod_that_is_leaving_already_goes_first(full: PreemptingCluster) -> None:
    full.start_deleting("c")
    assert full.victims(priority_pod("high", share(300), priority=100), "d") == "c"


def test_room_kept_for_another_nominated_pod_is_not_given_away(full: PreemptingCluster) -> None:
    full.see(priority_pod("first", share(700), priority=100, nominated="n"))
    full.start_deleting("d")
    # Until d is gone, its millicores and those of the nominated pod both count on the node.
    assert full.victims(priority_pod("second", share(600), priority=100), "a") == "b c d"
    assert full.victims(priority_pod("more-important", share(600), priority=101), "a") == "d"


def test_a_node_without_priorities_has_no_pod_to_evict(cluster: PreemptingCluster) -> None:
    cluster.run("a", container(i915=2))
    sent = priority_pod("b", container(i915=20))
    del sent["spec"]["priority"]
    assert cluster.victims(sent, "a") == "dropped"


@pytest.mark.parametrize(
    ("pod", "hopeless"),
    [
        pytest.param(priority_pod("p", share(1000)), False, id="it-would-fit-on-an-empty-card"),
        pytest.param(priority_pod("p", share(1001)), True, id="no-card-is-large-enough"),
        pytest.param(priority_pod("p", container(i915=3)), True, id="not-enough-cards"),
        pytest.param(priority_pod("p", share(500), annotations={"gas-deny": "card0,card1"}), True, id="lists"),
        pytest.param(priority_pod("p", share(500), annotations={"gas-card-order": "x"}), True, id="an-invalid-need"),
    ],
)
async def test_a_node_that_could_never_hold_the_pod_is_unresolvable(
    full: PreemptingCluster, pod: dict[str, Any], hopeless: bool
) -> None:
    for _ in range(2):  # the second response comes from what is remembered
        response = await filtered(full.decider, {"Pod": pod, "NodeNames": ["n", "unknown"]})
        assert response["NodeNames"] == []
        has_need = "gas-card-order" not in pod["metadata"].get("annotations", {})
        assert set(response["FailedAndUnresolvableNodes"]) == ({"n"} if hopeless else set()) | (
            set() if has_need else {"unknown"}
        )
        assert response["FailedNodes"].keys() | response["FailedAndUnresolvableNodes"].keys() == {"n", "unknown"}
        assert not response["FailedNodes"].keys() & response["FailedAndUnresolvableNodes"].keys()
    described = node_json("n", cards=2, i915=20, millicores=2000, memory_max=2 * MEMORY)
    response = await filtered(full.decider, {"Pod": pod, "Nodes": {"items": [described]}})
    assert set(response["FailedAndUnresolvableNodes"]) == ({"n"} if hopeless else set())


async def test_a_hopeless_node_is_named_beside_one_that_passes(full: PreemptingCluster) -> None:
    full.add_node("m", cards=2, i915=20, millicores=4000, memory_max=2 * MEMORY)
    response = await filtered(full.decider, {"Pod": priority_pod("p", share(1500)), "NodeNames": ["n", "m"]})
    assert response["NodeNames"] == ["m"]
    assert list(response["FailedAndUnresolvableNodes"]) == ["n"]


async def test_without_preemption_every_refused_node_is_in_failed_nodes() -> None:
    decider = Decider(PREEMPTING)
    decider.nodes.changed(msgspec.convert(node_json("n", cards=2), Node))
    response = await filtered(decider, {"Pod": priority_pod("p", share(1001)), "NodeNames": ["n"]})
    assert (list(response["FailedNodes"]), response["FailedAndUnresolvableNodes"]) == (["n"], {})


async def filtered(decider: Decider, request: dict[str, Any]) -> dict[str, Any]:
    verb = Filter(
        decider,
        PendingBinds(patience=0.0),
        Metrics("1"),
        why_not_ready=lambda: None,
        on_refused=lambda _pod, _refusal: None,
    )
    response: dict[str, Any] = json.loads(await verb(json.dumps(request).encode()))
    return response


@pytest.mark.parametrize(
    ("operator", "values", "labels", "selected"),
    [
        ("In", ["x", "y"], {"app": "x"}, True),
        ("In", ["y"], {"app": "x"}, False),
        ("In", [], {"app": "x"}, False),
        ("NotIn", ["y"], {"app": "x"}, True),
        ("NotIn", ["x"], {"app": "x"}, False),
        ("NotIn", ["x"], {"other": "x"}, True),
        ("NotIn", [], {"app": "x"}, False),
        ("Exists", [], {"app": "x"}, True),
        ("Exists", [], {"other": "x"}, False),
        ("Exists", ["x"], {"app": "x"}, False),
        ("DoesNotExist", [], {"other": "x"}, True),
        ("DoesNotExist", [], {"app": "x"}, False),
        ("DoesNotExist", [], {}, False),  # a budget covers no pod without labels
        ("Unknown", ["x"], {"app": "x"}, False),
    ],
)
def test_the_pods_that_a_budget_covers(
    operator: str, values: list[str], labels: dict[str, str], selected: bool
) -> None:
    cluster = PreemptingCluster()
    cluster.add_node()
    cluster.run("p", labels=labels)
    expression = {"key": "app", "operator": operator, "values": values}
    found = msgspec.convert(
        {
            "metadata": {"name": "b", "namespace": "default", "uid": "b"},
            "spec": {"selector": {"matchExpressions": [expression]}},
        },
        DisruptionBudget,
    )
    list_all(cluster.preemption.budgets, [found])
    assert bool(cluster.preemption.budgets.of(cluster.decider.hosts.pods.details("p", "n"))) == selected


def test_a_label_is_not_compared_with_all_of_very_many_values() -> None:
    class Label(str):
        comparisons = 0

        def __eq__(self, other: object) -> bool:
            Label.comparisons += 1
            return str(self) == other

        __hash__ = str.__hash__

    expression = {"key": "app", "operator": "NotIn", "values": [f"v{number}" for number in range(60_000)]}
    selector = msgspec.convert({"matchExpressions": [expression]}, LabelSelector)
    assert selects(selector, {"app": Label("x")})
    assert Label.comparisons < 10


@pytest.mark.parametrize(
    "spec",
    [{}, {"selector": None}, {"selector": {}}, {"selector": {"matchLabels": {"app": "other"}}}],
    ids=["no-selector", "null", "empty", "other-labels"],
)
def test_a_budget_that_covers_no_pod(spec: dict[str, Any]) -> None:
    cluster = PreemptingCluster()
    cluster.add_node()
    cluster.run("p", labels={"app": "x"})
    pod = cluster.decider.hosts.pods.details("p", "n")
    found = msgspec.convert(
        {"metadata": {"name": "b", "namespace": "default", "uid": "b"}, "spec": spec}, DisruptionBudget
    )
    budgets = cluster.preemption.budgets
    list_all(budgets, [found, budget("elsewhere", 0, app="x", namespace="other")])
    assert budgets.of(pod) == []
    budgets.changed(budget("b", 0, app="x"))
    assert budgets.of(pod) == [budget("b", 0, app="x")]
    budgets.deleted(budget("b", 0, app="x"))
    assert budgets.of(pod) == []
