"""The search finds what first fit misses, and reports when it was cut short."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations as combinations_of

import pytest

from gas.placement.free_capacity import Pick
from gas.placement.inventory import UNUSED, Inventory, Usage
from gas.placement.need import PodNeed, Scope
from gas.placement.place import DEFAULT_STEP_LIMIT, place
from gas.placement.ratio import Ratio
from gas.placement.refusal import NoLinkedPairs, NotTogether, SearchLimitHit
from gas.placement.search import StepBudget, combinations
from gas.values.cards import Card
from tests.lines import at_most
from tests.placement.builders import amounts, booked, case, container, init, link, node, placed, pod, sidecar


def card(millicores: int) -> dict[str, int]:
    return amounts(i915=100, millicores=millicores)


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "the-small-container-makes-way",
            pod(container(millicores=400), container(millicores=1000)),
            node(card(1000), card(400)),
            "1 | 0",
        ),
        case(
            "a-container-with-two-cards-makes-way",
            pod(container(2, millicores=500), container(2, millicores=1000)),
            node(card(1000), card(1000), card(500), card(500)),
            "2,3 | 0,1",
        ),
        case(
            "a-link-is-followed-from-the-first-of-its-cards",
            pod(container(2, millicores=300, tiles=1), container(2, millicores=400, tiles=1), linked=True),
            node(
                *({**card(millicores), "tiles": 1} for millicores in (400, 400, 300, 300)),
                links=(link((1, 0), (0, 0)), link((3, 0), (2, 0))),
            ),
            "2:0,3:0 | 0:0,1:0",
        ),
        case(
            "of-cards-that-are-linked-alike-one-with-another-open-tile",
            pod(container(2, millicores=5, tiles=1), container(2, millicores=1, tiles=1), linked=True),
            node(
                *[amounts(i915=1, millicores=millicores, tiles=3) for millicores in (5, 5, 5, 1)],
                links=tuple(link((one, tile), (2 + tile, 0)) for tile in (0, 1) for one in (0, 1)),
                closed_tiles={Card(0): frozenset({2}), Card(1): frozenset({1})},
            ),
            "1:0,2:0 | 0:1,3:0",
        ),
        case(
            "the-first-choice-in-the-order-of-candidates",
            pod(container(millicores=300), container(millicores=300), container(millicores=400)),
            node(card(1000), like=2),
            "0 | 1 | 0",
            usage=booked(amounts(millicores=300), amounts(millicores=700)),
        ),
        case(
            "app-containers-before-sidecars",
            pod(sidecar(2, millicores=200), container(2, millicores=300)),
            node(card(300), card(300), card(700)),
            "1,2 | 0,2",
        ),
        case(
            "the-order-begins-with-the-preferred-card",
            pod(container(millicores=400), container(millicores=1000)),
            node(card(1000), card(400), card(400), card(1000), preferred_card=Card(3)),
            "3 | 0",
        ),
    ],
)
def test_search(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected


def test_interchangeable_cards_are_tried_once() -> None:
    need = pod(*[container(millicores=600)] * 9)
    answer = place(need, node(card(1000), like=8), UNUSED, step_limit=0)
    assert isinstance(answer, NotTogether), "remainders of 400 on eight cards are recognized without any step"
    unlike = [container(millicores=amount) for amount in (400, 350, 350, 300, 300, 300)]
    answer = place(pod(*unlike), node(card(500), card(500), card(500), card(500), card(399)), UNUSED, step_limit=9)
    assert isinstance(answer, NotTogether)
    joined = tuple(link((one, 0), (other, 0)) for one, other in combinations_of(range(5), 2))
    linked = pod(*[container(2, millicores=each, tiles=1) for each in (300, 300, 200)], linked=True)
    tiles = [{**card(millicores), "tiles": 4} for millicores in (500, 500, 500, 500, 399)]
    assert isinstance(place(linked, node(*tiles, links=joined), UNUSED, step_limit=5), NoLinkedPairs)


def test_a_search_that_is_cut_short_is_reported() -> None:
    need = pod(container(millicores=400), container(millicores=1000))
    answer = place(need, node(card(1000), card(400)), UNUSED, step_limit=1)
    assert answer == SearchLimitHit(1)
    assert "may still fit" in str(answer)


def test_a_pod_may_have_very_many_containers() -> None:
    need = pod(*[container(millicores=1)] * 1200, container(millicores=500))
    inventory = node(amounts(i915=2000, millicores=1697), amounts(i915=2000, millicores=499))
    answer = placed(need, inventory).split(" | ")
    assert (answer.count("0"), answer.count("1")) == (1198, 3)


SIX = node(*[card(millicores) for millicores in (300, 400, 500, 600, 700, 800)])
GROUPS = tuple(tuple(map(Card, range(first, first + 3))) for first in (0, 3, 6))
THREE_GROUPS = node(
    *[card(millicores) for millicores in (800, 800, 400, 800, 800, 400, 600, 700, 700)], numa_groups=GROUPS
)
FIVE = [container(millicores=millicores) for millicores in (400, 400, 300, 300, 600)]


@pytest.mark.parametrize(
    ("need", "inventory", "steps", "expected"),
    [
        pytest.param(
            pod(init(2, millicores=700), container(4, millicores=300)), SIX, 10, "4,5 | 0,1,4,5", id="all-are-reused"
        ),
        pytest.param(
            pod(init(4, millicores=300), container(2, millicores=700)),
            SIX,
            16,
            "0,1,2,3 | 4,5",
            id="none-can-be-reused",
        ),
        pytest.param(
            pod(init(2, millicores=700), container(millicores=800), container(3, millicores=400)),
            SIX,
            12,
            "4,5 | 5 | 1,2,4",
            id="some-are-reused",
        ),
        pytest.param(pod(*FIVE, scope=Scope.NUMA), THREE_GROUPS, 31, "7 | 8 | 7 | 8 | 6", id="the-third-group"),
        pytest.param(
            pod(init(millicores=600), *FIVE, scope=Scope.NUMA),
            THREE_GROUPS,
            67,
            "6 | 7 | 8 | 7 | 8 | 6",
            id="the-third-group-reused",
        ),
        pytest.param(
            pod(init(2, millicores=700), container(millicores=500), scope=Scope.NUMA),
            node(*[card(m) for m in (500, 700, 800, 500, 700, 800, 700, 800, 900)], numa_groups=GROUPS),
            16,
            "6,7 | 6",
            id="init-containers-of-the-third-group",
        ),
        pytest.param(
            pod(*[container(count, millicores=m) for count, m in ((1, 600), (1, 600), (2, 300), (2, 200))]),
            node(card(1000), card(400), card(800)),
            6,
            "each of 4 containers fits alone, but not all together (2200 millicores in total)",
            id="what-has-failed-is-not-tried-again",
        ),
        pytest.param(
            pod(*[container(millicores=600)] * 2, replace(container(), ratios=(Ratio("xe", 1),))),
            node({**card(1000), "xe": 100}),
            0,
            "each of 3 containers fits alone, but not all together (1200 millicores and 1 percent of xe in total)",
            id="too-little-of-another-resource-than-that-of-a-ratio",
        ),
        pytest.param(
            pod(container(2, millicores=300), container(2, millicores=800)),
            node(card(1000), card(1000)),
            0,
            "each of 2 containers fits alone, but not all together (2200 millicores in total)",
            id="too-little-on-all-cards",
        ),
        pytest.param(
            pod(container(6, tiles=1), linked=True),
            node(
                amounts(i915=4, tiles=2),
                like=6,
                links=(link((0, 0), (3, 0)), link((1, 0), (2, 0)), link((3, 1), (4, 0)), link((4, 1), (5, 0))),
            ),
            0,
            "0:0,3:0,1:0,2:0,4:1,5:0",
            id="no-card-of-an-earlier-pair",
        ),
        pytest.param(
            pod(container(millicores=100), container(2, millicores=600)),
            node(card(1300), card(500)),
            0,
            "needs 2 cards with 600 millicores free each, found 1",
            id="a-container-that-does-not-fit-alone",
        ),
    ],
)
def test_the_fewest_steps_that_are_enough(need: PodNeed, inventory: Inventory, steps: int, expected: str) -> None:
    """A search that looks at more than it must, or leaves too few steps to later ones, needs more."""
    assert placed(need, inventory, step_limit=steps) == expected
    assert not steps or placed(need, inventory, step_limit=steps - 1) != expected


def test_the_limit_is_enough_for_eight_containers_on_eight_unlike_cards() -> None:
    need = pod(*[container(millicores=100 * size) for size in (1, 2, 3, 4, 5, 6, 7, 8)])
    inventory = node(*[card(100 * size) for size in (8, 7, 6, 5, 4, 3, 2, 1)])
    assert placed(need, inventory, step_limit=DEFAULT_STEP_LIMIT) == " | ".join("76543210")


def picks(*each: tuple[int, ...]) -> list[Pick]:
    return [Pick(tuple(Card(number) for number in numbers)) for numbers in each]


def steps(limit: int) -> StepBudget:
    some = StepBudget(limit)
    some.share(1)
    return some


@pytest.mark.parametrize(
    ("options", "classes", "count", "expected"),
    [
        pytest.param(picks((0,), (1,), (2,)), "abc", 2, ["01", "02", "12"], id="the-earliest-options-first"),
        pytest.param(picks((0,), (1,), (2,)), "aba", 2, ["01", "02"], id="one-of-interchangeable-options"),
        pytest.param(picks((0,), (1,), (2,), (3,)), "aaaa", 2, ["01"], id="one-set-if-all-are-interchangeable"),
        pytest.param(picks((0,), (1,)), "ab", 0, [""], id="one-empty-set-if-nothing-is-wanted"),
        pytest.param(picks((0,), (1,)), "ab", 3, [], id="no-set-if-too-few-options"),
        pytest.param(picks((0, 1), (0, 2), (1, 3), (2, 3)), "abcd", 2, ["0123", "0213"], id="no-card-twice-in-a-set"),
    ],
)
def test_combinations(options: list[Pick], classes: str, count: int, expected: list[str]) -> None:
    sets = combinations(options, classes, count, steps(100))
    assert ["".join(str(int(card)) for pick in one for card in pick.cards) for one in sets] == expected


def test_the_sets_end_when_the_steps_have_run_out() -> None:
    few = steps(3)
    assert len(list(combinations(picks((0,), (1,), (2,)), "abc", 2, few))) == 2
    assert few.ran_out


def test_steps_that_one_search_leaves_over_go_to_the_next() -> None:
    shared = StepBudget(10)
    shared.share(2)
    assert [shared.spend() for _ in range(6)] == [True] * 5 + [False]
    assert shared.ran_out
    shared.share(1)
    assert [shared.spend() for _ in range(6)] == [True] * 5 + [False]


def test_links_between_many_cards_take_little_time() -> None:
    """In each group of three cards one link is left over, so no search finds a pair more than there are groups."""
    groups = 60
    links = tuple(link((3 * group, 0), (3 * group + other, 0)) for group in range(groups) for other in (1, 2))
    cards = node(amounts(i915=1, tiles=1), like=3 * groups, links=links)
    with at_most(20_000_000):
        found = place(pod(container(2 * groups + 2, tiles=1), linked=True), cards, UNUSED)
    assert isinstance(found, SearchLimitHit)
