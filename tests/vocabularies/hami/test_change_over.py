"""A cluster that changes over from HAMi and back with running pods, with a double of HAMi's scheduler.

The double keeps only what HAMi's scheduler keeps: the annotations of pods, in the form of one of its releases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from gas.extender.decider import Options
from gas.values.amounts import MEMORY_MAX
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import described_node
from tests.extender.decider import DrivenDecider, following
from tests.hami_words import ALLOCATED, MIB, REGISTER, A, B, asking, hami_node, wanting
from tests.other_words import decoded

OPTIONS = Options(vocabularies=Vocabularies(parse_vocabularies("intel,vendor,hami")))
MEMORY = {A: 24576, B: 16384}
Used = dict[str, list[tuple[int, int, str]]]


def on_cards(pods: Mapping[str, Mapping[str, Any]]) -> Used:
    """Return MiB and percent of every container on each card, as HAMi reads them from the pods, and its pod."""
    used: Used = {uuid: [] for uuid in MEMORY}
    for name, pod in pods.items():
        for place in pod["metadata"]["annotations"][ALLOCATED].split(";"):
            for entry in filter(None, place.split(":")):
                uuid, _, mib, percent = entry.split(",")
                if uuid:
                    used[uuid].append((int(mib), int(percent), name))
    return used


def check(used: Used) -> None:
    """Assert the laws of every moment: no card over its memory, none with an exclusive container and other pods."""
    for uuid, containers in used.items():
        assert sum(mib for mib, _, _ in containers) <= MEMORY[uuid]
        assert sum(percent for _, percent, _ in containers) <= 100
        assert len(containers) <= 10
        if 100 in [percent for _, percent, _ in containers]:
            assert len({pod for *_, pod in containers}) == 1


class Hami:
    """HAMi's scheduler: it puts each container on the first card with room, and writes all in annotations."""

    def __init__(self, release: str) -> None:
        self.release = release

    def place(self, pod: dict[str, Any], pods: Mapping[str, Mapping[str, Any]]) -> bool:
        used, places = on_cards(pods), []
        for container in pod["spec"]["containers"]:
            asked = {name.rpartition("/")[2]: int(text) for name, text in amounts(container).items()}
            if not asked:
                places.append({"2.5": ",,0,0:;", "2.10": ""}.get(self.release, ";"))
                continue
            mib, percent = asked["gpumem"], asked["gpucores"]
            card = next((uuid for uuid in MEMORY if self.fits(used[uuid], MEMORY[uuid], mib, percent)), None)
            if card is None:
                return False
            used[card].append((mib, percent, ""))
            places.append(f"{card},NVIDIA,{mib},{percent}:;")
        annotations = {"vgpu-node": "n", "vgpu-time": "1", "bind-phase": "success", "vgpu-devices-to-allocate": ";;"}
        pod["metadata"]["annotations"] = {f"hami.io/{name}": text for name, text in annotations.items()}
        pod["metadata"]["annotations"][ALLOCATED] = "".join(places)
        return True

    def fits(self, others: list[tuple[int, int, str]], memory: int, mib: int, percent: int) -> bool:
        compute = sum(each for _, each, _ in others)
        if len(others) >= 10 or sum(each for each, _, _ in others) + mib > memory or compute + percent > 100:
            return False
        return not (percent == 100 and others) and not (percent == 0 and compute >= 100)


def amounts(container: Mapping[str, Any]) -> dict[str, str]:
    return dict(container.get("resources", {}).get("limits", {}))


def drawn(name: str, random: Random) -> dict[str, Any]:
    def container(at: int) -> dict[str, Any]:
        mib, cores = random.choice([500, 2000, 9000]), random.choice([0, 0, 10, 40, 100])
        return {"name": f"idle{at}"} if random.random() < 0.3 else asking(f"c{at}", gpu=1, mem=mib, cores=cores)

    return wanting(name, asking("first", gpu=1, mem=100, cores=random.choice([0, 5])), *map(container, range(2)))


# contract H3.1 to H3.6, H3.9
@pytest.mark.parametrize("release", ["2.5", "2.9", "2.10"])
@pytest.mark.parametrize("seed", range(6))
async def test_there_and_back(release: str, seed: int) -> None:
    random, hami = Random(f"{release} {seed}"), Hami(release)
    pods: dict[str, dict[str, Any]] = {}

    def by_hami(number: int) -> None:
        pod = drawn(f"p{number}", random)
        if hami.place(pod, pods):
            pod["spec"]["nodeName"] = "n"
            pods[f"p{number}"] = pod
        check(on_cards(pods))

    for number in range(4):
        by_hami(number)
    cards = [{"id": uuid, "index": at, "count": 10, "devmem": mib} for at, (uuid, mib) in enumerate(MEMORY.items())]
    register = json.dumps([each | {"health": True, "type": "NVIDIA A10"} for each in cards])
    node = described_node("n", {"nvidia.com/gpu": 20}, annotations={REGISTER: register})
    decider = following([node], *pods.values(), options=OPTIONS)
    for number in range(4, 12):
        if number == 8:  # the plugin records the cards
            decider.node_handlers.changed(decoded(hami_node(memory=list(MEMORY.values()))))
        pod = drawn(f"p{number}", random)
        decider.cluster.add(pod)
        if (await decider.ask(pod, "n"))["NodeNames"] == ["n"]:
            assert await decider.bind(pod, "n") == ""
            pods[f"p{number}"] = decider.cluster.pods[f"default/p{number}"]
            written = pods[f"p{number}"]["metadata"]["annotations"]
            assert not {"hami.io/bind-phase", "hami.io/vgpu-devices-to-allocate"} & written.keys()
        used = on_cards(pods)
        check(used)
        assert booked(decider) == {
            uuid: (sum(mib for mib, _, _ in each), sum(percent for _, percent, _ in each))
            for uuid, each in used.items()
        }
        if random.random() < 0.4:
            ended = random.choice(list(pods))
            del pods[ended]
            decider.cluster.end(f"default/{ended}")
    assert decider.reports.mismatches == []
    for number in range(12, 18):
        by_hami(number)


def booked(decider: DrivenDecider) -> dict[str, tuple[int, int]]:
    """Return MiB and percent that the ledger has of each card."""
    usage = decider.ledger.usage("n").amounts
    by_card = {int(card): dict(of) for card, of in usage.items()}
    return {
        uuid: (by_card.get(at, {}).get(MEMORY_MAX, 0) // MIB, by_card.get(at, {}).get("millicores", 0) // 10)
        for at, uuid in enumerate(MEMORY)
    }
