"""The shortage of a node that refuses a pod: of all cards that of the one that lacks least."""

from __future__ import annotations

import pytest

from gas.placement.inventory import Inventory, Usage
from gas.placement.lack import lack_of_cards
from gas.placement.need import ContainerNeed, PodNeed, Role
from gas.placement.place import place
from gas.placement.ratio import Ratio
from gas.placement.refusal import Refusal
from gas.values.amounts import MemoryUnit, StatedMemory, sorted_amounts
from tests.placement.builders import GB, amounts, booked, cards, case, container, node, pod

CARD = amounts(i915=4, memory=8 * GB)
GIB = 2**30


FULL = booked(amounts(memory=6 * GB), amounts(memory=5 * GB))


def part(percent: int) -> ContainerNeed:
    return ContainerNeed("container", 1, sorted_amounts(amounts(i915=1)), Role.APP, (Ratio("memory.max", percent),))


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "the-card-with-most-left",
            pod(container(memory=4 * GB)),
            node(CARD, like=2),
            (0.25, "card1 with 3.0 GB of memory.max"),
            usage=FULL,
        ),
        case(
            "the-second-card-of-two",
            pod(container(2, memory=4 * GB)),
            node(CARD, like=2),
            (0.5, "card0 with 2.0 GB of memory.max"),
            usage=FULL,
        ),
        case(
            "a-part-of-what-the-card-has",
            pod(part(50)),
            node(CARD),
            (0.5, "card0 with 2.0 GB of memory.max"),
            usage=FULL,
        ),
        case(
            "the-first-of-cards-that-lack-as-much",
            pod(container(i915=4, memory=4 * GB)),
            node(CARD, like=2),
            (0.5, "card0 with 2.0 GB of memory.max"),
            usage=booked(amounts(memory=6 * GB), amounts(i915=2)),
        ),
        case(
            "more-than-any-card-has",
            pod(container(memory=16 * GB)),
            node(amounts(i915=4), CARD),
            (1.5, "card1 with 8.0 GB of memory.max"),
        ),
        case("parts-that-fit-alone-only", pod(part(50), part(40), part(30)), node(CARD), (1.0, "")),
        case(
            "only-allowed-cards",
            pod(container(memory=4 * GB), allowed=cards(0)),
            node(CARD, like=2),
            (0.5, "card0 with 2.0 GB of memory.max"),
            usage=booked(amounts(memory=6 * GB)),
        ),
        case(
            "a-card-without-the-resource-lacks-more-than-a-full-one",
            pod(container(xe=1)),
            node(CARD, {**CARD, "xe": 1}),
            (1.0, "card1 with 0 xe"),
            usage=booked({}, amounts(xe=1)),
        ),
        case(
            "containers-that-fit-alone-only",
            pod(container(memory=8 * GB), container(memory=8 * GB)),
            node(CARD),
            (0.5, "on all cards together with 8.0 GB of memory.max"),
        ),
        case(
            "as-the-pod-states-it",
            pod(container(memory=8 * GIB), stated_memory=StatedMemory("gpu-mem", MemoryUnit.GIB)),
            node(amounts(i915=1, memory=8 * GIB)),
            (0.5, "card0 with 4 GiB of gpu-mem"),
            usage=booked(amounts(memory=4 * GIB)),
        ),
        case(
            "a-part-of-a-unit-is-not-free",
            pod(container(memory=8 * GIB), stated_memory=StatedMemory("gpu-mem", MemoryUnit.GIB)),
            node(amounts(i915=1, memory=8 * GIB)),
            (1 / (8 * GIB), "card0 with 7 GiB of gpu-mem"),
            usage=booked(amounts(memory=1)),
        ),
        case(
            "no-link",
            pod(container(2, memory=GB, tiles=1), linked=True),
            node({**CARD, "tiles": 1}, like=2),
            (0.0, ""),
        ),
        case("no-amount-is-short", pod(container(memory=4 * GB)), node(CARD, disabled=cards(0)), (0.0, "")),
        case("cards-that-the-node-does-not-have", pod(container(4)), node(CARD, like=3), (1.25, "")),
    ],
)
def test_lack_of_cards(need: PodNeed, inventory: Inventory, usage: Usage, expected: tuple[float, str]) -> None:
    refusal = place(need, inventory, usage)
    assert isinstance(refusal, Refusal)
    lack = lack_of_cards(need, inventory, usage, refusal)
    assert (lack.gap, lack.nearest) == expected
    assert lack.text == str(refusal)
