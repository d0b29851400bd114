"""KubeShare's pods and SharePods on a real node, with kube-scheduler, extender, kubelet and plugin as they are."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import yaml

from sandbox.hardware.fake_sysfs import Model, fake_gpus
from tests.deploy.manifests import COMPONENTS
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object, RefusedError
from tests.e2e.pods import PODS, asking, container, delete_now, event_messages, get_pod, is_refused, pod
from tests.e2e.ports import free_port
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import register_pod_webhooks
from tests.kubeshare_words import GIB, GPUID, VGPU, share

pytestmark = pytest.mark.usefixtures("no_pods_after")

CARDS = fake_gpus(Model(device_id="0x56c0", driver="i915", memory=8 * GIB), 2)
WORDS = "--vocabularies=intel,kubeshare"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SHAREPODS = "/apis/kubeshare.nthu/v1/namespaces/default/sharepods"


def with_card(name: str = "main") -> Object:
    return asking({VGPU: 1}, name)


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


def define_sharepods(gpu_node: GpuNode) -> None:
    definition = yaml.safe_load((COMPONENTS / "sharepods/definition.yaml").read_text(encoding="utf-8"))
    gpu_node.api.ensure(DEFINITIONS, definition)
    wait_for("SharePods are served", lambda: gpu_node.api.find(SHAREPODS))


def sharepod(name: str, annotations: dict[str, str], **spec: Any) -> Object:
    return {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "SharePod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}], **spec},
    }


# contract S1.6, S1.16, S1.17, S1.25
def test_a_sharepod_runs_as_a_pod_and_shows_it(gpu_node: GpuNode) -> None:
    define_sharepods(gpu_node)
    start(gpu_node, "--sharepods")
    node = gpu_node.node.name
    for written in (
        sharepod("mine", share("0.5", "1.0", str(GIB))),
        sharepod("chosen", share("0.5", "1.0", "0", gpuid="abcde"), nodeName=node),
    ):
        gpu_node.prepare(written)
        gpu_node.api.create(SHAREPODS, written)

    def shown(name: str) -> Object:
        return gpu_node.api.get(f"{SHAREPODS}/{name}")

    def runs(name: str) -> bool:
        return bool(shown(name).get("status", {}).get("PodStatus", {}).get("phase") == "Running")

    for name in ("mine", "chosen"):
        wait_for(f"{name} runs", partial(runs, name))
        running, of = get_pod(gpu_node.api, name), shown(name)
        (card,) = gpu_node.cards(running)
        assert of["status"]["BoundDeviceID"] == card
        assert of["status"]["PodObjectMeta"]["uid"] == running["metadata"]["uid"]
        assert of["spec"]["nodeName"] == node
        assert of["metadata"]["annotations"][GPUID] == running["metadata"]["annotations"][GPUID]
        (owner,) = running["metadata"]["ownerReferences"]
        assert owner == {
            "apiVersion": "kubeshare.nthu/v1",
            "kind": "SharePod",
            "name": name,
            "uid": of["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        requests = running["spec"]["containers"][0]["resources"]["requests"]
        assert requests["kubeshare/millicores"] == "500"
    assert annotations_of(gpu_node, "chosen")[GPUID] == "abcde"
    booked = [each["booked"].get("millicores", 0) for each in gpu_node.books().values()]
    assert sum(booked) == 1000
    delete_now(gpu_node.api, "mine")
    wait_for(
        "its SharePod says so",
        lambda: "was deleted, and is not made again" in shown("mine")["status"].get("message", ""),
    )
    assert not [each for each in gpu_node.api.items(PODS) if each["metadata"]["name"] == "mine"]
    for name in ("mine", "chosen"):
        gpu_node.api.delete(f"{SHAREPODS}/{name}")
    delete_now(gpu_node.api, "chosen")  # as kube-controller-manager does, which does not run here
    wait_for("the share is free", lambda: not any(each["booked"] for each in gpu_node.books().values()))
    assert gpu_node.extender.books()["differences"] == []
