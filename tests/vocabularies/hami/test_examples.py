"""The fifteen worked examples of the contract with HAMi's users, by their names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from gas.extender.decider import Options
from gas.objects.json_patch import applied
from gas.objects.stored import NewPod, Node
from gas.values.amounts import MEMORY_MAX
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.pod_checks import PodChecks
from gas.vocabularies.protocol import NeedOptions
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import described_node
from tests.extender.decider import DrivenDecider, following
from tests.hami_words import ALLOCATED, MIB, REGISTER, A, B, asking, hami_node, wanting

VOCABULARIES = Vocabularies(parse_vocabularies("intel,hami"))
OPTIONS = Options(vocabularies=VOCABULARIES)
CHECKS = PodChecks(VOCABULARIES, NeedOptions())
ONE = [hami_node("n1", memory=[24576])]
TWO = [hami_node("n")]


def completed(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod as the API server stores it when the webhook completes it."""
    new = msgspec.convert(dict(pod), NewPod)
    return {**applied(CHECKS.complete(new), dict(pod))}


class Cluster:
    """Nodes on which pods are placed one after the other. Each gets its defaults from the webhook."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]], *pods: Mapping[str, Any]) -> None:
        self.decider: DrivenDecider = following(nodes, *pods, options=OPTIONS)
        self.node = str(nodes[0]["metadata"]["name"])

    async def placed(self, pod: Mapping[str, Any], *, webhook: bool = True) -> str:
        """Return the cards of a pod once it is bound, or why it is not."""
        pod = completed(pod) if webhook else pod
        self.decider.cluster.add(pod)
        if refused := (await self.decider.ask(pod, self.node))["FailedNodes"]:
            return str(refused[self.node])
        assert await self.decider.bind(pod, self.node) == ""
        return self.written(pod)["gas-container-cards"]

    def written(self, pod: Mapping[str, Any]) -> dict[str, str]:
        return dict(self.decider.cluster.pods[f"default/{pod['metadata']['name']}"]["metadata"]["annotations"])

    def booked(self, name: str = "pod") -> dict[int, tuple[float, int, int]]:
        """Return MiB, millicores and places of a pod on each card."""
        found = {int(card): dict(of) for card, of in self.decider.booked()[name].footprint.amounts.items()}
        return {
            card: (of.get(MEMORY_MAX, 0) / MIB, of.get("millicores", 0), of.get("gpu", 0)) for card, of in found.items()
        }


# contract H1.1, H3.1, H3.2, H3.9
async def test_c1_one_card_and_what_hamis_tools_read() -> None:
    cluster = Cluster(ONE)
    assert await cluster.placed(wanting(gpu=1, mem=3000, cores=30)) == "card0"
    assert cluster.booked() == {0: (3000, 300, 1)}
    written = cluster.written(wanting())
    assert written[ALLOCATED] == f"{A},NVIDIA,3000,30:;"
    assert written["hami.io/vgpu-node"] == "n1"
    assert written["hami.io/vgpu-time"] == written["gas-ts"][:-9]
    assert written.keys() == {"gas-ts", "gas-container-cards", ALLOCATED, "hami.io/vgpu-node", "hami.io/vgpu-time"}


# contract H1.1
async def test_c2_amounts_are_of_each_card() -> None:
    cluster = Cluster(TWO)
    assert await cluster.placed(wanting(gpu=2, mem=3000)) == "card0,card1"
    assert cluster.booked() == {0: (3000, 0, 1), 1: (3000, 0, 1)}
    assert cluster.written(wanting())[ALLOCATED] == f"{A},NVIDIA,3000,0:{B},NVIDIA,3000,0:;"


# contract H1.6, H1.7
async def test_c3_nothing_but_a_number_means_whole_cards() -> None:
    cluster = Cluster(TWO)
    assert completed(wanting(gpu=1))["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpucores"] == "100"
    assert [await cluster.placed(wanting(name, gpu=1)) for name in "ab"] == ["card0", "card1"]
    assert cluster.booked("a") == {0: (24576, 1000, 1)}
    assert await cluster.placed(wanting("c", gpu=1)) == "no card has 1000 millicores free"


# contract H1.5
async def test_c4_halves_of_a_card() -> None:
    cluster = Cluster(ONE)
    assert [await cluster.placed(wanting(name, gpu=1, pct=50)) for name in "ab"] == ["card0", "card0"]
    assert cluster.booked("a") == {0: (12288, 0, 1)}
    assert await cluster.placed(wanting("c", gpu=1, pct=50)) == "no card has 50 percent of memory.max free"


# contract H1.3, H1.5
async def test_c5_without_a_number_of_cards() -> None:
    cluster = Cluster(ONE)
    assert await cluster.placed(wanting("a", mem=3000)) == "card0"
    assert await cluster.placed(wanting("b", cores=30)) == "no card has 100 percent of memory.max free"
    assert await cluster.placed(wanting("c", pct=20)) == "card0"
    assert cluster.booked("c") == {0: (4915.2 * MIB // 1 / MIB, 0, 1)}
    for name, amounts in {"d": {"mem": 3000}, "e": {"cores": 30}, "f": {"pct": 20}}.items():
        refused = await cluster.placed(wanting(name, **amounts), webhook=False)
        assert refused.endswith("needs nvidia.com/gpu, the number of cards, which the webhook adds; add it")


# contract H1.4
async def test_c6_memory_counts_rather_than_a_percentage() -> None:
    cluster = Cluster(ONE)
    pod = wanting(gpu=1, mem=3000, pct=50)
    assert await cluster.placed(pod) == "card0"
    assert cluster.booked() == {0: (3000, 0, 1)}
    assert CHECKS.pod(msgspec.convert(pod, NewPod)).warnings == (
        "container 'main': nvidia.com/gpumem-percentage has no effect beside nvidia.com/gpumem",
    )


# contract H1.7
async def test_c7_all_of_the_compute_needs_an_idle_card_and_keeps_others_away() -> None:
    cluster = Cluster(ONE)
    assert await cluster.placed(wanting("a", gpu=1, mem=1000)) == "card0"
    assert await cluster.placed(wanting("b", gpu=1, mem=1000, cores=100)) == (
        "no card without other pods has 1000 MiB of nvidia.com/gpumem free"
    )
    cluster = Cluster(ONE)
    assert await cluster.placed(wanting("b", gpu=1, mem=1000, cores=100)) == "card0"
    for name, cores in {"a": {}, "c": {"cores": 1}}.items():
        assert (await cluster.placed(wanting(name, gpu=1, mem=1000, **cores))).startswith("no card ")


# contract H1.8
async def test_c8_a_card_whose_compute_is_booked_takes_no_container_without_compute() -> None:
    cluster = Cluster(ONE)
    assert [await cluster.placed(wanting(name, mem=1000, cores=50)) for name in "ab"] == ["card0", "card0"]
    assert await cluster.placed(wanting("c", mem=1000)) == (
        "no card with any millicores left has 1000 MiB of nvidia.com/gpumem free"
    )
    cluster.decider.cluster.end("default/b")
    assert await cluster.placed(wanting("d", mem=1000)) == "card0"


# contract H1.9
async def test_c9_ten_containers_share_a_card() -> None:
    cluster = Cluster(ONE)
    assert [await cluster.placed(wanting(f"p{number}", gpu=1, mem=10)) for number in range(10)] == ["card0"] * 10
    assert await cluster.placed(wanting("last", gpu=1, mem=10)) == "no card has 1 gpu free"


# contract H1.10, H3.2
async def test_c10_containers_are_placed_one_by_one() -> None:
    for mib in (20000, 2000):
        cluster = Cluster(TWO)
        pod = wanting("pod", asking("a", gpu=1, mem=mib), asking("b", gpu=1, mem=mib))
        assert await cluster.placed(pod) == "card0|card1"
        assert cluster.written(pod)[ALLOCATED] == f"{A},NVIDIA,{mib},0:;{B},NVIDIA,{mib},0:;"


# contract H2.1
@pytest.mark.parametrize(
    ("annotations", "count", "expected"),
    [
        ({"nvidia.com/use-gpuuuid": f" GPU-zzzz , {A}"}, 1, "card0"),
        ({"nvidia.com/use-gpuuuid": f"{B}"}, 1, "card1"),
        ({"nvidia.com/use-gpuuuid": A}, 2, "needs 2 cards with"),
        ({"nvidia.com/use-gpuuuid": " "}, 2, "card0,card1"),
        ({"nvidia.com/use-gpuuuid": A, "nvidia.com/nouse-gpuuuid": A}, 1, "no card in the allow list has"),
    ],
)
async def test_c11_cards_by_uuid(annotations: dict[str, str], count: int, expected: str) -> None:
    placed = await Cluster(TWO).placed(wanting(gpu=count, mem=1, annotations=annotations))
    assert placed.startswith(expected), placed


# contract H2.2
@pytest.mark.parametrize(
    ("use", "avoid", "count", "expected"),
    [
        (None, "1080, 2080", 1, "card1"),
        ("a100,v100", None, 1, "card1"),
        ("A100", None, 2, "needs 2 cards with"),
        ("NVIDIA", "A100", 1, "card0"),
        ("NVIDIA-NVIDIA A100", None, 1, "card1"),
    ],
)
async def test_c12_cards_by_model(use: str | None, avoid: str | None, count: int, expected: str) -> None:
    models = ["NVIDIA GeForce GTX 1080 Ti", "NVIDIA A100-SXM4-40GB"]
    stated = {"nvidia.com/use-gputype": use, "nvidia.com/nouse-gputype": avoid}
    annotations = {name: text for name, text in stated.items() if text is not None}
    cluster = Cluster([hami_node(memory=[11264, 40960], models=models)])
    placed = await cluster.placed(wanting(gpu=count, mem=1000, annotations=annotations))
    assert placed.startswith(expected), placed


# contract H2.3
@pytest.mark.parametrize(
    ("bind", "count", "expected"),
    [("true", 2, {"card0,card2", "card1,card3"}), ("true", 3, set()), ("yes", 3, {"card0,card1,card2"})],
)
async def test_c13_cards_of_one_numa_node(bind: str, count: int, expected: set[str]) -> None:
    cluster = Cluster([hami_node(memory=[24576] * 4, numa=[0, 1, 0, 1])])
    placed = await cluster.placed(wanting(gpu=count, mem=1000, annotations={"nvidia.com/numa-bind": bind}))
    assert placed in expected or (not expected and placed.startswith("no NUMA group has 3 cards"))


# contract H2.8
async def test_c14_nothing_new_starts_on_a_cordoned_card() -> None:
    cluster = Cluster(TWO)
    assert await cluster.placed(wanting("a", gpu=1, mem=1000)) == "card0"
    cordoned = hami_node(annotations={"hami.io/device-cordon": f" {A} ,,"})
    cluster.decider.node_handlers.changed(msgspec.convert(cordoned, Node))
    assert cluster.booked("a") == {0: (1000, 0, 1)}
    assert await cluster.placed(wanting("b", gpu=1, mem=1000)) == "card1"
    assert (
        await cluster.placed(wanting("c", gpu=2, mem=1000))
    ) == "card0 is disabled by a label or annotation of the node"


# contract H3.5, H3.6
async def test_c15_a_pod_of_hami_on_a_node_that_only_hami_describes() -> None:
    card = {"id": A, "count": 10, "devmem": 24576, "devcore": 100, "type": "NVIDIA A10", "mode": "hami-core"}
    node = described_node("n1", {"nvidia.com/gpu": 10}, annotations={REGISTER: json.dumps([card | {"health": True}])})
    annotations = {"hami.io/vgpu-node": "n1", ALLOCATED: f"{A},NVIDIA,4000,20:;"}
    running = wanting("old", gpu=1, mem=4000, cores=20, node="n1", annotations=annotations)
    cluster = Cluster([node], running)
    assert cluster.booked("old") == {0: (4000, 200, 1)}
    assert await cluster.placed(wanting("a", mem=21000)) == "no card has 21000 MiB of nvidia.com/gpumem free"
    assert await cluster.placed(wanting("b", mem=20000)) == "card0"
