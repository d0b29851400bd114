"""The checks of nodes' labels and resources."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gas.doctor.objects import WarningEvent
from gas.objects.stored import DetailedNode, ObjectMeta
from tests.doctor.snapshots import (
    CASE,
    NOT_SEEN,
    assert_case,
    case,
    faults,
    fine,
    intel_pod,
    plugin_pod,
    seen_node,
)

NFD = {"nfd.node.kubernetes.io/feature-labels": "gpu.intel.com/gpu-numbers,cpu-model.id"}

RECORDS = [{"card": 0, "driver": "i915"}, {"card": 1, "driver": "xe"}, {"card": 2, "driver": "nvidia"}]


@pytest.mark.parametrize(
    CASE,
    [
        case("nodes-not-seen", "unknown", "may not be seen", nodes=NOT_SEEN),
        case("no-gpu-node", "problem", "no label and no resource is about GPUs", nodes=(), pods=()),
        case("no-such-node", "problem", "does not exist", only_node="other"),
        case("no-labels", "problem", "no label names its cards", nodes=(seen_node(labels={}),)),
        case(
            "a-label-about-a-card-that-is-not-there",
            "warning",
            "'card7'",
            nodes=(seen_node(labels={"gpu-numbers": "0.1", "numa-gpu-map": "0-0.7"}),),
        ),
        case(
            "nfd-labels-without-a-source",
            "warning",
            "no plugin on the node reports cards to that any more",
            nodes=(seen_node(writer="nfd-master"),),
            pods=(),
        ),
        case(
            "labels-of-an-old-plugin-that-a-new-one-leaves",
            "warning",
            "no plugin on the node reports cards to that any more",
            nodes=(seen_node(writer="nfd-master"),),
            pods=(intel_pod("0.34.1", "-resource-manager"),),
        ),
        case(
            "a-record-without-a-label",
            "warning",
            "annotation gas-cards records 'card1', which no label names; pods do not get them",
            nodes=(seen_node(labels={"gpu-numbers": "0"}, annotations={"gas-cards": json.dumps(RECORDS)}),),
        ),
        fine("by-the-plugin", "written by gas-plugin"),
        fine("by-hand", "written by kubectl-label; no program", nodes=(seen_node(writer="kubectl-label"),), pods=()),
        fine(
            "by-nfd-for-our-plugin",
            "written by nfd-master",
            nodes=(seen_node(writer="nfd-master"),),
            pods=(plugin_pod("--write-node=nfd"),),
        ),
        fine(
            "by-nfd-for-an-old-plugin",
            "written by nfd-master",
            nodes=(seen_node(writer="nfd-master"),),
            pods=(intel_pod("0.32.1", "-resource-manager"),),
        ),
        fine("by-another-program", "written by another", nodes=(seen_node(writer="another"),)),
        case("two-writers", "warning", "both the plugin and", nodes=(seen_node(annotations=NFD),)),
    ],
)
def test_labels(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("node-labels", changes, level, words)


def without_memory(*sources: str) -> DetailedNode:
    """Build a node with two cards without memory.max, whose records state these sources."""
    records = [{"card": card, "memorySource": source} for card, source in enumerate(sources)]
    return seen_node(resources={"i915": "20", "millicores": "2000"}, annotations={"gas-cards": json.dumps(records)})


@pytest.mark.parametrize(
    CASE,
    [
        fine(
            "integrated-gpus-that-are-recorded",
            "; integrated, without memory of their own: card0, card1",
            nodes=(without_memory("shared", "shared"),),
        ),
        case("no-device-plugin", "problem", "does not offer any", nodes=(seen_node(resources={}),)),
        case(
            "plugin-gone",
            "problem",
            "lost the device plugin",
            nodes=(seen_node(resources={"i915": "0"}, capacity={"i915": "20"}),),
        ),
        case(
            "unhealthy-devices",
            "warning",
            "unhealthy",
            nodes=(seen_node(resources={"i915": "10"}, capacity={"i915": "20"}),),
        ),
        case("five-over-two-cards", "warning", "does not divide evenly", nodes=(seen_node(resources={"i915": "5"}),)),
        case(
            "two-thousand-millicores-a-card",
            "warning",
            "2000",
            nodes=(seen_node(resources={"i915": "2", "millicores": "4000", "memory.max": "16G"}),),
        ),
        case(
            "unlike-cards-that-do-not-add-up",
            "warning",
            "memory.max is not the sum of its cards",
            nodes=(
                seen_node(
                    resources={"i915": "2", "memory.max": "30"},
                    annotations={"gas-card-capacity": "card0=memory.max:10;card1=memory.max:10"},
                ),
            ),
        ),
        case(
            "a-card-of-unknown-memory",
            "warning",
            "do not get card1: the device plugin does not know how much",
            nodes=(
                seen_node(
                    resources={"i915": "20", "millicores": "2000", "memory.max": "16G"},
                    annotations={"gas-card-capacity": "card0=memory.max:16G;card1=memory.max:0"},
                ),
            ),
        ),
        case(
            "no-card-of-known-memory",
            "warning",
            "pods that request memory.max do not get card0, card1",
            nodes=(seen_node(resources={"i915": "20", "millicores": "2000"}),),
        ),
        case(
            "integrated-gpus",
            "warning",
            "or they are integrated GPUs, which have none of their own; nothing is wrong with those",
            nodes=(seen_node(resources={"i915": "20", "millicores": "2000"}),),
        ),
        case(
            "unknown-and-integrated",
            "warning",
            "do not get card0: the device plugin does not know how much memory they have |  |",
            nodes=(without_memory("unknown", "shared"),),
        ),
        case(
            "all-memory-reserved",
            "warning",
            "do not get card0, card1: the device plugin knows how much memory they have, but nothing of it is left",
            nodes=(without_memory("sysfs", "sysfs"),),
        ),
        case(
            "two-labels-disagree",
            "warning",
            "disagree",
            nodes=(seen_node(labels={"gpu-numbers": "0.1", "cards": "card0.card5"}),),
        ),
        fine(
            "unlike-cards-that-add-up",
            nodes=(
                seen_node(
                    resources={"i915": "1", "xe": "1", "memory.max": "30"},
                    annotations={
                        "gas-card-capacity": "card0=i915:1,xe:0,memory.max:10;card1=i915:0,xe:1,memory.max:20"
                    },
                ),
            ),
        ),
        fine(
            "an-unhealthy-card",
            nodes=(
                seen_node(
                    resources={"i915": "2", "millicores": "1000", "memory.max": "8G"},
                    annotations={
                        "gas-card-capacity": "card0=millicores:1000,memory.max:8G;card1=millicores:0,memory.max:0"
                    },
                ),
            ),
        ),
        fine("an-old-label-that-was-cut", nodes=(seen_node(labels={"gpu-numbers": "0.1", "cards": "card0"}),)),
        fine("monitoring-is-not-divided", nodes=(seen_node(resources={"i915": "2", "monitoring": "1"}),)),
    ],
)
def test_resources_are_compared_with_labels_and_records(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("node-resources", changes, level, words)


def with_nvidias(*healthy: bool, **labels: str) -> DetailedNode:
    """Build a node with NVIDIA's cards only."""
    records = [{"card": card, "driver": "nvidia", "healthy": each} for card, each in enumerate(healthy)]
    offered = {"nvidia.com/gpu": str(sum(healthy))}
    return seen_node(labels=labels, resources=offered, annotations={"gas-cards": json.dumps(records)})


