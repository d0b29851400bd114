"""Remainders of cards that no pod can take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gas.placement.inventory import Company, Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.ratio import Ratio
from gas.placement.stranded import StrandedCapacity, shapes_of
from gas.values.amounts import Amounts
from gas.values.cards import Card
from tests.placement.builders import GB, amounts, booked, cards, container, node, pod

CARD = amounts(i915=4, memory=8 * GB)
IN_USE = replace(booked(amounts(i915=1, memory=5 * GB)), containers={Card(0): 1})
REST = amounts(i915=3, memory=3 * GB)


@pytest.mark.parametrize(
    ("needs", "inventory", "usage", "expected"),
    [
        pytest.param([pod(container(memory=4 * GB))], node(CARD, like=2), IN_USE, REST, id="too-small"),
        pytest.param([pod(container(memory=3 * GB))], node(CARD), IN_USE, {}, id="large-enough"),
        pytest.param(
            [*(pod(container(memory=each * GB)) for each in range(4, 12)), pod(container(2, memory=GB))],
            node(CARD),
            IN_USE,
            {},
            id="for-one-of-many",
        ),
        pytest.param([pod(container(memory=9 * GB))], node(CARD), Usage(), {}, id="idle"),
        pytest.param(
            [pod(container(memory=4 * GB))], node(CARD, disabled=cards(0)), IN_USE, {}, id="nothing-new-may-start"
        ),
        pytest.param([], node(CARD), IN_USE, REST, id="no-pod-asks"),
        pytest.param([pod(container(xe=1))], node(CARD), IN_USE, REST, id="of-a-resource-that-the-card-has-not"),
        pytest.param(
            [pod(container(memory=9 * GB))],
            node(amounts(i915=2, memory=4 * GB, millicores=0)),
            IN_USE,
            amounts(i915=1),
            id="shrunk-below-what-is-booked",
        ),
        pytest.param(
            [pod(container(memory=GB), company=Company(exclusion="mine"))],
            node(CARD),
            IN_USE,
            REST,
            id="not-with-its-pods",
        ),
        pytest.param(
            [pod(replace(container(), ratios=(Ratio("memory.max", 50),)))],
            node(CARD),
            IN_USE,
            REST,
            id="half-a-card",
        ),
        pytest.param(
            [pod(container(0))], node(CARD), Usage(containers={Card(0): 1}), CARD, id="in-use-without-amounts"
        ),
        pytest.param([pod(container(0))], node(CARD), IN_USE, REST, id="a-pod-without-cards"),
    ],
)
def test_what_is_free_on_a_card_in_use_is_stranded_if_no_shape_fits_there(
    needs: list[PodNeed], inventory: Inventory, usage: Usage, expected: Amounts
) -> None:
    assert StrandedCapacity(shapes_of(needs)).of("kind", inventory, usage, Card(0)) == expected


def test_a_card_that_the_node_no_longer_has_strands_nothing() -> None:
    assert StrandedCapacity(()).of("kind", node(), IN_USE, Card(0)) == {}


def test_results_are_remembered_by_kind_card_and_what_is_booked() -> None:
    stranded = StrandedCapacity(shapes_of([pod(container(memory=4 * GB))]))
    larger = amounts(i915=4, memory=10 * GB)
    assert stranded.of("small", node(CARD), IN_USE, Card(0)) == REST
    assert stranded.of("small", node(larger), IN_USE, Card(0)) == REST  # as if it were of the same kind
    assert stranded.of("large", node(larger), IN_USE, Card(0)) == {}
    more = replace(booked(amounts(i915=2, memory=7 * GB)), containers={Card(0): 2})
    assert stranded.of("small", node(CARD), more, Card(0)) == amounts(i915=2, memory=GB)
    for name, value in (("names", "a"), ("company", Company(affinity="a")), ("tiles", 0)):
        other: dict[str, Any] = {name: {Card(0): frozenset({value})}}
        assert stranded.of("small", node(larger), replace(IN_USE, **other), Card(0)) == {}
