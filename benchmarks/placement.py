"""The hardest pods for placement: how long one node takes within the step limit."""

import asyncio
import time
from collections.abc import Mapping
from statistics import median

from benchmarks.results import Figure, Goal, Results
from gas.extender.decider import Decider, Options
from gas.extender.filter import in_turns
from gas.objects.stored import Node, NodeStatus, ObjectMeta
from gas.placement.choice import Choice
from gas.placement.inventory import Inventory, Link, Usage
from gas.placement.need import ContainerNeed, PodNeed
from gas.placement.place import DEFAULT_STEP_LIMIT, place
from gas.placement.refusal import SearchLimitHit
from gas.values.amounts import sorted_amounts
from gas.values.cards import Card, Tile
from gas.vocabularies.intel import names
from gas.vocabularies.known import DEFAULT
from tests.listed import list_all

ROUNDS = 5
NODES = 5000
SCHEDULERS_PATIENCE = 5000.0
"""Milliseconds that kube-scheduler waits for an extender by default."""

CARDS = 8
_PACKINGS = [
    (containers, cards, spare)
    for containers in (12, 16, 20, 24)
    for cards in (4, 6, CARDS)
    for spare in range(0, 25, 4)
]
"""Containers, cards, and how much each card has beyond an even share: the hard ones are somewhere in between."""

LONGEST = 200.0
"""Milliseconds that one node should take at most; on an idle machine it takes half of that."""


def placement() -> Results:
    figures = []
    ordinary = _milliseconds(*_bins(containers=1))
    for what, question in _hard_questions().items():
        answer = place(*question)
        outcome = (
            "limit hit" if isinstance(answer, SearchLimitHit) else "fits" if isinstance(answer, Choice) else "refused"
        )
        figures.append(Figure(f"{what}: {outcome}", _milliseconds(*question), ordinary, goal=None))
    worst = max(figure.ours for figure in figures)
    figures.append(Figure("the worst of these", worst, None, goal=Goal(LONGEST)))
    figures.append(_whole_filter())
    title = f"`place` for one node, within the limit of {DEFAULT_STEP_LIMIT:,} steps; processor time, medians"
    return Results("placement", title, figures, ours="hard", other="ordinary")


def _hard_questions() -> Mapping[str, tuple[PodNeed, Inventory, Usage]]:
    return {
        f"12 containers of unlike sizes, {CARDS} cards": _bins(containers=12),
        f"the slowest of {len(_PACKINGS)} packings of 12 to 24 containers": max(
            (_bins(containers=containers, cards=cards, spare=spare) for containers, cards, spare in _PACKINGS),
            key=lambda question: _milliseconds(*question, rounds=1),
        ),
        "8 linked pairs on a ring of 16 cards": _ring(cards=16),
    }


def _bins(*, containers: int, cards: int = CARDS, spare: int = 1) -> tuple[PodNeed, Inventory, Usage]:
    """Return a bin packing with hardly any room to spare: the sums fit, the pieces only just."""
    sizes = [101 + 37 * number % 89 for number in range(containers)]
    room = -(-sum(sizes) // cards) + spare
    capacity = {Card(number): {"i915": containers, "millicores": room + number % 2} for number in range(cards)}
    if containers == 1:
        capacity = {card: {"i915": 10, "millicores": 1000} for card in capacity}
    need = PodNeed(
        tuple(
            ContainerNeed(f"c{number}", 1, sorted_amounts({"i915": 1, "millicores": size}))
            for number, size in enumerate(sizes)
        )
    )
    return need, Inventory(capacity=capacity), Usage()


def _ring(*, cards: int) -> tuple[PodNeed, Inventory, Usage]:
    """Return a ring of cards in which no set of linked pairs covers the needs of containers of unlike sizes."""
    capacity = {
        Card(number): {"i915": 2, "tiles": 2, "millicores": 1000 + 10 * (number % 5)} for number in range(cards)
    }
    links = tuple(
        Link(Tile(Card(number), tile), Tile(Card((number + step) % cards), tile))
        for number in range(cards)
        for step, tile in ((1, 0), (3, 1))
    )
    need = PodNeed(
        tuple(
            ContainerNeed(f"c{number}", count, sorted_amounts({"i915": 1, "millicores": size, "tiles": 1}))
            for number, (count, size) in enumerate(((6, 500), (4, 510), (6, 520), (4, 530)))
        ),
        linked=True,
    )
    return need, Inventory(capacity=capacity, links=links), Usage()


def _milliseconds(need: PodNeed, inventory: Inventory, usage: Usage, *, rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        started = time.process_time()
        place(need, inventory, usage)
        times.append(time.process_time() - started)
    return 1e3 * median(times)


def _whole_filter() -> Figure:
    """Measure a filter of such a pod on thousands of nodes, no two alike: the scheduler must get a response in time."""
    need, _, _ = _bins(containers=12)
    decider = Decider(Options(vocabularies=DEFAULT))
    total = sum(dict(container.per_card)["millicores"] for container in need.containers)
    list_all(
        decider.nodes, [_node(number, total - 8 * (number % 5) + number // 5 % 8, number) for number in range(NODES)]
    )
    asked = [f"node-{number:05}" for number in range(NODES)]
    started = time.perf_counter()
    asyncio.run(in_turns(decider.verdicts.of(need, asked)))
    return Figure(
        f"a whole filter of such a pod on {NODES:,} nodes, no two alike",
        1e3 * (time.perf_counter() - started),
        None,
        goal=Goal(SCHEDULERS_PATIENCE),
    )


def _node(number: int, millicores: int, memory: int) -> Node:
    cards = 8
    amounts: dict[str, str | int | float] = {
        names.PREFIX + "i915": 12 * cards,
        names.PREFIX + "millicores": millicores,
        names.PREFIX + "memory.max": (10**9 + memory) * cards,
    }
    numbers = ".".join(str(card) for card in range(cards))
    return Node(
        metadata=ObjectMeta(name=f"node-{number:05}", labels={names.GPU_NUMBERS: numbers}),
        status=NodeStatus(allocatable=amounts, capacity=amounts),
    )
