"""The check of nodes' resources against their labels and records of cards."""

from __future__ import annotations

import json

import pytest

from gas.doctor.findings import Level
from gas.objects.stored import DetailedNode
from tests.doctor.snapshots import faults, findings, seen_node


def without_memory(*sources: str) -> DetailedNode:
    """Build a node with two cards without memory.max, whose records state these sources."""
    records = [{"card": card, "memorySource": source} for card, source in enumerate(sources)]
    return seen_node(resources={"i915": "20", "millicores": "2000"}, annotations={"gas-cards": json.dumps(records)})


def test_integrated_gpus_are_named_without_a_warning() -> None:
    (well,) = findings("node-resources", nodes=(without_memory("shared", "shared"),))
    assert well.level is Level.OK
    assert well.message.endswith("; integrated, without memory of their own: card0, card1")


@pytest.mark.parametrize(
    ("node", "level", "words"),
    [
        pytest.param(seen_node(resources={}), "problem", "does not offer any", id="no-device-plugin"),
        pytest.param(
            seen_node(resources={"i915": "0"}, capacity={"i915": "20"}),
            "problem",
            "lost the device plugin",
            id="plugin-gone",
        ),
        pytest.param(
            seen_node(resources={"i915": "10"}, capacity={"i915": "20"}), "warning", "unhealthy", id="unhealthy-devices"
        ),
        pytest.param(seen_node(resources={"i915": "5"}), "warning", "does not divide evenly", id="five-over-two-cards"),
        pytest.param(
            seen_node(resources={"i915": "2", "millicores": "4000", "memory.max": "16G"}),
            "warning",
            "2000",
            id="two-thousand-millicores-a-card",
        ),
        pytest.param(
            seen_node(
                resources={"i915": "2", "memory.max": "30"},
                annotations={"gas-card-capacity": "card0=memory.max:10;card1=memory.max:10"},
            ),
            "warning",
            "memory.max is not the sum of its cards",
            id="unlike-cards-that-do-not-add-up",
        ),
        pytest.param(
            seen_node(
                resources={"i915": "20", "millicores": "2000", "memory.max": "16G"},
                annotations={"gas-card-capacity": "card0=memory.max:16G;card1=memory.max:0"},
            ),
            "warning",
            "do not get card1: the device plugin does not know how much",
            id="a-card-of-unknown-memory",
        ),
        pytest.param(
            seen_node(resources={"i915": "20", "millicores": "2000"}),
            "warning",
            "pods that request memory.max do not get card0, card1",
            id="no-card-of-known-memory",
        ),
        pytest.param(
            seen_node(resources={"i915": "20", "millicores": "2000"}),
            "warning",
            "or they are integrated GPUs, which have none of their own; nothing is wrong with those",
            id="integrated-gpus",
        ),
        pytest.param(
            without_memory("unknown", "shared"),
            "warning",
            "pods that request memory.max do not get card0: the device plugin does not know how much memory they have |"
            " memory.max of every card | none of card0",
            id="unknown-and-integrated",
        ),
        pytest.param(
            without_memory("sysfs", "sysfs"),
            "warning",
            "do not get card0, card1: the device plugin knows how much memory they have, but nothing of it is left",
            id="all-memory-reserved",
        ),
        pytest.param(
            seen_node(labels={"gpu-numbers": "0.1", "cards": "card0.card5"}),
            "warning",
            "disagree",
            id="two-labels-disagree",
        ),
    ],
)
def test_resources_that_disagree_with_the_labels_are_reported(node: DetailedNode, level: str, words: str) -> None:
    ((found, text),) = faults("node-resources", nodes=(node,))
    assert found == level
    assert words in text


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(
            seen_node(
                resources={"i915": "1", "xe": "1", "memory.max": "30"},
                annotations={"gas-card-capacity": "card0=i915:1,xe:0,memory.max:10;card1=i915:0,xe:1,memory.max:20"},
            ),
            id="unlike-cards-that-add-up",
        ),
        pytest.param(
            seen_node(
                resources={"i915": "2", "millicores": "1000", "memory.max": "8G"},
                annotations={
                    "gas-card-capacity": "card0=millicores:1000,memory.max:8G;card1=millicores:0,memory.max:0"
                },
            ),
            id="an-unhealthy-card",
        ),
        pytest.param(seen_node(labels={"gpu-numbers": "0.1", "cards": "card0"}), id="an-old-label-that-was-cut"),
        pytest.param(seen_node(resources={"i915": "2", "monitoring": "1"}), id="monitoring-is-not-divided"),
    ],
)
def test_resources_that_agree_with_the_labels_are_ok(node: DetailedNode) -> None:
    assert faults("node-resources", nodes=(node,)) == []
