"""Cards that are closed by what they are, not by their numbers."""

from __future__ import annotations

from typing import Any

import pytest

from gas.values.cards import Card, instance
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.known import KNOWN
from sandbox.api.kinds import NODES
from tests.inspection.conftest import Kubectl
from tests.inspection.example_cluster import cluster_of, decoded_node, gpu_node_json, record

UUID = "GPU-8d1f8a3c-0000-1111-2222-333344445555"


def closed(name: str, *records: dict[str, Any]) -> list[int]:
    """Return the cards that an annotation closes on a node with these records."""
    node = gpu_node_json("n", *records)
    node["metadata"]["annotations"][name] = "true"
    return sorted(map(int, Vocabularies(KNOWN).facts(decoded_node(node)).inventory.disabled))


@pytest.mark.parametrize(
    ("name", "records", "cards"),
    [
        ("cordon.gas/0000-04-00.0", [record(0), record(1)], [1]),
        ("cordon.gas/0000-04-00.0", [record(0, pci="0000:04:00.0"), record(1, pci="0000:03:00.0")], [0]),
        (f"cordon.gas/{UUID.lower()}", [record(0), record(1, uuid=UUID)], [1]),
        (f"cordon.gas/{UUID}", [record(0, uuid=UUID, pci=""), record(1)], [0]),
        ("cordon.gas/card1", [record(0), record(1)], [1]),
        ("cordon.gas/0000-05-00.0", [record(0), record(1)], []),
        ("cordon.gas/", [record(0), record(1)], []),
    ],
)
def test_an_annotation_closes_the_card_of_that_address_or_uuid(
    name: str, records: list[dict[str, Any]], cards: list[int]
) -> None:
    assert closed(name, *records) == cards


def test_the_instances_of_a_closed_card_are_closed() -> None:
    of_card1 = int(instance(Card(1), 3))
    assert closed("cordon.gas/0000-04-00.0", record(1), record(of_card1, pci="", uuid=UUID)) == [1, of_card1]


def test_nodes_of_which_other_cards_are_closed_are_not_alike() -> None:
    nodes = [gpu_node_json(name, record(0), record(1)) for name in "abc"]
    for node, pci in zip(nodes, ("03", "04", "04"), strict=True):
        node["metadata"]["annotations"][f"cordon.gas/0000-{pci}-00.0"] = ""
    decider = cluster_of(nodes, []).decider
    a, b, c = (decider.nodes.kind(name) for name in "abc")
    assert (a == b, b == c) == (False, True)
    assert decider.nodes.facts("a") is not decider.nodes.facts("b")


@pytest.mark.parametrize("named", ["card1", "0000:04:00.0", "04:00.0"])
async def test_a_card_is_cordoned_and_opened_by_every_name(kubectl: Kubectl, named: str) -> None:
    for _ in range(2):
        done = await kubectl("cordon", "node/gpu-1", named)
        assert (done.code, done.out.partition(":")[0]) == (
            0,
            "card1 of node gpu-1 is cordoned (annotation cordon.gas/0000-04-00.0)",
        )
    rows = await kubectl.data("top", "--where", "health!=ok")
    assert [(row["node"], row["card"], row["health"]) for row in rows] == [
        ("gpu-1", "card1", "disabled"),
        ("gpu-2", "card1", "unhealthy"),
    ]
    assert "closed by annotation cordon.gas/0000-04-00.0" in (await kubectl("inspect", "gpu-1")).out
    assert (await kubectl("uncordon", "gpu-1", named)).out == "card1 of node gpu-1 is no longer cordoned\n"
    assert (await kubectl("uncordon", "gpu-1", named)).out == "card1 of node gpu-1 is not cordoned\n"
    stored = kubectl.server.api.get(NODES, None, "gpu-1").value
    assert [name for name in stored["metadata"]["annotations"] if name.startswith("cordon")] == []


@pytest.mark.parametrize(
    ("node", "card", "words"),
    [
        ("gpu-1", "card7", "node 'gpu-1': expected one of its cards by number, PCI address or UUID, 'card0', 'card1'"),
        ("gpu-1", "train", "found 'train'"),
        ("gpu-9", "card0", "node 'gpu-9': expected the name of a node"),
    ],
)
async def test_a_card_that_is_not_there_is_not_cordoned(kubectl: Kubectl, node: str, card: str, words: str) -> None:
    done = await kubectl("cordon", node, card)
    assert (done.code, done.out) == (1, "")
    assert words in done.err


async def test_a_card_without_records_is_closed_by_its_number(kubectl: Kubectl) -> None:
    bare = gpu_node_json("bare", record(0), record(1))
    del bare["metadata"]["annotations"]
    kubectl.server.api.create(NODES, None, bare)
    assert "(annotation cordon.gas/card0)" in (await kubectl("cordon", "bare", "card0")).out
    rows = await kubectl.data("top", "--where", "node=bare")
    assert [row["health"] for row in rows] == ["disabled", "ok"]
