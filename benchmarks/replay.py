"""Replays of a trace under published policies, to compare with: random, best fit and FGD.

Every replay keeps its own cluster. A pod that fits on no node is dropped.
"""

import math
import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from benchmarks.traces import WHOLE, Run, Trace, TracePod

MOST_CPU, MOST_CARDS = 128_000, 8
"""The largest node of the published traces, by which best fit measures what is left."""

COVERED = 0.95
"""FGD looks at the most frequent shapes that cover this part of the pods."""

NO_FIT = -math.inf


class NodeState:
    """The free resources of a node.

    cards  thousandths of each card
    """

    __slots__ = ("cards", "cpu", "memory", "model", "rank")

    def __init__(self, *, cpu: int, memory: int, cards: int, model: str, rank: int) -> None:
        self.cpu = cpu
        self.memory = memory
        self.cards = [WHOLE] * cards
        self.model = model
        self.rank = rank

    def has_host(self, pod: TracePod) -> bool:
        return self.cpu >= pod.cpu and self.memory >= pod.memory and pod.may_use(self.model)

    def fitting(self, pod: TracePod) -> list[int]:
        """Return the cards that have room for one card of the pod."""
        return [at for at, left in enumerate(self.cards) if left >= pod.milli]

    def fits(self, pod: TracePod) -> bool:
        return self.has_host(pod) and len(self.fitting(pod)) >= pod.cards

    def take(self, pod: TracePod, cards: Sequence[int]) -> None:
        self.cpu -= pod.cpu
        self.memory -= pod.memory
        for card in cards:
            self.cards[card] -= pod.milli


class Policy(ABC):
    """A policy that rates placements."""

    @abstractmethod
    def rate(self, pod: TracePod, node: NodeState) -> tuple[float, Sequence[int]]:
        """Return how good the node is for the pod, higher is better, and the cards; NO_FIT if it does not fit."""


class BestFit(Policy):
    """The node with the least CPU and GPU left over, and the fullest card that fits."""

    def rate(self, pod: TracePod, node: NodeState) -> tuple[float, Sequence[int]]:
        if not node.fits(pod):
            return NO_FIT, ()
        cards = sorted(node.fitting(pod), key=lambda card: (node.cards[card], card))[: pod.cards]
        cpu_left = (node.cpu - pod.cpu) / MOST_CPU
        gpu_left = (sum(node.cards) - pod.gpu) / (MOST_CARDS * WHOLE)
        return math.floor(100 * (1 - cpu_left / 2 - gpu_left / 2)), cards


class Fgd(Policy):
    """Fragmentation gradient descent: the placement after which typical pods find the least less GPU."""

    def __init__(self, trace: Trace) -> None:
        self._target = target_workload(trace)
        self._known: dict[tuple[int, str, tuple[int, ...]], float] = {}

    def rate(self, pod: TracePod, node: NodeState) -> tuple[float, Sequence[int]]:
        if not node.fits(pod):
            return NO_FIT, ()
        before = self._fragments(node.cpu, node.model, node.cards)
        choices: list[Sequence[int]] = [node.fitting(pod)[: pod.cards]]
        if pod.cards == 1 and pod.milli < WHOLE:
            choices = [(card,) for card in {node.cards[card]: card for card in reversed(node.fitting(pod))}.values()]
        best: tuple[float, Sequence[int]] = (NO_FIT, ())
        for cards in choices:
            after = list(node.cards)
            for card in cards:
                after[card] -= pod.milli
            gain = (before - self._fragments(node.cpu - pod.cpu, node.model, after)) / WHOLE
            score = math.floor(100 / (1 + math.exp(-gain)))
            if score > best[0]:
                best = score, cards
        return best

    def _fragments(self, cpu: int, model: str, cards: Sequence[int]) -> float:
        key = (cpu, model, tuple(sorted(cards)))
        if (known := self._known.get(key)) is None:
            known = self._known[key] = fragments(cpu, model, cards, self._target)
        return known


