"""The order of cards and nearness, from a pod's annotations and the administrator's default to the bound cards."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import cycle
from random import Random
from typing import Any

import msgspec
import pytest

from gas.extender.decider import Options
from gas.objects.stored import Node
from gas.placement.need import Role
from gas.placement.order import BestFit, CardOrder, FewestContainers
from gas.values.card_records import ANNOTATION, CardRecord, format_card_records
from gas.values.cards import Card
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.known import KNOWN
from gas.vocabularies.protocol import ContainerFacts, NeedFacts, NeedOptions
from tests.builders import container, node, node_json, pod_json
from tests.extender.decider import DrivenDecider

MIB = 2**20


def knowing(*nodes: Node, card_order: CardOrder | None = None) -> DrivenDecider:
    decider = DrivenDecider() if card_order is None else DrivenDecider(card_order=card_order)
    decider.follow(nodes)
    return decider


async def bound(
    decider: DrivenDecider, *containers: Mapping[str, Any], annotations: Mapping[str, str] | None = None, on: str = "n1"
) -> str:
    """Create a pod, bind it to a node, and return its cards."""
    name = f"pod-{len(decider.cluster.pods)}"
    pod = pod_json(*containers, name=name, uid=f"uid-{name}", annotations=annotations)
    decider.cluster.add(pod)
    assert (await decider.ask(pod, on))["NodeNames"] == [on]
    assert await decider.bind(pod, on) == ""
    written: str = decider.cluster.pods[f"default/{name}"]["metadata"]["annotations"]["gas-container-cards"]
    return written


async def ended(decider: DrivenDecider, name: str) -> None:
    decider.cluster.end(f"default/{name}", "Succeeded")


async def test_least_used_by_annotation_overrides_the_default_for_one_pod() -> None:
    decider = knowing(node("n1", i915=20, millicores=2000), card_order=BestFit("millicores"))
    share = container(i915=1, millicores=300)
    assert await bound(decider, share) == "card0"
    assert await bound(decider, share) == "card0"
    assert await bound(decider, share, annotations={"gas-card-order": "least-used=millicores"}) == "card1"


# contract D1.6
async def test_containers_are_counted_not_their_amounts() -> None:
    """One container with much beside two with nothing: the next one goes to the card with one."""
    decider = knowing(node("n1", i915=20, millicores=2000), card_order=FewestContainers())
    assert await bound(decider, container(i915=1, millicores=900)) == "card0"
    assert await bound(decider, container("a", i915=1), container("b", i915=1)) == "card1|card0"
    assert await bound(decider, container(i915=1), annotations={"gas-allow": "card1"}) == "card1"
    assert await bound(decider, container(i915=1), annotations={"gas-allow": "card1"}) == "card1"
    assert await bound(decider, container(i915=1, millicores=100)) == "card0"


# contract D1.7, D1.8
async def test_the_card_with_the_fewest_containers_gets_the_next_one() -> None:
    """Loads 2, 0, 1 and 1: the second card, which then has 1."""
    decider = knowing(node("n1", cards=4, i915=40), card_order=FewestContainers())
    for card, load in enumerate((2, 0, 1, 1)):
        for _ in range(load):
            await bound(decider, container(i915=1), annotations={"gas-allow": f"card{card}"})
    assert await bound(decider, container(i915=1)) == "card1"
    assert decider.ledger.usage("n1").containers == {Card(0): 2, Card(1): 1, Card(2): 1, Card(3): 1}


# contract D1.10
async def test_under_any_churn_each_container_goes_to_a_card_with_the_fewest() -> None:
    for seed in range(5):
        rng = Random(seed)
        decider = knowing(node("n1", cards=4, i915=400), card_order=FewestContainers())
        running: list[str] = []
        for _ in range(60):
            if running and rng.random() < 0.4:
                await ended(decider, running.pop(rng.randrange(len(running))))
            loads = {card: decider.ledger.usage("n1").containers.get(Card(card), 0) for card in range(4)}
            card = await bound(decider, container(i915=1))
            assert loads[int(card.removeprefix("card"))] == min(loads.values())
            running.append(f"pod-{len(decider.cluster.pods) - 1}")


# contract D1.9
async def test_a_pod_that_goes_is_subtracted_once_and_from_its_own_card() -> None:
    decider = knowing(node("n1", cards=3, i915=30), card_order=FewestContainers())
    for _ in range(5):
        await bound(decider, container(i915=1))
    for _ in range(2):
        await ended(decider, "pod-1")
    decider.cluster.remove("default/pod-1")
    assert decider.ledger.usage("n1").containers == {Card(0): 2, Card(1): 1, Card(2): 1}
    for number in (0, 2, 3, 4):
        await ended(decider, f"pod-{number}")
    assert not any(decider.ledger.usage("n1").containers.values())


# contract D1.13
async def test_pods_that_are_bound_at_once_do_not_choose_by_the_same_count() -> None:
    decider = knowing(node("n1", cards=4, i915=40), card_order=FewestContainers())
    pods = [pod_json(container(i915=1), name=f"pod-{number}", uid=f"uid-{number}") for number in range(8)]
    for pod in pods:
        decider.cluster.add(pod)
    assert await asyncio.gather(*(decider.bind(pod, "n1") for pod in pods)) == [""] * 8
    assert decider.ledger.usage("n1").containers == {Card(number): 2 for number in range(4)}


# contract D1.11
async def test_counts_survive_a_restart() -> None:
    """A new extender knows only the pods' annotations."""
    before = knowing(node("n1", cards=3, i915=30), card_order=FewestContainers())
    for _ in range(4):
        await bound(before, container(i915=1))
    after = DrivenDecider(before.cluster, card_order=FewestContainers())
    after.follow([node("n1", cards=3, i915=30)])
    assert after.ledger.usage("n1").containers == before.ledger.usage("n1").containers
    assert await bound(after, container(i915=1)) == "card1"


