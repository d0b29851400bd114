"""Facts of nodes, and which of their changes count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gas.extender.decider import Decider
from gas.extender.hooks import InvalidNode, Observer, Problem
from gas.extender.nodes import Nodes
from gas.objects.stored import Node
from gas.values.cards import Card
from gas.vocabularies.known import DEFAULT
from tests.builders import node, node_json
from tests.extender.decider import OPTIONS
from tests.listed import list_all

TELEMETRY = "telemetry.aware.scheduling.p/"


class Followed:
    """Nodes, and the names that they reported."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.nodes = Nodes(DEFAULT, on_change=self.changes.append)

    def cards(self, name: str) -> tuple[Card, ...] | None:
        facts = self.nodes.facts(name)
        return None if facts is None else facts.inventory.cards


def with_status(labels: dict[str, str] | None = None, **status: Any) -> Node:
    changed = node_json("n1", labels=labels)
    changed["status"] |= status
    return msgspec.convert(changed, Node)


def test_the_problems_of_a_node_are_reported_when_it_changes() -> None:
    reported: list[tuple[str, int]] = []

    class Problems(Observer):
        def found(self, problem: Problem) -> None:
            if isinstance(problem, InvalidNode):
                reported.append((problem.node, len(problem.problems)))

    decider = Decider(OPTIONS, Problems())
    for labels in (None, {"gpu.intel.com/gpu-numbers": "0.x"}):
        decider.nodes.changed(node("n1", labels=labels))
    assert reported == [("n1", 1)]


def test_a_node_is_known_from_its_first_event_until_it_is_deleted() -> None:
    followed = Followed()
    assert followed.nodes.facts("n1") is None
    followed.nodes.changed(node("n1"))
    assert followed.cards("n1") == (Card(0), Card(1))
    followed.nodes.deleted(node("n1"))
    followed.nodes.deleted(node("n1"))
    assert followed.nodes.facts("n1") is None
    assert followed.changes == ["n1", "n1"]
    assert len(followed.nodes) == 0


def test_a_list_is_complete() -> None:
    followed = Followed()
    list_all(followed.nodes, [node("n1"), node("n2")])
    list_all(followed.nodes, [node("n2"), node("n3", cards=1)])
    assert [name for name, _ in followed.nodes] == ["n2", "n3"]
    assert followed.changes == ["n1", "n2", "n3", "n1"]


@pytest.mark.parametrize(
    "heartbeat",
    [
        pytest.param(with_status(conditions=[{"type": "Ready", "lastHeartbeatTime": "now"}]), id="status"),
        pytest.param(node("n1", annotations={"gas-released": "1700000000"}), id="our-own-annotation"),
        pytest.param(node("n1", labels={"kubernetes.io/os": "linux"}), id="label-of-others"),
        pytest.param(
            node("n1", annotations={"gas-cards": '[{"card":0,"memory":1,"healthy":false}]'}),
            id="records-without-names",
        ),
        pytest.param(node("n1", i915=2, millicores=2000, memory_max=16 * 10**9), id="the-same-again"),
        pytest.param(
            with_status(allocatable=node_json()["status"]["allocatable"] | {"cpu": "3"}), id="resource-of-others"
        ),
    ],
)
def test_a_part_that_does_not_count_causes_no_change(heartbeat: Node) -> None:
    followed = Followed()
    followed.nodes.changed(node("n1"))
    facts = followed.nodes.facts("n1")
    followed.nodes.changed(heartbeat)
    assert followed.changes == ["n1"]
    assert followed.nodes.facts("n1") is facts


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(node("n1", cards=3), id="cards"),
        pytest.param(node("n1", i915=4), id="allocatable"),
        pytest.param(
            node("n1", labels={"telemetry.aware.scheduling.any/gas-disable-card0": "x"}), id="telemetry-label"
        ),
        pytest.param(node("n1", labels={"gpu.intel.com/numa-gpu-map": "0-0_1-1"}), id="our-label"),
        pytest.param(node("n1", annotations={"gas-card-capacity": "card0=millicores:5"}), id="card-capacity"),
        pytest.param(node("n1", annotations={"gas-cards": '[{"card":0,"model":"x"}]'}), id="model-of-a-card"),
        pytest.param(node("n1", annotations={"gas-cards": '[{"card":0,"uuid":"abcdefgh"}]'}), id="uuid-of-a-card"),
        pytest.param(
            node("n1", annotations={"gas-cards": '[{"card":0,"memorySource":"unknown"}]'}), id="unknown-memory"
        ),
        pytest.param(node("n1", annotations={"gas-cards": "nonsense"}), id="invalid-records-of-cards"),
        pytest.param(with_status(capacity={"gpu.intel.com/i915": "0"}), id="capacity"),
        pytest.param(with_status(allocatable=None), id="no-allocatable"),
        pytest.param(msgspec.convert({"metadata": {"name": "n1"}}, Node), id="nothing-at-all"),
    ],
)
def test_a_part_that_counts_causes_a_change(changed: Node) -> None:
    followed = Followed()
    followed.nodes.changed(node("n1"))
    followed.nodes.changed(changed)
    assert followed.changes == ["n1", "n1"]


