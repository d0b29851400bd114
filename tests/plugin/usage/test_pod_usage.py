"""Each pod's use of each card: counted once, never negative, never of another pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gas.plugin.usage.fdinfo import Client, EngineTime
from gas.plugin.usage.pod_usage import FORGET_AFTER, EngineUse, MeasuredUse, PodUsages
from gas.plugin.usage.process_walk import SeenClient
from gas.values.cards import Card
from tests.plugin.gpus import gpu
from tests.plugin.usage.processes import CARD0, CARD1

CARDS = {CARD0: gpu(0, memory_size=1000), CARD1: gpu(1, memory_size=None)}
PODS = ("a", "b", "c")


def seen(pod: str, client: int, memory: int = 0, *, card: str = CARD0, **engines: EngineTime) -> SeenClient:
    return SeenClient(pod, Client(card, client, memory, engines))


def ns(busy: float, capacity: int = 1) -> EngineTime:
    """Return the time of an engine that was busy for so many seconds."""
    return EngineTime(int(busy * 1e9), capacity=capacity)


def walked(*walks: Iterable[SeenClient], pods: Iterable[str] = PODS) -> PodUsages:
    """Return the usages after walks that are 10 s apart."""
    usages = PodUsages()
    for number, walk in enumerate(walks):
        usages.update(walk, pods=set(pods), cards=CARDS, now=10.0 * number)
    return usages


class TestMemory:
    def test_clients_of_a_pod_add_up_by_card(self) -> None:
        usages = walked([seen("a", 1, 100), seen("a", 2, 200), seen("a", 1, 7, card=CARD1), seen("b", 3, 400)])
        assert usages.pods == {
            "a": {Card(0): MeasuredUse(300, 2), Card(1): MeasuredUse(7, 1)},
            "b": {Card(0): MeasuredUse(400, 1)},
        }

    def test_a_client_that_several_processes_have_open_counts_once(self) -> None:
        usages = walked([seen("a", 1, 100), seen("a", 1, 100), seen("a", 1, 104)])
        assert usages.pods == {"a": {Card(0): MeasuredUse(104, 1)}}

    def test_a_client_of_two_pods_counts_for_the_first(self) -> None:
        usages = walked([seen("b", 1, 100)], [seen("a", 1, 100), seen("b", 1, 100)])
        assert usages.pods == {"b": {Card(0): MeasuredUse(100, 1)}}
        usages.update([seen("a", 1, 100)], pods=PODS, cards=CARDS, now=20.0)
        assert usages.pods == {"a": {Card(0): MeasuredUse(100, 1)}}, "until the first has closed it"

    def test_it_never_exceeds_the_card(self) -> None:
        """Buffers that two clients share are in the numbers of both."""
        assert walked([seen("a", 1, 900), seen("a", 2, 900)]).pods["a"][Card(0)].memory == 1000

    def test_a_client_that_states_an_impossible_amount_is_left_out(self) -> None:
        lying = seen("a", 1, 95 * 2**40, render=ns(1))
        assert walked([lying, seen("a", 2, 100), seen("b", 3, 50)]).pods == {
            "a": {Card(0): MeasuredUse(100, 1)},
            "b": {Card(0): MeasuredUse(50, 1)},
        }
        assert walked([lying]).pods == {}
        assert walked([seen("a", 1, 1001)]).pods == {"a": {Card(0): MeasuredUse(1000, 1)}}, "a little more is accepted"

    def test_it_falls_when_it_is_freed(self) -> None:
        assert walked([seen("a", 1, 900)], [seen("a", 1, 10)]).pods["a"][Card(0)].memory == 10

    def test_cards_and_pods_that_are_not_known_do_not_count(self) -> None:
        assert walked([seen("a", 1, 100, card="0000:ff:00.0"), seen("unwatched", 2, 100)]).pods == {}


class TestEngines:
    def test_nanoseconds(self) -> None:
        usages = walked([seen("a", 1, render=ns(100))], [seen("a", 1, render=ns(104))])
        assert usages.pods["a"][Card(0)].engines == {"render": EngineUse(4.0, 0.4)}

    def test_cycles_are_a_share_of_the_time(self) -> None:
        usages = walked(
            [seen("a", 1, rcs=EngineTime(50, 1000))],
            [seen("a", 1, rcs=EngineTime(550, 2000))],
        )
        assert usages.pods["a"][Card(0)].engines == {"rcs": EngineUse(5.0, 0.5)}

    def test_a_class_of_several_engines_can_be_busy_for_longer_than_the_time(self) -> None:
        usages = walked([seen("a", 1, video=ns(0, 2))], [seen("a", 1, video=ns(15, 2))])
        assert usages.pods["a"][Card(0)].engines == {"video": EngineUse(15.0, 0.75)}

    def test_clients_add_up_and_a_shared_one_counts_once(self) -> None:
        usages = walked(
            [seen("a", 1, render=ns(0)), seen("a", 2, render=ns(0))],
            [seen("a", 1, render=ns(3)), seen("a", 1, render=ns(3)), seen("a", 2, render=ns(2))],
        )
        assert usages.pods["a"][Card(0)].engines == {"render": EngineUse(5.0, 0.5)}

    def test_a_counter_that_falls_stays_until_it_has_caught_up(self) -> None:
        usages = walked(
            [seen("a", 1, render=ns(100))],
            [seen("a", 1, render=ns(104))],
            [seen("a", 1, render=ns(50))],
            [seen("a", 1, render=ns(103))],
            [seen("a", 1, render=ns(106))],
        )
        assert usages.pods["a"][Card(0)].engines["render"].seconds == pytest.approx(6.0)

    def test_the_time_stays_when_the_client_is_gone(self) -> None:
        usages = walked([seen("a", 1, render=ns(0))], [seen("a", 1, render=ns(4))], [])
        assert usages.pods["a"][Card(0)] == MeasuredUse(0, 0, {"render": EngineUse(4.0, 0.0)})

    def test_a_client_that_was_unreadable_for_a_while_goes_on(self) -> None:
        usages = walked([seen("a", 1, render=ns(0))], [seen("a", 1, render=ns(4))], [], [seen("a", 1, render=ns(6))])
        assert usages.pods["a"][Card(0)].engines["render"].seconds == pytest.approx(6.0)

    def test_a_client_that_comes_back_after_long_is_a_new_one(self) -> None:
        usages = walked([seen("a", 1, render=ns(0))], [seen("a", 1, render=ns(4))])
        usages.update([seen("a", 1, render=ns(2))], pods=PODS, cards=CARDS, now=FORGET_AFTER + 20)
        usages.update([seen("a", 1, render=ns(3))], pods=PODS, cards=CARDS, now=FORGET_AFTER + 30)
        assert usages.pods["a"][Card(0)].engines["render"].seconds == pytest.approx(5.0)

    def test_time_before_the_plugin_started_does_not_count(self) -> None:
        assert walked([seen("a", 1, render=ns(500))]).pods["a"][Card(0)].engines == {"render": EngineUse(0.0, 0.0)}

    def test_a_jump_that_no_engine_can_make_counts_for_nothing(self) -> None:
        usages = walked([seen("a", 1, render=ns(0))], [seen("a", 1, render=ns(9e9))])
        assert usages.pods["a"][Card(0)].engines == {"render": EngineUse(0.0, 0.0)}

    def test_a_client_that_goes_over_to_another_pod_takes_no_time_along(self) -> None:
        usages = walked([seen("a", 1, render=ns(0))], [seen("a", 1, render=ns(4))], [seen("b", 1, render=ns(5))])
        assert usages.pods["a"][Card(0)].engines["render"].seconds == pytest.approx(4.0)
        assert usages.pods["b"][Card(0)].engines["render"].seconds == 0.0

    def test_a_pod_that_is_gone_is_forgotten(self) -> None:
        usages = walked([seen("a", 1, render=ns(0))], [seen("a", 1, render=ns(4))])
        usages.update([], pods={"b"}, cards=CARDS, now=30.0)
        assert usages.pods == {}


@dataclass
class _Opened:
    """A client of the model: who opened it, who has it open, and its true figures."""

    card: str
    pods: set[str]
    memory: int = 0
    busy: int = 0
    engines: Mapping[str, int] = field(default_factory=dict)


class UsageHistories(RuleBasedStateMachine):
    """Random clients come, work, are shared between processes and pods, are unreadable for a while, and go.

    The counters that the plugin reads may dip below the truth. It is compared with sums over the true clients.
    """

    def __init__(self) -> None:
        super().__init__()
        self.usages = PodUsages()
        self.clients: dict[int, _Opened] = {}
        self.pods: set[str] = set(PODS)
        self.now = 0.0
        self.true_ns = 0
        self.before: dict[tuple[str, Card, str], float] = {}
        self.next_id = 1

    @initialize()
    def start(self) -> None:
        self.usages.update([], pods=self.pods, cards=CARDS, now=self.now)

    @rule(card=st.sampled_from([CARD0, CARD1]), pod=st.sampled_from(PODS), memory=st.integers(0, 600))
    def open(self, card: str, pod: str, memory: int) -> None:
        self.clients[self.next_id] = _Opened(card, {pod}, memory)
        self.next_id += 1

    @rule(data=st.data(), pod=st.sampled_from(PODS))
    def share(self, data: st.DataObject, pod: str) -> None:
        if self.clients:
            self.clients[data.draw(st.sampled_from(sorted(self.clients)))].pods.add(pod)

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        if self.clients:
            opened = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
            opened.pods.discard(data.draw(st.sampled_from(sorted(opened.pods) or [""])))
            self.clients = {key: each for key, each in self.clients.items() if each.pods}

    @rule(data=st.data())
    def delete_pod(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(PODS))
        self.pods ^= {pod}

    @rule(data=st.data(), seconds=st.floats(0.1, 30))
    def walk(self, data: st.DataObject, seconds: float) -> None:
        self.now += seconds
        readings: list[SeenClient] = []
        for key, opened in self.clients.items():
            worked = data.draw(st.integers(0, int(seconds * 1e9)))
            opened.busy += worked
            self.true_ns += worked
            if data.draw(st.integers(0, 9)) == 0:
                continue  # unreadable in this walk
            dip = data.draw(st.sampled_from([0, 0, 0, 1, opened.busy // 2]))
            time = EngineTime(max(opened.busy - dip, 0))
            for pod in sorted(opened.pods):
                for _ in range(data.draw(st.integers(1, 2))):
                    readings.append(seen(pod, key, opened.memory, card=opened.card, render=time))
        self.usages.update(data.draw(st.permutations(readings)), pods=self.pods, cards=CARDS, now=self.now)
        self._check(readings)

    def _check(self, readings: list[SeenClient]) -> None:
        counted = {
            (each.client.pci_address, each.client.id): each.client.memory for each in readings if each.pod in self.pods
        }
        by_card = {CARD0: 0, CARD1: 0}
        for (address, _), memory in counted.items():
            by_card[address] += memory
        for address, known in CARDS.items():
            uses = [cards[known.card] for cards in self.usages.pods.values() if known.card in cards]
            total = sum(use.memory for use in uses)
            assert total <= by_card[address], "no client counts twice"
            assert sum(use.clients for use in uses) == sum(place == address for place, _ in counted)
            if known.memory_size is None:
                assert total == by_card[address], "no client is left out"
        for pod, cards in self.usages.pods.items():
            assert pod in self.pods
            for card, use in cards.items():
                own = [each for each in readings if each.pod == pod]
                own = [each for each in own if CARDS[each.client.pci_address].card == card]
                assert use.clients <= len({each.client.id for each in own}), "no client of another pod"
        shown = {
            (pod, card, name): engine.seconds
            for pod, cards in self.usages.pods.items()
            for card, use in cards.items()
            for name, engine in use.engines.items()
        }
        for engine, seconds in shown.items():
            assert seconds >= self.before.get(engine, 0.0) >= 0.0, "a counter never falls"
        self.before = shown

    @invariant()
    def no_more_time_than_was_used(self) -> None:
        assert sum(self.before.values()) <= self.true_ns / 1e9 + 1e-3

    @invariant()
    def shares_are_shares(self) -> None:
        for cards in self.usages.pods.values():
            for use in cards.values():
                assert use.memory >= 0
                assert all(0.0 <= engine.busy <= 1.0 for engine in use.engines.values())


TestUsageHistories = UsageHistories.TestCase
TestUsageHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


times = st.builds(
    EngineTime,
    st.integers(0, 2**63),
    st.one_of(st.none(), st.integers(0, 2**63)),
    st.integers(1, 1000),
)
clients = st.builds(
    seen,
    st.sampled_from(PODS),
    st.integers(1, 3),
    st.integers(0, 2**50),
    card=st.sampled_from([CARD0, CARD1]),
    rcs=times,
)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.lists(clients, max_size=6)), max_size=6))
def test_lying_counters_are_never_negative_nor_more_than_engines_can_do(
    walks: list[tuple[float, list[SeenClient]]],
) -> None:
    usages = PodUsages()
    now, before = 0.0, 0.0
    for seconds, walk in walks:
        now += seconds
        usages.update(walk, pods=PODS, cards=CARDS, now=now)
        total = 0.0
        for cards in usages.pods.values():
            for use in cards.values():
                assert use.memory >= 0
                for engine in use.engines.values():
                    assert 0.0 <= engine.busy <= 1.0
                    total += engine.seconds
        assert total >= before
        assert total <= 2 * 1000 * now * 6 + 1e-6
        before = total