NEAR = {"gas-card-near": "true", "gas-card-order": "fewest-containers"}
CHANNELS = {"gpu.intel.com/pci-groups": "0.1.2.3_4.5.6.7"}


async def loaded(labels: Mapping[str, str]) -> DrivenDecider:
    """Return a decider with a node of eight cards that have 3, 1, 2, 2, 0, 4, 4 and 4 containers."""
    decider = knowing(node("n1", cards=8, labels=labels, i915=80))
    for card, load in enumerate((3, 1, 2, 2, 0, 4, 4, 4)):
        for _ in range(load):
            await bound(decider, container(i915=1), annotations={"gas-allow": f"card{card}"})
    return decider


# contract D1.14 to D1.16
async def test_after_the_least_loaded_card_those_of_its_channel_come_first() -> None:
    assert await bound(await loaded(CHANNELS), container(i915=2), annotations=NEAR) == "card4,card5"
    assert await bound(await loaded(CHANNELS), container(i915=4), annotations=NEAR) == "card4,card5,card6,card7"
    assert await bound(await loaded(CHANNELS), container(i915=5), annotations=NEAR) == "card4,card5,card6,card7,card1"


# contract D1.17
async def test_nearness_and_balance_can_each_be_had_alone() -> None:
    near, balanced = {"gas-card-near": "true"}, {"gas-card-order": "fewest-containers"}
    assert await bound(await loaded(CHANNELS), container(i915=2), annotations=near) == "card0,card1"
    assert await bound(await loaded(CHANNELS), container(i915=2), annotations=balanced) == "card4,card1"


# contract D1.18
async def test_a_node_without_such_labels_is_served_by_load_alone() -> None:
    assert await bound(await loaded({}), container(i915=2), annotations=NEAR) == "card4,card1"


# contract D1.19
async def test_of_equally_loaded_cards_a_linked_pair_is_preferred_to_an_unlinked_one() -> None:
    labels = {"gpu.intel.com/xe-links": "2.0-3.0"}
    for load in (0, 1):
        decider = knowing(node("n1", cards=4, labels=labels, i915=40, tiles=8))
        for _ in range(load):
            await bound(decider, container(i915=4))
        assert await bound(decider, container(i915=2), annotations=NEAR) == "card2,card3"
        assert await bound(decider, container(i915=2)) == "card0,card1"


# contract D1.20
async def test_without_any_of_this_the_first_card_with_room_is_taken() -> None:
    decider = knowing(node("n1", cards=3, labels=CHANNELS, i915=30, millicores=3000))
    assert await bound(decider, container(i915=1, millicores=600)) == "card0"
    assert await bound(decider, container(i915=1, millicores=600)) == "card1"
    assert await bound(decider, container(i915=1, millicores=100)) == "card0"
    assert await bound(decider, container(i915=2, millicores=200)) == "card0,card1"


GIB = 2**30
RESOURCES = {
    "intel": {"gpu.intel.com/i915": 10},
    "aliyun": {"aliyun.com/gpu-mem": 8192},
    "kubeshare": {"kubeshare/vgpu": 1000},
    "koordinator": {"koordinator.sh/gpu.shared": 100, "koordinator.sh/gpu-memory-ratio": 100},
}
"""Vocabulary -> what a card of a node has of its resources."""

SHARE = {"kubeshare/gpu_request": "0.01", "kubeshare/gpu_limit": "1", "kubeshare/gpu_mem": "0"}