def event(message: str, *, node: str = "gpu-1") -> WarningEvent:
    return WarningEvent(involved_object=ObjectMeta(name=node), message=message)


NO_LIBRARY = "NVML: nvmlInitWithFlags: libnvidia-ml.so.1 was not found; install NVIDIA's driver"


@pytest.mark.parametrize(
    CASE,
    [
        fine("all-healthy", nodes=(with_nvidias(True, True),)),
        fine("no-records"),
        case(
            "the-container-has-no-library",
            "problem",
            f"pods do not get card0, card1: {NO_LIBRARY}",
            nodes=(with_nvidias(False, False),),
            card_events=tuple(event(f"{card}: {NO_LIBRARY}") for card in ("card0", "card1")),
        ),
        case(
            "what-helps-a-container",
            "problem",
            "kubectl --namespace=default delete pod gas-plugin-abcde",
            nodes=(with_nvidias(False),),
            card_events=(event(f"card0: {NO_LIBRARY}"),),
        ),
        case(
            "the-newest-cause-counts",
            "problem",
            "pods do not get card1: it reported Xid 79; restart the node",
            nodes=(with_nvidias(True, False),),
            card_events=(
                event("card1: old"),
                event("card1: it reported Xid 79; restart the node"),
                event("card1: of another node", node="gpu-2"),
                event("card11: of another card"),
            ),
        ),
        case("no-event", "problem", "card0: unhealthy, and no event says why", nodes=(with_nvidias(False),)),
        case(
            "events-not-seen",
            "problem",
            "kubectl describe node gpu-1",
            nodes=(with_nvidias(False),),
            card_events=NOT_SEEN,
        ),
    ],
)
def test_cards_that_pods_do_not_get_are_named_with_the_cause(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("card-health", changes, level, words)


@pytest.mark.parametrize("healthy", [True, False])
def test_a_cluster_with_nvidias_cards_alone_lacks_no_label_of_intels(*, healthy: bool) -> None:
    assert faults("node-labels", nodes=(with_nvidias(healthy),)) == []
