"""KubeShare's pods on a real node, with kube-scheduler, extender, kubelet and plugin as they are."""

from __future__ import annotations

import json

import pytest

from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object, RefusedError
from tests.e2e.kubeshare_node import annotations_of, start
from tests.e2e.pods import PODS, event_messages, is_refused, pod
from tests.e2e.ports import free_port
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import register_pod_webhooks
from tests.kubeshare_words import GIB, GPUID, VGPU, share

pytestmark = pytest.mark.usefixtures("no_pods_after")


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
