"""Aliyun's pods in the extender: each clause of the contract with their users that the extender keeps."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from gas.extender.command_line import parse_flags
from gas.extender.decider import Options
from gas.extender.verdicts import at_once
from gas.values.amounts import MEMORY_MAX, MemoryUnit
from gas.values.card_facts import MOST_MEMORY
from gas.values.card_records import ANNOTATION, MOST_RECORDS, CardRecord, format_card_records
from gas.values.cards import Card, instance
from gas.vocabularies.aliyun.vocabulary import Aliyun
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.pod_checks import PodChecks
from gas.vocabularies.protocol import BadNeed, NeedOptions
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import container, pod, pod_json
from tests.extender.decider import DrivenDecider, booked_cards
from tests.extender.decider import following as decider_following
from tests.other_words import GPU_COUNT, GPU_MEM, MIB, aliyun_node, asking, decoded, stating

VOCABULARIES = Vocabularies(parse_vocabularies("intel,aliyun,vendor"))
OPTIONS = Options(vocabularies=VOCABULARIES)
following = partial(decider_following, options=OPTIONS)
CARD = 16276


def wanting(units: int | str, name: str = "pod", **fields: Any) -> dict[str, Any]:
    return pod_json(asking(gpu_mem=units), name=name, uid=name, **fields)


def bound(units: int, card: int, name: str, node: str = "n1", **fields: Any) -> dict[str, Any]:
    """Return a pod as the original's extender has bound it."""
    annotations = {"ALIYUN_COM_GPU_MEM_IDX": str(card), "ALIYUN_COM_GPU_MEM_POD": str(units)}
    return wanting(units, name, node=node, annotations=annotations, **fields)


def booked_memory(decider: DrivenDecider, node: str = "n1") -> dict[int, int]:
    """Return the MiB that are booked on each card."""
    total: dict[int, int] = {}
    for booking in decider.booked().values():
        if booking.node == node:
            for card, amounts in booking.footprint.amounts.items():
                total[int(card)] = total.get(int(card), 0) + dict(amounts).get(MEMORY_MAX, 0) // MIB
    return total


def annotations_of(decider: DrivenDecider, name: str) -> dict[str, str]:
    return dict(decider.cluster.pods[f"default/{name}"]["metadata"]["annotations"])


# contract A1.1, A1.2
def test_a_node_of_two_resources_has_equal_cards() -> None:
    facts = VOCABULARIES.facts(decoded(aliyun_node()))
    assert facts.problems == ()
    card = {"gpu-mem": CARD, MEMORY_MAX: CARD * MIB, "millicores": 1000}
    assert facts.inventory.capacity == {Card(0): card, Card(1): card}


# contract A1.3
def test_a_request_is_a_number_of_units_of_memory() -> None:
    for unit in MemoryUnit:
        spoken = Vocabularies([Aliyun(unit=unit)])
        (need,) = spoken.need(pod(asking(gpu_mem=8)), NeedOptions()).containers
        assert dict(need.per_card) == {"gpu-mem": 8, MEMORY_MAX: 8 * unit.bytes}


# contract A1.3
@pytest.mark.parametrize(
    ("units", "sentence"),
    [
        ("0.5", r"^container 'main', 'aliyun.com/gpu-mem': expected a whole number, found '0.5'"),
        (str(2**44), r"^aliyun.com/gpu-mem: expected at most 8796093022207 MiB, found 17592186044416; lower the"),
    ],
)
def test_another_request_is_refused_with_container_and_resource(units: str, sentence: str) -> None:
    with pytest.raises(BadNeed, match=sentence):
        VOCABULARIES.need(pod(asking(gpu_mem=units)), NeedOptions())


