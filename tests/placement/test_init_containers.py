"""Init containers and sidecars: when they hold cards, and which devices kubelet reuses after init containers end."""

from __future__ import annotations

import pytest

from gas.placement.choice import Choice, ContainerChoice, footprint
from gas.placement.inventory import Inventory, Usage
from gas.placement.need import PodNeed, Role, Scope
from gas.placement.search import follows_reuse, pool_after
from gas.values.cards import Card
from tests.placement.builders import amounts, booked, cards, case, container, init, node, placed, pod, sidecar

CARD = amounts(i915=10, millicores=1000)


# contract E5.6
@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "the-card-of-an-ended-init-container-is-free-again",
            pod(init(millicores=1000), init(millicores=1000), container(millicores=1000)),
            node(CARD),
            "0 | 0 | 0",
        ),
        case(
            "a-sidecar-runs-beside-later-init-containers",
            pod(sidecar(millicores=600), init(millicores=500), container(millicores=300)),
            node(CARD),
            "each of 3 containers fits alone, but not all together (1100 millicores in total)",
        ),
        case(
            "a-sidecar-does-not-run-beside-earlier-init-containers",
            pod(init(millicores=500), sidecar(millicores=600), container(millicores=400)),
            node(CARD),
            "0 | 0 | 0",
        ),
        case(
            "app-containers-choose-before-a-sidecar",
            pod(sidecar(millicores=600), container(millicores=500)),
            node(CARD, like=2),
            "1 | 0",
        ),
        case(
            "the-init-container-gets-the-card-that-kubelet-will-reuse",
            pod(init(millicores=500), container(millicores=500)),
            node(CARD, like=3),
            "1 | 1",
            usage=booked(amounts(millicores=600)),
        ),
        case(
            "which-is-that-of-the-first-app-container",
            pod(init(), container(millicores=600), container(millicores=600)),
            node(CARD, like=2),
            "0 | 0 | 1",
        ),
        case(
            "or-that-of-a-sidecar-that-starts-before-it",
            pod(init(millicores=600), sidecar(millicores=600), container(millicores=600)),
            node(CARD, like=2),
            "1 | 1 | 0",
        ),
        case("all-cards-of-the-init-container-are-reused", pod(init(2), container(2)), node(CARD, like=3), "0,1 | 0,1"),
        case(
            "cards-that-a-smaller-container-leaves-go-to-the-next",
            pod(init(2), container(), container(2)),
            node(CARD, like=3),
            "0,1 | 0 | 0,1",
        ),
        case(
            "the-app-container-follows-where-the-init-container-needs-another-card",
            pod(init(millicores=1000), container(millicores=500)),
            node(amounts(i915=10, millicores=500), CARD),
            "1 | 1",
        ),
        case(
            "and-so-do-containers-that-share-a-card",
            pod(init(millicores=1000), *[container(millicores=200)] * 3, same_card=frozenset({1, 2, 3})),
            node(amounts(i915=10, millicores=700), CARD),
            "1 | 1 | 1 | 1",
        ),
        case(
            "a-pod-that-cannot-follow-the-reuse-is-placed-anyway",
            pod(init(millicores=1000), container(memory=5)),
            node(amounts(i915=10, millicores=500, memory=5), CARD),
            "1 | 0",
        ),
        case(
            "within-one-numa-group",
            pod(init(2), sidecar(), container(), scope=Scope.NUMA),
            node(CARD, like=4, numa_groups=((Card(3),), (Card(0), Card(2)))),
            "0,2 | 0 | 2",
        ),
    ],
)
def test_init_containers(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected


@pytest.mark.parametrize(
    ("pool", "given", "expected"),
    [
        pytest.param((), (3,), True, id="any-cards-with-an-empty-pool"),
        pytest.param((1,), (1, 3), True, id="a-container-that-wants-more-gets-the-whole-pool"),
        pytest.param((1,), (3,), False, id="and-no-other-cards-in-its-place"),
        pytest.param((1, 2), (2,), True, id="a-container-that-wants-fewer-gets-some-of-the-pool"),
        pytest.param((1, 2), (3,), False, id="and-no-other-card"),
    ],
)
def test_a_choice_follows_kubelets_reuse(pool: tuple[int, ...], given: tuple[int, ...], expected: bool) -> None:
    assert follows_reuse(cards(*pool), cards(*given)) is expected


def test_cards_of_init_containers_stay_in_the_pool_and_cards_of_others_leave_it() -> None:
    pool = pool_after(cards(), Role.INIT, cards(1, 2))
    assert pool == cards(1, 2)
    assert pool_after(pool, Role.INIT, cards(1, 2, 3)) == cards(1, 2, 3)
    assert pool_after(pool, Role.INIT, cards(1)) == cards(1, 2)
    assert pool_after(pool, Role.SIDECAR, cards(1)) == cards(2)
    assert pool_after(pool, Role.APP, cards(2, 3)) == cards(1)


@pytest.mark.parametrize(("of_init", "most"), [(900, 900), (400, 500)])
def test_a_footprint_is_the_most_that_containers_take_at_the_same_time(of_init: int, most: int) -> None:
    need = pod(init(millicores=of_init), sidecar(millicores=300), container(millicores=200))
    held = footprint(need, Choice((ContainerChoice((Card(0),)),) * 3))
    assert dict(held.amounts[Card(0)])["millicores"] == most
    assert held.containers == {Card(0): 2}