def target_workload(trace: Trace) -> list[tuple[float, TracePod]]:
    """Return the most frequent shapes of a trace with their chances, which add up to 1."""
    shapes = Counter(pod._replace(memory=0) for pod in trace.pods).most_common()
    target: list[tuple[TracePod, int]] = []
    for shape, number in shapes:
        if sum(number for _, number in target) >= COVERED * len(trace.pods):
            break
        target.append((shape, number))
    total = sum(number for _, number in target)
    return [(number / total, shape) for shape, number in target]


def fragments(cpu: int, model: str, cards: Sequence[int], target: Sequence[tuple[float, TracePod]]) -> float:
    """Return the thousandths of cards of a node that a pod of the target cannot use, on average."""
    total = sum(cards)
    lost = 0.0
    for chance, pod in target:
        if not pod.cards or cpu < pod.cpu or not pod.may_use(model):
            lost += chance * total
            continue
        usable = [left for left in cards if left >= pod.milli]
        lost += chance * (total if len(usable) < pod.cards else total - sum(usable))
    return lost


class Curve:
    """The GPUs that are allocated while pods arrive, both in percent of all GPUs."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._arrived = self._used = 0
        self._at: defaultdict[int, list[float]] = defaultdict(list)

    def arrived(self, pod: TracePod, *, placed: bool) -> None:
        self._arrived += pod.gpu
        self._used += pod.gpu if placed else 0
        self._at[round(100 * self._arrived / self._capacity)].append(100 * self._used / self._capacity)

    def at(self, percent: int) -> float:
        """Return the mean over the arrivals at which demand was this many percent, or less if there are none."""
        values = self._at[max((reached for reached in self._at if reached <= percent), default=min(self._at))]
        return sum(values) / len(values)


def replay(run: Run, policy: Policy) -> Curve:
    """Replay a run under a policy. Rates are remembered until a node changes."""
    nodes = states(run)
    curve = Curve(run.trace.capacity)
    changes: list[int] = []
    known: dict[TracePod, tuple[list[tuple[float, int, Sequence[int]]], int]] = {}
    for pod in run.pods:
        rates, seen = known.get(pod, ([], 0))
        stale = range(len(nodes)) if not rates else set(changes[seen:])
        rates = rates or [(NO_FIT, 0, ())] * len(nodes)
        for at in stale:
            score, cards = policy.rate(pod, nodes[at])
            rates[at] = (score, -nodes[at].rank, cards)
        known[pod] = rates, len(changes)
        best = max(rates)
        at = rates.index(best)
        if best[0] > NO_FIT:
            nodes[at].take(pod, best[2])
            changes.append(at)
        curve.arrived(pod, placed=best[0] > NO_FIT)
    return curve


def replay_at_random(run: Run) -> Curve:
    """Replay a run with a random node and a random card of those that fit."""
    chance = random.Random(run.seed)
    nodes = states(run)
    curve = Curve(run.trace.capacity)
    for pod in run.pods:
        node = next((node for node in _in_random_order(chance, nodes) if node.fits(pod)), None)
        if node is not None:
            node.take(pod, chance.sample(node.fitting(pod), pod.cards))
        curve.arrived(pod, placed=node is not None)
    return curve


def states(run: Run) -> list[NodeState]:
    """Return the nodes of a run, with nothing on them."""
    return [
        NodeState(cpu=node.cpu, memory=node.memory, cards=node.cards, model=node.model, rank=rank)
        for node, rank in zip(run.trace.nodes, run.ranks, strict=True)
    ]


def _in_random_order(chance: random.Random, nodes: Sequence[NodeState]) -> Iterator[NodeState]:
    """Yield a few nodes that are drawn one by one, then all others: most pods fit on one of the first."""
    for _ in range(50):
        yield chance.choice(nodes)
    yield from chance.sample(nodes, len(nodes))
