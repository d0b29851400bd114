"""SharePods on a real node, with kube-scheduler, extender, kubelet and plugin as they are."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import COMPONENTS
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object, refusal
from tests.e2e.kubeshare_node import annotations_of, start
from tests.e2e.pods import delete_now, get_pod
from tests.e2e.waiting import wait_for
from tests.kubeshare_words import GIB, GPUID, share

pytestmark = pytest.mark.usefixtures("no_pods_after")

PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}
SHAREPODS = "/apis/kubeshare.nthu/v1/namespaces/default/sharepods"


def define_sharepods(gpu_node: GpuNode) -> None:
    for each in yaml.safe_load_all((COMPONENTS / "sharepods/definition.yaml").read_text(encoding="utf-8")):
        gpu_node.api.ensure(PATHS[each["kind"]], each)
    wait_for("SharePods are served", lambda: gpu_node.api.find(SHAREPODS))
    wait_for("invalid SharePods are refused", lambda: refused(gpu_node, share("0.6", "0.5")))


def sharepod(name: str, annotations: dict[str, str], **spec: Any) -> Object:
    return {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "SharePod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}], **spec},
    }


def refused(gpu_node: GpuNode, annotations: dict[str, str], **spec: Any) -> str:
    """Return the sentence with which a SharePod is refused, empty if it is not."""
    path = f"{SHAREPODS}?dryRun=All"
    return refusal(lambda: gpu_node.api.create(path, sharepod("invalid", annotations, **spec)))


# contract S1.1, S1.2
def test_an_invalid_sharepod_is_refused_when_it_is_created(gpu_node: GpuNode) -> None:
    define_sharepods(gpu_node)
    for stated, sentence in (
        (share("0.6", "0.5"), "kubeshare/gpu_request: expected at most kubeshare/gpu_limit, 0.5, found 0.6"),
        (share("0.5", "1.1"), "kubeshare/gpu_limit: expected at most 1.0, a whole card, found 1.1"),
        (share("half"), "kubeshare/gpu_limit: expected numbers from 0 to 1 such as 0.5, found half and 1.0"),
        (share(memory="1Gi"), "kubeshare/gpu_mem: expected a whole number of bytes such as 1073741824, found 1Gi"),
        (share(memory=None), "expected all three or none"),
        (share(affinity="a\nb"), "expected at most 253 printable characters"),
        (share(exclusion="(whole cards)"), "the first one not '('"),
        ({"kubeshare/GPUID": "abcde"}, "expected all three or none"),
    ):
        assert sentence in refused(gpu_node, stated)
    assert "spec.containers" in refused(gpu_node, share(), containers=[])
    for stated in (share(".5", "1.", gpuid="my card", exclusion="team ä"), {"note": "no card"}):
        assert refused(gpu_node, stated) == ""


def _uid(shown: Object) -> str:
    return str(shown["status"]["PodObjectMeta"]["uid"])


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
    lost, gpuid = get_pod(gpu_node.api, "mine"), shown("mine")["metadata"]["annotations"][GPUID]
    delete_now(gpu_node.api, "mine")
    wait_for("it is made again and runs", lambda: _uid(shown("mine")) != lost["metadata"]["uid"] and runs("mine"))
    assert annotations_of(gpu_node, "mine")[GPUID] == gpuid
    messages = [each["message"] for each in gpu_node.api.items("/api/v1/namespaces/default/events")]
    assert "made pod default/mine again" in messages
    for name in ("mine", "chosen"):
        gpu_node.api.delete(f"{SHAREPODS}/{name}")
        delete_now(gpu_node.api, name)  # as kube-controller-manager does, which does not run here
    wait_for("the share is free", lambda: not any(each["booked"] for each in gpu_node.books().values()))
    assert gpu_node.extender.books()["differences"] == []
