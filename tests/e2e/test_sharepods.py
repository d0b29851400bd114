"""SharePods on a real node, with kube-scheduler, extender, kubelet and plugin as they are."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import COMPONENTS
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object
from tests.e2e.kubeshare_node import annotations_of, start
from tests.e2e.pods import PODS, delete_now, get_pod
from tests.e2e.waiting import wait_for
from tests.kubeshare_words import GIB, GPUID, share

pytestmark = pytest.mark.usefixtures("no_pods_after")

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SHAREPODS = "/apis/kubeshare.nthu/v1/namespaces/default/sharepods"


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
