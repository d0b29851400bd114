"""A state machine of pods, binds, lost responses, late and repeated events, with what must hold at any time."""

from __future__ import annotations

import asyncio
import copy
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gas.extender.debug import differences
from gas.extender.pods import Pods
from gas.extender.verdicts import Verdicts, at_once
from gas.ledger.ledger import Ledger, State
from gas.objects.stored import Node, Pod
from gas.placement.inventory import Company
from gas.placement.place import DEFAULT_STEP_LIMIT
from gas.vocabularies.intel.need import read_need
from gas.vocabularies.known import DEFAULT
from gas.vocabularies.pod_parts import need_facts
from gas.vocabularies.protocol import NeedOptions
from tests.builders import container, node_json, pod_json
from tests.extender.cluster import Cluster, Outcome
from tests.extender.decider import DrivenDecider, as_pod
from tests.listed import list_all

Result = TypeVar("Result")

SHAPES: list[dict[str, Any]] = [
    pod_json(container(i915=1, millicores=600)),
    pod_json(container(i915=2, millicores=1200)),
    pod_json(container(i915=1, millicores=600, tiles=2)),
    pod_json(container(i915=1, millicores=300, tiles=1)),
    pod_json(container("a", i915=1, millicores=600), container("b", i915=1, millicores=600)),
    pod_json(container(i915=1, millicores=200), init=(container("init", i915=1, millicores=900),)),
    pod_json(
        container(i915=1, millicores=200), init=(container("sidecar", always=True, i915=1, millicores=300, tiles=1),)
    ),
    pod_json(
        container("a", i915=1, millicores=200),
        container("b", i915=1, millicores=300),
        annotations={"gas-same-gpu": "a,b"},
    ),
    pod_json(container(), annotations={"gas-container-cards": "card0"}),
    pod_json(container(i915=1, millicores=100), annotations={"gas-card-affinity": "a", "gas-card-exclusion": "x"}),
    pod_json(container(i915=1, millicores=100), annotations={"gas-card-anti-affinity": "a"}),
    pod_json(container(i915=1, millicores=100), annotations={"gas-card-name": "train"}),
]
NEEDS = [read_need(need_facts(as_pod(shape)), NeedOptions()) for shape in SHAPES]
CAPACITY = {"i915": 4, "millicores": 1000, "tiles": 2}
CARDS = 2
NODE_NAMES = ("n1",)


def nodes() -> list[Node]:
    sums: dict[str, Any] = {name: amount * CARDS for name, amount in CAPACITY.items()}
    return [msgspec.convert(node_json(name, cards=CARDS, **sums), Node) for name in NODE_NAMES]


