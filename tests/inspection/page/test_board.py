"""The map's records: a browser that takes in the parts has the same as one that gets everything anew."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gas.extender.hooks import Change
from gas.inspection.cluster import Cluster, MeasuredUse, settings_of
from gas.inspection.page import board as boards
from gas.inspection.page.board import MOST_MODELS, OTHER_MODELS, Board, Changes
from gas.values.cards import Card
from tests.inspection.example_cluster import (
    FLEX,
    GB,
    decoded_node,
    decoded_pod,
    example_nodes,
    example_pods,
    gpu_node_json,
    record,
    running,
)

EVERYTHING = 10**9


class Followed:
    """A cluster that changes, and the board of it."""

    def __init__(self) -> None:
        self.changes = Changes()
        self.cluster = Cluster(settings_of([]), self.changes)
        self.board = Board("e")

    def update(self) -> None:
        names = [*self.changes.take(), *self.board.changed_states(self.cluster)]
        for _ in self.board.update(self.cluster, names):
            pass

    def add(self, *nodes: Mapping[str, Any]) -> None:
        for each in nodes:
            self.cluster.watched_nodes.changed(decoded_node(each))

    def run(self, *pods: Mapping[str, Any]) -> None:
        for each in pods:
            self.cluster.watched_pods.changed(decoded_pod(each))

    def whole(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.board.whole())
        return found


def example() -> Followed:
    followed = Followed()
    followed.add(*example_nodes())
    followed.run(*example_pods())
    followed.update()
    return followed


class Browser:
    """The records that a browser knows, as page.js keeps them."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self.board, self.version = whole["board"], whole["version"]
        self.models = whole["models"]
        self.nodes = {each[0]: each for each in whole["nodes"]}

    def follow(self, board: Board, most: int) -> int:
        """Take in all parts, and return how many there were."""
        parts = 0
        while True:
            found = board.part_after(self.board, self.version, most)
            assert found is not None
            self.version, part = found
            if not part:
                return parts
            parts += 1
            sent = json.loads(part)
            assert sent["version"] == self.version
            self.models = sent.get("models", self.models)
            for name in sent["gone"]:
                self.nodes.pop(name, None)
            self.nodes |= {each[0]: each for each in sent["nodes"]}


def test_a_record_has_what_top_shows() -> None:
    followed = example()
    uid = "uid-default-train-0"
    followed.cluster.use[uid, Card(0)] = MeasuredUse(int(9.4 * GB), 0.93)
    followed.changes.node_changed("gpu-1", Change.PODS)
    followed.update()
    whole = followed.whole()
    assert whole["resources"] == ["memory.max", "millicores", "i915"]
    assert [each[0] for each in whole["nodes"]] == ["gpu-1", "gpu-2", "gpu-10"]
    (name, state, cards), other, _ = whole["nodes"]
    assert (name, whole["states"][state]) == ("gpu-1", "ready")
    number, health, model, pods, used, busy, *amounts = cards[0]
    assert (number, whole["healths"][health], whole["models"][model], pods) == (0, "ok", FLEX, 1)
    assert (abs(used - 9.4 * GB) <= 0.16 * GB, busy) == (True, 95)
    assert amounts == [12 * GB, 16 * GB, 800, 1000, 1, 10]
    assert cards[1][4:6] == [-1, -1]
    assert whole["healths"][other[2][1][1]] == "unhealthy"


def test_a_measurement_that_is_almost_the_same_changes_nothing() -> None:
    followed = example()
    for memory in (9_400_000_000, 9_410_000_000):
        followed.cluster.use["uid-default-train-0", Card(0)] = MeasuredUse(memory, 0.93)
        followed.changes.node_changed("gpu-1", Change.PODS)
        followed.update()
        version = followed.board.version
    followed.changes.node_changed("gpu-1", Change.PODS)
    followed.cluster.use["uid-default-train-0", Card(0)] = MeasuredUse(9_420_000_000, 0.94)
    followed.update()
    assert followed.board.version == version