def in_words_of(words: str, name: str, cards: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a pod whose container asks for little of each of so many cards."""
    requests = dict.fromkeys(RESOURCES[words], str(cards))
    annotations = (SHARE if words == "kubeshare" else {}) | fields.pop("annotations", {})
    asking = {"name": "main", "resources": {"requests": requests, "limits": requests}}
    return pod_json(asking, name=name, uid=name, annotations=annotations, **fields)


def of_all_words(loads: Sequence[int], **need: Any) -> DrivenDecider:
    """Return a decider with a node whose cards have so many containers, in the words of each vocabulary in turn.

    The node's records say that cards 0 to 3 are linked, and cards 4 to 7. ``need`` are the administrator's options.
    """
    decider = DrivenDecider(options=Options(vocabularies=Vocabularies(KNOWN), need=NeedOptions(**need)))
    words = cycle(RESOURCES)
    for card, load in enumerate(loads):
        for number in range(load):
            written = {"gas-container-cards": f"card{card}", "gas-ts": "1"}
            decider.cluster.add(in_words_of(next(words), f"load-{card}-{number}", node="n1", annotations=written))
    cards = range(len(loads))
    channels = [[each for each in cards if each // 4 == card // 4 and each != card] for card in cards]
    records = [
        CardRecord(card=Card(card), driver="i915", memory=8 * GIB, links=tuple(map(Card, linked)))
        for card, linked in zip(cards, channels, strict=True)
    ]
    of_card = {name: amount for resources in RESOURCES.values() for name, amount in resources.items()}
    described = node_json("n1", cards=len(loads), annotations={ANNOTATION: format_card_records(records)})
    described["status"] = {"allocatable": {name: str(len(loads) * amount) for name, amount in of_card.items()}}
    decider.follow([msgspec.convert(described, Node)])
    assert [decider.ledger.usage("n1").containers.get(Card(card), 0) for card in cards] == list(loads)
    return decider


async def cards_in_words_of(decider: DrivenDecider, words: str, cards: int = 1, **chosen: str) -> str:
    """Bind a pod and return its cards; ``chosen`` are annotations with the prefix ``gas-card-``."""
    annotations = {f"gas-card-{name}": text for name, text in chosen.items()}
    pod = in_words_of(words, f"new-{len(decider.cluster.bindings)}", cards, annotations=annotations)
    decider.cluster.add(pod)
    assert await decider.bind(pod, "n1") == ""
    found = decider.cluster.pods[f"default/{pod['metadata']['name']}"]["metadata"]["annotations"]
    return str(found["gas-container-cards"])


# contract D1.7, D1.21
@pytest.mark.parametrize("words", RESOURCES)
async def test_pods_in_all_words_go_to_the_card_with_the_fewest_containers_of_any(words: str) -> None:
    decider = of_all_words((2, 0, 1, 1))
    chosen = [await cards_in_words_of(decider, words, order="fewest-containers") for _ in range(3)]
    assert chosen == ["card1", "card1", "card2"]
    decider.cluster.remove("default/load-3-0")
    assert await cards_in_words_of(decider, words, order="fewest-containers") == "card3"


# contract D1.15, D1.16, D1.21
@pytest.mark.parametrize("words", [words for words in RESOURCES if words != "aliyun"])
async def test_pods_of_several_cards_stay_near_the_least_loaded_one_in_all_words(words: str) -> None:
    loads = (3, 1, 2, 2, 0, 4, 4, 4)
    for cards, expected in ((2, "card4,card5"), (4, "card4,card5,card6,card7"), (5, "card4,card5,card6,card7,card1")):
        decider = of_all_words(loads)
        assert await cards_in_words_of(decider, words, cards, order="fewest-containers", near="true") == expected
    assert await cards_in_words_of(of_all_words(loads), words, 2, order="fewest-containers") == "card4,card1"


# contract D1.21
@pytest.mark.parametrize(
    ("words", "own"), [("intel", "card1"), ("aliyun", "card3"), ("kubeshare", "card2"), ("koordinator", "card1")]
)
async def test_the_administrators_order_reaches_words_with_an_order_of_their_own_on_request(
    words: str, own: str
) -> None:
    loads = (2, 0, 1, 1)
    spread = FewestContainers()
    assert await cards_in_words_of(of_all_words(loads, card_order=spread), words) == own
    asked = of_all_words(loads, card_order=spread, order_for_all=True)
    assert await cards_in_words_of(asked, words) == "card1"
    assert await cards_in_words_of(asked, words, order="used-first") == "card0"


# contract D1.21
@pytest.mark.parametrize("words", [words for words in RESOURCES if words != "aliyun"])
async def test_near_cards_can_be_the_administrators_default_in_all_words(words: str) -> None:
    chosen = {"card_order": FewestContainers(), "order_for_all": True, "card_near": True}
    loads = (3, 1, 2, 2, 0, 4, 4, 4)
    assert await cards_in_words_of(of_all_words(loads, **chosen), words, 2) == "card4,card5"
    assert await cards_in_words_of(of_all_words(loads, **chosen), words, 2, near="false") == "card4,card1"


def test_near_cards_by_default_do_not_matter_to_pods_of_one_card() -> None:
    """Their needs stay equal to those of other pods, and their cards in one order."""
    (aliyun,) = (each for each in KNOWN if each.name == "aliyun")
    facts = NeedFacts([ContainerFacts("main", Role.APP, {"aliyun.com/gpu-mem": "1"})])
    assert not aliyun.need(facts, NeedOptions(card_near=True)).near
