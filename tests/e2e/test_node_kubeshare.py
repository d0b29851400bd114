"""KubeShare's pods on a real node, with kube-scheduler, extender, kubelet and plugin as they are."""

from __future__ import annotations

import json

import pytest

from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object, RefusedError
from tests.e2e.kubeshare_node import annotations_of, start
from tests.e2e.pods import PODS, asking, container, delete_now, event_messages, is_refused, pod
from tests.e2e.ports import free_port
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import register_pod_webhooks
from tests.kubeshare_words import GIB, GPUID, VGPU, share

pytestmark = pytest.mark.usefixtures("no_pods_after")


def with_card(name: str = "main") -> Object:
    return asking({VGPU: 1}, name)


# contract S1.5 to S1.8, S1.10, S1.15, S1.17
def test_shares_and_intels_pods_get_exactly_the_decided_cards(gpu_node: GpuNode) -> None:
    start(gpu_node)
    gpu_node.create(pod("first", with_card(), annotations=share("0.6", "1.0", str(2 * GIB))))
    (first,) = gpu_node.running(["first"])
    gpu_node.create(pod("intel", container(i915=1, memory_max=str(GIB), millicores=300)))
    (intel,) = gpu_node.running(["intel"])
    gpu_node.create(pod("two", with_card("a"), with_card("b"), annotations=share("0.2")))
    (two,) = gpu_node.running(["two"])
    name = annotations_of(gpu_node, "first")[GPUID]
    gpu_node.create(pod("named", with_card(), annotations=share("0.1", gpuid=name)))
    (named,) = gpu_node.running(["named"])
    assert [gpu_node.cards(each) for each in (first, intel, named)] == [["card0"]] * 3
    assert [gpu_node.cards(two, each) for each in ("a", "b")] == [["card1"]] * 2
    gpu_node.create(pod("large", with_card(), annotations=share("0.9")))
    wait_for("the large one is refused", lambda: is_refused(gpu_node.api, "large"))
    (said, *_) = wait_for("its event", lambda: event_messages(gpu_node.api, "large", "FailedScheduling"))
    assert "no card has 900 millicores free" in said
    delete_now(gpu_node.api, "two")
    (large,) = gpu_node.running(["large"])
    assert gpu_node.cards(large) == ["card1"]
    assert not any("gas-allocated-cards" in annotations_of(gpu_node, each) for each in ("first", "named", "large"))
    assert gpu_node.extender.books()["differences"] == []


def start_with_webhooks(gpu_node: GpuNode) -> None:
    port = free_port()
    start(gpu_node, f"--admission-port={port}")
    register_pod_webhooks(gpu_node, port, lambda: resources_of(tried(gpu_node, share())) != [{}])


def tried(gpu_node: GpuNode, annotations: dict[str, str]) -> Object:
    """Return a pod as the API server would store it. Raises RefusedError."""
    return gpu_node.api.create(f"{PODS}?dryRun=All", pod("tried", plain(), annotations=annotations))


def plain(name: str = "main") -> Object:
    return {"name": name, "image": "none"}


def resources_of(written: Object) -> list[dict[str, str]]:
    """Return what each container requests. Its limits must be the same."""
    found = [each.get("resources", {}) for each in written["spec"]["containers"]]
    assert all(each.get("limits", {}) == each.get("requests", {}) for each in found)
    return [each.get("requests", {}) for each in found]


# contract S1.6, S1.7, S1.22, S1.23
def test_the_webhook_turns_annotations_into_resources_and_a_chosen_node_into_an_affinity(gpu_node: GpuNode) -> None:
    start_with_webhooks(gpu_node)
    with pytest.raises(RefusedError, match=r"kubeshare/gpu_request: expected at most kubeshare/gpu_limit, 0\.5"):
        tried(gpu_node, share("0.6", "0.5"))
    gpu_node.create(pod("two", plain("a"), plain("b"), annotations=share("0.3335", "1.0", str(GIB))))
    (two,) = gpu_node.running(["two"])
    assert resources_of(two) == [
        {VGPU: "1", "kubeshare/millicores": "334", "kubeshare/memory.max": str(GIB)},
        {VGPU: "1"},
    ]
    assert [gpu_node.cards(two, each) for each in ("a", "b")] == [["card0"]] * 2

    node = gpu_node.node.name
    chosen = share("0.5", "1.0", str(GIB), gpuid="abcde")
    for name in ("first", "second"):
        gpu_node.create(pod(name, plain(), annotations=chosen), node=node)
        (running,) = gpu_node.running([name])
        assert gpu_node.cards(running) == ["card1"], "a new name means an idle card, a known one the same card"
        assert annotations_of(gpu_node, name)[GPUID] == "abcde"
        assert json.dumps(running["spec"]["affinity"]["nodeAffinity"]).count(f'["{node}"]') == 1
    gpu_node.create(pod("third", plain(), annotations=chosen), node=node)
    wait_for("the third waits, because its card is full", lambda: is_refused(gpu_node.api, "third"))

    gpu_node.api.merge(f"{PODS}/two", {"metadata": {"annotations": {"kubeshare/gpu_request": "0.9"}}})
    wait_for("the edit is reported", lambda: event_messages(gpu_node.api, "two", "GPUBookingMismatch"))
    booked = {card: of["booked"]["millicores"] for card, of in gpu_node.books().items()}
    assert booked == {"card0": 334, "card1": 1000}
