"""Capacity that is of no use."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gas.extender.verdicts import at_once
from gas.inspection.cluster import MeasuredUse
from gas.inspection.report import Booked
from gas.inspection.rows import waste_notes, waste_of
from gas.values.cards import Card
from tests.inspection.conftest import Kubectl
from tests.inspection.example_cluster import GB, cluster_of, gpu_node_json, record, running, waiting


@given(st.lists(st.lists(st.integers(1, 8), max_size=3), min_size=1, max_size=4), st.integers(1, 8))
def test_a_remainder_is_stranded_if_no_pod_in_use_would_fit_on_it(booked: list[list[int]], asked: int) -> None:
    nodes = [gpu_node_json(f"n-{at}", record(0), memory=16 * GB) for at in range(len(booked))]
    pods = [
        running(f"p-{at}-{each}", f"n-{at}", "card0", i915=1, memory_max=size * GB)
        for at, sizes in enumerate(booked)
        for each, size in enumerate(sizes)
    ]
    waste = waste_of(cluster_of(nodes, [*pods, waiting("w", i915=1, memory_max=asked * GB)]))
    smallest = min(asked, *(size for sizes in booked for size in sizes)) if any(booked) else asked
    left = {f"n-{at}": 16 - sum(sizes) for at, sizes in enumerate(booked) if sizes}
    stranded = {name: free for name, free in left.items() if free < smallest}
    rows = {str(row["node"]): row.get("memory.max") for row in waste.report.rows}
    assert rows == {name: free * GB if free > 0 else None for name, free in stranded.items()}
    assert waste.sums.get("memory.max", Booked(0, 1)).booked == sum(max(free, 0) for free in stranded.values()) * GB
    assert waste.unused.capacity == 0


def test_a_resource_that_is_used_up_strands_the_others() -> None:
    pods = [running("a", "n", "card0", i915=1, millicores=1000, memory_max=4 * GB)]
    waste = waste_of(cluster_of([gpu_node_json("n", record(0), record(1))], pods))
    (row,) = waste.report.rows
    assert (row["card"], row["memory.max"]) == ("card0", 12 * GB)
    assert "i915" not in row  # shares of a card are no capacity of their own
    assert waste_notes(waste) == ("stranded: 12.0 GB of memory.max (38%)",)


def test_single_bytes_are_no_waste() -> None:
    pods = [running("a", "n", "card0", i915=1, millicores=1000, memory_max=16 * GB - 1)]
    cluster = cluster_of([gpu_node_json("n", record(0))], pods)
    cluster.use["uid-default-a", Card(0)] = MeasuredUse(16 * GB - 2, None)
    assert waste_of(cluster).report.rows == []


def test_pods_that_exclude_others_strand_their_card_unless_their_own_kind_fits() -> None:
    alone = running("a", "n", "card0", i915=1, memory_max=4 * GB)
    alone["metadata"]["annotations"]["gas-card-exclusion"] = "mine"
    other = running("b", "n", "card1", i915=1, memory_max=GB)
    nodes = [gpu_node_json("n", record(0), record(1))]
    assert waste_of(cluster_of(nodes, [alone, other])).report.rows == []
    alone["spec"]["containers"][0]["resources"]["requests"]["gpu.intel.com/memory.max"] = 14 * GB
    assert [row["card"] for row in waste_of(cluster_of(nodes, [alone, other])).report.rows] == ["card0"]


def test_memory_that_is_booked_and_not_used_is_added_up_where_it_was_measured() -> None:
    nodes = [gpu_node_json("n", record(0), record(1))]
    pods = [
        running("a", "n", "card0", i915=1, memory_max=8 * GB),
        running("b", "n", "card1", i915=1, memory_max=8 * GB),
    ]
    cluster = cluster_of(nodes, pods)
    cluster.use["uid-default-a", Card(0)] = MeasuredUse(2 * GB, None)
    waste = waste_of(cluster)
    assert {row["card"]: row.get("unused") for row in waste.report.rows} == {"card0": 6 * GB}
    assert waste.unused == Booked(6 * GB, 16 * GB)


def test_equal_containers_are_one_shape() -> None:
    pods = [waiting(name, i915=1, memory_max=GB) for name in "abc"] + [waiting("d", i915=2, memory_max=GB)]
    assert len(at_once(cluster_of([], pods).decider.shapes())) == 2


async def test_the_command_shows_cards_and_sums(kubectl: Kubectl) -> None:
    result = await kubectl("waste")
    assert result.code == 0
    assert "stranded: " in result.err
    assert "booked and not used: 7.7 GB of memory.max (14%)" in result.err
    rows = json.loads((await kubectl("waste", "-o", "json")).out)
    assert {(row["node"], row["card"]): row["unused"] for row in rows}["gpu-2", "card0"] == int(4.8 * GB)
