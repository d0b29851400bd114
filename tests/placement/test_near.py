"""Nearness: after the first card of a pod, the cards closest to it come first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.placement.choice import Choice
from gas.placement.inventory import UNUSED, Inventory, Link, Usage
from gas.placement.need import PodNeed, Scope
from gas.placement.order import FewestContainers, LeastUsed
from gas.placement.place import place
from gas.values.cards import Card
from tests.lines import at_most
from tests.placement.builders import amounts, booked, cards, case, container, init, link, node, placed, pod, sidecar

CARD = amounts(i915=10, millicores=1000)
FEWEST = FewestContainers()


def groups(*each: tuple[int, ...]) -> tuple[tuple[Card, ...], ...]:
    return tuple(tuple(Card(number) for number in group) for group in each)


def containers(*loads: int) -> Usage:
    """Return the usage of cards with these numbers of containers."""
    return Usage(
        amounts={Card(number): {"i915": load} for number, load in enumerate(loads)},
        containers={Card(number): load for number, load in enumerate(loads)},
    )


def joined(*channels: tuple[int, ...]) -> tuple[Link, ...]:
    """Return links between all cards of each channel."""
    return tuple(
        link((one, 0), (other, 0)) for channel in channels for one in channel for other in channel if one < other
    )


# contract D1.18
def test_closeness_is_3_for_a_link_2_for_a_board_1_for_a_numa_node() -> None:
    inventory = node(
        CARD, like=6, links=(link((1, 0), (0, 1)),), boards=groups((0, 1, 2)), numa_groups=groups((0, 1, 2, 3), (4,))
    )
    assert inventory.closeness(Card(0)) == {0: 0, 1: 3, 2: 2, 3: 1, 4: 0, 5: 0}
    assert [inventory.closeness(Card(other))[Card(0)] for other in range(1, 6)] == [3, 2, 1, 0, 0]


EIGHT = node(CARD, like=8, links=joined((0, 1, 2, 3), (4, 5, 6, 7)))
LOADS = containers(3, 1, 2, 2, 0, 4, 4, 4)


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "the-largest-group-of-very-many-cards",
            pod(container(6), near=True),
            node(CARD, like=16, links=joined((0, 1, 2, 3), tuple(range(4, 16)))),
            "4,5,6,7,8,9",
        ),
        case("the-group-of-the-first-card-wins", pod(container(2), order=FEWEST, near=True), EIGHT, "4,5", usage=LOADS),
        case("without-nearness-the-load-alone-counts", pod(container(2), order=FEWEST), EIGHT, "4,1", usage=LOADS),
        case("the-whole-group", pod(container(4), order=FEWEST, near=True), EIGHT, "4,5,6,7", usage=LOADS),
        case(
            "a-used-up-group-is-left-for-the-least-loaded-of-the-others",
            pod(container(5), order=FEWEST, near=True),
            EIGHT,
            "4,5,6,7,1",
            usage=LOADS,
        ),
        case(
            "a-node-that-says-nothing-of-its-cards-is-served-by-load-alone",
            pod(container(3), order=FEWEST, near=True),
            node(CARD, like=4),
            "1,2,3",
            usage=containers(2, 0, 1, 1),
        ),
        case(
            "of-equally-loaded-first-cards-one-with-a-neighbour",
            pod(container(2), near=True),
            node(CARD, like=3, links=joined((1, 2))),
            "1,2",
        ),
        case(
            "of-equally-loaded-first-cards-the-one-whose-neighbours-are-least-loaded",
            pod(container(2), order=FEWEST, near=True),
            node(CARD, like=4, boards=groups((0, 1), (2, 3))),
            "2,3",
            usage=containers(0, 2, 0, 1),
        ),
        case(
            "then-the-lowest-index",
            pod(container(2), order=FEWEST, near=True),
            node(CARD, like=4, boards=groups((0, 1), (2, 3))),
            "0,1",
        ),
        case(
            "neighbours-do-not-matter-to-a-pod-of-one-card",
            pod(container(1), near=True),
            node(CARD, like=3, links=joined((1, 2))),
            "0",
        ),
        case(
            "a-link-before-a-board-before-a-numa-node",
            pod(container(4), near=True),
            node(CARD, like=5, links=joined((0, 4)), boards=groups((0, 3, 4)), numa_groups=groups((0, 2, 3, 4), (1,))),
            "0,4,3,2",
        ),
        case(
            "it-combines-with-any-order",
            pod(container(2), near=True, order=LeastUsed("millicores")),
            node(CARD, like=4, numa_groups=groups((0, 1), (2, 3))),
            "3,2",
            usage=booked(amounts(millicores=5), amounts(millicores=9), amounts(millicores=6), amounts(millicores=5)),
        ),
        case(
            "the-preferred-card-stays-the-first-one",
            pod(container(2), near=True),
            node(CARD, like=4, preferred_card=Card(3), boards=groups((0, 1))),
            "3,1",
        ),
        case(
            "a-full-neighbour-never-makes-the-pod-wait",
            pod(container(2, millicores=800), near=True),
            node(CARD, like=4, boards=groups((0, 1), (2, 3))),
            "0,3",
            usage=booked({}, amounts(millicores=500), amounts(millicores=500)),
        ),
        case(
            "the-pods-other-containers-stay-near-too",
            pod(container(), container(), near=True),
            node(amounts(i915=1), like=4, boards=groups((0, 3))),
            "0 | 3",
        ),
        case(
            "the-first-card-counts-as-close-as-the-closest-other",
            pod(container(), container(), order=FEWEST, near=True),
            node(CARD, like=4, boards=groups((0, 3))),
            "0 | 3",
        ),
        case(
            "a-sidecar-after-the-app-containers",
            pod(sidecar(), container(), near=True),
            node(amounts(i915=1), like=4, boards=groups((2, 3))),
            "3 | 2",
        ),
        case(
            "an-init-container-near-to-the-app-containers-card",
            pod(init(2), container(), near=True),
            node(amounts(i915=1), like=4, boards=groups((0, 3))),
            "0,3 | 0",
        ),
        case(
            "an-init-container-alone-without-room",
            pod(init(millicores=2000), near=True),
            node(CARD, like=2),
            "no card has 2000 millicores free",
        ),
        case(
            "linked-pairs-near-to-each-other",
            pod(container(2, tiles=1), container(2, tiles=1), linked=True, near=True),
            node(
                amounts(i915=1, tiles=1),
                like=6,
                links=(link((0, 0), (1, 0)), link((2, 0), (3, 0)), link((4, 0), (5, 0))),
                boards=groups((0, 1, 4, 5), (2, 3)),
            ),
            "0:0,1:0 | 4:0,5:0",
        ),
        case(
            "of-many-cards-those-closest-to-the-first-one",
            pod(container(5), near=True),
            node(CARD, like=20, boards=groups((0, 5, 6, 7, 8))),
            "0,5,6,7,8",
        ),
        case(
            "lists-and-numa-nodes-are-hard",
            pod(container(2), near=True, denied=cards(1), scope=Scope.NUMA),
            node(CARD, like=5, boards=groups((0, 1, 4)), numa_groups=groups((0, 1, 2), (3, 4))),
            "0,2",
        ),
    ],
)
def test_near_cards(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected


def test_a_search_prefers_near_cards_as_well() -> None:
    """First fit gives card3, the only one for the second container, to the first one, because it is near to card0."""
    small, large = amounts(i915=1, millicores=100), amounts(i915=1, millicores=900)
    inventory = node(small, small, small, large, small, small, boards=groups((0, 3, 4), (1, 2, 5)))
    assert placed(pod(container(2), container(millicores=900), near=True), inventory) == "0,4 | 3"


def test_a_choice_with_nearness_states_if_the_pod_got_the_preferred_card() -> None:
    choice = place(pod(container(2), near=True), node(CARD, like=3, preferred_card=Card(2)), UNUSED)
    assert getattr(choice, "preferred", None) is True


def test_a_card_is_closer_the_more_links_join_it() -> None:
    inventory = node(CARD, like=3, links=(*joined((0, 1, 2)), *joined((0, 2))))
    assert inventory.closeness(Card(0)) == {0: 0, 1: 3, 2: 4}
    assert placed(pod(container(2), near=True), inventory) == "0,2"


def test_the_set_counts_and_not_each_card_alone() -> None:
    """Card 1 is as close to the first one as cards 2 and 3, but these are close to each other, too."""
    inventory = node(CARD, like=4, links=joined((0, 1), (0, 2, 3)))
    assert placed(pod(container(3), near=True), inventory) == "0,2,3"


@given(st.data())
def test_up_to_eight_cards_the_best_set_is_the_one_that_brute_force_finds(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 8))
    pairs = list(combinations(range(size), 2))
    links = data.draw(st.lists(st.sampled_from(pairs), max_size=12))
    loads = data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    wanted = data.draw(st.integers(2, size))
    inventory = node(CARD, like=size, links=tuple(link((one, 0), (other, 0)) for one, other in links))

    def total(chosen: Sequence[int]) -> int:
        close = {card: inventory.closeness(Card(card)) for card in chosen}
        return sum(close[one].get(Card(other), 0) for one, other in combinations(chosen, 2))

    found = place(pod(container(wanted), order=FEWEST, near=True), inventory, containers(*loads))
    assert isinstance(found, Choice)
    chosen = [int(card) for card in found.containers[0].cards]
    least = min(loads)
    with_first = [each for each in combinations(range(size), wanted) if min(loads[card] for card in each) == least]
    assert loads[chosen[0]] == least
    assert total(chosen) == max(map(total, with_first))


def test_nearly_all_of_many_cards_are_chosen_soon() -> None:
    """Comparing all sets of 63 of 64 cards pair by pair took seconds for each card."""
    with at_most(1_000_000):
        found = place(pod(container(31), container(32), near=True), node(CARD, like=64), UNUSED)
    assert isinstance(found, Choice)
