"""Score nodes by what placing a pod on each costs, remembering costs for nodes in equal states. No I/O.

The policies and their costs are in `gas.placement.node_cost`. What pods ask for is learned here from those that arrive.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

from cachetools import LRUCache

from gas.extender.decider import Decider
from gas.extender.hooks import NO_CARDS, Change, Observer, PromisedCards
from gas.extender.host_resources import CPU, MEMORY, PODS, HostFree
from gas.extender.verdicts import SPARE_STATES, TimeBudget, Turns
from gas.objects.stored import Pod
from gas.placement.choice import Footprint, footprint
from gas.placement.inventory import Inventory
from gas.placement.need import PodNeed
from gas.placement.node_cost import Arrivals, Effect, effect, placement_cost, pressures, shares_left
from gas.placement.order import DEFAULT_ORDER, LeastWaste, NodeScore
from gas.placement.place import place
from gas.placement.refusal import Refusal
from gas.placement.waste import Mix
from gas.values.amounts import SortedAmounts, sorted_amounts
from gas.values.cards import Card
from gas.vocabularies.protocol import NodeFacts

Key = TypeVar("Key")
Value = TypeVar("Value")

MOST_NEEDS = 512  # different pods whose costs are remembered; beyond that, those asked about longest ago are forgotten
MOST_COSTS = 500_000  # costs of all of them together
MOST_RESTRICTIONS = 256  # different rules by which pods may use some of the nodes only
MOST_POOLS = 1024  # different pools that nodes share
MOST_ARRIVALS = 20_000  # UIDs of pods learned from: a pod that waits is filtered again and again, and counts once
MOST_ASSUMED = 1000  # pods whose cards were assumed and that may still be bound

IN_TREE = 128
"""A tenth of the most that kube-scheduler's own plugins add up to with their default weights, rounded up: it multiplies
the scores of extenders by 10. A difference of one in cost outvotes them."""

SIZES_IN_A_DOUBLING = 4  # nodes whose memory differs by less than a quarter of a doubling are alike


class Pool(NamedTuple):
    """Nodes with the same cards and about the same host."""

    cards: tuple[SortedAmounts, ...]
    cpu: int
    memory: int


class _State(NamedTuple):
    """Everything that the cost of placing a pod on a node depends on; ``cards`` is a number of `NodeStates`."""

    cards: int
    free: HostFree | None
    pool: Pool


class Scores(Observer):
    """The costs of placing pods on named nodes.

    The cost for a state is remembered, not that of a node, as in `gas.extender.verdicts`. It is forgotten when a new
    mix is made of the pods that were asked for. ``policy`` is for pods that choose none.
    """

    def __init__(self, policy: NodeScore, decider: Decider) -> None:
        self._policy = policy
        self._nodes = decider.nodes
        self._ledger = decider.ledger
        self._states = decider.verdicts.states
        self._hosts = decider.hosts
        self._step_limit = decider.options.step_limit
        self._clock = decider.clock
        self.demand = Arrivals()
        self._mix = self.demand.mix()
        self._pressures: Mapping[Pool, float] = {}
        self._learned: LRUCache[str, None] = LRUCache(MOST_ARRIVALS)
        self._admitted: LRUCache[Hashable, set[Pool]] = LRUCache(MOST_RESTRICTIONS)
        self._assumed: LRUCache[str, tuple[PodNeed, PodNeed]] = LRUCache(MOST_ASSUMED)
        self._scored: LRUCache[PodNeed, PodNeed] = LRUCache(MOST_NEEDS)
        self._pools: dict[str, Pool] = {}
        self._of_node: dict[str, int] = {}
        self._numbers: dict[_State, int] = {}
        self._by_number: dict[int, _State] = {}
        self._last = 0
        self._shares: dict[int, dict[Card, int]] = {}
        self._effects: OrderedDict[PodNeed, dict[int, Effect | None]] = OrderedDict()
        self._costs: OrderedDict[tuple[PodNeed, SortedAmounts], dict[int, int | None]] = OrderedDict()

    def node_changed(self, node: str, change: Change) -> None:
        self._of_node.pop(node, None)
        if Change.CAPACITY in change:
            self._pools.pop(node, None)

    def learn(
        self, uid: str, need: PodNeed, requests: SortedAmounts, restriction: Hashable = None, names: Iterable[str] = ()
    ) -> None:
        """Learn from a pod that has arrived, once; ``restriction`` is that of `Asked`, ``names`` are its nodes."""
        if restriction is not None:
            admitted = self._admitted.setdefault(restriction, set())
            admitted.update({pool for name in names if (pool := self._pool(name)) is not None})
        if uid and uid not in self._learned:
            self._learned[uid] = None
            self.demand.learn(
                need, {name: amount for name, amount in requests if name in (CPU, MEMORY, PODS)}, restriction
            )

    def of(
        self,
        uid: str,
        need: PodNeed,
        requests: SortedAmounts,
        names: Sequence[str],
        promised: PromisedCards = NO_CARDS,
    ) -> Turns[list[int | None]]:
        """Return the cost of placing a pod on each named node, in their order; None where it has no room.

        Its cards will be chosen as this assumes, see `chosen_need`. Cards of ``promised``, by node, count as booked.
        """
        self._refresh()
        asked = self._scored_need(need)
        if uid:
            self._assumed[uid] = need, asked
        known = _latest(self._costs, (asked, requests))
        # One pass without a line of Python for each name; most costs are known. None is never a key.
        costs: list[int | None] = list(map(known.get, map(self._of_node.get, names)))  # type: ignore[arg-type]
        is_any = promised or None in costs
        missing = [at for at, cost in enumerate(costs) if cost is None or names[at] in promised] if is_any else []
        budget = TimeBudget(self._step_limit, self._clock)
        for at in missing:
            name = names[at]
            number = self._of_node.get(name) or self._number(name)
            if number in known and name not in promised:
                costs[at] = known[number]
                continue
            steps = budget.steps()
            found = None
            if number and steps:
                found = self._cost(asked, requests, name, number, steps=steps, promised=promised.get(name, ()))
            if steps == self._step_limit and name not in promised:
                known[number] = found
            costs[at] = found
            yield from budget.pause()
        self._forget_the_oldest()
        return costs

    def as_sent(
        self,
        uid: str,
        need: PodNeed,
        requests: SortedAmounts,
        nodes: Mapping[str, tuple[NodeFacts, HostFree | None]],
        promised: PromisedCards = NO_CARDS,
    ) -> Turns[list[int | None]]:
        """Return the same for nodes that a request describes, with what is booked under their names."""
        self._refresh()
        asked = self._scored_need(need)
        if uid:
            self._assumed[uid] = need, asked
        budget = TimeBudget(self._step_limit, self._clock)
        costs: list[int | None] = []
        for name, (facts, free) in nodes.items():
            steps = budget.steps()
            booked = promised.get(name, ())
            change = self._effect(asked, name, facts.inventory, steps, booked, shares={}) if steps else None
            pool = self._pool(name)
            pressure = self._pressures.get(pool, 0.0) if pool is not None else 0.0
            costs.append(None if change is None else self._policy_cost(asked, change, free, requests, pressure))
            yield from budget.pause()
        return costs

    def chosen_need(self, pod: Pod, need: PodNeed, facts: NodeFacts | None) -> PodNeed:
        """Return the need with which the pod's cards are chosen: with the mix by which its nodes were scored."""
        self._refresh()
        of, assumed = self._assumed.pop(pod.uid, (None, need))
        if facts is not None and facts.inventory.preferred_card is not None:
            return need
        return assumed if of == need else self._scored_need(need)

    def policy(self, need: PodNeed) -> NodeScore:
        return self._policy if need.node_score is None else need.node_score

    def mix(self) -> tuple[Mix, Mapping[Pool, float]]:
        """Return the mix in use, and how much restricted pods ask for each pool."""
        return self._mix, self._pressures

    def _scored_need(self, need: PodNeed) -> PodNeed:
        """Return the need with the order of cards by which waste is least, unless the pod or the cluster has another.

        A card that its node prefers keeps its place: such a node is judged with the need as it is. While nothing is
        known of what pods ask for, the first card that fits is as good as any. Pods of a template share the result.
        """
        if (scored := self._scored.get(need)) is None:
            has_order = need.order != DEFAULT_ORDER or self.policy(need) is not NodeScore.BALANCE
            as_it_is = has_order or not need.wants_cards or not self._mix.asked
            scored = self._scored[need] = need if as_it_is else replace(need, order=LeastWaste(self._mix))
        return scored

    def _refresh(self) -> None:
        mix = self.demand.mix()
        if mix is self._mix:
            return
        self._mix = mix
        self._scored.clear()
        self._effects.clear()
        self._costs.clear()
        self._pressures = {}
        if self._admitted:
            cards: Counter[Pool] = Counter()
            kinds: Counter[SortedAmounts] = Counter()
            for name, _ in self._nodes:
                if (pool := self._pool(name)) is not None and pool.cards:
                    cards[pool] += len(pool.cards)
                    kinds.update(pool.cards)
            if kinds:
                common = dict(kinds.most_common(1)[0][0])
                self._pressures = pressures(mix, common, cards, self._admitted)

    def _cost(
        self,
        need: PodNeed,
        requests: SortedAmounts,
        node: str,
        number: int,
        *,
        steps: int,
        promised: Sequence[Footprint],
    ) -> int | None:
        state = self._by_number[number]
        effects = _latest(self._effects, need)
        if state.cards in effects and not promised:
            change = effects[state.cards]
        else:
            facts = self._nodes.facts(node)
            shares = {} if promised else self._shares.setdefault(state.cards, {})
            change = (
                None if facts is None else self._effect(need, node, facts.inventory, steps, promised, shares=shares)
            )
            if steps == self._step_limit and not promised:
                effects[state.cards] = change
        if change is None:
            return None
        return self._policy_cost(need, change, state.free, requests, self._pressures.get(state.pool, 0.0))

    def _effect(
        self,
        need: PodNeed,
        node: str,
        inventory: Inventory,
        steps: int,
        promised: Sequence[Footprint],
        *,
        shares: dict[Card, int],
    ) -> Effect | None:
        """Return the effect of placing a pod; None if it has no room. ``shares`` is filled if it is empty."""
        usage = self._ledger.sums(node, promised).usage() if promised else self._ledger.usage(node)
        if inventory.preferred_card is not None and isinstance(need.order, LeastWaste):
            need = replace(need, order=DEFAULT_ORDER)
        choice = place(need, inventory, usage, step_limit=steps)
        if isinstance(choice, Refusal):
            return None
        if not shares:
            shares.update(shares_left(inventory, usage))
        return effect(self._mix, inventory, usage, footprint(need, choice, inventory.capacity), shares)

    def _policy_cost(
        self, need: PodNeed, change: Effect, free: HostFree | None, requests: SortedAmounts, pressure: float
    ) -> int:
        host = None if free is None else {CPU: free.cpu, MEMORY: free.memory, PODS: free.pods}
        return placement_cost(self.policy(need), change, host=host, requests=dict(requests), pressure=pressure)

    def _number(self, node: str) -> int:
        """Return the number of the state that a node is in now; 0 if it is not known."""
        cards, pool = self._states.of(node), self._pool(node)
        if not cards or pool is None:
            return 0
        state = _State(cards, self._hosts.free(node), pool)
        if (number := self._numbers.get(state)) is None:
            if len(self._numbers) >= 2 * len(self._nodes) + SPARE_STATES:
                in_use = set(self._of_node.values())
                self._by_number = {number: each for number, each in self._by_number.items() if number in in_use}
                self._numbers = {each: number for number, each in self._by_number.items()}
                self._costs.clear()
                self._shares.clear()
            self._last = number = self._last + 1
            self._numbers[state] = number
            self._by_number[number] = state
        self._of_node[node] = number
        return number

    def _pool(self, node: str) -> Pool | None:
        if (pool := self._pools.get(node)) is None:
            if (facts := self._nodes.facts(node)) is None:
                return None
            host = dict(self._hosts.nodes.records.get(node) or ())
            memory = host.get(MEMORY, 0)
            pool = self._pools[node] = _shared_pool(
                tuple(sorted(sorted_amounts(amounts) for amounts in facts.inventory.capacity.values())),
                host.get(CPU, 0),
                round(SIZES_IN_A_DOUBLING * math.log2(memory)) if memory > 0 else 0,
            )
        return pool

    def _forget_the_oldest(self) -> None:
        for remembered in (self._costs, self._effects):
            while len(remembered) > MOST_NEEDS or sum(map(len, remembered.values())) > MOST_COSTS:
                remembered.popitem(last=False)


