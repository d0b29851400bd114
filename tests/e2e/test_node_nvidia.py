"""NVIDIA's cards on a real node: kubelet, scheduler, extender and plugin, with a library in place of NVIDIA's."""

from __future__ import annotations

import shutil

import pytest

from tests.e2e.fake_nvml import GIB, FakeNvml, card, uuid
from tests.e2e.gpu_node import GpuNode
from tests.e2e.pod_resources import listed_ids
from tests.e2e.pods import asking, delete_now, event_messages, get_pod, is_refused, pod
from tests.e2e.waiting import wait_for
from tests.other_words import GPU_MEM, NVIDIA

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
    pytest.mark.usefixtures("no_pods_after"),
]

WORDS = ("--vocabularies=intel,aliyun,vendor", "--aliyun-unit=GiB")
CARDS = [
    card(minor, total=17 * GIB, reserved=GIB, **({} if minor == 0 else {"peer": 19 - minor})) for minor in range(3)
]
"""Three cards of 16 GiB; the second and the third are linked."""

SECONDS = 120.0


def start(gpu_node: GpuNode) -> None:
    library = FakeNvml(gpu_node.node.directory / "nvml")
    library.write(CARDS)
    gpu_node.plugin_environment = library.environment
    gpu_node.new_plugin((), "--card-sources=nvml", *WORDS)
    gpu_node.plugin.start(seconds=SECONDS)
    gpu_node.start_extender(*WORDS)
    wait_for("the cards", lambda: allocatable(gpu_node) == ("3", "48"), seconds=SECONDS)
    wait_for("the cards in the books", lambda: len(gpu_node.books()) == 3, seconds=SECONDS)


def allocatable(gpu_node: GpuNode) -> tuple[str, str]:
    found = gpu_node.object()["status"]["allocatable"]
    return found.get(NVIDIA, "0"), found.get(GPU_MEM, "0")


def check(gpu_node: GpuNode, name: str, resource: str, *minors: int) -> None:
    """Check that a pod runs with exactly these cards, by its environment and by kubelet's list."""
    (running,) = gpu_node.running([name])
    visible = gpu_node.node.environment(running, "main")["NVIDIA_VISIBLE_DEVICES"]
    assert visible == ",".join(uuid(minor) for minor in minors)
    ids = listed_ids(gpu_node.node.pod_resources)[name, "main"][resource]
    assert {id_.partition("-")[0] for id_ in ids} == {f"card{minor}" for minor in minors}


# contract V1.1, V1.2, V1.5, A1.15
def test_whole_and_shared_cards_are_given_by_uuid(gpu_node: GpuNode) -> None:
    start(gpu_node)
    gpu_node.create(pod("share", asking({GPU_MEM: 6})))
    check(gpu_node, "share", GPU_MEM, 0)
    near = {"gas-card-near": "true"}
    gpu_node.create(pod("pair", asking({NVIDIA: 2}), annotations=near))
    check(gpu_node, "pair", NVIDIA, 1, 2)
    gpu_node.create(pod("another", asking({GPU_MEM: 10})))
    check(gpu_node, "another", GPU_MEM, 0)
    gpu_node.create(pod("late", asking({GPU_MEM: 1})))
    wait_for("the late one is refused", lambda: is_refused(gpu_node.api, "late"), seconds=SECONDS)
    (said, *_) = wait_for("its event", lambda: event_messages(gpu_node.api, "late", "FailedScheduling"))
    assert "no card has millicores in proportion to 1.1 GB of memory.max free" in said
    delete_now(gpu_node.api, "pair")
    (late,) = gpu_node.running(["late"])
    assert get_pod(gpu_node.api, "late")["metadata"]["annotations"]["gas-container-cards"] == "card1"
    assert gpu_node.node.devices(late, "main") == []
    assert gpu_node.extender.books()["differences"] == []