# contract A1.4
async def test_a_request_larger_than_one_card_never_fits() -> None:
    decider = following([aliyun_node()], wanting(CARD + 1, "large"), wanting(CARD, "whole"))
    refused = (await decider.ask(wanting(CARD + 1, "large"), "n1"))["FailedNodes"]
    assert refused == {"n1": f"no card has {CARD + 1} MiB of aliyun.com/gpu-mem free"}
    ((_, refusal),) = decider.refused
    units = f"{CARD} of {CARD} MiB of aliyun.com/gpu-mem free, {CARD + 1} needed"
    assert refusal.details["n1"][0] == f"card0: {units}; 1000 of 1000 millicores free, 1000 needed"
    assert (await decider.ask(wanting(CARD, "whole"), "n1"))["NodeNames"] == ["n1"]


# contract A1.5, A1.6
async def test_the_filter_passes_exactly_the_node_of_which_one_card_has_room() -> None:
    pods = [
        bound(CARD, 0, "p1", "n1"),
        bound(12207, 1, "p2", "n1"),
        bound(12207, 0, "p3", "n2"),
        bound(12207, 1, "p4", "n2"),
        bound(8138, 0, "p5", "n3"),
        bound(CARD, 1, "p6", "n3"),
    ]
    asked = wanting(8138)
    decider = following([aliyun_node(name) for name in ("n1", "n2", "n3")], *pods, asked)
    found = await decider.ask(asked, "n1", "n2", "n3")
    assert found["NodeNames"] == ["n3"]
    assert found["FailedNodes"] == dict.fromkeys(("n1", "n2"), "no card has 8138 MiB of aliyun.com/gpu-mem free")


# contract A1.9, A1.10
async def test_one_write_binds_the_pod_and_carries_every_annotation() -> None:
    decider = following([aliyun_node()], asked := wanting(8138))
    assert await decider.bind(asked, "n1") == ""
    (binding,) = decider.cluster.bindings
    time = binding["annotations"]["gas-ts"]
    assert binding["annotations"] == {
        "gas-ts": time,
        "gas-container-cards": "card0",
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_GPU_ID": "0",
        "ALIYUN_COM_GPU_MEM_POD": "8138",
        "ALIYUN_COM_GPU_MEM_DEV": str(CARD),
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": time,
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
    }
    assert time.isdigit()
    assert len(time) == 19


# contract A1.22
@pytest.mark.parametrize("healthy", [True, False])
def test_an_old_pods_card_is_the_same_whether_another_card_is_healthy_or_not(healthy: bool) -> None:
    cards = [
        CardRecord(card=Card(number), memory=CARD * MIB, uuid=f"GPU-0000{number}", healthy=healthy or number > 0)
        for number in range(3)
    ]
    node = stating(gpu_mem=(3 if healthy else 2) * CARD, gpu_count=3)
    node["metadata"]["annotations"] = {ANNOTATION: format_card_records(cards)}
    decider = following([node], bound(CARD, 1, "of-the-original"))
    assert booked_memory(decider) == {1: CARD}


# contract A1.9, A1.22
@pytest.mark.parametrize("first", [0, 1000])
async def test_the_cards_of_pods_and_their_indexes_stay_when_a_card_is_divided(first: int) -> None:
    def node(*cards: int) -> dict[str, Any]:
        records = [CardRecord(card=Card(card), memory=CARD * MIB, uuid=f"GPU-{card:08}") for card in cards]
        stated = stating(gpu_mem=len(cards) * CARD, gpu_count=len(cards))
        return stated | {"metadata": stated["metadata"] | {"annotations": {ANNOTATION: format_card_records(records)}}}

    divided = [int(instance(Card(first + 1), place)) for place in (10, 20)]
    more, later = wanting(300, "more"), [wanting(CARD, name) for name in "abc"]
    decider = following([node(*range(first, first + 3))], bound(300, 2, "of-the-original"), more, *later)
    assert await decider.bind(more, "n1") == ""
    decider.nodes.changed(decoded(node(first, first + 2, *divided)))
    assert booked_memory(decider) == {first + 2: 600}
    assert [await decider.bind(each, "n1") for each in later] == ["", "", ""]
    indexes = [annotations_of(decider, name)["ALIYUN_COM_GPU_MEM_IDX"] for name in ("more", *"abc")]
    assert indexes == ["2", "0", "3", "4"]


