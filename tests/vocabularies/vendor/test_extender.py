"""Pods that ask for whole cards of a vendor's own plugin, in the extender."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from gas.extender.command_line import parse_flags
from gas.extender.decider import Options
from gas.placement.inventory import NO_COMPANY
from gas.placement.order import FewestContainers
from gas.values.amounts import MEMORY_MAX
from gas.values.card_records import ANNOTATION, CardRecord, format_card_records
from gas.values.cards import Card, instance
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.koordinator.hints import EXCLUSIVE
from gas.vocabularies.protocol import BadNeed, DeviceOptions, NeedOptions
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import container, pod, pod_json
from tests.extender.decider import DrivenDecider, booked_cards
from tests.extender.decider import following as decider_following
from tests.other_words import MIB, asking, decoded, stating
from tests.plugin.gpus import gpu, nvidia_gpu

VOCABULARIES = Vocabularies(parse_vocabularies("intel,aliyun,vendor"))
following = partial(decider_following, options=Options(vocabularies=VOCABULARIES))


def wanting(name: str, **requests: Any) -> dict[str, Any]:
    return pod_json(asking(**requests), name=name, uid=name)


def cards_of(decider: DrivenDecider, *names: str) -> list[str]:
    return [booked_cards(decider, name).partition(" ")[0] for name in names]


# contract V1.1
@pytest.mark.parametrize("resource", ["nvidia", "dcu"])
async def test_each_of_a_number_of_cards_is_whole_and_nothing_else_is_written(resource: str) -> None:
    counted: dict[str, Any] = {resource: 3}
    node = stating(**counted)
    two, one, more = wanting("two", **{resource: 2}), wanting("one", **{resource: 1}), wanting("more", **{resource: 1})
    decider = following([node], two, one, more)
    assert [await decider.bind(each, "n1") for each in (two, one)] == ["", ""]
    assert cards_of(decider, "two", "one") == ["card0,card1", "card2"]
    assert decider.cluster.bindings[0]["annotations"].keys() == {"gas-ts", "gas-container-cards"}
    assert (await decider.ask(more, "n1"))["FailedNodes"] == {"n1": "no card has 100 percent of millicores free"}
    decider.cluster.end("default/one")
    assert (await decider.ask(more, "n1"))["NodeNames"] == ["n1"]


# contract V1.2
@pytest.mark.parametrize(
    "other",
    [
        pod_json(container(i915=1), name="other", uid="other"),
        pod_json(container(i915=1, millicores=1), name="other", uid="other"),
        pod_json(asking(gpu_mem=1), name="other", uid="other"),
        pod_json(asking(nvidia=1), name="other", uid="other"),
    ],
    ids=["a count alone", "millicores", "memory", "another whole card"],
)
@pytest.mark.parametrize("whole_first", [True, False])
async def test_a_whole_card_has_no_other_pod(other: dict[str, Any], whole_first: bool) -> None:
    labels = {"gpu.intel.com/gpu-numbers": "0"}
    amounts: dict[str, Any] = {"gpu_mem": 1000, "gpu_count": 1, "nvidia": 1, "i915": 9, "millicores": 1000}
    node = stating(labels=labels, memory=[1000 * MIB], driver="nvidia", **amounts)
    whole = wanting("whole", nvidia=1)
    first, second = (whole, other) if whole_first else (other, whole)
    decider = following([node], first, second)
    assert await decider.bind(first, "n1") == ""
    assert (await decider.ask(second, "n1"))["FailedNodes"].keys() == {"n1"}
    decider.cluster.remove(f"default/{first['metadata']['name']}")
    assert await decider.bind(second, "n1") == ""


async def test_no_user_can_join_a_whole_card_by_its_label() -> None:
    node = stating(labels={"gpu.intel.com/gpu-numbers": "0"}, memory=[9], driver="nvidia", nvidia=1, i915=9)
    sly = pod_json(container(i915=1), name="sly", uid="sly", annotations={"gas-card-exclusion": "(whole cards)"})
    decider = following([node], sly, wanting("whole", nvidia=1))
    (reason,) = (await decider.ask(sly, "n1"))["FailedNodes"].values()
    assert reason.startswith("gas-card-exclusion: expected at most 63 letters")


# contract V1.3
async def test_a_pod_in_the_words_of_two_is_refused_with_both_names() -> None:
    both = pod_json(asking("a", nvidia=1), asking("b", gpu_mem=1), name="both", uid="both")
    decider = following([stating(nvidia=1)], both)
    (reason,) = (await decider.ask(both, "n1"))["FailedNodes"].values()
    assert "in the words of aliyun and of vendor; use only one of them" in reason


def test_a_pod_for_cards_of_two_vendors_is_refused_with_both_names() -> None:
    with pytest.raises(BadNeed, match=r"both nvidia\.com/gpu and dcu.com/gpu; use only one of them"):
        VOCABULARIES.need(pod(asking("a", nvidia=1), asking("b", dcu=1)), NeedOptions())


def test_an_invalid_amount_is_refused_with_container_and_resource() -> None:
    with pytest.raises(BadNeed, match=r"^container 'main', 'nvidia.com/gpu': expected a whole number, found '1.5'"):
        VOCABULARIES.need(pod(asking(nvidia="1.5")), NeedOptions())


def test_a_sum_that_kubernetes_cannot_count_is_refused() -> None:
    many = [asking(name, nvidia=2**62) for name in "abc"]
    with pytest.raises(BadNeed, match=r"more than 2\^63-1 of 'nvidia\.com/gpu' in total"):
        VOCABULARIES.need(pod(*many), NeedOptions())


# contract D1.21
async def test_the_order_and_nearness_of_cards_are_obeyed() -> None:
    labels = {"gpu.intel.com/gpu-numbers": "0.1.2.3", "gpu.intel.com/numa-gpu-map": "0-0.2_1-1.3"}
    node = stating(labels=labels, memory=[9] * 4, driver="nvidia", nvidia=4, i915=8)
    near = pod_json(asking(nvidia=2), name="near", uid="near", annotations={"gas-card-near": "true"})
    plain = wanting("plain", nvidia=2)
    decider = following([node], near, plain)
    assert await decider.bind(near, "n1") == ""
    assert cards_of(decider, "near") == ["card0,card2"]


# contract V1.4
class TestNodes:
    def capacity(self, **fields: Any) -> tuple[dict[int, dict[str, int]], tuple[str, ...]]:
        facts = VOCABULARIES.facts(decoded(stating(**fields)))
        return {int(card): dict(amounts) for card, amounts in facts.inventory.capacity.items()}, facts.problems

    def test_cards_are_counted_from_0_without_records(self) -> None:
        whole = {"nvidia-gpu": 1, "millicores": 1000}
        assert self.capacity(nvidia=2, dcu=1) == ({0: whole, 1: whole, 2: {"dcu-gpu": 1, "millicores": 1000}}, ())

    def test_counted_cards_are_those_that_another_vocabulary_counts(self) -> None:
        card = {"gpu-mem": 2048, MEMORY_MAX: 2048 * MIB, "millicores": 1000, "nvidia-gpu": 1}
        assert self.capacity(gpu_mem=4096, gpu_count=2, nvidia=2) == ({0: card, 1: card}, ())

    def test_counted_cards_are_those_that_another_vocabulary_names(self) -> None:
        card = {"i915": 1, "nvidia-gpu": 1, "millicores": 1000}
        labels = {"gpu.intel.com/gpu-numbers": "0.2"}
        assert self.capacity(labels=labels, i915=2, nvidia=2) == ({0: card, 2: card}, ())

    def test_recorded_cards_of_the_driver_are_meant(self) -> None:
        capacity, problems = self.capacity(memory=[1, 1], driver="nvidia", nvidia=2)
        assert (list(capacity), problems) == ([0, 1], ())

    def test_of_nodes_with_another_unhealthy_card_each_has_its_own_healthy_one(self) -> None:
        nodes = []
        for broken in (0, 1):
            records = [CardRecord(card=Card(n), driver="nvidia", healthy=n != broken) for n in (0, 1)]
            nodes.append(stating(f"n{broken}", annotations={ANNOTATION: format_card_records(records)}, nvidia=1))
        known = following(nodes, options=Options(vocabularies=Vocabularies(parse_vocabularies("vendor")))).nodes
        assert [list(facts.inventory.capacity) for _, facts in known if facts] == [[1], [0]]

    def test_an_instance_does_not_count_as_a_card_for_these_pods(self) -> None:
        numbers = (1, int(instance(Card(0), 0)))
        records = json.dumps([{"card": number, "driver": "nvidia"} for number in numbers])
        capacity, (problem,) = self.capacity(annotations={"gas-cards": records}, nvidia=2, dcu=1)
        assert list(capacity) == [1, 2]
        assert problem.startswith("allocatable nvidia.com/gpu: expected at most 1, ")

    def test_other_cards_than_those_recorded_get_further_numbers(self) -> None:
        labels = {"gpu.intel.com/gpu-numbers": "0.1"}
        capacity, problems = self.capacity(labels=labels, memory=[1, 1], i915=2, nvidia=1)
        assert capacity == {0: {"i915": 1}, 1: {"i915": 1}, 2: {"nvidia-gpu": 1, "millicores": 1000}}
        assert problems == ()

    def test_more_cards_than_recorded_are_a_sentence(self) -> None:
        capacity, (problem,) = self.capacity(memory=[1, 1], driver="nvidia", nvidia=3)
        assert list(capacity) == [0, 1]
        assert problem == (
            "allocatable nvidia.com/gpu: expected at most 2, the healthy cards of driver nvidia in annotation"
            " gas-cards, found 3; the smaller number counts"
        )

    @pytest.mark.parametrize(
        ("amount", "sentence"), [("x", "expected a quantity"), (5000, "expected at most 1024 cards, found 5000")]
    )
    def test_an_invalid_amount_is_a_sentence(self, amount: int | str, sentence: str) -> None:
        capacity, (problem,) = self.capacity(nvidia=amount)
        assert capacity == {}
        assert problem.startswith(f"allocatable nvidia.com/gpu: {sentence}")
        assert problem.endswith("it is ignored")

    def test_the_most_cards_are_used(self) -> None:
        capacity, problems = self.capacity(nvidia=1024)
        assert (len(capacity), problems) == (1024, ())

    def test_a_node_that_states_no_such_card_says_nothing(self) -> None:
        assert self.capacity() == ({}, ())


def test_our_plugin_offers_nothing_for_cards_of_other_drivers_and_writes_nothing() -> None:
    alone = Vocabularies(parse_vocabularies("vendor"))
    assert alone.ids_per_card(gpu(0), DeviceOptions()) == {}
    assert alone.describe([gpu(0)], DeviceOptions()).resources == {}
    assert {"nvidia.com/gpu", "dcu.com/gpu"} <= set(alone.managed_resources)
    assert Card(0) not in alone.facts(decoded(stating(i915=1))).inventory.capacity


class TestSharedCards:
    """With --vendor-shared-dev-num a card has several places, and nothing but them is counted."""

    def decider(self, *pods: dict[str, Any], **node: Any) -> DrivenDecider:
        (shared,) = parse_flags(["--vocabularies=vendor", "--vendor-shared-dev-num=4"]).vocabularies
        options = Options(vocabularies=Vocabularies([shared]), need=NeedOptions(card_order=FewestContainers()))
        return decider_following([stating(driver="nvidia", **node)], *pods, options=options)

    # contract D1.2, D1.7, D1.21
    async def test_containers_spread_over_the_cards_until_no_place_is_left(self) -> None:
        pods = [wanting(f"p{number}", nvidia=1) for number in range(9)]
        pods[3] = wanting("p3", nvidia=2)
        decider = self.decider(*pods, memory=[MIB, MIB], nvidia=8)
        assert [await decider.bind(each, "n1") for each in pods[:7]] == [""] * 7
        assert cards_of(decider, "p0", "p1", "p2", "p3") == ["card0", "card1", "card0", "card0,card1"]
        assert decider.ledger.usage("n1").containers == {Card(0): 4, Card(1): 4}
        assert "nvidia-gpu" in (await decider.ask(pods[7], "n1"))["FailedNodes"]["n1"]

    async def test_a_node_without_records_has_as_many_cards_as_its_places_need(self) -> None:
        decider = self.decider(nvidia=9)
        facts = decider.nodes.facts("n1")
        assert facts is not None
        capacity = facts.inventory.capacity
        assert {card: of["nvidia-gpu"] for card, of in capacity.items()} == {Card(0): 4, Card(1): 4, Card(2): 4}

    def test_each_card_is_offered_as_often_as_it_may_be_shared(self) -> None:
        (shared,) = parse_flags(["--vocabularies=vendor", "--vendor-shared-dev-num=4"]).vocabularies
        assert shared.ids_per_card(nvidia_gpu(0), DeviceOptions()) == {"nvidia.com/gpu": 4}
        assert shared.ids_per_card(nvidia_gpu(instance(Card(0), 0)), DeviceOptions()) == {}

    def test_a_hint_in_the_words_of_koordinator_is_booked_with_the_place(self) -> None:
        (shared,) = parse_flags(["--vocabularies=vendor", "--vendor-shared-dev-num=4"]).vocabularies
        both = Vocabularies([shared, *parse_vocabularies("koordinator")])
        name = "scheduling.koordinator.sh/device-allocate-hint"
        texts = "", '{"gpu":{"exclusivePolicy":"DeviceLevel"}}', '{"gpu":{"requiredTopologyScope":"Rack"}}'
        needs = [both.booked_need(pod(asking(nvidia=1), annotations={name: text})) for text in texts]
        assert [need.company for need in needs] == [NO_COMPANY, EXCLUSIVE, NO_COMPANY]

    async def test_the_other_vendors_cards_stay_whole(self) -> None:
        decider = self.decider(wanting("p", dcu=1), wanting("q", dcu=1), dcu=1)
        assert await decider.bind(wanting("p", dcu=1), "n1") == ""
        assert (await decider.ask(wanting("q", dcu=1), "n1"))["FailedNodes"].keys() == {"n1"}


@pytest.mark.parametrize(
    "card",
    [
        pytest.param({"card": instance(Card(0), 10)}, id="divided"),
        pytest.param({"card": Card(0), "healthy": False}, id="unhealthy"),
    ],
)
async def test_no_card_is_assumed_where_the_recorded_ones_cannot_be_given(card: dict[str, Any]) -> None:
    records = format_card_records([CardRecord(driver="nvidia", **card)])
    decider = following([stating(nvidia=1, annotations={ANNOTATION: records})], asked := wanting("v", nvidia=1))
    assert "n1 no longer has room" in await decider.bind(asked, "n1")
