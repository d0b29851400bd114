"""Koordinator's pods on a real cluster, beside Intel's: API server and webhooks, kube-scheduler, kubelet, plugin."""

from __future__ import annotations

import json

import pytest

from gas.values.amounts import parse_quantity
from sandbox.hardware.fake_sysfs import Model, fake_gpus
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object, RefusedError
from tests.e2e.pod_resources import listed_ids
from tests.e2e.pods import PODS, asking, container, delete_now, event_messages, get_pod, is_refused, pod
from tests.e2e.ports import free_port
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import register_pod_webhooks
from tests.other_words import KOORDINATOR

pytestmark = pytest.mark.usefixtures("no_pods_after")

GIB = 2**30
WORDS = "--vocabularies=intel,koordinator,vendor"
CARDS = (
    *fake_gpus(Model(device_id="0x56c0", driver="i915", memory=8 * GIB), 1),
    *fake_gpus(Model(device_id="0x56c0", driver="i915", memory=4 * GIB), 1, first=1),
)
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
DRY_RUN = "?dryRun=All"


def shares(name: str = "main", **asked: int | str) -> Object:
    """Return a container that states limits only, as most users do."""
    return asking({KOORDINATOR[key]: amount for key, amount in asked.items()}, name)


def start(gpu_node: GpuNode) -> None:
    port = free_port()
    gpu_node.start(CARDS, "--shared-dev-num=10", WORDS, extender=(WORDS, f"--admission-port={port}"))
    wait_for("Koordinator's resources", lambda: stated(gpu_node, "capacity") == stated(gpu_node) == of_cards(2, 12))
    wait_for("the shares in the books", lambda: all(has_shares(each) for each in gpu_node.books().values()))
    register_pod_webhooks(gpu_node, port, lambda: "gpu.shared" in requests_of(tried(gpu_node, shares(ratio=50))))


def of_cards(count: int, gib: int) -> dict[str, int]:
    whole = 100 * count
    return {"shared": whole, "core": whole, "ratio": whole, "gpu": whole, "memory": gib * GIB}


def stated(gpu_node: GpuNode, field: str = "allocatable") -> dict[str, int]:
    amounts = gpu_node.object()["status"].get(field, {})
    return {key: parse_quantity(amounts.get(name, 0)) for key, name in KOORDINATOR.items()}


def has_shares(books: Object) -> bool:
    return bool(books["capacity"].get("gpu.shared") == 100)


def tried(gpu_node: GpuNode, *containers: Object) -> Object:
    """Return a pod as the API server would store it. Raises RefusedError."""
    return gpu_node.api.create(f"{PODS}{DRY_RUN}", pod("tried", *containers))


def requests_of(written: Object, field: str = "requests") -> dict[str, str]:
    """Return what the first container requests, without the prefix."""
    amounts = written["spec"]["containers"][0]["resources"][field]
    return {name.removeprefix("koordinator.sh/"): text for name, text in amounts.items()}


def allocated(gpu_node: GpuNode, name: str) -> dict[int, dict[str, str]]:
    """Return what is written on a pod: card -> compute, memory and percentage."""
    text = get_pod(gpu_node.api, name)["metadata"]["annotations"][ALLOCATED]
    return {
        each["minor"]: {what.removeprefix("koordinator.sh/gpu-"): amount for what, amount in each["resources"].items()}
        for each in json.loads(text)["gpu"]
    }


def check(gpu_node: GpuNode, name: str, *cards: str) -> None:
    """Check that a running pod has exactly these cards, by its device nodes and by kubelet."""
    (running,) = gpu_node.running([name])
    assert gpu_node.cards(running) == list(cards)
    ids = listed_ids(gpu_node.node.pod_resources)[name, "main"][KOORDINATOR["shared"]]
    assert sorted(id_.partition("-")[0] for id_ in ids) == list(cards)
    assert "gas-allocated-cards" not in running["metadata"]["annotations"]


# contract O1.2 to O1.5, O1.7, O1.11, O1.12, O1.20, O1.23, O1.24
def test_pods_of_both_vocabularies_get_exactly_the_decided_cards(gpu_node: GpuNode) -> None:
    start(gpu_node)
    gpu_node.create(pod("half", shares(ratio=50, core=50)))
    check(gpu_node, "half", "card0")
    stored = get_pod(gpu_node.api, "half")
    whole = {"gpu-memory-ratio": "50", "gpu-core": "50", "gpu.shared": "1"}
    assert requests_of(stored) == requests_of(stored, "limits") == whole
    assert allocated(gpu_node, "half") == {0: {"core": "50", "memory": str(4 * GIB), "memory-ratio": "50"}}

    gpu_node.create(pod("both", shares(ratio=100, core=40, shared=2)))
    check(gpu_node, "both", "card0", "card1")
    assert allocated(gpu_node, "both") == {
        0: {"core": "20", "memory": str(4 * GIB), "memory-ratio": "50"},
        1: {"core": "20", "memory": str(2 * GIB), "memory-ratio": "50"},
    }
    gpu_node.create(pod("intel", container(i915=1, memory_max=str(GIB), millicores=300)))
    (intel,) = gpu_node.running(["intel"])
    assert gpu_node.cards(intel) == ["card1"]

    gpu_node.create(pod("old", shares(gpu=200)))
    assert requests_of(get_pod(gpu_node.api, "old")) == {
        "gpu-memory-ratio": "200",
        "gpu-core": "200",
        "gpu.shared": "2",
    }
    wait_for("the whole cards are refused", lambda: is_refused(gpu_node.api, "old"))
    (said, *_) = wait_for("its event", lambda: event_messages(gpu_node.api, "old", "FailedScheduling"))
    assert "Insufficient koordinator.sh/gpu-core" in said
    gpu_node.create(pod("late", shares(ratio=30)))
    (said, *_) = wait_for("its event", lambda: event_messages(gpu_node.api, "late", "FailedScheduling"))
    assert "no card has 30 percent of memory.max free" in said
    for name in ("half", "both", "intel", "late"):
        delete_now(gpu_node.api, name)
    check(gpu_node, "old", "card0", "card1")
    assert gpu_node.extender.books()["differences"] == []
    with pytest.raises(RefusedError, match="expected at most 100 for each of 1 card"):
        tried(gpu_node, shares(ratio=150))
