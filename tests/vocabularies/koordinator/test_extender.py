"""Koordinator's pods in the extender: each clause of the contract with their users that placement keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.decision.annotations import LONGEST
from gas.extender.decider import Options
from gas.placement.inventory import Partition
from gas.placement.order import NATURAL
from gas.values.amounts import MEMORY_MAX
from gas.values.card_facts import MOST_MEMORY
from gas.values.card_records import ANNOTATION, MOST_RECORDS, CardRecord, format_card_records
from gas.values.cards import Card, instance
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.koordinator.vocabulary import format_device_allocated, parse_allocated
from gas.vocabularies.protocol import NeedOptions
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import container, pod_json
from tests.extender.decider import DrivenDecider, booked_cards
from tests.extender.decider import following as decider_following
from tests.other_words import asking, counted_node, decoded, koordinator_node, sharing, stating

VOCABULARIES = Vocabularies(parse_vocabularies("intel,koordinator,vendor"))
OPTIONS = Options(vocabularies=VOCABULARIES)
following = partial(decider_following, options=OPTIONS)
GIB = 2**30
ALLOCATED = "scheduling.koordinator.sh/device-allocated"


def wanting(name: str = "pod", **asked: Any) -> dict[str, Any]:
    return pod_json(sharing(**asked), name=name, uid=name)


def booked(decider: DrivenDecider, name: str = "pod") -> dict[int, dict[str, int]]:
    """Return what a pod has of each card."""
    return {int(card): dict(amounts) for card, amounts in decider.booked()[name].footprint.amounts.items()}


def written(decider: DrivenDecider, name: str = "pod") -> dict[str, str]:
    return dict(decider.cluster.pods[f"default/{name}"]["metadata"]["annotations"])


def allocated(decider: DrivenDecider, name: str = "pod") -> list[tuple[int, str, str, str]]:
    """Return card, compute, memory and percentage of each entry of Koordinator's annotation."""
    return [
        (
            each["minor"],
            *(each["resources"][f"koordinator.sh/gpu-{what}"] for what in ("core", "memory", "memory-ratio")),
        )
        for each in json.loads(written(decider, name)[ALLOCATED])["gpu"]
    ]


# contract O1.1
def test_kube_scheduler_is_to_ask_about_every_resource_of_the_api() -> None:
    spoken = Vocabularies(parse_vocabularies("koordinator"))
    names = ("gpu.shared", "gpu-memory", "gpu-memory-ratio", "gpu-core", "gpu")
    assert spoken.managed_resources == tuple(f"koordinator.sh/{name}" for name in names)
    assert spoken.resources == ("koordinator.sh/gpu.shared",)


# contract O1.3
@pytest.mark.parametrize(("gib", "percent"), [(8, 50), (16, 50), (8, 33)])
async def test_a_percentage_is_that_of_the_card(gib: int, percent: int) -> None:
    decider = following([koordinator_node(gib * GIB)], asked := wanting(ratio=percent, shared=1))
    assert await decider.bind(asked, "n1") == ""
    memory = gib * GIB * percent // 100
    assert booked(decider) == {0: {"gpu.shared": 1, MEMORY_MAX: memory}}
    assert allocated(decider) == [(0, "0", str(memory), str(percent))]


# contract O1.3, O1.24
async def test_on_unlike_cards_of_one_node_a_percentage_is_resolved_for_each() -> None:
    decider = following([koordinator_node(8 * GIB, 16 * GIB, 0)], asked := wanting(ratio=100, shared=2))
    assert await decider.bind(asked, "n1") == ""
    assert {card: amounts[MEMORY_MAX] for card, amounts in booked(decider).items()} == {0: 4 * GIB, 1: 8 * GIB}
    assert allocated(decider) == [(0, "0", str(4 * GIB), "50"), (1, "0", str(8 * GIB), "50")]
    assert written(decider)["gas-container-cards"] == "card0,card1"


# contract O1.4, O1.5
async def test_amounts_are_divided_evenly_between_different_cards() -> None:
    decider = following([koordinator_node(8 * GIB, 8 * GIB)], asked := wanting(memory="4Gi", core=100, shared=2))
    assert await decider.bind(asked, "n1") == ""
    half = {"gpu.shared": 1, MEMORY_MAX: 2 * GIB, "millicores": 500}
    assert booked(decider) == {0: half, 1: half}
    assert allocated(decider) == [(card, "50", str(2 * GIB), "25") for card in (0, 1)]


