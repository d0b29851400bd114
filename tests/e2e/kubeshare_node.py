"""A real node whose cards pods share in KubeShare's words."""

from __future__ import annotations

from sandbox.hardware.fake_sysfs import Model, fake_gpus
from tests.e2e.gpu_node import GpuNode
from tests.e2e.pods import get_pod
from tests.e2e.waiting import wait_for
from tests.kubeshare_words import GIB, VGPU

CARDS = fake_gpus(Model(device_id="0x56c0", driver="i915", memory=8 * GIB), 2)
WORDS = "--vocabularies=intel,kubeshare"


def start(gpu_node: GpuNode, *flags: str) -> None:
    gpu_node.start(CARDS, "--shared-dev-num=10", WORDS, extender=(WORDS, *flags))
    wanted = {VGPU: "2k", "kubeshare/millicores": "2k"}
    wait_for("both resources", lambda: wanted.items() <= gpu_node.object()["status"]["allocatable"].items())
    wait_for(
        "the shares in the books",
        lambda: (
            len(gpu_node.books()) == 2
            and all(card["capacity"].get("vgpu") == 1000 for card in gpu_node.books().values())
        ),
    )


def annotations_of(gpu_node: GpuNode, name: str) -> dict[str, str]:
    return dict(get_pod(gpu_node.api, name)["metadata"]["annotations"])