# contract A1.9, A1.22
@pytest.mark.parametrize("numbers", [(1, 2), (0, 3), (1000, 2)])
async def test_the_index_counts_the_nodes_cards_whatever_their_numbers_are(numbers: tuple[int, int]) -> None:
    """card0 is often the display of the board. Aliyun's tools use the index as that of one of gpu-count cards."""
    memory = [CARD * MIB if number in numbers else 0 for number in range(max(numbers) + 1)]
    node = stating(memory=memory, gpu_mem=2 * CARD, gpu_count=2)
    first, second = (wanting(CARD, name) for name in ("first", "second"))
    decider = following([node], bound(300, 1, "of-the-original"), first, second)
    assert booked_memory(decider) == {numbers[1]: 300}
    assert await decider.bind(first, "n1") == ""
    written = annotations_of(decider, "first")
    assert written["gas-container-cards"] == f"card{numbers[0]}"
    assert (written["ALIYUN_COM_GPU_MEM_IDX"], written["ALIYUN_GPU_ID"]) == ("0", "0")
    decider.cluster.end("default/of-the-original", "Succeeded")
    assert await decider.bind(second, "n1") == ""
    assert annotations_of(decider, "second")["ALIYUN_COM_GPU_MEM_IDX"] == "1"


# contract A1.22
async def test_a_pod_of_the_original_stays_on_its_card_while_the_plugin_is_away_and_the_node_unknown() -> None:
    memory = [0, CARD * MIB, CARD * MIB]
    offered, away = (stating(memory=memory, gpu_mem=units, gpu_count=2) for units in (2 * CARD, 0))
    decider = following([], bound(300, 1, "of-the-original"))
    for node in (offered, away, offered):
        decider.nodes.changed(decoded(node))
        assert booked_memory(decider) == {2: 300}
    assert booked_memory(following([away], bound(300, 1, "of-the-original"))) == {2: 300}


# contract A1.22
async def test_of_a_pod_bound_before_an_upgrade_the_cards_count_and_not_the_index() -> None:
    """Until 1.0 the index was the N of cardN."""
    earlier = bound(300, 2, "earlier")
    earlier["metadata"]["annotations"] |= {"gas-ts": "1", "gas-container-cards": "card2"}
    node = stating(memory=[0, CARD * MIB, CARD * MIB], gpu_mem=2 * CARD, gpu_count=2)
    assert booked_memory(following([node], earlier)) == {2: 300}


# contract A1.11
async def test_a_pod_that_no_card_has_room_for_is_neither_bound_nor_annotated() -> None:
    decider = following([aliyun_node()], bound(CARD, 0, "a"), bound(CARD, 1, "b"), asked := wanting(1))
    assert "no card has 1 MiB of aliyun.com/gpu-mem free" in await decider.bind(asked, "n1")
    assert decider.cluster.bindings == []
    assert "annotations" not in decider.cluster.pods["default/pod"]["metadata"]


