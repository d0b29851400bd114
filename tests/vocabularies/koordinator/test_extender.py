"""Koordinator's pods in the extender: each clause of the contract with their users that placement keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.extender.decider import Options
from gas.values.amounts import MEMORY_MAX
from gas.values.cards import Card
from gas.vocabularies.combined import Vocabularies
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
@pytest.mark.parametrize("gib", [8, 16])
async def test_a_percentage_is_that_of_the_card(gib: int) -> None:
    decider = following([koordinator_node(gib * GIB)], asked := wanting(ratio=50, shared=1))
    assert await decider.bind(asked, "n1") == ""
    assert booked(decider) == {0: {"gpu.shared": 1, MEMORY_MAX: gib * GIB // 2}}
    assert allocated(decider) == [(0, "0", str(gib * GIB // 2), "50")]


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


# contract O1.10, O1.18
async def test_whole_cards_of_a_vendor_take_all_of_as_many_cards() -> None:
    node = koordinator_node(8 * GIB, 8 * GIB, 8 * GIB, driver="nvidia", nvidia=3)
    whole = pod_json(asking(nvidia=2), name="whole", uid="whole")
    decider = following(
        [node], whole, shares := wanting(memory="1Gi", core=10, shared=1), late := wanting("late", ratio=2, shared=2)
    )
    assert [await decider.bind(each, "n1") for each in (whole, shares)] == ["", ""]
    assert booked(decider, "whole") == {card: {"nvidia-gpu": 1, "millicores": 1000} for card in (0, 1)}
    assert ALLOCATED not in written(decider, "whole")
    assert booked_cards(decider, "pod") == "card2 on n1, held"
    assert (await decider.ask(late, "n1"))["FailedNodes"].keys() == {"n1"}


# contract O1.20
async def test_at_most_100_containers_share_a_card() -> None:
    pods = [wanting(f"p{number}", memory=1, shared=1) for number in range(101)]
    decider = following([koordinator_node(8 * GIB)], *pods)
    assert [await decider.bind(each, "n1") for each in pods[:100]] == [""] * 100
    refused = (await decider.ask(pods[100], "n1"))["FailedNodes"]
    assert refused == {"n1": "no card has 1 gpu.shared free"}


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
    assert binding["annotations"].keys() == {"gas-ts", "gas-container-cards"}


async def test_containers_have_cards_of_their_own_and_the_annotation_has_their_sum() -> None:
    init = (sharing("prepare", ratio=100, shared=1),)
    apps = (sharing("a", ratio=60, shared=1), sharing("b", memory="2Gi", core=20, shared=1))
    asked = pod_json(*apps, sharing("c", ratio=60, shared=1), init=init, name="pod", uid="pod")
    decider = following([koordinator_node(10 * GIB, 10 * GIB)], asked)
    assert await decider.bind(asked, "n1") == ""
    assert written(decider)["gas-container-cards"] == "card0|card0|card1"
    assert written(decider)["gas-init-container-cards"] == "card0"
    assert allocated(decider) == [(0, "20", str(10 * GIB), "100"), (1, "0", str(6 * GIB), "60")]


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
            [sharing("a", memory=5, shared=1), sharing("b", ratio=50, shared=1)],
            [2, 1],
            {1: 4 * GIB, 2: 5},
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
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("card0", "expected JSON such as"),
        ('{"gpu":[{"minor":"0"}]}', "expected JSON such as"),
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


def test_an_annotation_about_other_devices_alone_names_no_card() -> None:
    decider = following(
        [koordinator_node(8 * GIB)], of_koordinator('{"rdma":[{"minor":0}]}', sharing(ratio=50, shared=1))
    )
    assert decider.booked() == {}


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
