"""Pods that take a part of a card: booked in amounts, and again when the cards of their node change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gas.extender.debug import differences
from gas.extender.decider import Options
from gas.objects.stored import Node
from gas.placement.need import PodNeed
from gas.placement.ratio import Ratio
from gas.values.cards import Card
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.intel.vocabulary import Intel
from gas.vocabularies.protocol import NeedFacts, NeedOptions
from tests.builders import container, node, pod_json
from tests.extender.decider import DrivenDecider
from tests.listed import list_all

GB = 10**9
PERCENT = "percent"


class PercentIntel(Intel):
    """Intel's vocabulary, except that the amount of ``gpu.intel.com/percent`` is percent of the card's memory."""

    def need(self, facts: NeedFacts, options: NeedOptions) -> PodNeed:
        return self._with_ratios(super().need(facts, options))

    def booked_need(self, facts: NeedFacts) -> PodNeed:
        return self._with_ratios(super().booked_need(facts))

    def _with_ratios(self, need: PodNeed) -> PodNeed:
        def with_ratio(each: Any) -> Any:
            percent = dict(each.per_card).get(PERCENT)
            if percent is None:
                return each
            others = tuple(amount for amount in each.per_card if amount[0] != PERCENT)
            return replace(each, per_card=others, ratios=(Ratio("memory.max", percent),))

        return replace(need, containers=tuple(map(with_ratio, need.containers)))


OPTIONS = Options(vocabularies=Vocabularies([PercentIntel()]))


def of_memory(memory: int) -> list[Node]:
    return [node("n1", cards=2, i915=20, memory_max=2 * memory * GB)]


def knowing(memory: int = 8) -> DrivenDecider:
    decider = DrivenDecider(options=OPTIONS)
    decider.follow(of_memory(memory))
    return decider


def percent(name: str, amount: int) -> dict[str, Any]:
    return pod_json(container(i915=1, percent=amount), name=name, uid=f"uid-{name}")


async def bind(decider: DrivenDecider, pod: dict[str, Any]) -> None:
    decider.cluster.add(pod)
    assert (await decider.ask(pod, "n1"))["NodeNames"] == ["n1"]
    assert await decider.bind(pod, "n1") == ""


def memory_of(decider: DrivenDecider, card: int = 0) -> int:
    return decider.ledger.usage("n1").amounts.get(Card(card), {}).get("memory.max", 0)


async def test_a_part_is_booked_in_bytes_and_fills_the_card_with_others() -> None:
    decider = knowing()
    await bind(decider, percent("half", 50))
    assert memory_of(decider) == 4 * GB
    await bind(decider, percent("quarter", 25))
    await bind(decider, pod_json(container(i915=1, memory_max=2 * GB), name="bytes", uid="uid-bytes"))
    assert (memory_of(decider, 0), memory_of(decider, 1)) == (8 * GB, 0)
    refused = await decider.ask(percent("more", 150), "n1")
    assert refused["FailedNodes"] == {"n1": "no card has 150 percent of memory.max free"}
    assert not decider.pods.in_trouble


async def test_a_change_of_the_cards_changes_what_is_booked() -> None:
    decider = knowing()
    await bind(decider, percent("half", 50))
    list_all(decider.nodes, of_memory(16))
    assert memory_of(decider) == 8 * GB
    decider.cluster.annotate("default/half", unrelated="x")
    assert not decider.pods.in_trouble
    assert differences(decider.pods, decider.ledger) == []
    decider.cluster.annotate("default/half", gas_allocated_cards="card1")
    assert (memory_of(decider, 0), memory_of(decider, 1)) == (0, 8 * GB)
    decider.cluster.end("default/half")
    assert memory_of(decider, 1) == 0
    list_all(decider.nodes, of_memory(8))
    assert memory_of(decider) == 0


async def test_a_node_that_appears_after_its_pods_completes_their_bookings() -> None:
    before = knowing()
    await bind(before, percent("half", 50))
    after = DrivenDecider(before.cluster, options=OPTIONS)
    after.follow([])
    assert memory_of(after) == 0
    list_all(after.nodes, of_memory(8))
    assert dict(after.ledger.bookings()) == dict(before.ledger.bookings())


async def test_a_card_that_comes_back_completes_the_booking_on_it() -> None:
    before = knowing()
    for name in ("on-card0", "on-card1"):
        await bind(before, percent(name, 75))
    after = DrivenDecider(before.cluster, options=OPTIONS)
    after.follow([node("n1", cards=1, i915=10, memory_max=8 * GB)])
    assert (memory_of(after, 0), memory_of(after, 1)) == (6 * GB, 0)
    list_all(after.nodes, of_memory(8))
    assert dict(after.ledger.bookings()) == dict(before.ledger.bookings())
    assert not after.pods.in_trouble


async def test_a_pod_without_cards_stays_unbooked_when_the_node_changes() -> None:
    decider = knowing()
    decider.cluster.add(percent("half", 50))
    decider.cluster.write_binding("default", {"metadata": {"name": "half"}, "target": {"name": "n1"}})
    list_all(decider.nodes, of_memory(16))
    assert memory_of(decider) == 0
    assert list(decider.pods.in_trouble) == ["uid-half"]


async def test_cards_of_edited_annotations_are_not_booked_when_the_node_changes() -> None:
    decider = knowing()
    await bind(decider, percent("half", 50))
    decider.cluster.annotate("default/half", gas_container_cards="card1")
    list_all(decider.nodes, of_memory(16))
    assert (memory_of(decider, 0), memory_of(decider, 1)) == (4 * GB, 0)


async def test_a_part_stays_on_the_card_of_its_receipt_while_the_node_lacks_that_card() -> None:
    decider = knowing()
    await bind(decider, percent("half", 50))
    decider.cluster.annotate("default/half", gas_allocated_cards="card1")
    assert (memory_of(decider, 0), memory_of(decider, 1)) == (0, 4 * GB)
    list_all(decider.nodes, [node("n1", cards=1, i915=10, memory_max=16 * GB)])
    ((_, booking),) = decider.ledger.bookings()
    assert set(booking.footprint.amounts) == {Card(1)}


async def test_cards_of_edited_annotations_are_not_booked_once_the_node_has_them() -> None:
    decider = knowing()
    await bind(decider, percent("half", 50))
    decider.cluster.annotate("default/half", gas_container_cards="card2")
    list_all(decider.nodes, [node("n1", cards=3, i915=30, memory_max=24 * GB)])
    assert (memory_of(decider, 0), memory_of(decider, 2)) == (4 * GB, 0)


@pytest.mark.parametrize("edit", [{"gas-ts": "soon"}, {"gas-allocated-cards": "?"}, {"gas-card-affinity": "x"}])
async def test_an_edit_that_leaves_the_cards_does_not_end_that_parts_follow_the_node(edit: dict[str, str]) -> None:
    before = knowing()
    await bind(before, percent("half", 50))
    before.cluster.edit("default/half", lambda pod: pod["metadata"]["annotations"].update(edit))
    after = DrivenDecider(before.cluster, options=OPTIONS)
    after.follow([])
    for decider in (before, after):
        list_all(decider.nodes, of_memory(16))
        assert memory_of(decider) == 8 * GB