def test_a_place_on_a_shared_card_takes_none_of_its_memory() -> None:
    text = format_device_allocated({Card(0): {"nvidia-gpu": 1}}, {Card(0): {MEMORY_MAX: GIB}}, int)
    assert json.loads(text)["gpu"][0]["resources"]["koordinator.sh/gpu-memory"] == "0"


# contract O1.10, O1.18, O1.32
async def test_whole_cards_of_a_vendor_take_all_of_as_many_cards() -> None:
    node = koordinator_node(8 * GIB, 8 * GIB, 8 * GIB, driver="nvidia", nvidia=3)
    whole = pod_json(asking(nvidia=2), name="whole", uid="whole")
    decider = following(
        [node], whole, shares := wanting(memory="1Gi", core=10, shared=1), late := wanting("late", ratio=2, shared=2)
    )
    assert [await decider.bind(each, "n1") for each in (whole, shares)] == ["", ""]
    assert booked(decider, "whole") == {card: {"nvidia-gpu": 1, "millicores": 1000} for card in (0, 1)}
    assert allocated(decider, "whole") == [(card, "100", str(8 * GIB), "100") for card in (0, 1)]
    assert written(decider, "whole")["scheduling.koordinator.sh/gpu-minors"] == "0,1"
    assert booked_cards(decider, "pod") == "card2 on n1, held"
    assert (await decider.ask(late, "n1"))["FailedNodes"].keys() == {"n1"}


# contract O1.20
async def test_at_most_100_containers_share_a_card() -> None:
    pods = [wanting(f"p{number}", memory=1, shared=1) for number in range(101)]
    decider = following([koordinator_node(8 * GIB)], *pods)
    assert [await decider.bind(each, "n1") for each in pods[:100]] == [""] * 100
    refused = (await decider.ask(pods[100], "n1"))["FailedNodes"]
    assert refused == {"n1": "no card has 1 gpu.shared free"}


# contract O1.33
@pytest.mark.parametrize(
    ("words", "cards"),
    [
        pytest.param({}, [1, 0, 1, 1, 0], id="its own order: the largest percentage of memory left"),
        pytest.param({"card_order": NATURAL}, [0] * 5, id="the administrator's"),
    ],
)
async def test_pods_are_spread_over_cards_unless_the_administrator_says_otherwise(
    words: dict[str, Any], cards: list[int]
) -> None:
    pods = [wanting(f"p{number}", memory="2Gi", shared=1) for number in range(5)]
    options = Options(vocabularies=VOCABULARIES, need=NeedOptions(**words))
    decider = decider_following([koordinator_node(10 * GIB, 16 * GIB)], *pods, options=options)
    assert [await decider.bind(each, "n1") for each in pods] == [""] * 5
    assert [card for each in pods for card in booked(decider, each["metadata"]["name"])] == cards


# contract O1.12
async def test_one_write_binds_the_pod_and_carries_every_annotation() -> None:
    forged = {ALLOCATED: '{"gpu":[{"minor":7}]}'}
    asked = pod_json(sharing(memory="2Gi", core=50, shared=1), name="pod", uid="pod", annotations=forged)
    decider = following([koordinator_node(8 * GIB)], asked)
    assert await decider.bind(asked, "n1") == ""
    (binding,) = decider.cluster.bindings
    amounts = {
        "koordinator.sh/gpu-core": "50",
        "koordinator.sh/gpu-memory": str(2 * GIB),
        "koordinator.sh/gpu-memory-ratio": "25",
    }
    assert json.loads(binding["annotations"].pop(ALLOCATED)) == {"gpu": [{"minor": 0, "resources": amounts}]}
    assert binding["annotations"].pop("scheduling.koordinator.sh/gpu-minors") == "0"
    assert binding["annotations"].keys() == {"gas-ts", "gas-container-cards"}


