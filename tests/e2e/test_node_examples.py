"""Every file of ``examples/`` on a real node: each container has the cards and tiles that are written on its pod."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sandbox.hardware.fake_sysfs import Model, fake_gpus
from tests.e2e.gpu_node import GpuNode
from tests.e2e.images import BUSYBOX
from tests.e2e.kube_api import Object
from tests.e2e.pods import get_pod

pytestmark = pytest.mark.usefixtures("no_pods_after")

EXAMPLES = Path(__file__).parents[2] / "examples"
LISTS = ("--enableAllowlist", "--enableDenylist")
EIGHT_GB = Model(device_id="0x56c0", driver="i915", memory=8 * 10**9)
TWO_TILES = Model(device_id="0x0bd5", driver="xe", tiles=2)

MIXED = (*fake_gpus(EIGHT_GB, 8, numa_nodes=2), *fake_gpus(TWO_TILES, 8, first=8))
"""A node with room for all pods of all files."""

NAMES = sorted(file.stem for file in EXAMPLES.glob("*.yaml"))
"""The files that these tests know; a new file must be added here."""


@pytest.fixture(scope="module", autouse=True)
def image_of_the_examples(gpu_node: GpuNode) -> None:
    """Provide the image of the examples, so that they run with their own commands."""
    gpu_node.node.containerd.tag_image(BUSYBOX.name, "docker.io/library/busybox:1.37")


def test_all_files_at_once_on_one_node_with_cards_of_both_drivers(gpu_node: GpuNode) -> None:
    """The plugin's annotation says what each card has, because an even share of the sums would be wrong."""
    set_links(gpu_node, 8)
    gpu_node.start(MIXED, "--shared-dev-num=10", extender=LISTS)
    assert "gas-card-capacity" in gpu_node.object()["metadata"]["annotations"]
    names = [name for example in NAMES for name in create(gpu_node, example)]
    gpu_node.running(names)
    gpu_node.settled()
    for example in NAMES:
        check_comment(gpu_node, example)


def check_comment(gpu_node: GpuNode, example: str) -> None:
    """Check what the comment at the top of the file promises about the containers."""

    def got(pod: str, container: str = "main") -> list[str]:
        return gpu_node.cards(get_pod(gpu_node.api, pod), container)

    match example:
        case "allow-and-deny":
            assert got("allowed")[0] in ("card1", "card3")
            assert got("denied") != ["card0"]
        case "company":
            assert got("together-1") == got("together-2")
            assert got("apart-1") != got("apart-2")
            others = ("together-1", "together-2", "apart-1", "apart-2")
            assert got("exclusive") not in [got(other) for other in others]
        case "init-and-sidecar":
            assert all(len(got("init-and-sidecar", name)) == 1 for name in ("prepare", "encode", "main"))
        case "multi-card":
            assert len(got("multi-card")) == 2
            counts = [len(got("multi-container", name)) for name in ("first", "without-gpu", "second")]
            assert counts == [1, 0, 1]
        case "named-card":
            assert got("named-1") == got("named-2")
        case "same-gpu":
            assert got("same-gpu", "decode") == got("same-gpu", "infer")
        case "single-numa" | "near":
            assert len(got(example)) == 2
            numa_nodes = {f"card{gpu.card}": gpu.numa_node for gpu in gpu_node.gpus}
            assert len({numa_nodes[card] for card in got(example)}) == 1


def set_links(gpu_node: GpuNode, first: int) -> None:
    """Set links as an administrator or telemetry does: neighbours are linked tile by tile, from this card on."""
    links = [f"{first + n}.{tile}-{first + n + 1}.{tile}" for n in range(0, 8, 2) for tile in (0, 1)]
    gpu_node.set_labels({"xe-links": "_".join(links[:6]), "xe-links2": "Z_" + "_".join(links[6:])})


def create(gpu_node: GpuNode, example: str) -> list[str]:
    """Create all pods of a file unchanged, and return their names."""
    pods: list[Object] = list(yaml.safe_load_all(_text(example)))
    for pod in pods:
        gpu_node.create_unchanged(pod)
    return [pod["metadata"]["name"] for pod in pods]


def _text(name: str) -> str:
    return (EXAMPLES / f"{name}.yaml").read_text()
