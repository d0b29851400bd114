"""Sentences about each card of a node."""

from __future__ import annotations

import pytest

from gas.placement.inventory import Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.reason import card_details
from tests.placement.builders import GB, amounts, booked, cards, case, container, link, node, pod

CARD = amounts(i915=2, memory=8 * GB)


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "one-sentence-for-each-card",
            pod(container(memory=5 * GB)),
            node(CARD, like=2),
            (
                "card0: 3.0 of 8.0 GB of memory.max free, 5.0 needed",
                "card1: 8.0 of 8.0 GB of memory.max free, 5.0 needed",
            ),
            usage=booked(amounts(memory=5 * GB)),
        ),
        case(
            "exact-bytes-where-rounding-would-hide-the-difference",
            pod(container(memory=5 * GB)),
            node(CARD),
            ("card0: 4999999999 of 8000000000 bytes of memory.max free, 5000000000 needed",),
            usage=booked(amounts(memory=3 * GB + 1)),
        ),
        case(
            "the-count-resource-only-where-it-is-short",
            pod(container(), container(2)),
            node(amounts(i915=1), amounts(i915=1)),
            ("card0: 0 of 1 i915 free, 1 needed", "card1: has room"),
            usage=booked(amounts(i915=1)),
        ),
        case(
            "the-largest-need-and-never-a-negative-amount-free",
            pod(container(millicores=5), container(millicores=7)),
            node(amounts(i915=9, millicores=9), amounts(i915=9)),
            ("card0: 0 of 9 millicores free, 7 needed", "card1: has no millicores"),
            usage=booked(amounts(millicores=12)),
        ),
        case(
            "why-a-card-may-not-be-used",
            pod(container(memory=GB), allowed=cards(0, 1), denied=cards(1)),
            node(CARD, like=3, disabled=cards(0)),
            (
                "card0: disabled by a telemetry label; 8.0 of 8.0 GB of memory.max free, 1.0 needed",
                "card1: in the deny list; 8.0 of 8.0 GB of memory.max free, 1.0 needed",
                "card2: not in the allow list; 8.0 of 8.0 GB of memory.max free, 1.0 needed",
            ),
        ),
        case(
            "links",
            pod(container(2, tiles=1), linked=True),
            node(amounts(i915=9, tiles=2), like=3, links=(link((0, 0), (1, 0)),)),
            (
                "card0: 2 of 2 tiles free, 1 needed",
                "card1: 2 of 2 tiles free, 1 needed",
                "card2: no free link to a card with room; 2 of 2 tiles free, 1 needed",
            ),
        ),
        case("a-pod-that-wants-no-card", pod(container(0)), node(CARD), ()),
    ],
)
def test_card_details(need: PodNeed, inventory: Inventory, usage: Usage, expected: tuple[str, ...]) -> None:
    assert card_details(need, inventory, usage) == expected
