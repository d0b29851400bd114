"""A reboot after which the kernel gives the cards other numbers, on a real node."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, FakeGpu, fake_gpus
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object
from tests.e2e.pods import OVER, container, get_pod, pod
from tests.e2e.waiting import wait_for
from tests.fake_gpus import ARC_A770

FLEX, REMOVED, MOVED, STAYING = fake_gpus(FLEX_170, 4)
ARC = replace(fake_gpus(ARC_A770, 1, first=4)[0], card=0)
BEFORE = (FLEX, REMOVED, MOVED, STAYING)
AFTER = (ARC, replace(MOVED, card=1), STAYING, replace(FLEX, card=4))
"""One card was removed, a new one of another model comes first, one has its old number and the others have new ones."""

ALLOWLIST = ["--enableAllowlist"]


def wanting(name: str, allowed: str, restart: str = "Always") -> Object:
    written = pod(name, container(i915=1, memory_max="10G", millicores=600), annotations={"gas-allow": allowed})
    written["spec"]["restartPolicy"] = restart
    return written


def recorded(gpu_node: GpuNode) -> dict[int, str]:
    """Return the number of each card -> its PCI address, as the node's annotation has them."""
    text = gpu_node.object()["metadata"]["annotations"].get("gas-cards", "[]")
    return {record["card"]: record["pci"] for record in json.loads(text)}


def addresses(gpus: tuple[FakeGpu, ...]) -> dict[int, str]:
    return {gpu.card: gpu.pci_address for gpu in gpus}


@pytest.mark.usefixtures("no_pods_after")
def test_after_a_reboot_with_other_numbers_ledger_and_containers_agree(gpu_node: GpuNode) -> None:
    gpu_node.start(BEFORE, "--shared-dev-num=2", extender=ALLOWLIST)
    wait_for("the records", lambda: recorded(gpu_node) == addresses(BEFORE))
    for number, gpu in enumerate(BEFORE):
        gpu_node.create(wanting(f"old-{number}", gpu.pci_address, "Never" if number == 1 else "Always"))
        (running,) = gpu_node.running([f"old-{number}"])
        assert gpu_node.cards(running) == [f"card{number}"]
    gpu_node.settled()

    gpu_node.node.reboot()
    gpu_node.start_plugin(AFTER, "--shared-dev-num=2")
    wait_for("the records of the new order", lambda: recorded(gpu_node) == addresses(AFTER))
    wait_for(
        "the end of pods whose number means another card", lambda: [phase(gpu_node, n) for n in range(3)] == FAILED
    )
    wait_for("the end, or another start, of the pod whose card stayed", lambda: has_settled(gpu_node, 3))
    wait_for("all cards given out again", lambda: gpu_node.allocatable("i915") == 2 * len(AFTER))
    gpu_node.settled()

    for name, allowed, card in (
        ("moved", MOVED.pci_address, "card1"),
        ("flex", FLEX.pci_address, "card4"),
        ("arc", "Arc A770", "card0"),
    ):
        gpu_node.create(wanting(name, allowed))
        (running,) = gpu_node.running([name])
        assert gpu_node.cards(running) == [card]
    gpu_node.settled()


FAILED = ["Failed"] * 3


def phase(gpu_node: GpuNode, number: int) -> str:
    return str(get_pod(gpu_node.api, f"old-{number}")["status"]["phase"])


def has_settled(gpu_node: GpuNode, number: int) -> bool:
    """Return whether a pod of before the reboot has ended, or runs in containers of after the reboot."""
    status = get_pod(gpu_node.api, f"old-{number}")["status"]
    if status["phase"] in OVER:
        return True
    containers = status.get("containerStatuses", [])
    return any(each["restartCount"] > 0 and "running" in each["state"] for each in containers)