def test_cordons_and_nodes_that_are_not_ready_are_changes() -> None:
    followed = example()
    browser = Browser(followed.whole())
    cordoned = {**example_nodes()[0], "spec": {"unschedulable": True}}
    broken = example_nodes()[1]
    broken["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    followed.add(cordoned, broken)
    followed.update()
    browser.follow(followed.board, EVERYTHING)
    assert [boards.STATES[browser.nodes[name][1]] for name in ("gpu-1", "gpu-2", "gpu-10")] == [
        "cordoned",
        "not ready",
        "ready",
    ]


def test_a_browser_of_another_board_or_of_another_layout_begins_anew() -> None:
    followed = example()
    name, version = followed.board.name, followed.board.version
    assert followed.board.part_after("other.1", version, EVERYTHING) is None
    assert followed.board.part_after(name, version + 1, EVERYTHING) is None
    assert followed.board.part_after(name, version, EVERYTHING) == (version, b"")
    other = gpu_node_json("gpu-3", record(0))
    other["status"]["allocatable"]["gpu.intel.com/tiles"] = "2"
    other["metadata"]["labels"]["gpu.intel.com/tiles"] = "2"
    followed.add(other)
    followed.update()
    whole = followed.whole()
    at = 6 + 2 * whole["resources"].index("tiles")
    assert [each[2][0][at : at + 2] for each in whole["nodes"] if each[0] == "gpu-3"] == [[0, 2]]
    assert followed.board.part_after(name, version, EVERYTHING) is None


def test_models_without_end_do_not_grow_without_end() -> None:
    followed = Followed()
    records = [record(card % 8, model=f"model {card} " + "\u05d0" * 8) for card in range(MOST_MODELS + 20)]
    records[0]["model"] = "\u05d0" * 80  # six times as long when it is escaped
    for number in range(0, len(records), 8):
        followed.add(gpu_node_json(f"gpu-{number}", *records[number : number + 8]))
    followed.update()
    models = followed.whole()["models"]
    assert len(models) <= MOST_MODELS + 1
    assert models[-1] == OTHER_MODELS
    assert max(map(len, models)) <= boards.LONGEST_MODEL


def test_a_browser_that_slept_while_too_many_nodes_went_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "MOST_GONE", 1)
    followed = example()
    browser = Browser(followed.whole())
    followed.cluster.watched_nodes.deleted(decoded_node(example_nodes()[0]))
    followed.update()
    assert followed.board.part_after(browser.board, browser.version, EVERYTHING) is not None
    followed.cluster.watched_nodes.deleted(decoded_node(example_nodes()[1]))
    followed.update()
    assert followed.board.part_after(browser.board, browser.version, EVERYTHING) is None
    assert [each[0] for each in followed.whole()["nodes"]] == ["gpu-10"]


CHANGES = st.lists(
    st.tuples(st.sampled_from(("add", "remove", "run", "end", "cordon", "look", "update")), st.integers(0, 7)),
    min_size=5,
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(CHANGES, st.sampled_from((1, 150, 400, EVERYTHING)))
def test_parts_of_any_size_add_up_to_the_whole(changes: list[tuple[str, int]], most: int) -> None:
    followed = example()
    browser = Browser(followed.whole())
    chance = random.Random(len(changes))
    for change, number in changes:
        node, pod = f"node-{number}", running(f"pod-{number}", f"node-{number}", "card0", i915=1, memory_max=GB)
        match change:
            case "add":
                followed.add(gpu_node_json(node, record(0, model=f"m{chance.randrange(5)}"), record(1)))
            case "remove":
                followed.cluster.watched_nodes.deleted(decoded_node(gpu_node_json(node, record(0))))
            case "run":
                followed.run(pod)
            case "end":
                followed.cluster.watched_pods.deleted(decoded_pod(pod))
            case "cordon" if node in followed.cluster.nodes.records:
                followed.add({**gpu_node_json(node, record(0)), "spec": {"unschedulable": True}})
            case "look":
                browser.follow(followed.board, most)
            case "update":
                followed.update()
    followed.update()
    browser.follow(followed.board, most)
    fresh = Browser(followed.whole())
    assert (browser.nodes, browser.version) == (fresh.nodes, fresh.version)
    used = {card[2] for node in fresh.nodes.values() for card in node[2]}
    assert [browser.models[each] for each in used] == [fresh.models[each] for each in used]


def test_a_part_is_about_as_large_as_allowed() -> None:
    followed = Followed()
    followed.add(*(gpu_node_json(f"node-{number}", record(0), record(1)) for number in range(50)))
    followed.update()
    version, sizes = 0, []
    while True:
        found = followed.board.part_after(followed.board.name, version, 1000)
        assert found is not None
        version, part = found
        if not part:
            break
        sizes.append(len(part))
    assert len(sizes) > 2
    assert max(sizes) < 1200