# contract O1.27
async def test_the_total_of_the_app_containers_is_divided_over_as_many_cards_as_they_request() -> None:
    init = (sharing("prepare", ratio=100, shared=1),)
    apps = (sharing("a", ratio=75, core=30, shared=1), container("none"), sharing("b", ratio=45, shared=2))
    asked = pod_json(*apps, init=init, name="pod", uid="pod")
    full = wanting("full", ratio=70, shared=1)
    decider = following([koordinator_node(*[10 * GIB] * 4)], asked, full)
    assert [await decider.bind(each, "n1") for each in (full, asked)] == ["", ""]
    assert written(decider)["gas-container-cards"] == "card1||card2,card3"
    assert written(decider)["gas-init-container-cards"] == "card1"
    ratios = [(1, "10", str(10 * GIB), "100"), *((card, "10", str(4 * GIB), "40") for card in (2, 3))]
    assert allocated(decider) == ratios


# contract O1.27
async def test_a_pod_of_two_containers_with_a_card_each_waits_for_two_cards() -> None:
    asked = pod_json(sharing("a", ratio=10, shared=1), sharing("b", ratio=10, shared=1), name="pod", uid="pod")
    decider = following([koordinator_node(8 * GIB)], asked)
    assert (await decider.ask(asked, "n1"))["FailedNodes"] == {
        "n1": "container 'a, b' asks for 2 cards, but the node has 1"
    }


# contract O1.25
@pytest.mark.parametrize("vocabularies", ["intel,koordinator,vendor", "intel,vendor"])
def test_whole_cards_that_koordinator_decided_are_booked(vocabularies: str) -> None:
    node = koordinator_node(8 * GIB, 8 * GIB, driver="nvidia", nvidia=2)
    text = '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"100"}}]}'
    options = Options(vocabularies=Vocabularies(parse_vocabularies(vocabularies)))
    decider = decider_following([node], of_koordinator(text, asking(nvidia=1)), options=options)
    assert list(decider.booked()) == (["pod"] if "koordinator" in vocabularies else [])
    if "koordinator" in vocabularies:
        assert list(booked(decider)) == [1]


# contract O1.24, O1.25, O1.32
async def test_numbers_of_nvidias_cards_beside_intels_are_those_that_koordinator_knows() -> None:
    old = of_koordinator('{"gpu":[{"minor":0}]}', sharing(ratio=100, shared=1))
    asked = [wanting("one", ratio=50, shared=1), wanting("two", ratio=200, shared=2)]
    decider = following([mixed_node()], old, *asked)
    assert list(booked(decider)) == [1000]
    assert [await decider.bind(each, "n1") for each in asked] == ["", ""]
    assert [list(booked(decider, name)) for name in ("one", "two")] == [[0], [1, 1001]]
    assert allocated(decider, "one") == [(1000, "0", str(4 * GIB), "50")]
    assert written(decider, "two")["scheduling.koordinator.sh/gpu-minors"] == "1001,1"
    for each in asked:  # as Koordinator's scheduler, which removes what is not its own, would leave it
        each["metadata"]["annotations"] = {ALLOCATED: written(decider, each["metadata"]["name"])[ALLOCATED]}
        each["spec"]["nodeName"] = "n1"
    again = following([mixed_node()], *asked)
    assert [list(booked(again, name)) for name in ("one", "two")] == [[0], [1, 1001]]


# contract O1.25, O1.29
async def test_koordinators_numbers_stay_those_of_nvidias_cards_while_these_are_unhealthy() -> None:
    old = of_koordinator('{"gpu":[{"minor":0}]}', sharing(ratio=50, shared=1))
    decider = following([mixed_node(healthy=False)], old, asked := wanting("new", ratio=50, shared=1))
    assert list(booked(decider)) == [1000]
    assert await decider.bind(asked, "n1") == ""
    assert written(decider, "new")["scheduling.koordinator.sh/gpu-minors"] == "1000"
    facts = VOCABULARIES.facts(
        decoded(
            mixed_node(
                annotations={"scheduling.koordinator.sh/gpu-partitions": '{"1":[{"minors":[0]}]}'}, healthy=False
            )
        )
    )
    assert facts is not None
    assert [each.cards for each in facts.inventory.partitions] == [{1000}]


