"""Allow and deny lists that name cards by model or PCI address, from the node's records to the bound cards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gas.objects.stored import Node
from gas.values.card_records import ANNOTATION
from tests.builders import container, node, pod_json
from tests.extender.decider import DrivenDecider

FLEX, ARC = "Data Center GPU Flex 170", "Arc A770"
ONE = container(i915=1)


def record(card: int, model: str, bus: str) -> dict[str, Any]:
    return {"card": card, "model": model, "id": "0x56c0" if model == FLEX else "0x56a0", "pci": f"0000:{bus}:00.0"}


def described(name: str, *records: dict[str, Any]) -> Node:
    annotations = {ANNOTATION: msgspec.json.encode(records).decode()} if records else None
    return node(name, cards=3, annotations=annotations, i915=6)


NODE = described("n1", record(0, ARC, "4d"), record(1, FLEX, "4e"), record(2, FLEX, "9a"))
TURNED = described("n2", record(0, FLEX, "9a"), record(1, FLEX, "4e"), record(2, ARC, "4d"))
"""The same cards, found in another order."""
UNKNOWN = described("n3")


def knowing(*nodes: Node) -> DrivenDecider:
    decider = DrivenDecider()
    decider.follow(nodes)
    return decider


async def asked(decider: DrivenDecider, nodes: Sequence[str], **lists: str) -> tuple[list[str], dict[str, str]]:
    """Ask about a pod with these lists. Return the nodes that pass, and why others do not."""
    annotations = {f"gas-{name}": text for name, text in lists.items()}
    reply = await decider.ask(pod_json(ONE, annotations=annotations), *nodes)
    return reply["NodeNames"] or [], reply["FailedNodes"] or {}


async def bound(decider: DrivenDecider, on: str, **lists: str) -> str:
    """Create a pod with these lists, bind it, and return its card."""
    name = f"pod-{len(decider.cluster.pods)}"
    annotations = {f"gas-{each}": text for each, text in lists.items()}
    pod = pod_json(ONE, name=name, uid=f"uid-{name}", annotations=annotations)
    decider.cluster.add(pod)
    assert (await decider.ask(pod, on))["NodeNames"] == [on]
    assert await decider.bind(pod, on) == ""
    written: str = decider.cluster.pods[f"default/{name}"]["metadata"]["annotations"]["gas-container-cards"]
    return written


@pytest.mark.parametrize(
    ("lists", "first", "second"),
    [
        pytest.param({"allow": FLEX}, "card1", "card0", id="model"),
        pytest.param({"allow": " data center GPU  flex 170 "}, "card1", "card0", id="model-in-other-letters"),
        pytest.param({"allow": "0x56a0"}, "card0", "card2", id="device-id"),
        pytest.param({"allow": "0000:9a:00.0"}, "card2", "card0", id="pci-address"),
        pytest.param({"allow": "9A:00.0"}, "card2", "card0", id="short-pci-address"),
        pytest.param({"allow": f"card1,{ARC}", "deny": "card0"}, "card1", "card1", id="card-and-model"),
        pytest.param({"deny": FLEX}, "card0", "card2", id="denied-model"),
        pytest.param({"allow": FLEX, "deny": "4e:00.0"}, "card2", "card0", id="model-without-one-card"),
        pytest.param({"deny": "Arc A750"}, "card0", "card0", id="a-model-that-is-not-there"),
    ],
)
async def test_a_name_finds_the_card_whatever_its_number(lists: dict[str, str], first: str, second: str) -> None:
    decider = knowing(NODE, TURNED)
    assert await bound(decider, "n1", **lists) == first
    assert await bound(decider, "n2", **lists) == second


@pytest.mark.parametrize(
    ("chosen", "first", "second"),
    [
        pytest.param("9a:00.0", "card2", "card0", id="address"),
        pytest.param("0000:4E:00.0", "card1", "card1", id="full-address"),
        pytest.param("card2", "card2", "card2", id="number"),
    ],
)
async def test_a_pod_names_one_card_by_address_or_number(chosen: str, first: str, second: str) -> None:
    decider = knowing(NODE, TURNED)
    for expected in (first, first):
        assert await bound(decider, "n1", **{"card-name": chosen}) == expected, "the card is not reserved"
    assert await bound(decider, "n2", **{"card-name": chosen}) == second
    assert decider.pods.in_trouble == {}
    rebuilt = {uid: booking.footprint for uid, booking in decider.pods.rebuilt_ledger().bookings()}
    assert rebuilt == {uid: booking.footprint for uid, booking in decider.ledger.bookings()}
    assert not any(footprint.named for footprint in rebuilt.values())


async def test_a_card_that_is_named_by_its_address_and_not_there_is_given_to_no_pod() -> None:
    passed, failed = await asked(knowing(NODE, UNKNOWN), ["n1", "n3"], **{"card-name": "77:00.0"})
    assert passed == []
    assert all("in the allow list" in sentence for sentence in failed.values())


async def test_a_node_without_records_has_no_card_of_an_allowed_model() -> None:
    decider = knowing(NODE, UNKNOWN)
    passed, failed = await asked(decider, ["n1", "n3"], allow=FLEX)
    assert passed == ["n1"]
    assert "in the allow list" in failed["n3"]
    assert (await asked(decider, ["n3"], deny=FLEX))[0] == ["n3"]


async def test_a_cached_verdict_does_not_outlive_the_records_it_came_from() -> None:
    decider = knowing(NODE)
    assert (await asked(decider, ["n1"], allow="4d:00.0", deny="card0"))[0] == []
    decider.nodes.changed(described("n1", *msgspec.json.decode(TURNED.annotations[ANNOTATION])))
    assert (await asked(decider, ["n1"], allow="4d:00.0", deny="card0"))[0] == ["n1"]


async def test_invalid_records_are_a_problem_of_the_node_and_cost_nothing_else() -> None:
    broken = node(
        "n1", annotations={ANNOTATION: '[{"card":0,"model":"A"},{"card":1,"pci":"x"},{"card":9,"model":"B"}]'}
    )
    decider = knowing(broken)
    assert await bound(decider, "n1", allow="A") == "card0"
    assert await bound(decider, "n1") == "card1"
    assert (await asked(decider, ["n1"], allow="B"))[0] == []
    facts = decider.nodes.facts("n1")
    assert facts is not None
    (problem,) = facts.problems
    assert problem.startswith("annotation gas-cards: record 2: card1, pci: expected a PCI address")
