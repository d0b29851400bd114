"""Costs and scores of nodes: remembered ones never differ from fresh ones, and bind keeps what a score assumed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import count, pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gas.daemon.flags import UsageError
from gas.extender.command_line import parse_flags
from gas.extender.debug import decisions_json
from gas.extender.decider import Options
from gas.extender.host_resources import pod_requests
from gas.extender.readiness import NotReady
from gas.extender.scoring.part import SCORING, ScoringFlags
from gas.extender.scoring.scores import IN_TREE, Scores, as_scores
from gas.extender.scoring.scoring import Prioritize, Scoring
from gas.extender.verdicts import PATIENCE, NodeStates, at_once
from gas.extender.wire import BadRequest, FilterArgs, Unreadable, decode_filter
from gas.objects.stored import AskedPod, HostPod, Node
from gas.placement.need import PodNeed
from gas.placement.order import NodeScore
from gas.vocabularies.known import DEFAULT
from tests.builders import container, node_json, pod_json
from tests.extender.cluster import Cluster
from tests.extender.decider import DrivenDecider
from tests.listed import list_all

COUNTING = Options(vocabularies=DEFAULT)


def gpu_node(name: str, *, cards: int = 2, cpu: int = 32, memory: str = "256Gi", **more: Any) -> dict[str, Any]:
    built = node_json(name, cards=cards, i915=20 * cards, millicores=1000 * cards, **more)
    built["status"]["allocatable"] |= {"cpu": str(cpu), "memory": memory, "pods": "110"}
    return built


def gpu_pod(millicores: int, *, cpu: str = "4", memory: str = "8Gi", cards: int = 1, **more: Any) -> dict[str, Any]:
    built = pod_json(container(i915=cards, millicores=millicores), **more)
    built["spec"]["containers"][0]["resources"]["requests"] |= {"cpu": cpu, "memory": memory}
    return built


class Scored(DrivenDecider):
    """A decider that scores nodes, with the verb."""

    def __init__(self, *nodes: Mapping[str, Any], policy: NodeScore = NodeScore.BALANCE) -> None:
        super().__init__(Cluster(), options=COUNTING)
        self.scoring = Scoring(policy, self)
        self.scores = self.scoring.scores
        self.add(self.scoring.hooks)
        self.verb = Prioritize(self, self.scoring, self.metrics, why_not_ready=lambda: self.not_ready)
        self.set_nodes(*nodes)
        self.cluster.on_change = self._happened

    def _happened(self, event: str, pod: Any) -> None:
        self.see(event, as_host(pod))

    def set_nodes(self, *nodes: Mapping[str, Any]) -> None:
        objects = [msgspec.convert(dict(each), Node) for each in nodes]
        list_all(self.nodes, objects)
        list_all(self.hosts.nodes, objects)

    async def score(self, pod: Mapping[str, Any], *names: str) -> dict[str, int]:
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": list(names)}).encode()
        return {each["Host"]: each["Score"] for each in json.loads(await self.verb(body))}

    async def score_whole(self, pod: Mapping[str, Any], *nodes: Mapping[str, Any]) -> dict[str, int]:
        body = json.dumps({"Pod": pod, "Nodes": {"items": list(nodes)}, "NodeNames": None}).encode()
        return {each["Host"]: each["Score"] for each in json.loads(await self.verb(body))}

    async def run(self, pod: Mapping[str, Any], node: str) -> str:
        """Create a pod, bind it, and return the cards that it got."""
        self.cluster.add(pod)
        await self.ask(pod, node)
        assert await self.bind(pod, node) == ""
        return str(self.cluster.bindings[-1]["annotations"]["gas-container-cards"])


def as_host(pod: Any) -> HostPod:
    return msgspec.convert(msgspec.to_builtins(pod), HostPod)


def best(scores: Mapping[str, int]) -> str:
    return max(scores, key=lambda name: scores[name])


# The scores.


async def test_a_pod_goes_where_it_completes_a_card() -> None:
    decider = Scored(*(gpu_node(name) for name in ("n1", "n2", "n3")))
    for number in range(30):
        await decider.ask(gpu_pod((810, 190, 470)[number % 3]), "n1")
    await decider.run(gpu_pod(470), "n1")
    await decider.run(gpu_pod(810), "n2")
    scores = await decider.score(gpu_pod(190), "n1", "n2", "n3")
    assert best(scores) == "n2"


async def test_a_pod_with_much_cpu_goes_where_no_cards_are_left_without_cpu() -> None:
    decider = Scored(gpu_node("poor", cpu=24), gpu_node("rich", cpu=104))
    for _ in range(20):
        await decider.ask(gpu_pod(1000, cpu="10"), "rich")
    scores = await decider.score(gpu_pod(1000, cpu="20"), "poor", "rich")
    assert best(scores) == "rich"


async def test_a_pod_without_cards_keeps_away_from_nodes_whose_cards_need_the_cpu() -> None:
    decider = Scored(gpu_node("poor", cpu=24), gpu_node("rich", cpu=104))
    for _ in range(20):
        await decider.ask(gpu_pod(1000, cpu="10"), "rich")
    other = pod_json({"name": "main", "resources": {"requests": {"cpu": "8"}}})
    assert best(await decider.score(other, "poor", "rich")) == "rich"


async def test_a_pod_avoids_nodes_that_others_cannot_do_without() -> None:
    """The scarce node comes first by name, so without a price it would win."""
    nodes = [gpu_node("a-scarce", cards=1, cpu=100), gpu_node("b-common", cards=4, cpu=400)]
    decider = Scored(*nodes)
    for number in range(20):
        pod = gpu_pod(1000, cpu="1")
        if number % 2:
            pod["spec"]["nodeSelector"] = {"model": "scarce"}
        await decider.ask(pod, *(["a-scarce"] if number % 2 else ["a-scarce", "b-common"]))
    assert best(await decider.score(gpu_pod(1000, cpu="1"), "a-scarce", "b-common")) == "b-common"


@pytest.mark.parametrize("policy", [policy for policy in NodeScore if policy is not NodeScore.NONE])
async def test_no_two_nodes_tie_and_scores_are_whole_numbers(policy: NodeScore) -> None:
    names = [f"n{number}" for number in range(7)]
    decider = Scored(*map(gpu_node, names), policy=policy)
    scores = await decider.score(gpu_pod(300), *names)
    assert len(set(scores.values())) == len(names)
    assert all(type(score) is int and score >= 0 for score in scores.values())
    assert best(scores) == "n0", "of equal nodes the first by name"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param("best-fit", "full", id="best-fit"),
        pytest.param("spread", "idle", id="spread"),
        pytest.param("least-loaded", "one-large", id="least-loaded"),
    ],
)
async def test_a_pod_chooses_its_policy(policy: str, expected: str) -> None:
    decider = Scored(gpu_node("full"), gpu_node("one-large"), gpu_node("idle", cards=8))
    for _ in range(3):
        await decider.run(gpu_pod(250), "full")
        await decider.run(gpu_pod(250), "idle")
        await decider.run(gpu_pod(250), "idle")
    await decider.run(gpu_pod(600), "full")
    await decider.run(gpu_pod(600), "one-large") if policy != "least-loaded" else None
    pod = gpu_pod(100, annotations={"gas-node-score": policy})
    assert best(await decider.score(pod, "full", "one-large", "idle")) == expected


async def test_none_makes_all_nodes_equal() -> None:
    decider = Scored(gpu_node("n1"), gpu_node("n2"))
    pod = gpu_pod(100, annotations={"gas-node-score": "none"})
    assert await decider.score(pod, "n1", "n2") == {"n1": 0, "n2": 0}


async def test_a_policy_that_does_not_exist_refuses_the_pod() -> None:
    decider = Scored(gpu_node("n1"))
    pod = gpu_pod(100, annotations={"gas-node-score": "best"})
    answer = await decider.ask(pod, "n1")
    assert answer["FailedNodes"] == {
        "n1": "gas-node-score: expected balance|best-fit|best-fit-card|spread|least-loaded|none, found 'best'"
    }
    assert await decider.score(pod, "n1") == {"n1": 0}


async def test_a_node_without_room_or_not_known_comes_last() -> None:
    decider = Scored(gpu_node("n1", cards=1), gpu_node("n2", cards=1))
    await decider.run(gpu_pod(1000), "n1")
    scores = await decider.score(gpu_pod(500), "n1", "n2", "n3")
    assert best(scores) == "n2"
    assert scores["n2"] > IN_TREE + max(scores["n1"], scores["n3"])


async def test_nodes_for_which_there_was_no_time_are_scored_by_the_next_question() -> None:
    decider = Scored(gpu_node("full", cards=1), gpu_node("idle"))
    await decider.run(gpu_pod(1000), "full")
    decider.scores._clock = count(step=PATIENCE).__next__
    assert best(await decider.score(gpu_pod(500), "full", "idle")) == "full"
    decider.scores._clock = decider.clock
    assert best(await decider.score(gpu_pod(500), "full", "idle")) == "idle"


async def test_whole_nodes_are_scored_as_they_are_sent() -> None:
    decider = Scored(gpu_node("n1"), gpu_node("n2"))
    for _ in range(20):
        await decider.ask(gpu_pod(1000, cpu="10"), "n1")
    sent = [gpu_node("n1", cpu=20), gpu_node("n2", cpu=100), gpu_node("unknown", cards=1, cpu=20)]
    scores = await decider.score_whole(gpu_pod(1000, cpu="15"), *sent)
    assert best(scores) == "n2"
    assert set(scores) == {"n1", "n2", "unknown"}


async def test_whole_nodes_that_are_known_get_the_scores_of_their_names() -> None:
    nodes = [gpu_node("n1", cpu=24), gpu_node("n2", cards=4), gpu_node("n3", cards=1)]
    decider = Scored(*nodes)
    for _ in range(20):
        await decider.ask(gpu_pod(470), "n1")
    await decider.run(gpu_pod(470), "n2")
    pod = gpu_pod(470)
    assert await decider.score_whole(pod, *nodes) == await decider.score(pod, "n1", "n2", "n3")


# How scores weigh, as docs/extender.md states it. kube-scheduler multiplies them by 10 and adds those of its plugins.

MOST_OF_PLUGINS = 1200
WEIGHT_FOR_EACH_NODE = 13
FULL_SCORE = 100
"""The difference that a plugin with weight 1 makes between a node that meets its rule and one that does not."""

COSTS = st.dictionaries(st.text("ab0", min_size=1, max_size=4), st.none() | st.integers(-3, 3) | st.integers())


@given(COSTS)
def test_nodes_are_ordered_by_room_then_cost_then_name(costs: dict[str, int | None]) -> None:
    scores = dict(as_scores(list(costs), list(costs.values())))
    expected = sorted(costs, key=lambda name: (costs[name] is None, costs[name] or 0, name))
    assert sorted(costs, key=scores.__getitem__, reverse=True) == expected
    assert len(set(scores.values())) == len(costs)


@given(COSTS)
def test_neighbours_differ_by_10_points_or_outvote_all_other_plugins(costs: dict[str, int | None]) -> None:
    scores = dict(as_scores(list(costs), list(costs.values())))
    from_worst = sorted(costs, key=scores.__getitem__)
    for worse, better in pairwise(from_worst):
        points = (scores[better] - scores[worse]) * 10
        assert points == (10 if costs[worse] == costs[better] else 1290)
    assert MOST_OF_PLUGINS < 1290


@given(COSTS)
@example({f"n{number}": number**3 for number in range(5000)})
def test_a_soft_rule_with_weight_13_for_each_node_wins(costs: dict[str, int | None]) -> None:
    """Even if all other plugins together and the extender favour a node that does not meet it."""
    scores = [score for _, score in as_scores(list(costs), list(costs.values()))] or [0]
    others = (max(scores) - min(scores)) * 10 + MOST_OF_PLUGINS
    assert WEIGHT_FOR_EACH_NODE * max(len(costs), 1) * FULL_SCORE > others


def test_plugins_move_a_pod_past_at_most_120_nodes_of_the_same_cost() -> None:
    names = [f"n{number:03}" for number in range(500)]
    scores = dict(as_scores(names, [7] * 500))
    first = scores["n000"] * 10
    assert scores["n119"] * 10 + MOST_OF_PLUGINS > first
    assert scores["n121"] * 10 + MOST_OF_PLUGINS < first


@pytest.mark.parametrize("weight", [1, 100, 10**6])
def test_scores_stay_in_64_bits_after_kube_scheduler_has_multiplied_them(weight: int) -> None:
    worst_case = dict(as_scores([f"n{number}" for number in range(5000)], range(-64_000, 66_000, 26)))
    assert max(worst_case.values()) * weight * 10 < 2**63


# The flag and the verb.


def test_it_is_off_by_default() -> None:
    assert not SCORING.is_on(parse_flags([]))
    assert SCORING.is_on(parse_flags(["--node-score=balance"]))
    assert parse_flags(["--node-score=balance"]).of(ScoringFlags).node_score is NodeScore.BALANCE


def test_an_unknown_policy_is_refused() -> None:
    sentence = "expected balance, best-fit, best-fit-card, spread, least-loaded or none, found 'fair'"
    with pytest.raises(UsageError) as refused:
        parse_flags(["--node-score=fair"])
    assert str(refused.value) == f"flag --node-score: {sentence}; see --help"


async def test_a_replica_that_is_not_ready_scores_nothing() -> None:
    decider = Scored(gpu_node("n1"))
    decider.not_ready = "this replica does not lead"
    with pytest.raises(NotReady):
        await decider.score(gpu_pod(100), "n1")


async def test_bodies_that_are_no_requests_are_refused() -> None:
    decider = Scored(gpu_node("n1"))
    with pytest.raises(Unreadable):
        await decider.verb(b"{")
    with pytest.raises(BadRequest):
        await decider.verb(b'{"Pod": null, "NodeNames": ["n1"]}')


async def test_scored_requests_are_counted() -> None:
    decider = Scored(gpu_node("n1"))
    await decider.score(gpu_pod(100), "n1")
    assert decider.counted("requests_total", verb="prioritize", result="scored") == 1


# The card.


SPREAD = {"gas-card-order": "fewest-containers"}


@pytest.mark.parametrize(
    ("prefers", "annotations", "card"),
    [
        pytest.param({}, {}, "card1", id="the-least-waste-is-what-the-score-assumed"),
        pytest.param({}, SPREAD, "card2", id="an-order-that-the-pod-chose"),
        pytest.param({}, {"gas-card-order": "natural"}, "card0", id="natural-order-that-the-pod-chose"),
        pytest.param({"telemetry.aware.scheduling.p/gas-prefer-gpu": "card2"}, {}, "card2", id="what-the-node-prefers"),
    ],
)
async def test_the_card_of_a_pod_that_was_scored(
    prefers: dict[str, str], annotations: dict[str, str], card: str
) -> None:
    decider = Scored(gpu_node("n1", cards=3))
    for number in range(60):
        await decider.ask(gpu_pod((810, 190, 470)[number % 3]), "n1")
    assert [await decider.run(gpu_pod(size, annotations=SPREAD), "n1") for size in (470, 810)] == ["card0", "card1"]
    decider.set_nodes(gpu_node("n1", cards=3, labels=prefers))
    pod = gpu_pod(190, annotations=annotations)
    await decider.score(pod, "n1")
    assert await decider.run(pod, "n1") == card


async def test_pods_that_arrive_after_a_score_do_not_change_its_card() -> None:
    """They make the mix anew, by which another card would waste less."""
    cards: dict[bool, str] = {}
    for assumed in (True, False):
        decider = Scored(gpu_node("n1", cards=2))
        for _ in range(60):
            await decider.ask(gpu_pod(200), "n1")
        await decider.run(gpu_pod(800), "n1")
        await decider.run(gpu_pod(610), "n1")
        pod = gpu_pod(190)
        if assumed:
            await decider.score(pod, "n1")
        for _ in range(1000):
            at_once(decider.filter(args(gpu_pod(390)), now=0.0))
        decider.cluster.add(pod)
        assert await decider.bind(pod, "n1") == ""
        cards[assumed] = decider.cluster.bindings[-1]["annotations"]["gas-container-cards"]
    assert cards == {True: "card1", False: "card0"}


async def test_without_scores_the_first_card_that_fits_is_given_as_ever() -> None:
    decider = DrivenDecider()
    list_all(decider.nodes, [msgspec.convert(gpu_node("n1", cards=3), Node)])
    for millicores, card in ((470, "card0"), (810, "card1"), (190, "card0")):
        pod = gpu_pod(millicores)
        decider.cluster.add(pod)
        assert await decider.bind(pod, "n1") == ""
        assert decider.cluster.bindings[-1]["annotations"]["gas-container-cards"] == card


# What is learned.


async def test_a_pod_that_waits_is_learned_from_once() -> None:
    decider = Scored(gpu_node("n1"))
    waiting = gpu_pod(300)
    for _ in range(5):
        await decider.ask(waiting, "n1")
    await decider.ask(gpu_pod(300), "n1")
    assert decider.scores.demand.arrivals == 2


async def test_after_a_restart_bound_pods_are_learned_from() -> None:
    decider = Scored(gpu_node("n1", cards=8))
    for number in range(3):
        await decider.run(gpu_pod(300, name=f"p{number}"), "n1")
    again = Scored(gpu_node("n1", cards=8))
    again.list_pods(decider.cluster.all())
    await again.ask(gpu_pod(300), "n1")
    assert again.scores.demand.arrivals == 4


@pytest.mark.parametrize(
    ("spec", "is_restricted"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"nodeSelector": {}}, False, id="empty-selector"),
        pytest.param({"nodeSelector": {"model": "a"}}, True, id="selector"),
        pytest.param({"affinity": {}}, False, id="empty-affinity"),
        pytest.param({"affinity": {"podAffinity": {"x": 1}}}, False, id="only-affinity-between-pods"),
        pytest.param(
            {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
            False,
            id="only-preferred",
        ),
        pytest.param(
            {
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
                }
            },
            True,
            id="required",
        ),
    ],
)
def test_a_pod_is_restricted_by_its_selector_or_required_affinity(spec: dict[str, Any], is_restricted: bool) -> None:
    pod = gpu_pod(100)
    pod["spec"] |= spec
    asked = decode_filter(json.dumps({"Pod": pod, "NodeNames": ["n"]}).encode()).pod
    assert isinstance(asked, AskedPod)
    assert (asked.node_restriction is not None) == is_restricted


async def test_what_was_learned_is_shown() -> None:
    decider = Scored(gpu_node("n1"), gpu_node("n2", cards=4))
    assert json.loads(decider.scoring.demand_json())["pods"] == []
    for number in range(20):
        pod = gpu_pod(500, cpu="5")
        if number % 2:
            pod["spec"]["nodeSelector"] = {"model": "a"}
        await decider.ask(pod, *(["n1"] if number % 2 else ["n1", "n2"]))
    await decider.score(gpu_pod(500), "n1", "n2")
    shown = json.loads(decider.scoring.demand_json())
    assert shown["arrivals"] == 20
    containers = [{"cards": 1, "of_each": {"i915": 1, "millicores": 500}, "ratios": []}]
    host = {"cpu": 50_000, "memory": 10 * 8 * 2**30, "pods": 10}
    assert shown["pods"] == [
        {"containers": containers, "restricted": restricted, "number": 10, "host": host} for restricted in (False, True)
    ]
    (card,) = shown["cards"]
    assert card["per_card"]["cpu"] == 10_000
    assert len(card["unused"]) == 101
    assert shown["pressure"] == [{"cards": 2, "cpu": 32_000, "pressure": 1.5}]


async def test_nodes_alike_share_what_is_known_of_their_cards() -> None:
    decider = Scored(gpu_node("n1"), gpu_node("n2"), gpu_node("n3", cards=4))
    await decider.score(gpu_pod(100), "n1", "n2", "n3")
    pools = decider.scores._pools
    assert pools["n1"] is pools["n2"]
    assert pools["n1"] != pools["n3"]


async def test_scores_are_recorded_with_the_best_of_the_other_nodes() -> None:
    names = ["n1", "n2", "n3"]
    decider = Scored(*(gpu_node(name) for name in names))
    pod = gpu_pod(300)
    decider.cluster.add(pod)
    await decider.ask(pod, *names)
    scores = await decider.score(pod, *names)
    assert await decider.bind(pod, "n2") == ""
    (decision,) = json.loads(decisions_json(decider.decisions))
    assert decision["score"] == scores["n2"]
    others = sorted(((scores[name], name) for name in ("n1", "n3")), reverse=True)
    assert [(each["score"], each["node"]) for each in decision["alternatives"]] == others
    assert decision["milliseconds"].keys() == {"filter", "prioritize", "bind"}


# The cache.


def args(pod: Mapping[str, Any], *names: str) -> FilterArgs:
    return FilterArgs(msgspec.convert(dict(pod), AskedPod), list(names or ("n1",)), None)


SHAPES = [
    gpu_pod(300),
    gpu_pod(810, cpu="9"),
    gpu_pod(2000, cards=2, cpu="12"),
    gpu_pod(190, annotations={"gas-node-score": "spread"}),
    gpu_pod(190, annotations={"gas-node-score": "least-loaded"}),
    gpu_pod(500, annotations={"gas-card-order": "used-first"}),
    pod_json({"name": "main", "resources": {"requests": {"cpu": "3"}}}),
]
NAMES = ("n1", "n2", "n3")


class Caches(RuleBasedStateMachine):
    """Whatever happens to nodes, bookings and hosts, costs are those that a fresh decider works out."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.count = 0

    def teardown(self) -> None:
        self.runner.close()

    @initialize(cpu=st.integers(8, 64))
    def start(self, cpu: int) -> None:
        self.there = {name: gpu_node(name, cards=at + 1, cpu=cpu) for at, name in enumerate(NAMES)}
        self.decider = Scored(*self.there.values())

    def _new(self, shape: int) -> dict[str, Any]:
        self.count += 1
        pod = json.loads(json.dumps(SHAPES[shape]))
        pod["metadata"] |= {"name": f"p{self.count}", "uid": f"u{self.count}"}
        if shape % 2 == 0 and "annotations" not in pod["metadata"]:
            pod["spec"]["nodeSelector"] = {"model": "n1 or n3"}
        return pod  # type: ignore[no-any-return]  # JSON

    @rule(shape=st.integers(0, len(SHAPES) - 1), times=st.sampled_from([1, 1, 25]))
    def arrive(self, shape: int, times: int) -> None:
        for _ in range(times):
            at_once(self.decider.filter(args(self._new(shape), "n1", "n3"), now=0.0))

    @rule(shape=st.integers(0, len(SHAPES) - 1), node=st.sampled_from(NAMES))
    def bind(self, shape: int, node: str) -> None:
        pod = self._new(shape)
        self.decider.cluster.add(pod)
        self.runner.run(self.decider.bind(pod, node))

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if pods := sorted(self.decider.cluster.pods):
            self.decider.cluster.remove(data.draw(st.sampled_from(pods)))

    @rule(node=st.sampled_from(NAMES), cpu=st.integers(8, 64), disabled=st.booleans())
    def change(self, node: str, cpu: int, disabled: bool) -> None:
        labels = {"telemetry.aware.scheduling.p/gas-disable-card0": "x"} if disabled else {}
        self.there[node] = gpu_node(node, cards=NAMES.index(node) + 1, cpu=cpu, labels=labels)
        self.decider.set_nodes(*self.there.values())

    @invariant()
    def costs_are_those_of_a_fresh_decider(self) -> None:
        if not hasattr(self, "decider"):
            return
        scores = self.decider.scores
        for shape in range(len(SHAPES)):
            pod = self._new(shape)
            asked = msgspec.convert(pod, AskedPod)
            need = DEFAULT.need(asked, COUNTING.need)
            requests = pod_requests(asked)
            remembered = at_once(scores.of("", need, requests, NAMES))
            assert remembered == self._fresh(scores, need, requests), pod

    def _fresh(self, scores: Scores, need: PodNeed, requests: Any) -> list[int | None]:
        """Work the costs out with caches that are empty."""
        fresh = Scores(NodeScore.BALANCE, self.decider)
        fresh._states = NodeStates(self.decider.nodes, self.decider.ledger)
        fresh._mix, fresh._pressures = scores.mix()
        fresh.demand = scores.demand
        return at_once(fresh.of("", need, requests, NAMES))


TestCaches = Caches.TestCase
TestCaches.settings = settings(max_examples=40, stateful_step_count=12, derandomize=True, deadline=None, database=None)