def mixed_node(*, healthy: bool = True, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a node of two cards of Intel and two of NVIDIA, which are healthy or not."""
    intel = [{"card": number, "driver": "xe", "memory": 8 * GIB} for number in (0, 1)]
    nvidia = [
        {"card": number, "driver": "nvidia", "memory": 8 * GIB, "uuid": f"GPU-{number:08}", "healthy": healthy}
        for number in (1000, 1001)
    ]
    records = {"gas-cards": json.dumps([*intel, *nvidia])}
    return koordinator_node(*[8 * GIB] * 4, annotations=records | dict(annotations or {}))


def hinted(*containers: Mapping[str, Any], name: str = "pod", spec: str = "", **hint: Any) -> dict[str, Any]:
    annotations = {HINT: json.dumps({"gpu": hint})} if hint else {}
    return pod_json(*containers, name=name, uid=name, annotations=annotations | ({SPEC: spec} if spec else {}))


HINT = "scheduling.koordinator.sh/device-allocate-hint"
SPEC = "scheduling.koordinator.sh/gpu-partition-spec"
PLACES = [
    {"card": card, "driver": "nvidia", "memory": 8 * GIB, "numa": card // 4, "board": card // 2, "model": f"A {card}"}
    for card in range(8)
]


def placed_node(**rest: Any) -> dict[str, Any]:
    """Return a node of 8 cards, 4 of each NUMA node and 2 behind each switch."""
    annotations = {"gas-cards": json.dumps(PLACES)} | rest.pop("annotations", {})
    return koordinator_node(*[8 * GIB] * 8, driver="nvidia", nvidia=8, annotations=annotations, **rest)


# contract O1.28
@pytest.mark.parametrize(
    ("count", "hint", "cards"),
    [
        (4, {"requiredTopologyScope": "NUMANode"}, "card4,card5,card6,card7"),
        (2, {"requiredTopologyScope": "PCIe"}, "card2,card3"),
        (2, {"requiredTopologyScope": "Node", "selector": {}}, "card1,card2"),
        (1, {"requiredTopologyScope": "Device"}, "card1"),
        (1, {"requiredTopologyScope": None, "exclusivePolicy": None, "selector": {"matchLabels": None}}, "card1"),
        (1, {"selector": {"matchLabels": {"node.koordinator.sh/gpu-model": "A-6"}}}, "card6"),
        (
            2,
            {
                "selector": {
                    "matchExpressions": [
                        {"key": "node.koordinator.sh/gpu-model", "operator": "In", "values": ["A-3", "A-5", "B"]}
                    ]
                }
            },
            "card3,card5",
        ),
    ],
)
@pytest.mark.parametrize("words", ["koordinator", "vendor"])
async def test_hints_are_rules_for_the_cards_of_a_pod(words: str, count: int, hint: dict[str, Any], cards: str) -> None:
    asked = hinted(asking(nvidia=count) if words == "vendor" else sharing(ratio=100 * count, shared=count), **hint)
    taken = hinted(asking(nvidia=1), name="taken")
    decider = following([placed_node()], taken, asked)
    assert [await decider.bind(each, "n1") for each in (taken, asked)] == ["", ""]
    assert written(decider)["gas-container-cards"] == cards


# contract O1.28
@pytest.mark.parametrize(
    ("hint", "sentence"),
    [
        ({"requiredTopologyScope": "Rack"}, "requiredTopologyScope: expected one of Node, Device, NUMANode, PCIe"),
        ({"requiredTopologyScope": "Device"}, "requiredTopologyScope Device means one card, and the pod asks for 2"),
        ({"selector": {"matchLabels": {"zone": "a"}}}, "selector: expected label node.koordinator.sh/gpu-model"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}, "operator in selector: expected In"),
        ({"selector": 5}, 'expected JSON such as {"gpu":{"requiredTopologyScope":"NUMANode"}}'),
    ],
)
async def test_a_hint_that_no_card_can_meet_is_refused_with_a_sentence(hint: dict[str, Any], sentence: str) -> None:
    asked = hinted(sharing(ratio=200, shared=2), **hint)
    reasons = (await following([placed_node()], asked).ask(asked, "n1"))["FailedNodes"]
    assert reasons["n1"].startswith(f"{HINT}: {sentence}")
    assert len(reasons["n1"]) <= 200


# contract O1.28
async def test_an_exclusive_pod_shares_its_card_with_no_other() -> None:
    exclusive = [hinted(sharing(ratio=10), name=name, exclusivePolicy="DeviceLevel") for name in ("a", "b")]
    pods = [*exclusive, wanting("c", ratio=10)]
    for pod in pods:
        pod["spec"]["containers"][0]["resources"]["requests"]["koordinator.sh/gpu.shared"] = "1"
    decider = following([koordinator_node(8 * GIB, 8 * GIB, 8 * GIB)], *pods)
    assert [await decider.bind(each, "n1") for each in pods] == ["", "", ""]
    assert [list(booked(decider, name)) for name in "abc"] == [[0], [1], [2]]


TABLE = {
    "1": [{"minors": [card]} for card in range(8)],
    "2": [{"minors": [0, 1], "ringBusBandwidth": "100Gi"}, {"minors": [6, 7], "ringBusBandwidth": "400Gi"}],
    "4": [{"minors": [0, 1, 2, 3], "allocationScore": 1}],
}


# contract O1.29
@pytest.mark.parametrize(
    ("policy", "spec", "count", "expected"),
    [
        ("Prefer", "", 2, "card6,card7"),
        ("Prefer", "", 3, "card0,card1,card2"),
        ("Honor", "", 3, "no partition of 3 card(s) that the pod may use is free"),
        ("Honor", "", 4, "card0,card1,card2,card3"),
        ("Prefer", "{}", 3, "no partition of 3 card(s) that the pod may use is free"),
        ("Prefer", '{"ringBusBandwidth":"200Gi"}', 2, "card6,card7"),
        ("Prefer", "null", 3, "no partition of 3 card(s) that the pod may use is free"),
        ("Prefer", '{"allocatePolicy":null,"ringBusBandwidth":null}', 2, "card6,card7"),
        ("Prefer", '{"allocatePolicy":"Restricted","ringBusBandwidth":"500Gi"}', 2, "no partition of 2 card(s)"),
        ("Prefer", '{"allocatePolicy":"Best"}', 2, f"{SPEC}: allocatePolicy: expected BestEffort or Restricted"),
        ("Prefer", '{"ringBusBandwidth":"x"}', 2, f"{SPEC}: ringBusBandwidth: expected a quantity"),
    ],
)
@pytest.mark.parametrize("words", ["koordinator", "vendor"])
async def test_partitions_of_a_node_are_honored_or_preferred(
    words: str, policy: str, spec: str, count: int, expected: str
) -> None:
    asked = hinted(asking(nvidia=count) if words == "vendor" else sharing(ratio=100 * count, shared=count), spec=spec)
    node = placed_node(
        annotations={"scheduling.koordinator.sh/gpu-partitions": json.dumps(TABLE)},
        labels={"node.koordinator.sh/gpu-partition-policy": policy},
    )
    decider = following([node], asked)
    if reasons := (await decider.ask(asked, "n1"))["FailedNodes"]:
        assert reasons["n1"].startswith(expected)
        return
    assert await decider.bind(asked, "n1") == ""
    assert written(decider)["gas-container-cards"] == expected


# contract O1.29
async def test_a_share_of_a_card_needs_no_partition() -> None:
    node = placed_node(
        annotations={"scheduling.koordinator.sh/gpu-partitions": json.dumps({"2": TABLE["2"]})},
        labels={"node.koordinator.sh/gpu-partition-policy": "Honor"},
    )
    decider = following([node], asked := wanting(ratio=50, shared=1))
    assert await decider.bind(asked, "n1") == ""


def of_koordinator(text: str, *containers: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod that Koordinator's scheduler has bound."""
    return pod_json(*containers, name="pod", uid="pod", node="n1", annotations={ALLOCATED: text})


# contract O1.25
@pytest.mark.parametrize(
    ("containers", "minors", "cards"),
    [
        pytest.param([sharing(ratio=50, shared=1)], [1], {1: 4 * GIB}, id="one-card"),
        pytest.param([sharing(ratio=200)], [2, 0], {0: 8 * GIB, 2: 8 * GIB}, id="before-the-number-of-cards"),
        pytest.param([sharing(gpu=50)], [1], {1: 4 * GIB}, id="the-form-of-before"),
        pytest.param(
            [sharing("a", memory=5, shared=1), sharing("b", memory=2, shared=1)],
            [2, 1],
            {1: 4, 2: 4},
            id="a-card-for-each-container",
        ),
        pytest.param(
            [sharing("a", memory=5), container("none"), sharing("b", memory=6)],
            [1],
            {1: 11},
            id="both-containers-on-one-card",
        ),
        pytest.param([sharing(memory=5, ratio=50, shared=1)], [0], {0: 5}, id="bytes-rather-than-percent"),
    ],
)
def test_pods_of_the_original_are_booked_by_its_annotation(
    containers: list[dict[str, Any]], minors: list[int], cards: dict[int, int]
) -> None:
    text = json.dumps(
        {"gpu": [{"minor": minor, "resources": {}} for minor in minors], "rdma": [{"minor": 5, "id": "x"}]}
    )
    decider = following([koordinator_node(8 * GIB, 8 * GIB, 8 * GIB)], of_koordinator(text, *containers))
    assert {card: amounts[MEMORY_MAX] for card, amounts in booked(decider).items()} == cards
    assert decider.reports.mismatches == []


# contract O1.25
def test_init_containers_of_the_original_had_the_first_cards_of_its_app_containers() -> None:
    pod = of_koordinator('{"gpu":[{"minor":1},{"minor":0}]}', sharing("a", memory=6, shared=2))
    pod["spec"]["initContainers"] = [sharing("i", memory=5, shared=1)]
    decider = following([koordinator_node(8 * GIB, 8 * GIB)], pod)
    assert {card: amounts[MEMORY_MAX] for card, amounts in booked(decider).items()} == {0: 3, 1: 5}


# contract O1.25
def test_a_percentage_of_a_card_that_the_node_shows_later_is_booked() -> None:
    decider = following([stating()], of_koordinator('{"gpu":[{"minor":0}]}', sharing(ratio=50, core=50, shared=1)))
    decider.node_handlers.changed(decoded(koordinator_node(8 * GIB)))
    assert booked(decider)[0] == {"gpu.shared": 1, MEMORY_MAX: 4 * GIB, "millicores": 500}
    assert decider.pods.in_trouble == {}


# contract O1.25
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("card0", "expected JSON such as"),
        ('{"gpu":[{"minor":"0"}]}', "expected JSON such as"),
        ('{"gpu":[null]}', "expected JSON such as"),
        ('{"gpu":[{"minor":null}]}', "expected JSON such as"),
        ('{"gpu":[{"minor":-1}]}', "expected different numbers of cards"),
        ('{"gpu":[{"minor":1},{"minor":1}]}', "expected different numbers of cards"),
        ("[" * 5000, "expected JSON such as"),
        (" " * 70_000 + "{}", "expected at most 65536 characters"),
    ],
)
def test_an_annotation_that_names_no_cards_is_reported_and_not_booked(text: str, reason: str) -> None:
    decider = following([koordinator_node(8 * GIB)], of_koordinator(text, sharing(ratio=50, shared=1)))
    assert decider.booked() == {}
    ((pod, sentence),) = decider.reports.mismatches
    assert pod == "default/pod"
    assert sentence.startswith(f"its cards are not booked: annotation {ALLOCATED}: {reason}")


