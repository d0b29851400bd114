"""Pods' use of the cards, on a real kubelet: real containers, process ids and cgroups.

There is no card, so the processes' files are in a tree in place of ``/proc``, whose ``cgroup`` files are links to the
real ones. Every process of the node has a file there that looks like a client of a card.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.e2e.gpu_node import SECONDS, GpuNode
from tests.e2e.gpu_use import OTHERS, Overlay
from tests.e2e.images import BUSYBOX
from tests.e2e.kube_api import Object
from tests.e2e.node_cell import container_id
from tests.e2e.pods import PODS, container, delete_now, event_messages, get_pod, pod
from tests.e2e.waiting import wait_for

GPUS = fake_gpus(FLEX_170, 2)
MIB = 2**20


@pytest.fixture(autouse=True)
def no_pods_after(gpu_node: GpuNode) -> Iterator[None]:
    yield
    gpu_node.clear()


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


def test_two_pods_of_one_name_in_two_namespaces(gpu_node: GpuNode) -> None:
    gpu_node.start(GPUS, "--shared-dev-num=4", "--usage")
    overlay = Overlay(gpu_node)
    api, node = gpu_node.api, gpu_node.node
    others = "/api/v1/namespaces/others"
    api.create("/api/v1/namespaces", {"metadata": {"name": "others"}})
    api.create(f"{others}/serviceaccounts", {"metadata": {"name": "default"}})
    try:
        gpu_node.create(pod("twin", container(i915=1, memory_max="100Mi")))
        (first,) = gpu_node.running(["twin"])
        twin = pod("twin", container(i915=1, memory_max="200Mi") | {"image": BUSYBOX.name, "imagePullPolicy": "Never"})
        twin["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", "sleep 100000"]
        twin["spec"] |= {"hostNetwork": True, "automountServiceAccountToken": False}
        api.create(f"{others}/pods", twin)
        wait_for("the other", lambda: api.get(f"{others}/pods/twin")["status"]["phase"] == "Running", seconds=SECONDS)
        second = api.get(f"{others}/pods/twin")
        overlay.show(node.pid(first, "main"), 60)
        overlay.show(node.pid(second, "main"), 90)
        overlay.cover()
        shows(gpu_node, {uid(first): {"card0": 60 + OTHERS}, uid(second): {"card0": 90 + OTHERS}})
        for namespace, mib in (("default", 67), ("others", 97)):
            sample = f'gas_plugin_pod_memory_used_bytes{{card="card0",namespace="{namespace}",pod="twin"}}'
            assert gpu_node.plugin.metric(sample) == mib * MIB
    finally:
        api.delete(f"{others}/pods/twin", gracePeriodSeconds="0")


def test_a_pod_that_uses_too_much_gets_an_event(gpu_node: GpuNode) -> None:
    gpu_node.start(GPUS[:1], "--shared-dev-num=4", "--usage")
    overlay = Overlay(gpu_node)
    gpu_node.create(pod("greedy", container(i915=1, memory_max="100Mi")))
    (greedy,) = gpu_node.running(["greedy"])
    overlay.show(gpu_node.node.pid(greedy, "main"), 130)
    (message,) = wait_for(
        "its event", lambda: event_messages(gpu_node.api, "greedy", "GPUMemoryOverRequest"), seconds=40
    )
    assert "the pod uses 130 MiB of card0 but requested 100 MiB of memory.max" in message
    assert gpu_node.plugin.metric("gas_plugin_pods_over_memory_request") == 1


_WALK = """
import sys
from pathlib import Path
from gas.plugin.usage.process_walk import ProcessWalker
walk = ProcessWalker(Path("/proc")).walk({sys.argv[1]})
print(walk.processes, *walk.problems)
"""


@pytest.mark.parametrize(
    ("capabilities", "result"),
    [
        pytest.param("-all,+sys_ptrace", "2\n", id="those-of-the-component"),
        pytest.param(
            "-all",
            "0 the files of processes of pods cannot be read: Permission denied; give the plugin the capability "
            "SYS_PTRACE, and let AppArmor or SELinux permit it to read other processes\n",
            id="none",
        ),
    ],
)
def test_which_rights_are_needed(gpu_node: GpuNode, capabilities: str, result: str) -> None:
    """The real files of a pod that runs as another user: its own process and that of its infrastructure container."""
    gpu_node.start(GPUS)
    written = pod("other-user", container(i915=1))
    written["spec"]["securityContext"] = {"runAsUser": 1234}
    gpu_node.create(written)
    (running,) = gpu_node.running(["other-user"])
    repository = str(Path(__file__).parents[2])
    limited = ["setpriv", f"--bounding-set={capabilities}", f"--inh-caps={capabilities}", "--no-new-privs"]
    found = gpu_node.node.run("env", f"PYTHONPATH={repository}", *limited, sys.executable, "-c", _WALK, uid(running))
    assert found == result
