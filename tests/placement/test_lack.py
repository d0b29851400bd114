"""The shortage of a node that refuses a pod: of all cards that of the one that lacks least."""

from __future__ import annotations

import pytest

from gas.placement.inventory import Inventory, Usage
from gas.placement.lack import lack_of_cards
from gas.placement.need import ContainerNeed, PodNeed, Role
from gas.placement.place import place
from gas.placement.ratio import Ratio
from gas.placement.refusal import Refusal
from gas.values.amounts import sorted_amounts
from tests.placement.builders import GB, amounts, booked, cards, case, container, node, pod

CARD = amounts(i915=4, memory=8 * GB)


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
        case("parts-that-fit-alone-only", pod(part(50), part(40), part(30)), node(CARD), (1.0, "")),
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