def test_the_longest_annotation_of_the_most_cards_is_read() -> None:
    text = json.dumps({"gpu": [{"minor": number} for number in range(MOST_RECORDS)]}).ljust(LONGEST)
    assert parse_allocated(text) == tuple(map(Card, range(MOST_RECORDS)))


@pytest.mark.parametrize("text", ['{"rdma":[{"minor":0}]}', '{"gpu":null}', "null"])
def test_an_annotation_about_other_devices_alone_names_no_card(text: str) -> None:
    decider = following([koordinator_node(8 * GIB)], of_koordinator(text, sharing(ratio=50, shared=1)))
    assert decider.booked() == {}
    ((_, sentence),) = decider.reports.mismatches
    assert sentence == "it is bound without cards written on it, so its cards are not booked"


class TestNodes:
    """The facts that a node states about its cards."""

    def facts(self, node: dict[str, Any]) -> tuple[dict[int, dict[str, int]], tuple[str, ...]]:
        facts = VOCABULARIES.facts(decoded(node))
        return {int(card): dict(amounts) for card, amounts in facts.inventory.capacity.items()}, facts.problems

    # contract O1.2, O1.26
    def test_a_node_without_records_has_as_many_cards_as_it_counts(self) -> None:
        card = {"gpu.shared": 100, MEMORY_MAX: 4 * GIB, "millicores": 1000}
        assert self.facts(counted_node(shared=200, memory="8Gi")) == ({0: card, 1: card}, ())

    # contract O1.26
    @pytest.mark.parametrize("resource", ["core", "ratio", "gpu"])
    def test_a_node_of_an_earlier_release_counts_them_by_another_resource(self, resource: str) -> None:
        capacity, problems = self.facts(counted_node(memory="8Gi", **{resource: 200}))
        assert [each[MEMORY_MAX] for each in capacity.values()] == [4 * GIB, 4 * GIB]
        assert problems == ()

    # contract O1.21, O1.24
    def test_records_say_which_cards_there_are_and_how_much_memory_each_has(self) -> None:
        capacity, problems = self.facts(koordinator_node(8 * GIB, 0, 16 * GIB))
        assert [each.get(MEMORY_MAX) for each in capacity.values()] == [8 * GIB, None, 16 * GIB]
        assert problems == ()

    def test_a_part_of_a_card_has_the_millicores_of_its_record(self) -> None:
        records = [CardRecord(card=instance(Card(0), 0), driver="nvidia", memory=GIB, millicores=400)]
        node = counted_node(shared=100)
        node["metadata"]["annotations"] = {ANNOTATION: format_card_records(records)}
        (amounts,) = self.facts(node)[0].values()
        assert amounts == {"gpu.shared": 100, MEMORY_MAX: GIB, "millicores": 400}

    def test_cards_are_not_offered_before_kubelet_has_their_devices(self) -> None:
        node = koordinator_node(8 * GIB)
        node["status"]["allocatable"]["koordinator.sh/gpu.shared"] = "0"
        assert self.facts(node) == ({0: {}}, ())

    @pytest.mark.parametrize(
        ("stated", "sentence"),
        [
            (
                {"shared": 250},
                "allocatable koordinator.sh/gpu.shared: expected 100 for each of at most 1024 cards, found",
            ),
            ({"shared": 10**9}, "allocatable koordinator.sh/gpu.shared: expected 100 for each of at most 1024 cards"),
            ({"shared": "x"}, "allocatable koordinator.sh/gpu.shared: expected a quantity"),
            ({"shared": 100, "memory": "1Ei"}, "allocatable koordinator.sh/gpu-memory: expected at most"),
        ],
    )
    def test_amounts_that_no_cards_have_are_a_sentence(self, stated: dict[str, Any], sentence: str) -> None:
        capacity, (problem,) = self.facts(counted_node(**stated))
        assert capacity == {}
        assert problem.startswith(sentence)

    def test_the_most_cards_and_the_most_memory_are_used(self) -> None:
        for most in ({"shared": 100 * MOST_RECORDS}, {"shared": 100, "memory": MOST_MEMORY}):
            capacity, problems = self.facts(counted_node(**most))
            assert (len(capacity), problems) == (most["shared"] // 100, ())

    # contract O1.29
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("x", "JSON such as"),
            ('{"2":[{"minors":[-1]}]}', "JSON such as"),
            ('{"2":[{"minors":[null]}]}', "JSON such as"),
            ('{"2":[{"minors":[0],"ringBusBandwidth":"x"}]}', "JSON such as"),
            (json.dumps({"1": 257 * [{"minors": [0]}]}), "at most 256 partitions, found 257;"),
        ],
    )
    def test_partitions_that_cannot_be_read_are_a_sentence(self, text: str, expected: str) -> None:
        node = placed_node(annotations={"scheduling.koordinator.sh/gpu-partitions": text})
        _, (problem,) = self.facts(node)
        assert problem.startswith(f"annotation scheduling.koordinator.sh/gpu-partitions: expected {expected}")

    # contract O1.29
    def test_null_in_partitions_means_that_a_field_is_absent(self) -> None:
        text = '{"1":null,"2":[{"minors":[0,1],"allocationScore":null,"ringBusBandwidth":null}]}'
        facts = VOCABULARIES.facts(decoded(placed_node(annotations={"scheduling.koordinator.sh/gpu-partitions": text})))
        assert facts is not None
        assert facts.inventory.partitions == (Partition(frozenset({Card(0), Card(1)})),)
        assert facts.problems == ()

    def test_equal_sources_have_equal_facts_and_others_have_others(self) -> None:
        one, other = koordinator_node(8 * GIB), koordinator_node(9 * GIB)
        assert VOCABULARIES.source(decoded(one)) == VOCABULARIES.source(decoded(koordinator_node(8 * GIB)))
        assert VOCABULARIES.source(decoded(one)) != VOCABULARIES.source(decoded(other))
        assert self.facts(stating()) == ({}, ())


