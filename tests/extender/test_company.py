"""Company and named cards through filter and bind: annotations of pods, restarts, edits and receipts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gas.extender.debug import books_json, refusals_json
from gas.extender.decider import random_name
from gas.objects.stored import Node
from gas.placement.inventory import Company
from gas.values.cards import Card
from tests.builders import container, node, pod_json
from tests.extender.decider import DrivenDecider

SHARE = container(i915=1, millicores=100)


def nodes(cards: int = 2) -> list[Node]:
    return [node("n1", cards=cards, i915=10 * cards, millicores=1000 * cards)]


def knowing(cards: int = 2) -> DrivenDecider:
    decider = DrivenDecider()
    decider.follow(nodes(cards))
    return decider


def labelled(name: str, /, *containers: Mapping[str, Any], **labels: str) -> dict[str, Any]:
    """Return a pod with company labels: ``affinity="red"`` is gas-card-affinity."""
    annotations = {f"gas-card-{label.replace('_', '-')}": text for label, text in labels.items()}
    return pod_json(*(containers or (SHARE,)), name=name, uid=f"uid-{name}", annotations=annotations)


async def outcome(decider: DrivenDecider, pod: dict[str, Any]) -> str:
    """Create a pod, bind it if a node passes, and return its cards, or else the reason of the node."""
    key = f"default/{pod['metadata']['name']}"
    decider.cluster.add(pod)
    answer = await decider.ask(pod, "n1")
    if answer["FailedNodes"]:
        return str(answer["FailedNodes"]["n1"])
    assert await decider.bind(pod, "n1") == ""
    cards: str = decider.cluster.pods[key]["metadata"]["annotations"]["gas-container-cards"]
    return cards


async def test_labels_decide_who_shares_a_card() -> None:
    decider = knowing(cards=3)
    assert await outcome(decider, labelled("plain")) == "card0"
    assert await outcome(decider, labelled("red-1", affinity="red")) == "card1"
    assert await outcome(decider, labelled("red-2", affinity="red")) == "card1"
    assert await outcome(decider, labelled("blue", exclusion="blue")) == "card2"
    assert await outcome(decider, labelled("plain-2")) == "card0"
    assert await outcome(decider, labelled("green-1", anti_affinity="green")) == "card0"
    assert await outcome(decider, labelled("green-2", anti_affinity="green")) == "card1"
    refusal = "no card open to anti-affinity 'green' has 100 millicores free"
    assert await outcome(decider, labelled("green-3", anti_affinity="green")) == refusal


async def test_a_filter_after_a_bind_and_after_its_end_knows_the_company() -> None:
    """The likeliest fault: a remembered verdict of a node whose amounts are as before, but not its company."""
    decider = knowing(cards=1)
    blue, red = labelled("blue", exclusion="blue"), labelled("red", exclusion="red")
    question = labelled("question", exclusion="red")
    assert (await decider.ask(question, "n1"))["NodeNames"] == ["n1"]
    assert await outcome(decider, blue) == "card0"
    assert (await decider.ask(question, "n1"))["FailedNodes"] == {
        "n1": "no card open to exclusion 'red' has 100 millicores free"
    }
    decider.cluster.end("default/blue")
    assert await outcome(decider, red) == "card0"
    assert (await decider.ask(question, "n1"))["NodeNames"] == ["n1"]


async def test_company_survives_a_restart() -> None:
    before = knowing()
    assert await outcome(before, labelled("red", affinity="red", exclusion="x")) == "card0"
    assert await outcome(before, labelled("plain")) == "card1"
    after = DrivenDecider(before.cluster)
    after.follow(nodes())
    assert dict(after.ledger.bookings()) == dict(before.ledger.bookings())
    assert await outcome(after, labelled("plain-2")) == "card1"
    assert await outcome(after, labelled("red-2", affinity="red", exclusion="x")) == "card0"
    assert (await outcome(after, labelled("blue", exclusion="blue"))).startswith("no card open to exclusion 'blue'")


async def test_labels_edited_after_binding_do_not_count_and_are_reported() -> None:
    decider = knowing(cards=1)
    assert await outcome(decider, labelled("blue", exclusion="blue")) == "card0"
    decider.cluster.annotate("default/blue", gas_card_exclusion="red", gas_card_affinity="red")
    assert decider.ledger.usage("n1").company == {Card(0): {Company(exclusion="blue")}}
    sentence = "its company labels or its card's name were changed after binding; its booking is unchanged"
    assert decider.reports.mismatches == [("default/blue", sentence)]
    assert await outcome(decider, labelled("blue-2", exclusion="blue")) == "card0"
    decider.cluster.annotate("default/blue", gas_card_exclusion="blue", gas_card_affinity=None)
    assert not decider.pods.in_trouble


async def test_a_receipt_moves_the_company_to_the_cards_that_kubelet_gave() -> None:
    decider = knowing()
    assert await outcome(decider, labelled("blue", exclusion="blue", name="train")) == "card0"
    decider.cluster.annotate("default/blue", gas_card_exclusion="red", gas_card_name="x", gas_allocated_cards="card1")
    assert decider.ledger.usage("n1").company == {Card(1): {Company(exclusion="blue")}}
    assert decider.ledger.usage("n1").names == {Card(1): {"train"}}
    assert await outcome(decider, labelled("blue-2", exclusion="blue")) == "card0"
    decider.cluster.annotate("default/blue-2", gas_allocated_cards="card1")
    assert await outcome(decider, labelled("plain")) == "card0"


async def test_pods_share_a_card_by_its_name_until_the_last_of_them_is_gone() -> None:
    decider = knowing(cards=3)
    assert await outcome(decider, labelled("plain")) == "card0"
    assert await outcome(decider, labelled("first", name="train")) == "card1"
    assert await outcome(decider, labelled("second", name="train")) == "card1"
    assert await outcome(decider, labelled("other", name="other")) == "card2"
    new = "no card idle for the new name 'new' has 100 millicores free"
    assert await outcome(decider, labelled("waits", name="new")) == new
    decider.cluster.end("default/first")
    assert await outcome(decider, labelled("third", name="train")) == "card1"
    decider.cluster.end("default/second")
    decider.cluster.end("default/third")
    assert decider.ledger.usage("n1").names == {Card(2): {"other"}}
    assert (await decider.ask(labelled("waits", name="new"), "n1"))["NodeNames"] == ["n1"]


async def test_the_same_name_on_another_node_is_another_card() -> None:
    decider = DrivenDecider()
    decider.follow([*nodes(), node("n2", cards=2, i915=20, millicores=2000)])
    assert await outcome(decider, labelled("first", name="train")) == "card0"
    other = labelled("other", name="train")
    decider.cluster.add(other)
    assert (await decider.ask(other, "n2"))["NodeNames"] == ["n2"]
    assert await decider.bind(other, "n2") == ""
    assert decider.ledger.usage("n1").names == decider.ledger.usage("n2").names == {Card(0): {"train"}}


async def test_names_survive_a_restart_and_edits_do_not_count() -> None:
    before = knowing()
    assert await outcome(before, labelled("plain")) == "card0"
    assert await outcome(before, labelled("first", name="train")) == "card1"
    before.cluster.annotate("default/first", gas_card_name="other")
    assert before.ledger.usage("n1").names == {Card(1): {"train"}}
    assert list(before.pods.in_trouble) == ["uid-first"]
    before.cluster.annotate("default/first", gas_card_name="train")
    after = DrivenDecider(before.cluster)
    after.follow(nodes())
    assert await outcome(after, labelled("second", name="train")) == "card1"
    assert json.loads(books_json(after))["pods"]["uid-second"]["card_name"] == "train"


async def test_refusals_and_books_show_the_labels() -> None:
    decider = knowing(cards=1)
    assert await outcome(decider, labelled("blue", exclusion="blue")) == "card0"
    await outcome(decider, labelled("plain"))
    (refusal,) = json.loads(refusals_json(decider.refusals)).values()
    assert refusal["reasons"] == {"no card open to pods without exclusion has 100 millicores free": 1}
    assert refusal["details"] == {"n1": ["card0: a pod with an exclusion; 900 of 1000 millicores free, 100 needed"]}
    booked = json.loads(books_json(decider))["pods"]["uid-blue"]
    assert booked["company"] == {"exclusion": "blue"}


@pytest.mark.parametrize(("part", "name"), [(0.0, "aaaaa"), (0.5, "nnnnn"), (0.9, "xxxxx"), (1.0, "zzzzz")])
def test_a_made_up_name_comes_from_the_chance_that_is_passed_in(part: float, name: str) -> None:
    assert random_name(lambda low, high: low + (high - low) * part) == name


def test_made_up_names_differ() -> None:
    assert len({random_name() for _ in range(20)}) > 10
