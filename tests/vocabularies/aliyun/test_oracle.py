"""Random histories of Aliyun's pods, compared with an oracle written from the contract with their users alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.extender.decider import Options
from gas.values.amounts import MEMORY_MAX
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import container, pod_json
from tests.extender.decider import DrivenDecider
from tests.other_words import MIB, aliyun_node, asking, decoded, stating


class Oracle:
    """The cards of each node as numbers, and the rules of contract A1 in the words in which they are written there."""

    def __init__(self, nodes: dict[str, tuple[int, int]]) -> None:
        self.size = {name: units for name, (_, units) in nodes.items()}
        self.left = {name: [units] * cards for name, (cards, units) in nodes.items()}
        self.where: dict[str, tuple[str, int, int]] = {}

    def has_room(self, node: str, units: int) -> bool:
        return any(left >= units for left in self.left[node])

    def bind(self, pod: str, node: str, units: int) -> int:
        """Return the card with the least left of those with room, of equal ones the lowest."""
        with_room = [(left, card) for card, left in enumerate(self.left[node]) if left >= units]
        _, card = min(with_room)
        self.left[node][card] -= units
        self.where[pod] = (node, card, units)
        return card

    def end(self, pod: str) -> None:
        node, card, units = self.where.pop(pod)
        self.left[node][card] += units


def pod_of(random_: random.Random, number: int, size: int) -> tuple[dict[str, Any], int]:
    """Return a pod of one to three containers and its units."""
    units = [
        random_.choice((1, size // 8, size // 4, size // 3, size // 2, size))
        for _ in range(random_.choice((1, 1, 2, 3)))
    ]
    containers = [asking(f"c{at}", gpu_mem=each) for at, each in enumerate(units)]
    name = f"p{number}"
    return pod_json(*containers, name=name, uid=name), sum(units)


# contract A1.5, A1.7, A1.8, A1.17, A1.18
@pytest.mark.parametrize("seed", range(2))
async def test_500_random_pods_get_the_cards_of_the_oracle(seed: int) -> None:
    random_ = random.Random(seed)
    nodes = {"n1": (2, 16276), "n2": (4, 16276), "n3": (1, 24000), "n4": (3, 8138)}
    decider = DrivenDecider(options=Options(vocabularies=Vocabularies(parse_vocabularies("intel,aliyun"))))
    decider.follow([decoded(aliyun_node(name, cards=cards, units=units)) for name, (cards, units) in nodes.items()])
    oracle = Oracle(nodes)
    refused = 0
    for number in range(500):
        if oracle.where and random_.random() < 0.45:
            ended = random_.choice(sorted(oracle.where))
            oracle.end(ended)
            if random_.random() < 0.5:
                decider.cluster.end(f"default/{ended}", random_.choice(("Succeeded", "Failed")))
            else:
                decider.cluster.remove(f"default/{ended}")
        asked, units = pod_of(random_, number, 16276)
        decider.cluster.add(asked)
        found = await decider.ask(asked, *nodes)
        expected = [name for name in nodes if oracle.has_room(name, units)]
        assert found["NodeNames"] == expected
        assert found["FailedNodes"].keys() == nodes.keys() - set(expected)
        assert all(
            "memory.max" in reason or "MiB of aliyun.com/gpu-mem" in reason for reason in found["FailedNodes"].values()
        )
        if not expected:
            refused += 1
            continue
        node = random_.choice(expected)
        assert await decider.bind(asked, node) == ""
        written = decider.cluster.pods[f"default/p{number}"]["metadata"]["annotations"]
        assert written["ALIYUN_COM_GPU_MEM_IDX"] == str(oracle.bind(f"p{number}", node, units))
        assert written["ALIYUN_COM_GPU_MEM_POD"] == str(units)
        assert written["ALIYUN_COM_GPU_MEM_DEV"] == str(oracle.size[node])
    assert 20 < refused < 400


PODS = st.lists(
    st.tuples(st.sampled_from(("memory", "intel", "whole")), st.integers(1, 1000), st.integers(0, 999)),
    min_size=1,
    max_size=25,
)


# contract A1.17, A1.19, A1.21, V1.2
@given(PODS, st.lists(st.integers(0, 24), max_size=10))
async def test_pods_of_three_vocabularies_never_exceed_a_card(
    wanted: list[tuple[str, int, int]], ending: list[int]
) -> None:
    labels = {"gpu.intel.com/gpu-numbers": "0.1.2"}
    memory = [1000 * MIB, 1000 * MIB, 500 * MIB + 7]
    annotation = "card0=memory.max:1048576000;card1=memory.max:1048576000;card2=memory.max:524288007"
    amounts: dict[str, Any] = {
        "gpu_mem": 2500,
        "gpu_count": 3,
        "i915": 30,
        "millicores": 3000,
        "memory_max": sum(memory),
        "nvidia": 1,
    }
    node = stating(
        memory=memory, driver="nvidia", labels=labels, annotations={"gas-card-capacity": annotation}, **amounts
    )
    vocabularies = Vocabularies(parse_vocabularies("intel,aliyun,vendor"))
    facts = vocabularies.facts(decoded(node))
    decider = DrivenDecider(options=Options(vocabularies=vocabularies))
    decider.follow([decoded(node)])
    bound: list[str] = []
    whole: set[str] = set()
    for number, (kind, units, millicores) in enumerate(wanted):
        name = f"p{number}"
        containers = {
            "memory": asking(gpu_mem=units),
            "intel": container(i915=1, memory_max=units * MIB, millicores=millicores),
            "whole": asking(nvidia=1),
        }
        asked = pod_json(containers[kind], name=name, uid=name)
        decider.cluster.add(asked)
        if await decider.bind(asked, "n1") == "":
            bound.append(name)
            whole |= {name} if kind == "whole" else set()
        if number in ending and bound:
            decider.cluster.remove(f"default/{bound.pop(0)}")
        on_card: dict[int, list[str]] = {}
        for card, capacity in facts.inventory.capacity.items():
            booked = {
                uid: dict(booking.footprint.amounts[card])
                for uid, booking in decider.booked().items()
                if card in booking.footprint.amounts
            }
            on_card[int(card)] = list(booked)
            for resource in (MEMORY_MAX, "millicores", "gpu-mem"):
                assert sum(each.get(resource, 0) for each in booked.values()) <= capacity[resource]
        assert all(len(uids) == 1 for uids in on_card.values() if whole & set(uids))
