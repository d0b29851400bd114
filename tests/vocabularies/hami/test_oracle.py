"""HAMi's rules compared with an oracle that is written from the contract with their users alone, and mixed nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, product
from random import Random
from typing import Any

import pytest

from gas.extender.decider import Options
from gas.values.amounts import MEMORY_MAX
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.hami.texts import Registered, format_register
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import pod_json
from tests.extender.decider import DrivenDecider, following
from tests.hami_words import MIB, REGISTER, UUIDS, asking, hami_node, wanting
from tests.other_words import asking as other_asking
from tests.other_words import sharing

OPTIONS = Options(vocabularies=Vocabularies(parse_vocabularies("intel,hami")))
MODELS = ("NVIDIA A10", "Tesla V100", "NVIDIA A100-SXM4-40GB")
PLACES = 4


@dataclass
class Asked:
    """A container as a user writes it. None stands for a resource that it does not state."""

    gpu: int
    mem: int | None = None
    pct: int | None = None
    cores: int | None = None

    @property
    def percent_of_compute(self) -> int:
        if self.cores is not None:
            return min(self.cores, 100)
        whole = self.pct == 100 if self.pct is not None else self.mem is None
        return 100 if whole else 0

    def mib(self, card: int) -> int:
        """Return the memory that it takes of a card with this many MiB, a multiple of 100."""
        return self.mem or card * (self.pct or 100) // 100

    def container(self, name: str) -> dict[str, Any]:
        return asking(name, **{key: amount for key, amount in vars(self).items() if amount is not None})


@dataclass
class Taken:
    mib: int = 0
    cores: int = 0
    places: int = 0
    exclusive: bool = False


@dataclass
class OraclePod:
    apps: list[Asked]
    init: list[Asked] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)

    @property
    def exclusive(self) -> bool:
        return any(each.percent_of_compute == 100 for each in (*self.init, *self.apps))


@dataclass
class OracleNode:
    memory: list[int]
    models: list[str]
    numa: list[int]
    pods: dict[str, dict[int, Taken]] = field(default_factory=dict)

    def on(self, card: int) -> list[Taken]:
        return [taken[card] for taken in self.pods.values() if card in taken]

    def open_to(self, pod: OraclePod, card: int) -> bool:
        """Contract H1.7, H1.8, H2.1, H2.2, H2.4: whether the pod may use a card, however much of it is free."""
        others, texts = self.on(card), pod.annotations
        kind = f"NVIDIA-{self.models[card]}".lower()

        def entries(name: str) -> list[str]:
            return [each.strip() for each in texts.get(f"nvidia.com/{name}", "").split(",") if each.strip()]

        if entries("use-gpuuuid") and UUIDS[card] not in entries("use-gpuuuid"):
            return False
        if UUIDS[card] in entries("nouse-gpuuuid"):
            return False
        if entries("use-gputype") and not any(each.lower() in kind for each in entries("use-gputype")):
            return False
        if any(each.lower() in kind for each in entries("nouse-gputype")):
            return False
        if others and (pod.exclusive or "mutex" in texts.get("hami.io/gpu-scheduler-policy", "")):
            return False
        if any(each.exclusive for each in others):
            return False
        without_compute = any(each.percent_of_compute == 0 for each in (*pod.init, *pod.apps))
        return not (without_compute and sum(each.cores for each in others) >= 100)

    def taken(self, pod: OraclePod, hands: tuple[tuple[int, ...], ...]) -> dict[int, Taken]:
        """Contract H1.10: by card, the larger of the largest init container and all app containers together."""
        of_card: dict[int, Taken] = {}
        moments = [[(one, hand)] for one, hand in zip(pod.init, hands, strict=False)]
        moments.append(list(zip(pod.apps, hands[len(pod.init) :], strict=True)))
        for card in {card for hand in hands for card in hand}:
            most = Taken(exclusive=pod.exclusive)
            for moment in moments:
                here = [one for one, hand in moment if card in hand]
                most.mib = max(most.mib, sum(one.mib(self.memory[card]) for one in here))
                most.cores = max(most.cores, sum(one.percent_of_compute for one in here))
                most.places = max(most.places, len(here))
            of_card[card] = most
        return of_card

    def choices(self, pod: OraclePod) -> Iterator[dict[int, Taken]]:
        """Yield what the pod would take for each way in which it fits."""
        usable = [card for card in range(len(self.memory)) if self.open_to(pod, card)]
        for hands in product(*(combinations(usable, one.gpu) for one in (*pod.init, *pod.apps))):
            cards = {card for hand in hands for card in hand}
            if pod.annotations.get("nvidia.com/numa-bind") and len({self.numa[card] for card in cards}) > 1:
                continue
            taken = self.taken(pod, hands)
            if all(self.fits(card, more) for card, more in taken.items()):
                yield taken

    def fits(self, card: int, more: Taken) -> bool:
        """Contract H1.1, H1.9."""
        every = [*self.on(card), more]
        return (
            sum(each.mib for each in every) <= self.memory[card]
            and sum(each.cores for each in every) <= 100
            and sum(each.places for each in every) <= PLACES
        )

    def score(self, card: int) -> float:
        """Contract H2.4: the used parts of a card, added up."""
        whole = self.memory[card]
        return sum(each.places / PLACES + each.cores / 100 + each.mib / whole for each in self.on(card))


def random_pod(random: Random) -> OraclePod:
    def container() -> Asked:
        mem = random.choice([None, None, 100, 1000, 5000])
        pct = random.choice([None, None, 10, 50, 100]) if mem is None or random.random() < 0.1 else None
        return Asked(random.choice([1, 1, 1, 2]), mem, pct, random.choice([None, None, 0, 10, 50, 100]))

    texts = {
        "nvidia.com/use-gpuuuid": f" {random.choice(UUIDS)} ,{random.choice(UUIDS)},",
        "nvidia.com/nouse-gpuuuid": random.choice(UUIDS),
        "nvidia.com/use-gputype": random.choice(["a10", "A100,v100", "NVIDIA", "NVIDIA-NVIDIA", "H100"]),
        "nvidia.com/nouse-gputype": random.choice(["V100", "a10,", " "]),
        "nvidia.com/numa-bind": "true",
        "hami.io/gpu-scheduler-policy": random.choice(["mutex", "binpack", "spread", "binpack,mutex"]),
    }
    init = [container()] if random.random() < 0.2 else []
    apps = [container() for _ in range(random.choice([1, 1, 1, 2]))]
    return OraclePod(apps, init, {name: text for name, text in texts.items() if random.random() < 0.12})


def hands_of(decider: DrivenDecider, name: str) -> dict[int, Taken]:
    footprint = decider.booked()[name].footprint
    found = {int(card): dict(amounts) for card, amounts in footprint.amounts.items()}
    return {
        card: Taken(of[MEMORY_MAX] // MIB, of.get("millicores", 0) // 10, of["gpu"], bool(footprint.company.exclusion))
        for card, of in found.items()
    }


# contract H1.1, H1.4 to H1.10, H2.1 to H2.4
@pytest.mark.parametrize("seed", range(25))
async def test_random_pods_fit_exactly_where_the_oracle_says(seed: int) -> None:
    random = Random(seed)
    cards = range(random.choice([1, 2, 3, 4]))
    node = OracleNode(
        [random.choice([2000, 10000, 24500]) for _ in cards],
        [random.choice(MODELS) for _ in cards],
        [random.choice([0, 1]) for _ in cards],
    )
    register = format_register([Registered(id=uuid, count=PLACES) for uuid in UUIDS])
    described = hami_node(memory=node.memory, models=node.models, numa=node.numa, annotations={REGISTER: register})
    decider = following([described], options=OPTIONS)
    for number in range(14):
        drawn, name = random_pod(random), f"p{number}"
        containers = [each.container(f"c{at}") for at, each in enumerate(drawn.apps)]
        init = tuple(each.container(f"i{at}") for at, each in enumerate(drawn.init))
        pod = wanting(name, *containers, init=init, annotations=drawn.annotations)
        decider.cluster.add(pod)
        choices = list(node.choices(drawn))
        answer = await decider.ask(pod, "n")
        assert (answer["NodeNames"] == ["n"]) == bool(choices), (drawn, answer["FailedNodes"])
        if not choices:
            continue
        assert await decider.bind(pod, "n") == ""
        taken = hands_of(decider, name)
        assert taken in choices, (drawn, node)
        one_card = len(drawn.apps) == 1 and drawn.apps[0].gpu == 1 and not drawn.init
        if one_card and "nvidia.com/numa-bind" not in drawn.annotations:  # which tries one group after the other
            packs = "binpack" in drawn.annotations.get("hami.io/gpu-scheduler-policy", "")
            fitting = sorted({card for choice in choices for card in choice})
            best = min(fitting, key=lambda card: (round(node.score(card) * (-1 if packs else 1), 9), card))
            assert list(taken) == [best]
        node.pods[name] = taken
        if random.random() < 0.3:
            ended = random.choice(list(node.pods))
            del node.pods[ended]
            decider.cluster.end(f"default/{ended}")


@pytest.mark.parametrize("seed", range(12))
async def test_pods_in_the_words_of_four_systems_share_cards(seed: int) -> None:
    """A pod with one card passes if and only if one card has all that it takes, whatever the words are."""
    random = Random(seed)
    options = Options(vocabularies=Vocabularies(parse_vocabularies("intel,hami,koordinator,aliyun,vendor")))
    memory = [random.choice([1000, 4000]) for _ in range(2)]
    node = hami_node(memory=memory)
    more = {"aliyun.com/gpu-mem": sum(memory), "aliyun.com/gpu-count": 2, "koordinator.sh/gpu.shared": 200}
    node["status"]["allocatable"] |= {name: str(amount) for name, amount in more.items()}
    decider = following([node], options=options)
    held: dict[str, tuple[int, int, int, bool]] = {}
    for number in range(16):
        mib, cores, name = random.choice([100, 500, 1500]), random.choice([0, 10, 40, 100]), f"p{number}"
        words = random.choice(["hami", "koordinator", "aliyun", "whole"])
        containers = {
            "hami": asking(gpu=1, mem=mib, cores=cores),
            "koordinator": sharing(shared=1, memory=mib * MIB, core=cores),
            "aliyun": other_asking(gpu_mem=mib),
            "whole": asking(gpu=1, cores=100),
        }
        pod = pod_json(containers[words], name=name, uid=name)
        alone = words == "whole" or (words == "hami" and cores == 100)
        fitting = []
        for card, has in enumerate(memory):
            others = [each for each in held.values() if each[0] == card]
            compute = {"hami": cores * 10, "koordinator": cores * 10, "aliyun": mib * 1000 // has, "whole": 1000}[words]
            takes = has if words == "whole" else mib
            free = 1000 - sum(each[2] for each in others)
            if (
                takes <= has - sum(each[1] for each in others)
                and compute <= free
                and not (alone and others)
                and not any(each[3] for each in others)
                and not (words == "hami" and cores == 0 and free <= 0)
            ):
                fitting.append((card, takes, compute, alone))
        decider.cluster.add(pod)
        answer = await decider.ask(pod, "n")
        assert (answer["NodeNames"] == ["n"]) == bool(fitting), (words, mib, cores, answer["FailedNodes"], held)
        if fitting:
            assert await decider.bind(pod, "n") == ""
            (card,) = decider.booked()[name].footprint.amounts
            held[name] = next(each for each in fitting if each[0] == int(card))
        if held and random.random() < 0.2:
            ended = random.choice(list(held))
            del held[ended]
            decider.cluster.end(f"default/{ended}")
