"""Rows about cards, nodes and pods, where resources have the names of other columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gas.inspection.cluster import Cluster
from gas.inspection.node_view import node_data
from gas.inspection.output import amount, table_lines
from gas.inspection.page.board import Board
from gas.inspection.report import Booked, Report
from gas.inspection.rows import FIXED_KEYS, card_report, column_of, node_report, pod_report
from tests.builders import container, pod_json
from tests.inspection.example_cluster import GB, cluster_of, gpu_node_json, page_of, record, running


def cluster() -> Cluster:
    """Return a node with a card that has 4 of every resource that is named like a column; a pod holds 3 of each."""
    names = sorted(FIXED_KEYS)
    node = gpu_node_json("n", record(0))
    for kind in ("capacity", "allocatable"):
        node["status"].setdefault(kind, {}).update({f"gpu.intel.com/{name}": "4" for name in names})
    pod = running("p", "n", "card0", i915=1)
    pod["spec"]["containers"][0]["resources"]["requests"].update({f"gpu.intel.com/{name}": "3" for name in names})
    return cluster_of([node], [pod])


def sent_as(document: object) -> Any:
    return json.loads(msgspec.json.encode(document))


def test_every_resource_has_a_column_of_its_own() -> None:
    found = cluster()
    reports: list[Report] = [card_report(found), node_report(found), pod_report(found)]
    for report in reports:
        columns = [column.name for column in report.columns]
        assert len(set(columns)) == len(columns)
        of_resources = {column.name for column in report.columns if column.resource and column.name != column.resource}
        assert {f"resource.{name}" for name in FIXED_KEYS} <= of_resources
        assert {column.name for column in report.columns if not column.resource} <= FIXED_KEYS
    (card,) = reports[0].rows
    assert (card["node"], card["card"], card["pods"], card["health"]) == ("n", "card0", 1, "ok")
    (node,) = reports[1].rows
    (pod,) = reports[2].rows
    assert (pod["name"], pod["node"], pod["namespace"], pod["cards"]) == ("p", "n", "default", ("card0",))
    for name in FIXED_KEYS:
        assert card[column_of(name)] == node[column_of(name)] == Booked(3, 4)
        assert pod[column_of(name)] == 3


async def test_the_page_shows_such_a_cluster() -> None:
    found = cluster()
    board = Board("epoch")
    assert list(board.update(found, ["n"])) == [None]
    sent = json.loads(board.whole())
    assert {f"resource.{name}" for name in FIXED_KEYS} <= set(sent["resources"])
    (card,) = sent_as(node_data(found, "n"))["cards"]
    assert card["card"] == "card0"
    assert card["resource.held"] == {"booked": 3, "capacity": 4}
    view = page_of(found, board)
    (listed,) = sent_as(await view.pods("", ""))["pods"]
    document = sent_as(await view.pod("default", "p"))
    assert listed["name"] == document["name"] == "p"
    assert listed["resource.created"] == document["resource.written"] == 3
    assert {key for key in document if key not in found.decider.nodes.resources()} <= FIXED_KEYS | {
        f"resource.{name}" for name in FIXED_KEYS
    }


@pytest.mark.parametrize(
    ("kind", "name", "labels", "owner"),
    [
        ("Job", "train", {}, "Job/train"),
        ("ReplicaSet", "web-7d9f", {"pod-template-hash": "7d9f"}, "Deployment/web"),
        ("ReplicaSet", "web-7d9f", {}, "ReplicaSet/web-7d9f"),
        ("", "", {}, None),
    ],
)
def test_the_row_of_a_pod_names_what_creates_it_again(
    kind: str, name: str, labels: dict[str, str], owner: str | None
) -> None:
    pod = running("p", "n", "card0", i915=1)
    pod["metadata"] |= {"labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
    if kind:
        pod["metadata"]["ownerReferences"] = [
            {"kind": "Other", "name": "x"},
            {"kind": kind, "name": name, "controller": True},
        ]
    (row,) = pod_report(cluster_of([gpu_node_json("n", record(0))], [pod])).rows
    assert (row["owner"], row["created"]) == (owner, "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("requests", "annotations", "asks"),
    [
        ([{"i915": 1}], {}, "1 card with 1 i915"),
        ([{"i915": 2, "memory_max": 8 * GB}], {}, "2 cards with 1 i915 and 4.0 GB of memory.max each"),
        ([{"i915": 1}, {"i915": 1, "tiles": 1}], {}, "c0: 1 card with 1 i915; c1: 1 card with 1 i915 and 1 tile"),
        ([{"i915": 1}], {"gas-card-order": "nonsense"}, None),
    ],
)
def test_the_row_of_a_pod_says_what_it_asks_for(
    requests: list[dict[str, Any]], annotations: dict[str, str], asks: str | None
) -> None:
    pod = pod_json(*(container(f"c{at}", **each) for at, each in enumerate(requests)), annotations=annotations)
    (row,) = pod_report(cluster_of([gpu_node_json("n", record(0))], [pod])).rows
    assert row["asks"] == asks


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0s"), (119, "119s"), (125, "2m"), (7300, "2h"), (172800, "2d")])
def test_the_age_of_a_pod_is_shown_as_kubectl_does(seconds: int, shown: str) -> None:
    pod = running("p", "n", "card0", i915=1)
    pod["metadata"]["creationTimestamp"] = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    report = pod_report(cluster_of([gpu_node_json("n", record(0))], [pod]))
    assert abs(int(str(report.rows[0]["age"])) - seconds) <= 1
    assert amount("age", seconds) == shown
    assert "AGE" in table_lines(report)[0]
