from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from gas.plugin.devices.allocation import (
    Allocation,
    ByPath,
    DeviceNode,
    Mount,
    NoSuchCards,
    Presentation,
    card_allocation,
    gpus_of,
    monitoring_allocation,
)
from gas.values.cards import Card
from tests.plugin.gpus import linked_gpu as gpu
from tests.plugin.gpus import nvidia_gpu


def test_cards_are_found_once_in_natural_order() -> None:
    gpus = [gpu(10), gpu(2), gpu(0)]
    assert [each.card for each in gpus_of([Card(10), Card(2), Card(2)], gpus)] == [2, 10]


def test_a_card_that_is_gone_is_left_out() -> None:
    assert [each.card for each in gpus_of([Card(0), Card(1)], [gpu(1)])] == [1]


def test_no_card_left_is_an_error_that_names_the_cards() -> None:
    with pytest.raises(NoSuchCards, match="none of the cards card2, card10 is on this node any more"):
        gpus_of([Card(10), Card(2)], [gpu(1)])


def test_an_error_without_cards_is_a_sentence_too() -> None:
    with pytest.raises(NoSuchCards, match="kubelet named no device of a card; nothing can be allocated"):
        gpus_of([], [gpu(1)])


# contract P1.4, P3.6
def test_a_container_gets_the_device_nodes_of_its_cards() -> None:
    answer = Allocation(env={"ZE_AFFINITY_MASK": "0"}).plus(card_allocation([gpu(1)], Presentation()))
    assert answer.device_nodes == (
        DeviceNode("/dev/dri/card1", "/dev/dri/card1"),
        DeviceNode("/dev/dri/renderD129", "/dev/dri/renderD129"),
    )
    assert answer.env == {"ZE_AFFINITY_MASK": "0"}
    assert not answer.cdi
    assert not answer.annotations


# contract P1.13
def test_only_paths_of_the_host_have_the_prefix() -> None:
    presentation = Presentation(host_root=PurePosixPath("/tmp/tree"))
    answer = card_allocation([gpu(0, by_path=("pci-0-card",))], presentation)
    assert answer.device_nodes[0] == DeviceNode("/tmp/tree/dev/dri/card0", "/dev/dri/card0")
    assert answer.mounts == (Mount("/tmp/tree/dev/dri/by-path/pci-0-card", "/dev/dri/by-path/pci-0-card"),)


LINKS = ["/dev/dri/by-path/pci-0000:00:00.0-card", "/dev/dri/by-path/pci-0000:00:00.0-render"]


# contract P1.5
@pytest.mark.parametrize(
    ("by_path", "expected"),
    [
        pytest.param(ByPath.SINGLE, LINKS, id="single: each link of the container's cards"),
        pytest.param(ByPath.ALL, ["/dev/dri/by-path"], id="all: the whole directory"),
        pytest.param(ByPath.NONE, [], id="none"),
    ],
)
def test_by_path(by_path: ByPath, expected: list[str]) -> None:
    answer = card_allocation([gpu(0)], Presentation(by_path=by_path))
    assert answer.mounts == tuple(Mount(path, path) for path in expected)


@pytest.mark.parametrize("by_path", ByPath)
def test_without_links_nothing_is_mounted(by_path: ByPath) -> None:
    assert card_allocation([gpu(0, by_path=())], Presentation(by_path=by_path)).mounts == ()


# contract P1.6
def test_monitoring_sees_all_healthy_cards_and_their_management_engines() -> None:
    gpus = [gpu(0), gpu(1, healthy=False), gpu(2, "xe", mei=("mei0", "mei2"))]
    answer = monitoring_allocation(gpus, Presentation(by_path=ByPath.NONE))
    assert [node.container_path for node in answer.device_nodes] == [
        "/dev/dri/card0",
        "/dev/dri/renderD128",
        "/dev/dri/card2",
        "/dev/dri/renderD130",
        "/dev/mei0",
        "/dev/mei2",
    ]


class TestNvidia:
    def test_the_variable_lists_the_uuids_of_the_cards(self) -> None:
        answer = Allocation(env={"A": "b"}).plus(card_allocation([nvidia_gpu(0), nvidia_gpu(3)], Presentation()))
        assert answer.env == {"A": "b", "NVIDIA_VISIBLE_DEVICES": f"{nvidia_gpu(0).uuid},{nvidia_gpu(3).uuid}"}
        assert (answer.device_nodes, answer.cdi, answer.annotations) == ((), (), {})

    def test_no_vocabulary_can_name_other_cards_in_the_variable(self) -> None:
        named = Allocation(env={"NVIDIA_VISIBLE_DEVICES": "all"})
        answer = named.plus(card_allocation([nvidia_gpu(1)], Presentation()))
        assert answer.env == {"NVIDIA_VISIBLE_DEVICES": nvidia_gpu(1).uuid}

    def test_nodes_that_belong_to_all_cards_are_given_once(self) -> None:
        cards = [nvidia_gpu(n, other_nodes=(f"nvidia{n}", "nvidiactl")) for n in (0, 1)]
        answer = card_allocation(cards, Presentation(host_root=PurePosixPath("/tree")))
        assert answer.device_nodes == tuple(
            DeviceNode(f"/tree/dev/{name}", f"/dev/{name}") for name in ("nvidia0", "nvidiactl", "nvidia1")
        )

    def test_cards_of_nvidias_toolkit_are_named(self) -> None:
        cards = [nvidia_gpu(n, cdi_name=f"nvidia.com/gpu=GPU-{n}") for n in (0, 1)]
        answer = card_allocation(cards, Presentation())
        assert (answer.cdi, answer.annotations) == (("nvidia.com/gpu=GPU-0", "nvidia.com/gpu=GPU-1"), {})
