"""Pods' use of the cards, on a real kubelet: real containers, process ids and cgroups.

There is no card, so the processes' files are in a tree in place of ``/proc``, whose ``cgroup`` files are links to the
real ones. Every process of the node has a file there that looks like a client of a card.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.e2e.gpu_node import GpuNode
from tests.e2e.gpu_use import OTHERS, Overlay
from tests.e2e.kube_api import Object
from tests.e2e.node_cell import container_id
from tests.e2e.pods import PODS, container, delete_now, get_pod, pod
from tests.e2e.waiting import wait_for

pytestmark = pytest.mark.usefixtures("no_pods_after")

GPUS = fake_gpus(FLEX_170, 2)
MIB = 2**20


def usage(gpu_node: GpuNode) -> dict[str, dict[str, Any]]:
    """Return the cards of each pod in ``/usage``, by UID."""
    status, text = gpu_node.plugin.plain("/usage")
    assert status == 200
    document = json.loads(text)
    assert document["trouble"] is None or not document["pods"]
    assert not document["problems"], document
    return {each["uid"]: each["cards"] for each in document["pods"]}


def used(gpu_node: GpuNode) -> dict[str, dict[str, int]]:
    """Return UID -> card -> MiB in use."""
    return {
        uid: {card: each["memoryUsed"] // MIB for card, each in cards.items() if each["memoryUsed"]}
        for uid, cards in usage(gpu_node).items()
    }


def shows(gpu_node: GpuNode, expected: dict[str, dict[str, int]]) -> None:
    """Wait until the plugin shows exactly this use."""
    found: dict[str, dict[str, int]] = {}

    def look() -> bool:
        nonlocal found
        found = used(gpu_node)
        return found == expected

    try:
        wait_for("the use of the cards", look, seconds=40, every=0.5)
    except TimeoutError:
        raise AssertionError(f"expected {expected}, found {found}") from None


def uid(of: Object) -> str:
    return str(of["metadata"]["uid"])


def card(of: Object) -> str:
    return str(of["metadata"]["annotations"]["gas-container-cards"])


def test_each_pod_s_numbers_are_its_own(gpu_node: GpuNode) -> None:
    gpu_node.start(GPUS, "--shared-dev-num=4", "--usage")
    overlay = Overlay(gpu_node)
    small = container(i915=1, memory_max="100Mi")
    side = container("side", sidecar=True, i915=1, memory_max="50Mi")
    restarts = pod("restarts", dict(small))
    restarts["spec"]["restartPolicy"] = "Always"
    gpu_node.create(restarts)
    gpu_node.create(pod("sidecar", dict(small), init=(side,)))
    gpu_node.create(pod("plain"))
    first, second, plain = gpu_node.running(["restarts", "sidecar", "plain"])
    node = gpu_node.node
    overlay.show(node.pid(first, "main"), 30)
    overlay.show(node.pid(second, "main"), 40)
    overlay.show(node.pid(second, "side"), 5, card=1)
    overlay.show(node.pid(plain, "main"), 500)
    overlay.cover()
    shows(gpu_node, {uid(first): {"card0": 30 + OTHERS}, uid(second): {"card0": 40 + OTHERS, "card1": 5}})
    assert usage(gpu_node)[uid(first)][card(first)]["memoryRequested"] == 100 * MIB
    place = 'namespace="default",pod="restarts"'
    assert gpu_node.plugin.metric(f'gas_plugin_pod_memory_requested_bytes{{card="{card(first)}",{place}}}') == 100 * MIB

    # Its process ends; the new one has another id. The old one's file is still there, but no process belongs to it.
    before = node.pid(first, "main")
    node.kill(first, "main")
    wait_for("its restart", lambda: get_pod(gpu_node.api, "restarts")["status"]["containerStatuses"][0]["restartCount"])
    (first,) = gpu_node.running(["restarts"])
    wait_for("its new process", lambda: container_id(get_pod(gpu_node.api, "restarts"), "main"))
    first = get_pod(gpu_node.api, "restarts")
    assert node.pid(first, "main") != before
    overlay.show(node.pid(first, "main"), 33)
    shows(gpu_node, {uid(first): {"card0": 33 + OTHERS}, uid(second): {"card0": 40 + OTHERS, "card1": 5}})

    # Both containers of a pod have the same client open.
    overlay.show(node.pid(second, "main"), 40, client=1)
    overlay.show(node.pid(second, "side"), 40, client=1)
    shows(gpu_node, {uid(first): {"card0": 33 + OTHERS}, uid(second): {"card0": 40 + OTHERS}})

    gpu_node.stop_plugin()
    gpu_node.plugin.start()
    shows(gpu_node, {uid(first): {"card0": 33 + OTHERS}, uid(second): {"card0": 40 + OTHERS}})

    # The next pod of the same name is another pod.
    delete_now(gpu_node.api, "sidecar")
    wait_for("its end", lambda: "sidecar" not in {each["metadata"]["name"] for each in gpu_node.api.items(PODS)})
    gpu_node.create(pod("sidecar", dict(small)))
    (third,) = gpu_node.running(["sidecar"])
    overlay.show(node.pid(third, "main"), 21)
    overlay.cover()
    shows(gpu_node, {uid(first): {"card0": 33 + OTHERS}, uid(third): {"card0": 21 + OTHERS}})