# contract E8.5
@pytest.mark.parametrize(
    ("capacity", "counts"),
    [
        pytest.param({"gpu.intel.com/i915": "2"}, True, id="i915"),
        pytest.param({"gpu.intel.com/xe": 1}, True, id="xe"),
        pytest.param({"gpu.intel.com/i915": "0"}, False, id="zero"),
        pytest.param({"gpu.intel.com/i915": "-1"}, False, id="negative"),
        pytest.param({"gpu.intel.com/i915": "many"}, False, id="no-number"),
        pytest.param({"cpu": "8"}, False, id="no-gpu"),
        pytest.param(None, False, id="nothing"),
    ],
)
def test_descheduling_counts_only_with_cards_in_the_capacity(capacity: object, counts: bool) -> None:
    followed = Followed()
    followed.nodes.changed(with_status(labels={TELEMETRY + "gas-deschedule-pods-card0": "x"}, capacity=capacity))
    facts = followed.nodes.facts("n1")
    assert facts is not None
    assert bool(facts.deschedule_cards) is counts


# contract E2.4
@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({"gpu.intel.com/gpu-numbers": "0..1"}, id="gap"),
        pytest.param({"gpu.intel.com/gpu-numbers": "0.0.1"}, id="duplicate"),
        pytest.param({"gpu.intel.com/gpu-numbers": "Z\x00"}, id="control-characters"),
        pytest.param({"gpu.intel.com/gpu-numbers3": "Z1.2"}, id="missing-continuation"),
        pytest.param({"gpu.intel.com/gpu-numbers": ".".join(map(str, range(5000)))}, id="thousands-of-entries"),
        pytest.param({f"gpu.intel.com/junk-{number}": "x" for number in range(5000)}, id="thousands-of-labels"),
    ],
)
def test_a_bad_label_does_not_affect_other_nodes(labels: dict[str, str]) -> None:
    followed = Followed()
    list_all(followed.nodes, [node("bad", labels=labels), node("n1")])
    assert followed.cards("n1") == (Card(0), Card(1))
    assert followed.nodes.facts("bad") is not None


def test_a_node_that_could_not_be_read_is_read_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Followed()

    def broken(_node: Node) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr("gas.vocabularies.intel.vocabulary.read_node", broken)
        with pytest.raises(ZeroDivisionError):
            followed.nodes.changed(node("n1"))
    followed.nodes.changed(node("n1"))
    assert followed.cards("n1") == (Card(0), Card(1))


def test_nodes_that_say_the_same_share_what_was_read_and_a_number() -> None:
    nodes = Followed().nodes
    list_all(nodes, [node("n1"), node("n2", labels={"kubernetes.io/hostname": "n2"}), node("n3", cards=1)])
    assert nodes.facts("n1") is nodes.facts("n2")
    assert nodes.kind("n1") == nodes.kind("n2") != nodes.kind("n3")
    assert nodes.kind("absent") is None
    assert nodes.alike() == [(nodes.facts("n1"), 2), (nodes.facts("n3"), 1)]


def test_the_number_of_a_kind_that_is_gone_is_never_used_again() -> None:
    nodes = Followed().nodes
    nodes.changed(node("n1"))
    before = nodes.kind("n1")
    nodes.changed(node("n1", cards=1))
    assert nodes.kind("n1") != before
    nodes.changed(node("n1"))
    assert nodes.kind("n1") != before


def test_facts_are_kept_only_while_a_node_has_them() -> None:
    nodes = Followed().nodes
    for millicores in range(1000, 1100):
        nodes.changed(node("n1", i915=2, millicores=millicores))
        nodes.changed(node("n2", i915=2, millicores=millicores))
    assert nodes.alike() == [(nodes.facts("n1"), 2)]
    list_all(nodes, [])
    assert nodes.alike() == []


def test_nodes_as_sent_are_read_once_for_all_that_say_the_same_and_change_nothing() -> None:
    followed = Followed()
    followed.nodes.changed(node("n1"))
    sent = followed.nodes.as_sent([node("n8"), node("n9", cards=1), node("n1", cards=1)])
    assert sent["n8"] is followed.nodes.facts("n1")
    assert sent["n9"] is sent["n1"] is not followed.nodes.facts("n1")
    assert followed.changes == ["n1"]
    assert len(followed.nodes) == 1


def test_only_nodes_whose_cards_are_named_by_uuid_become_unlike_others() -> None:
    def with_uuid(name: str, uuid: str) -> Node:
        return node(name, cards=1, annotations={"gas-cards": f'[{{"card":0,"uuid":"{uuid}"}}]'})

    followed = Followed()
    nodes = followed.nodes
    for name in ("n1", "n2", "n3"):
        nodes.changed(with_uuid(name, f"GPU-aaaa-{name}"))
    assert len({nodes.kind(name) for name in ("n1", "n2", "n3")}) == 1
    nodes.distinguish({"gpu-aaaa-n2", "gpu-unknown", "arc b580", Card(0)})
    facts = nodes.facts("n2")
    assert facts is not None
    assert facts.inventory.resolve({"gpu-aaaa-n2"}) == {Card(0)}
    assert followed.changes == ["n1", "n2", "n3", "n2"]
    assert nodes.kind("n1") == nodes.kind("n3") != nodes.kind("n2")
    sent = nodes.as_sent([with_uuid("n2", "GPU-aaaa-n2"), with_uuid("n3", "GPU-aaaa-n3")])
    assert sent == {"n2": facts, "n3": nodes.facts("n3")}
    nodes.changed(with_uuid("n2", "GPU-bbbb-n2"))
    nodes.distinguish({"gpu-aaaa-n2", "gpu-bbbb-n2"})
    facts = nodes.facts("n2")
    assert facts is not None
    assert facts.inventory.other_names.keys() == {"gpu-bbbb-n2"}
    nodes.deleted(with_uuid("n2", "GPU-bbbb-n2"))
    nodes.distinguish({"gpu-bbbb-n2"})
    assert nodes.facts("n2") is None