# contract A1.18
async def test_memory_is_free_when_the_pod_has_ended_and_not_when_its_deletion_begins() -> None:
    ending = bound(CARD, 0, "ending")
    ending["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    decider = following([aliyun_node(cards=1)], ending, asked := wanting(CARD))
    assert (await decider.ask(asked, "n1"))["FailedNodes"].keys() == {"n1"}
    decider.cluster.end("default/ending", "Failed")
    assert (await decider.ask(asked, "n1"))["NodeNames"] == ["n1"]


# contract A1.21
async def test_containers_of_one_pod_share_its_card_and_their_sum_counts() -> None:
    two = pod_json(asking("a", gpu_mem=9000), asking("b", gpu_mem=7000), asking("c"), name="two", uid="two")
    decider = following([aliyun_node()], bound(1000, 0, "p"), two)
    assert await decider.bind(two, "n1") == ""
    written = annotations_of(decider, "two")
    assert written["gas-container-cards"] == "card1|card1|"
    assert written["ALIYUN_COM_GPU_MEM_IDX"] == "1"
    assert written["ALIYUN_COM_GPU_MEM_POD"] == "16000"
    assert booked_memory(decider) == {0: 1000, 1: 16000}


async def test_the_memory_of_an_init_container_is_free_for_later_containers() -> None:
    init = (asking("prepare", gpu_mem=CARD), asking("side", always=True, gpu_mem=1000))
    asked = pod_json(asking("main", gpu_mem=2000), init=init, name="pod", uid="pod")
    decider = following([aliyun_node(cards=1)], asked)
    assert await decider.bind(asked, "n1") == ""
    assert annotations_of(decider, "pod")["ALIYUN_COM_GPU_MEM_POD"] == str(CARD)
    assert booked_memory(decider) == {0: CARD}


# contract A1.21
async def test_unlike_cards_have_the_memory_that_is_recorded_for_each() -> None:
    node = stating(memory=[8000 * MIB, 0, 24000 * MIB + 5], gpu_mem=32000, gpu_count=2)
    facts = VOCABULARIES.facts(decoded(node))
    assert facts.problems == ()
    amounts = {card: dict(each) for card, each in facts.inventory.capacity.items()}
    assert amounts[Card(1)] == {}
    assert amounts[Card(2)] == {"gpu-mem": 24000, MEMORY_MAX: 24000 * MIB + 5, "millicores": 1000}
    decider = following([node], asked := wanting(16000))
    assert await decider.bind(asked, "n1") == ""
    assert booked_cards(decider, "pod") == "card2 on n1, held"
    assert annotations_of(decider, "pod")["ALIYUN_COM_GPU_MEM_DEV"] == "24000"


# contract A1.21, V1.2
async def test_pods_with_whole_cards_and_pods_with_memory_run_on_one_node() -> None:
    node = stating(gpu_mem=2 * CARD, gpu_count=2, nvidia=2)
    whole = pod_json(asking(nvidia=1), name="whole", uid="whole")
    late = pod_json(asking(nvidia=1), name="late", uid="late")
    decider = following([node], small := wanting(1, "small"), whole, late)
    assert [await decider.bind(each, "n1") for each in (small, whole)] == ["", ""]
    assert [booked_cards(decider, name)[:5] for name in ("small", "whole")] == ["card0", "card1"]
    assert (await decider.ask(late, "n1"))["FailedNodes"].keys() == {"n1"}
    large = wanting(CARD, "large")
    assert (await decider.ask(large, "n1"))["FailedNodes"].keys() == {"n1"}


# contract A1.22
async def test_pods_of_the_original_are_booked_by_its_annotations() -> None:
    only_id = wanting(300, "document", node="n1", annotations={"ALIYUN_GPU_ID": "1"})
    decider = following([aliyun_node()], bound(100, 0, "a"), bound(200, 1, "b"), only_id)
    assert booked_memory(decider) == {0: 100, 1: 500}
    assert decider.reports.mismatches == []


# contract A1.22
@pytest.mark.parametrize("text", ["-1", "card0", "00", "1.5"])
async def test_an_annotation_that_names_no_card_is_reported_and_not_booked(text: str) -> None:
    wrong = wanting(100, "wrong", node="n1", annotations={"ALIYUN_COM_GPU_MEM_IDX": text})
    decider = following([aliyun_node()], wrong)
    assert booked_memory(decider) == {}
    assert decider.reports.mismatches == [
        (
            "default/wrong",
            "its cards are not booked: annotation ALIYUN_COM_GPU_MEM_IDX: expected the index of a card, found"
            f" {text!r}",
        )
    ]


# contract A1.22
def test_counted_cards_are_those_that_another_vocabulary_names() -> None:
    labels = {"gpu.intel.com/gpu-numbers": "0.2"}
    node = stating(labels=labels, gpu_mem=2 * CARD, gpu_count=2, i915=2, millicores=2000, memory_max=2 * CARD * MIB)
    facts = VOCABULARIES.facts(decoded(node))
    assert facts.problems == ()
    card = {"i915": 1, "gpu-mem": CARD, MEMORY_MAX: CARD * MIB, "millicores": 1000}
    assert facts.inventory.capacity == {Card(0): card, Card(2): card}


# contract A1.23
async def test_millicores_are_booked_in_proportion_and_rounded_down_for_the_whole_pod() -> None:
    three = pod_json(*(asking(f"c{n}", gpu_mem=1) for n in range(3)), name="three", uid="three")
    decider = following([aliyun_node(cards=1, units=2000)], three)
    assert await decider.bind(three, "n1") == ""
    (booking,) = decider.booked().values()
    assert dict(booking.footprint.amounts[Card(0)])["millicores"] == 1  # 3 / 2000 of 1000


# contract A1.23
async def test_a_card_whose_millicores_are_taken_has_no_room() -> None:
    labels = {"gpu.intel.com/gpu-numbers": "0"}
    node = stating(labels=labels, memory=[1000 * MIB], gpu_mem=1000, i915=9, millicores=1000, memory_max=1000 * MIB)
    busy = pod_json(container(i915=1, millicores=600), name="busy", uid="busy")
    decider = following([node], busy, half := wanting(500, "half"), less := wanting(400, "less"))
    assert await decider.bind(busy, "n1") == ""
    assert (await decider.ask(half, "n1"))["FailedNodes"].keys() == {"n1"}
    assert await decider.bind(less, "n1") == ""


def test_a_plugin_that_counts_in_another_unit_is_reported_and_offers_no_memory() -> None:
    node = stating(memory=[15_974 * MIB] * 2, gpu_mem=30, gpu_count=2)  # 15.6 GiB each
    facts = VOCABULARIES.facts(decoded(node))
    assert facts.problems == (
        "allocatable aliyun.com/gpu-mem: the device plugin counts in GiB and the extender in MiB, so pods get no memory"
        " of this node; set the same --aliyun-unit for both",
    )
    assert not any(facts.inventory.capacity.values())
    other = Vocabularies([Aliyun(unit=MemoryUnit.GIB)])
    assert other.facts(decoded(node)).problems == ()


# contract A1.25
@pytest.mark.parametrize(("units", "unit", "is_odd"), [(15, "MiB", True), (1024, "MiB", False), (15, "GiB", False)])
def test_a_counted_card_of_less_than_1_gib_is_reported_and_used(units: int, unit: str, is_odd: bool) -> None:
    facts = Vocabularies([Aliyun(unit=MemoryUnit(unit))]).facts(decoded(stating(gpu_mem=2 * units, gpu_count=2)))
    sentence = (
        "allocatable aliyun.com/gpu-mem: expected 1 GiB or more on a card, found 15 MiB; if the device plugin counts in"
        " GiB, set --aliyun-unit=GiB"
    )
    assert facts.problems == ((sentence,) if is_odd else ())
    assert facts.inventory.capacity[Card(1)]["gpu-mem"] == units


# contract A1.25
@pytest.mark.parametrize(
    ("unit", "requests", "found"),
    [
        (
            "MiB",
            {GPU_MEM: 3},
            "aliyun.com/gpu-mem: 3 means 3 MiB; if it is to mean 3 GiB, set --aliyun-unit=GiB for extender and plugin",
        ),
        ("MiB", {GPU_MEM: 100}, ""),
        ("MiB", {GPU_MEM: 0}, ""),
        ("GiB", {GPU_MEM: 3}, ""),
        (
            "GiB",
            {"aliyun.com/gpumem": 3},
            "container 'main' asks for 'aliyun.com/gpumem', which no node has; did you mean aliyun.com/gpu-mem?",
        ),
        (
            "GiB",
            {GPU_MEM: 3, GPU_COUNT: 1},
            "container 'main' asks for 'aliyun.com/gpu-count', which gives it no card; request aliyun.com/gpu-mem",
        ),
    ],
)
def test_a_new_pod_that_asks_for_nothing_useful_is_refused_or_warned_of(
    unit: str, requests: dict[str, int], found: str
) -> None:
    checks = PodChecks(Vocabularies([Aliyun(unit=MemoryUnit(unit))]), NeedOptions())
    findings = checks.pod(pod({"name": "main", "resources": {"requests": requests}}))
    assert findings.all == ((found,) if found else ())
    assert bool(findings.refusals) is found.startswith("container")


# contract A1.25
def test_a_new_pod_that_asks_for_more_than_any_card_has_is_warned_of() -> None:
    checks = PodChecks(VOCABULARIES, NeedOptions())
    nodes = [(VOCABULARIES.facts(decoded(aliyun_node())), 1)]
    (warning,) = at_once(checks.in_cluster(pod(asking(gpu_mem=CARD + 1)), nodes, {}))
    assert warning.endswith(f"no card has {CARD + 1} MiB of aliyun.com/gpu-mem free (1 node)")


def test_the_unit_is_that_of_the_flag() -> None:
    assert parse_flags(["--vocabularies=aliyun", "--aliyun-unit=GiB"]).vocabularies == (Aliyun(unit=MemoryUnit.GIB),)


@pytest.mark.parametrize(("cards", "units"), [(MOST_RECORDS, 1024), (1, MOST_MEMORY // MIB)])
def test_the_most_cards_and_the_most_memory_are_used(cards: int, units: int) -> None:
    facts = VOCABULARIES.facts(decoded(aliyun_node(cards=cards, units=units)))
    assert (len(facts.inventory.capacity), facts.problems) == (cards, ())


@pytest.mark.parametrize(
    ("allocatable", "sentence"),
    [
        (
            {"gpu_mem": 100},
            f"allocatable {GPU_COUNT}: expected 1 to 1024 cards, found 0; pods get no card of this node",
        ),
        ({"gpu_mem": 100, "gpu_count": "x"}, f"allocatable {GPU_COUNT}: expected a quantity"),
        ({"gpu_mem": "x", "gpu_count": 1}, f"allocatable {GPU_MEM}: expected a quantity"),
        ({"gpu_mem": 2**40, "gpu_count": 1}, f"allocatable {GPU_MEM}: expected at most 1073741824 MiB on a card"),
        ({"gpu_mem": 100, "gpu_count": 4000}, f"allocatable {GPU_COUNT}: expected 1 to 1024 cards, found 4000"),
    ],
)
def test_an_invalid_amount_of_a_node_is_a_sentence(allocatable: dict[str, Any], sentence: str) -> None:
    facts = VOCABULARIES.facts(decoded(stating(**allocatable)))
    assert not any(facts.inventory.capacity.values())
    assert any(each.startswith(sentence) for each in facts.problems), facts.problems


# contract A1.22
@pytest.mark.parametrize("first", [0, 1000])
async def test_pods_of_the_original_keep_their_cards_while_one_before_them_is_lost(first: int) -> None:
    def node(*cards: int) -> dict[str, Any]:
        records = [
            CardRecord(card=Card(card), driver="nvidia", memory=CARD * MIB, uuid=f"GPU-{card:08}") for card in cards
        ]
        amounts: dict[str, Any] = {"gpu_mem": len(cards) * CARD, "gpu_count": len(cards)}
        return stating(annotations={ANNOTATION: format_card_records(records)}, **amounts)

    olds = [bound(100, 0, "lost"), bound(CARD, 1, "full")]
    decider = following([node(first, first + 1, first + 2)], *olds, new := wanting(CARD, "new"))
    decider.nodes.changed(decoded(node(first + 1, first + 2)))
    assert booked_memory(decider) == {first: 100, first + 1: CARD}
    assert booked_memory(following([node(first + 1, first + 2)], *olds)) == {first: 100, first + 1: CARD}
    assert await decider.bind(new, "n1") == ""
    assert booked_memory(decider)[first + 2] == CARD
