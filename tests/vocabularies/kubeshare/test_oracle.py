"""KubeShare's rules compared with an oracle that is written from the contract with their users alone."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.extender.decider import Options
from gas.values.amounts import MEMORY_MAX
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import container, pod_json
from tests.extender.decider import DrivenDecider, booked_cards
from tests.kubeshare_words import GIB, GPUID, share, sharing, sharing_node
from tests.other_words import decoded

OPTIONS = Options(vocabularies=Vocabularies(parse_vocabularies("intel,kubeshare")))


@dataclass
class Labels:
    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""

    def annotations(self, request: str = "0.1", memory: str = "0", gpuid: str = "") -> dict[str, str]:
        stated = {name: text for name, text in vars(self).items() if text}
        return share(request, "1.0", memory, gpuid=gpuid or None, **stated)


@dataclass
class OracleCard:
    """A card in the words of contract S1: thousandths, bytes, and the pods that have it."""

    memory: int
    pods: dict[str, tuple[int, int, Labels]] = field(default_factory=dict)
    name: str = ""

    @property
    def left(self) -> int:
        return 1000 - sum(each for each, _, _ in self.pods.values())

    def takes(self, request: int, memory: int, labels: Labels, gpuid: str, names: set[str]) -> bool:
        if request > self.left or memory > self.memory - sum(each for _, each, _ in self.pods.values()):
            return False
        others = [each for _, _, each in self.pods.values()]
        if labels.affinity and others and all(each.affinity != labels.affinity for each in others):
            return False
        if labels.anti_affinity and any(each.anti_affinity == labels.anti_affinity for each in others):
            return False
        if any(each.exclusion != labels.exclusion for each in others):
            return False
        if gpuid:
            return self.name == gpuid if gpuid in names else not self.pods
        return True


class Oracle:
    def __init__(self, memories: list[int]) -> None:
        self.cards = [OracleCard(memory) for memory in memories]

    def choose(self, request: int, memory: int, labels: Labels, gpuid: str) -> set[int]:
        """Return the cards that may be chosen: the best of the used ones, or the idle ones if no used one fits."""
        names = {card.name for card in self.cards if card.pods}
        fitting = {at: card for at, card in enumerate(self.cards) if card.takes(request, memory, labels, gpuid, names)}
        used = {at: card.left for at, card in fitting.items() if card.pods}
        same = {
            at: left
            for at, left in used.items()
            if labels.affinity and any(each.affinity == labels.affinity for _, _, each in self.cards[at].pods.values())
        }
        candidates = same or used
        if candidates:
            return {at for at, left in candidates.items() if left == min(candidates.values())}
        return set(fitting)

    def place(self, pod: str, card: int, taken: tuple[int, int, Labels], name: str) -> None:
        if not self.cards[card].pods:
            self.cards[card].name = name
        assert self.cards[card].name == name
        self.cards[card].pods[pod] = taken

    def end(self, pod: str) -> None:
        for card in self.cards:
            card.pods.pop(pod, None)
            card.name = card.name if card.pods else ""


COMBINATIONS = list(itertools.product(("", "the same", "other"), repeat=3))


# contract S1.11, S1.12, S1.13, S1.14
@pytest.mark.parametrize(("affinity", "anti_affinity", "exclusion"), COMBINATIONS)
async def test_the_27_combinations_of_labels_beside_a_pod_with_and_without_labels(
    affinity: str, anti_affinity: str, exclusion: str
) -> None:
    wanted = Labels(affinity, anti_affinity, exclusion)
    for present in (
        Labels(),
        Labels("the same", "the same", "the same"),
        Labels("the same", "", "the same"),
        Labels("", "the same", ""),
    ):
        for memories in ([GIB], [GIB, GIB]):
            decider = DrivenDecider(options=OPTIONS)
            decider.follow([decoded(sharing_node(memory=memories))])
            oracle = Oracle(memories)
            decider.cluster.add(first := sharing("first", present.annotations(gpuid="my card")))
            assert await decider.bind(first, "n1") == ""
            oracle.place("first", 0, (100, 0, present), "my card")
            decider.cluster.add(second := sharing("second", wanted.annotations()))
            expected = oracle.choose(100, 0, wanted, "")
            found = await decider.ask(second, "n1")
            assert (found["NodeNames"] == ["n1"]) == bool(expected)
            if expected:
                assert await decider.bind(second, "n1") == ""
                assert booked_cards(decider, "second") == f"card{min(expected)} on n1, held"


def test_there_are_27_combinations() -> None:
    assert len(COMBINATIONS) == 27


# contract S1.4, S1.5, S1.7, S1.8, S1.10, S1.14, S1.16, S1.19
@pytest.mark.parametrize("seed", range(3))
async def test_random_histories_get_the_cards_of_the_oracle(seed: int) -> None:
    random_ = random.Random(seed)
    memories = [4 * GIB, 4 * GIB, 8 * GIB, 2 * GIB]
    decider = DrivenDecider(options=OPTIONS)
    decider.follow([decoded(sharing_node(memory=memories))])
    oracle = Oracle(memories)
    bound: list[str] = []
    refused = 0
    for number in range(300):
        if bound and random_.random() < 0.45:
            ended = bound.pop(random_.randrange(len(bound)))
            oracle.end(ended)
            if random_.random() < 0.5:
                decider.cluster.end(f"default/{ended}", random_.choice(("Succeeded", "Failed")))
            else:
                decider.cluster.remove(f"default/{ended}")
        labels = Labels(*(random_.choice(("", "", "", "", "x", "y")) for _ in range(3)))
        request = random_.choice(("0", "0.1", "0.3335", "0.25", "0.0001", "0.6", "1"))
        memory = random_.choice((0, GIB // 3, GIB, 3 * GIB))
        gpuid = random_.choice(("", "", "", "aaaaa", "bbbbb"))
        thousandths = int((Decimal(request) * 1000).to_integral_value(ROUND_CEILING))
        name = f"p{number}"
        decider.cluster.add(asked := sharing(name, labels.annotations(request, str(memory), gpuid)))
        expected = oracle.choose(thousandths, memory, labels, gpuid)
        assert ((await decider.ask(asked, "n1"))["NodeNames"] == ["n1"]) == bool(expected), (number, labels, gpuid)
        if not expected:
            refused += 1
            decider.cluster.remove(f"default/{name}")
            continue
        assert await decider.bind(asked, "n1") == ""
        card = int(booked_cards(decider, name).partition(" ")[0].removeprefix("card"))
        assert card == min(expected), (number, labels, gpuid)
        written = decider.cluster.pods[f"default/{name}"]["metadata"]["annotations"][GPUID]
        oracle.place(name, card, (thousandths, memory, labels), written)
        bound.append(name)
    assert 20 < refused < 250


PODS = st.lists(
    st.tuples(
        st.booleans(), st.integers(0, 1000), st.integers(0, 4), st.sampled_from(("", "a", "b")), st.integers(0, 9)
    ),
    min_size=1,
    max_size=20,
)


# contract S1.5, S1.7, S1.15
@given(PODS)
async def test_pods_of_two_vocabularies_never_exceed_a_card_and_a_card_has_one_name(
    wanted: list[tuple[bool, int, int, str, int]],
) -> None:
    amounts: dict[str, Any] = {"gpu_intel_com__i915": 40, "gpu_intel_com__millicores": 2000}
    labels = {"gpu.intel.com/gpu-numbers": "0.1"}
    node = sharing_node(memory=[4 * GIB, 4 * GIB], labels=labels, gpu_intel_com__memory_max=8 * GIB, **amounts)
    decider = DrivenDecider(options=OPTIONS)
    decider.follow([decoded(node)])
    assert decider.nodes.facts("n1").problems == ()  # type: ignore[union-attr]
    bound: list[str] = []
    for number, (is_share, thousandths, gibibytes, label, ending) in enumerate(wanted):
        name = f"p{number}"
        text = f"{thousandths / 1000:.3f}"
        stated = Labels(exclusion=label).annotations(text, str(gibibytes * GIB))
        intel = container(i915=1, memory_max=gibibytes * GIB, millicores=thousandths)
        named = {"gas-card-exclusion": label, "gas-card-name": "mine"} if label else {}
        asked = sharing(name, stated) if is_share else pod_json(intel, name=name, uid=name, annotations=named)
        decider.cluster.add(asked)
        if await decider.bind(asked, "n1") == "":
            bound.append(name)
        if ending == 0 and bound:
            decider.cluster.remove(f"default/{bound.pop(0)}")
        usage = decider.ledger.usage("n1")
        for card, used in usage.amounts.items():
            assert used.get("millicores", 0) <= 1000
            assert used.get(MEMORY_MAX, 0) <= 4 * GIB
            assert len(usage.names.get(card, ())) <= 1
            assert len({each.exclusion for each in usage.company.get(card, ())}) <= 1
