"""The order of cards and nearness on a real node: what the containers of the pods really have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import pytest

from sandbox.hardware.fake_sysfs import MAX_1550_XE, fake_gpus
from tests.e2e.gpu_node import GpuNode
from tests.e2e.pods import container, delete_now, pod

EIGHT = fake_gpus(MAX_1550_XE, 8)
SHARED = "--shared-dev-num=10"
BY_CONTAINERS = ("--card-order=fewest-containers", "--enableAllowlist")
NEAR = {"gas-card-near": "true"}


@pytest.fixture(autouse=True)
def no_pods_after(gpu_node: GpuNode) -> Iterator[None]:
    yield
    gpu_node.clear()
    gpu_node.set_labels({"xe-links": None, "xe-links2": None})


def load(gpu_node: GpuNode, loads: Sequence[int]) -> None:
    """Run a pod on each card that has as many containers as this."""
    names = []
    for card, count in enumerate(loads):
        if count:
            containers = [container(f"c{number}", xe=1) for number in range(count)]
            names.append(f"load-{card}")
            gpu_node.create(pod(names[-1], *containers, annotations={"gas-allow": f"card{card}"}))
    gpu_node.running(names)


def cards_of_new_pod(
    gpu_node: GpuNode, name: str, cards: int = 1, annotations: Mapping[str, str] | None = None
) -> list[str]:
    gpu_node.create(pod(name, container(xe=cards), annotations=annotations))
    (running,) = gpu_node.running([name])
    return gpu_node.cards(running)


# contract D1.4, D1.7, D1.12
def test_each_container_goes_to_a_card_with_the_fewest_containers(gpu_node: GpuNode) -> None:
    gpu_node.start(EIGHT[:4], SHARED, extender=BY_CONTAINERS)
    load(gpu_node, (2, 0, 1, 1))
    assert [cards_of_new_pod(gpu_node, f"new-{number}") for number in range(3)] == [["card1"], ["card1"], ["card2"]]
    delete_now(gpu_node.api, "load-3")
    assert cards_of_new_pod(gpu_node, "last") == ["card3"]
    gpu_node.settled()


# contract D1.2, D1.15, D1.16
def test_after_the_least_loaded_card_the_cards_linked_to_it_come_first(gpu_node: GpuNode) -> None:
    channels = ["_".join(f"{one}.0-{other}.0" for one, other in combinations(each, 2)) for each in ("0123", "4567")]
    gpu_node.set_labels({"xe-links": channels[0], "xe-links2": "Z_" + channels[1]})
    gpu_node.start(EIGHT, SHARED, extender=BY_CONTAINERS)
    load(gpu_node, (3, 1, 2, 2, 0, 4, 4, 4))
    for cards, expected in ((2, "4 5"), (4, "4 5 6 7"), (5, "4 5 6 7 1")):
        got = cards_of_new_pod(gpu_node, "near", cards, NEAR)
        assert sorted(got) == sorted(f"card{number}" for number in expected.split())
        gpu_node.settled()
        delete_now(gpu_node.api, "near")
    assert sorted(cards_of_new_pod(gpu_node, "far", 2)) == ["card1", "card4"]
    gpu_node.settled()