_shared_pool = lru_cache(MOST_POOLS)(Pool)  # one object for equal ones: the amounts of cards of 5,000 nodes take 12 MB


def as_scores(names: Sequence[str], costs: Sequence[int | None]) -> list[tuple[str, int]]:
    """Return (name, score) for each node, best first: the lower the cost, the higher the score. No scores are equal.

    Of nodes with the same cost, the first by name has the highest score: kube-scheduler chooses among equal scores at
    random, which scatters pods. A difference in cost, however small, is worth more than all of kube-scheduler's own
    plugins. Its size does not matter, so scores of n nodes differ by at most (IN_TREE + 1) * (n - 1). A node without
    room comes last.
    """
    by_cost: dict[int | None, list[str]] = {}
    for name, cost in zip(names, costs, strict=True):
        by_cost.setdefault(cost, []).append(name)
    highest = len(names) - 1 + IN_TREE * (len(by_cost) - 1)
    scores: list[tuple[str, int]] = []
    for cost in sorted(by_cost, key=lambda cost: math.inf if cost is None else cost):
        equal = sorted(by_cost[cost])
        scores += zip(equal, range(highest, -1, -1), strict=False)
        highest -= len(equal) + IN_TREE
    return scores


def _latest(remembered: OrderedDict[Key, dict[int, Value]], key: Key) -> dict[int, Value]:
    """Return what is remembered under a key, and make the key the one that was asked about last."""
    found = remembered.pop(key, {})
    remembered[key] = found
    return found