# contract E9.1, E9.8
class Histories(RuleBasedStateMachine):
    """The cluster is the truth; its events reach the extender when the rules let them."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.cluster = Cluster()
        self.cluster.on_change = self._happened
        self.news: list[tuple[str, Pod]] = []
        self.heard: list[tuple[str, Pod]] = []
        self.count = 0
        self._start()

    def teardown(self) -> None:
        self.cluster.away = False
        self._run(self.decider.settle())
        self.runner.close()

    def _start(self) -> None:
        self.decider = self._decider()
        list_all(self.decider.nodes, nodes())
        self._run(self._list())

    def _decider(self) -> DrivenDecider:
        return DrivenDecider(self.cluster)

    async def _list(self) -> None:
        self.news.clear()
        self.heard.clear()
        self.decider.list_pods(self.cluster.all())

    def _happened(self, event: str, pod: Pod) -> None:
        self.news.append((event, pod))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)

    def _some(self, number: int) -> str:
        return sorted(self.cluster.pods)[number % len(self.cluster.pods)]

    def _some_waiting(self, number: int) -> str:
        """Return the key of a pod without a node, as a scheduler would ask about, else of any pod."""
        waiting = sorted(key for key, pod in self.cluster.pods.items() if not pod["spec"].get("nodeName"))
        return waiting[number % len(waiting)] if waiting else self._some(number)

    @rule(shape=st.sampled_from(SHAPES), twin=st.booleans())
    def create(self, shape: dict[str, Any], *, twin: bool) -> None:
        """Create a pod, possibly with the name of one that is gone."""
        self.count += 1
        pod = copy.deepcopy(shape)
        name = "web-0" if twin and "default/web-0" not in self.cluster.pods else f"pod-{self.count}"
        pod["metadata"] |= {"name": name, "uid": f"u{self.count}"}
        self.cluster.add(pod)

    @rule(what=st.lists(st.tuples(st.sampled_from(SHAPES), st.sampled_from(Outcome)), min_size=1, max_size=4))
    def create_and_schedule(self, what: list[tuple[dict[str, Any], Outcome]]) -> None:
        for shape, outcome in what:
            self.create(shape, twin=False)
            self.schedule(0, outcome)

    @precondition(lambda self: self.cluster.pods)
    @rule(number=st.integers(0, 99), outcome=st.sampled_from(Outcome))
    def schedule(self, number: int, outcome: Outcome) -> None:
        pod = self.cluster.pods[self._some_waiting(number)]
        passing = self._run(self.decider.ask(pod, *NODE_NAMES))["NodeNames"]
        if passing:
            self.cluster.outcome = outcome
            self._run(self.decider.bind(pod, passing[0]))

    @precondition(lambda self: self.cluster.pods)
    @rule(numbers=st.lists(st.integers(0, 99), min_size=2, max_size=5))
    def bind_at_once(self, numbers: list[int]) -> None:
        """Bind pods at once without a filter before, all on one node, with writes that take their time."""
        self.cluster.outcome = Outcome.WRITTEN

        async def all_of_them() -> None:
            await asyncio.gather(
                *(self.decider.bind(self.cluster.pods[self._some_waiting(number)], "n1") for number in numbers)
            )

        self._run(all_of_them())

    @rule(count=st.integers(1, 5))
    def hear(self, count: int) -> None:
        for _ in range(min(count, len(self.news))):
            event = self.news.pop(0)
            self.heard.append(event)
            self.decider.see(*event)

    @precondition(lambda self: self.heard)
    @rule(number=st.integers(0, 99))
    def hear_old_news_of_a_pod_again(self, number: int) -> None:
        """Repeat an event, as a response to a single request may be older than the watch; never a deletion."""
        event, pod = self.heard[-1 - number % len(self.heard)]
        if event != "DELETED":
            self.decider.pods.changed(pod)

    @rule()
    def list_again(self) -> None:
        self._run(self._list())

    @precondition(lambda self: self.cluster.pods)
    @rule(number=st.integers(0, 99), how=st.sampled_from(["Succeeded", "removed", "bound"]), count=st.integers(0, 9))
    def list_beside_the_watch(self, number: int, how: str, count: int) -> None:
        """List pods while things happen that the watch may show before the list arrives."""
        snapshot = self.cluster.all()
        if how == "bound":
            self.schedule(number, Outcome.WRITTEN)
        else:
            self.end(number, how)
        self.hear(count)
        self.decider.pods.learn(snapshot)

    @rule()
    def restart(self) -> None:
        self.cluster.away = False
        self._run(self.decider.settle())
        self._start()

    @rule(away=st.booleans())
    def the_api_server_comes_and_goes(self, *, away: bool) -> None:
        self.cluster.away = away
        self._run(asyncio.sleep(0))

    @precondition(lambda self: self.cluster.pods)
    @rule(number=st.integers(0, 99), how=st.sampled_from(["Succeeded", "Failed", "deleting", "removed"]))
    def end(self, number: int, how: str) -> None:
        key = self._some(number)
        if how == "deleting":
            self.cluster.mark_deleted(key)
        elif how == "removed":
            self.cluster.remove(key)
        elif self.cluster.pods[key]["spec"].get("nodeName"):
            self.cluster.end(key, how)

    def _truth(self) -> Ledger:
        """Return the ledger of a fresh start, from what the API server holds."""
        truth = Ledger()
        list_all(Pods(truth, DEFAULT), self.cluster.all())
        return truth

    @rule()
    def hear_everything(self) -> None:
        """Deliver all events; then the ledger is that of the objects and of a fresh start, and has nothing else."""
        self.cluster.away = False
        self._run(self.decider.settle())
        self.hear(len(self.news))
        held = {uid: booking for uid, booking in self.decider.ledger.bookings() if booking.state is State.HELD}
        assert held == self.decider.booked()
        assert dict(self.decider.pods.rebuilt_ledger().bookings()) == held
        assert differences(self.decider.pods, self.decider.ledger) == []
        fresh = self._truth()
        assert dict(fresh.bookings()) == held
        for name in NODE_NAMES:
            assert fresh.usage(name) == self.decider.ledger.usage(name)
        assert not self.decider.pods.in_trouble
        waiting = {pod.uid for pod in self.cluster.all() if not pod.node_name and not pod.is_over}
        assert set(self.decider.pods.waiting) <= waiting

    @invariant()
    def no_card_is_over_capacity_in_what_the_api_server_holds(self) -> None:
        truth = self._truth()
        tiles: dict[tuple[str, int, int], str] = {}
        for uid, booking in truth.bookings():
            for card, indexes in booking.footprint.tiles.items():
                for index in indexes:
                    assert tiles.setdefault((booking.node, card, index), uid) == uid
        for ledger in (truth, self.decider.ledger):
            for name in NODE_NAMES:
                for card, amounts in ledger.usage(name).amounts.items():
                    assert card in range(CARDS)
                    assert all(amount <= CAPACITY[resource] for resource, amount in amounts.items())

    @invariant()
    def no_card_has_pods_that_must_not_share_it(self) -> None:
        of_cards: dict[tuple[str, int], list[Company]] = defaultdict(list)
        named: dict[tuple[str, str], set[int]] = defaultdict(set)
        for _, booking in self._truth().bookings():
            for card in booking.footprint.amounts:
                of_cards[booking.node, card].append(booking.footprint.company)
                if booking.footprint.named:
                    named[booking.node, booking.footprint.named].add(card)
        assert all(len(cards) == 1 for cards in named.values())
        for pods in of_cards.values():
            assert len({pod.exclusion for pod in pods}) == 1
            anti_affinities = [pod.anti_affinity for pod in pods if pod.anti_affinity]
            assert len(set(anti_affinities)) == len(anti_affinities)

    @invariant()
    def every_bound_pod_that_wants_cards_says_which(self) -> None:
        for pod in self.cluster.all():
            if pod.node_name and any(each.resources for each in pod.spec.containers or ()):
                assert pod.annotations["gas-container-cards"]

    @invariant()
    def sums_are_those_of_the_bookings(self) -> None:
        sums: dict[tuple[str, int, str], int] = defaultdict(int)
        for _, booking in self.decider.ledger.bookings():
            for card, amounts in booking.footprint.amounts.items():
                for resource, amount in amounts:
                    sums[booking.node, card, resource] += amount
        assert {key: amount for key, amount in sums.items() if amount} == {
            (name, card, resource): amount
            for name in NODE_NAMES
            for card, amounts in self.decider.ledger.usage(name).amounts.items()
            for resource, amount in amounts.items()
            if amount
        }

    @invariant()
    def what_is_remembered_is_what_would_be_answered_now(self) -> None:
        without = Verdicts(self.decider.nodes, self.decider.ledger, step_limit=DEFAULT_STEP_LIMIT, clock=lambda: 0.0)
        for need in NEEDS:
            assert at_once(self.decider.verdicts.of(need, NODE_NAMES)) == at_once(without.of(need, NODE_NAMES))
