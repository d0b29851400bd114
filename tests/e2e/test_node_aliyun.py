"""Aliyun's pods on a real node, beside Intel's: kube-scheduler, extender, kubelet and plugin as they are."""

from __future__ import annotations

import pytest

from sandbox.hardware.fake_sysfs import Model, fake_gpus
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object
from tests.e2e.pod_resources import listed_ids
from tests.e2e.pods import asking, container, delete_now, event_messages, get_pod, is_refused, pod
from tests.e2e.waiting import wait_for
from tests.other_words import GPU_COUNT, GPU_MEM, MIB

pytestmark = pytest.mark.usefixtures("no_pods_after")

UNITS = 1628
"""MiB of a card: few, so that kubelet's lists are short on a busy machine."""

CARDS = fake_gpus(Model(device_id="0x56c0", driver="i915", memory=UNITS * MIB), 2)
WORDS = "--vocabularies=intel,aliyun"
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"


def memory(name: str = "main", *, units: int) -> Object:
    return asking({GPU_MEM: units}, name)


def start(gpu_node: GpuNode) -> None:
    gpu_node.start(CARDS, "--shared-dev-num=10", WORDS, extender=(WORDS,))
    wait_for("both resources", lambda: has_memory(gpu_node))
    wait_for("the memory in the books", lambda: len(gpu_node.books()) == 2 and has_units(gpu_node))


def has_memory(gpu_node: GpuNode) -> bool:
    wanted = {GPU_MEM: str(2 * UNITS), GPU_COUNT: "2"}
    return bool(wanted.items() <= gpu_node.object()["status"]["allocatable"].items())


def has_units(gpu_node: GpuNode) -> bool:
    return all(card["capacity"].get("gpu-mem") == UNITS for card in gpu_node.books().values())


def annotations_of(gpu_node: GpuNode, name: str) -> dict[str, str]:
    return dict(get_pod(gpu_node.api, name)["metadata"]["annotations"])


def check(gpu_node: GpuNode, name: str, **units: int) -> int:
    """Check everything about the card of a running pod, by container -> units; return the card's number."""
    wait_for(f"{name} assigned", lambda: annotations_of(gpu_node, name)[ASSIGNED] == "true")
    written, running = annotations_of(gpu_node, name), get_pod(gpu_node.api, name)
    number = int(written["ALIYUN_COM_GPU_MEM_IDX"])
    assert written["ALIYUN_GPU_ID"] == str(number)
    assert written["ALIYUN_COM_GPU_MEM_POD"] == str(sum(units.values()))
    assert written["ALIYUN_COM_GPU_MEM_DEV"] == str(UNITS)
    assert written["ALIYUN_COM_GPU_MEM_ASSUME_TIME"] == written["gas-ts"]
    assert "gas-allocated-cards" not in written
    listed = listed_ids(gpu_node.node.pod_resources)
    for each, amount in units.items():
        assert gpu_node.cards(running, each) == [f"card{number}"]
        environment = gpu_node.node.environment(running, each)
        assert environment["ALIYUN_COM_GPU_MEM_IDX"] == str(number)
        assert environment["ALIYUN_COM_GPU_MEM_CONTAINER"] == str(amount)
        ids = listed[name, each][GPU_MEM]
        assert (len(ids), {id_.partition("-")[0] for id_ in ids}) == (amount, {f"card{number}"})
    return number


# contract A1.1, A1.2, A1.4, A1.9, A1.12 to A1.15, A1.20, A1.21
def test_pods_of_both_vocabularies_get_exactly_the_decided_units_and_cards(gpu_node: GpuNode) -> None:
    start(gpu_node)
    gpu_node.create(pod("large", memory(units=UNITS + 1)))
    gpu_node.create(pod("first", memory(units=814)))
    gpu_node.running(["first"])
    assert check(gpu_node, "first", main=814) == 0
    gpu_node.create(pod("two", memory("a", units=400), memory("b", units=414)))
    gpu_node.running(["two"])
    assert check(gpu_node, "two", a=400, b=414) == 0
    gpu_node.create(pod("intel", container(i915=1, memory_max=str(814 * MIB), millicores=500)))
    (intel,) = gpu_node.running(["intel"])
    assert gpu_node.cards(intel) == ["card1"]
    gpu_node.create(pod("third", memory(units=815)))
    wait_for("the third is refused", lambda: is_refused(gpu_node.api, "third"))
    (said, *_) = wait_for("its event", lambda: event_messages(gpu_node.api, "third", "FailedScheduling"))
    assert "no card has 0.9 GB of memory.max free" in said
    delete_now(gpu_node.api, "intel")
    gpu_node.running(["third"])
    assert check(gpu_node, "third", main=815) == 1
    assert is_refused(gpu_node.api, "large")
    assert gpu_node.extender.books()["differences"] == []