SIZES = st.lists(st.sampled_from((4 * GIB, 8 * GIB, 16 * GIB + 3)), min_size=1, max_size=3)
WANTED = st.lists(
    st.tuples(
        st.sampled_from(("ratio", "memory", "intel", "whole")),
        st.integers(1, 3),
        st.integers(1, 100),
        st.integers(0, 100),
    ),
    min_size=1,
    max_size=12,
)


# contract O1.5, O1.20
@given(SIZES, WANTED, st.lists(st.integers(0, 24), max_size=10))
async def test_no_card_is_ever_exceeded_and_a_pod_is_refused_only_if_too_few_cards_have_room(
    sizes: list[int], wanted: list[tuple[str, int, int, int]], ending: list[int]
) -> None:
    numbers = ".".join(map(str, range(len(sizes))))
    capacity_text = ";".join(f"card{card}=memory.max:{size}" for card, size in enumerate(sizes))
    node = koordinator_node(
        *sizes,
        driver="nvidia",
        labels={"gpu.intel.com/gpu-numbers": numbers},
        annotations={"gas-card-capacity": capacity_text},
        i915=100 * len(sizes),
        millicores=1000 * len(sizes),
        memory_max=sum(sizes),
        nvidia=len(sizes),
    )
    decider = following([node])
    free = {card: {"memory": size, "core": 1000, "pods": 0} for card, size in enumerate(sizes)}
    whole: set[int] = set()
    held: dict[str, list[tuple[int, int, int]]] = {}
    for number, (kind, cards, percent, core) in enumerate(wanted):
        name = f"p{number}"
        memory = percent * GIB // 10
        containers = {
            "ratio": sharing(ratio=percent * cards, core=core * cards, shared=cards),
            "memory": sharing(memory=memory * cards, core=core * cards, shared=cards),
            "intel": container(i915=cards, memory_max=memory * cards, millicores=core * cards),
            "whole": asking(nvidia=cards),
        }
        asked = pod_json(containers[kind], name=name, uid=name)
        decider.cluster.add(asked)

        def takes(
            card: int, kind: str = kind, memory: int = memory, percent: int = percent, core: int = core
        ) -> tuple[int, int]:
            return {
                "ratio": (sizes[card] * percent // 100, core * 10),
                "memory": (memory, core * 10),
                "intel": (memory, core),
                "whole": (0, 1000),
            }[kind]

        with_room = [
            card
            for card, left in free.items()
            if takes(card)[0] <= left["memory"]
            and takes(card)[1] <= left["core"]
            and (left["pods"] == 0 if kind == "whole" else card not in whole)
        ]
        error = await decider.bind(asked, "n1")
        assert (error == "") is (len(with_room) >= cards), error
        if not error:
            given_cards = [int(card) for card in decider.booked()[name].footprint.amounts]
            assert len(given_cards) == cards
            assert set(given_cards) <= set(with_room)
            held[name] = [(card, *takes(card)) for card in given_cards]
            whole |= set(given_cards) if kind == "whole" else set()
            for card, bytes_, millicores in held[name]:
                assert booked(decider, name)[card].get(MEMORY_MAX, 0) == bytes_
                free[card]["memory"] -= bytes_
                free[card]["core"] -= millicores
                free[card]["pods"] += 1
        if number in ending and held:
            ended = next(iter(held))
            decider.cluster.remove(f"default/{ended}")
            for card, bytes_, millicores in held.pop(ended):
                free[card]["memory"] += bytes_
                free[card]["core"] += millicores
                free[card]["pods"] -= 1
                whole.discard(card) if free[card]["pods"] == 0 else None
        assert all(amount >= 0 for left in free.values() for amount in left.values())
    assert Card(0) in VOCABULARIES.facts(decoded(node)).inventory.capacity
