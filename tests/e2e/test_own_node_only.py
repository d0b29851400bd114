"""The plugin's token can change only the plugin's own node and pods, and of those only what concerns GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.deployed import DEPLOY, DeployedCluster
from tests.e2e.kube_api import KubeApi, Object, RefusedError, refusal
from tests.e2e.pods import PODS, pod
from tests.e2e.programs import running
from tests.e2e.waiting import wait_for

POLICY = "gas-plugin-own-node-only"
NODE = "own-node"
CONDITION = {"type": "Ready", "status": "True", "reason": "MadeUp"}


@pytest.fixture(scope="module")
def deployed(binaries: Path) -> Iterator[DeployedCluster]:
    with running(DeployedCluster, binaries) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def stolen(deployed: DeployedCluster) -> KubeApi:
    """Provide the API as the plugin of one node."""
    described = {"labels": {"kubernetes.io/arch": "amd64"}, "annotations": {"cordon.gas/card0": "true"}}
    deployed.api.create("/api/v1/nodes", {"metadata": {"name": NODE, **described}})
    deployed.api.create("/api/v1/nodes", {"metadata": {"name": "other-node"}})
    status = {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}, "conditions": [CONDITION]}
    deployed.api.merge(f"/api/v1/nodes/{NODE}/status", {"status": status})
    deployed.kubectl.run("apply", "-k", DEPLOY / "overlays/plugin")
    plugin = deployed.pod_of("daemonsets", "gas-plugin")
    placed = pod("placed")
    for written in (plugin, placed):
        written["spec"]["nodeName"] = NODE
    deployed.api.create(PODS, placed)
    token = _token(deployed.api, deployed.api.create(PODS, plugin))
    wait_for(
        "the policy at work", lambda: POLICY in refusal(lambda: token.merge("/api/v1/nodes/other-node/status", LABEL))
    )
    return token


def _token(api: KubeApi, bound_to: Object | None) -> KubeApi:
    """Return the API with a token of the plugin's account, bound to a pod as kubelet's tokens are, or to nothing."""
    specification: Object = {}
    if bound_to is not None:
        name, uid = bound_to["metadata"]["name"], bound_to["metadata"]["uid"]
        specification["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    path = "/api/v1/namespaces/default/serviceaccounts/gas-plugin/token"
    return api.as_user(api.create(path, {"spec": specification})["status"]["token"])


def metadata(**changes: object) -> Object:
    return {"metadata": changes}


LABEL = metadata(labels={"gpu.intel.com/cards": "card0"})
OTHER_ADDRESS = {"type": "InternalIP", "address": "203.0.113.9"}
HANDLER = {"name": "made-up", "features": {"userNamespaces": True}}
FEATURES = {"supplementalGroupsPolicy": True}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}


def test_the_plugin_may_change_no_other_node_and_its_pods(deployed: DeployedCluster, stolen: KubeApi) -> None:
    elsewhere, nowhere = pod("elsewhere"), pod("nowhere")
    elsewhere["spec"]["nodeName"] = "other-node"
    nowhere["spec"]["nodeSelector"] = {"there-is": "none"}
    for written in (elsewhere, nowhere):
        deployed.api.create(PODS, written)
        with pytest.raises(RefusedError, match="may change only that node and its pods"):
            stolen.merge(
                f"{PODS}/{written['metadata']['name']}", metadata(annotations={"gas-allocated-cards": "card1"})
            )
    with pytest.raises(RefusedError, match="the plugin on node own-node may change only that node and its pods"):
        stolen.merge("/api/v1/nodes/other-node/status", LABEL)
    stolen.merge(f"/api/v1/nodes/{NODE}/status", metadata(labels={"gpu.intel.com/tried": "1"}))
    with pytest.raises(RefusedError, match="does not name the node that the plugin runs on"):
        _token(deployed.api, None).merge(f"/api/v1/nodes/{NODE}/status", LABEL)
    # Others are not concerned.
    deployed.api.merge(f"/api/v1/nodes/{NODE}/status", metadata(labels={"anything": "goes"}))


OF_THE_NODE: tuple[tuple[Object, str], ...] = (
    (metadata(labels={"kubernetes.io/arch": None}), "of labels, the plugin may"),
    (metadata(labels={"kubernetes.io/arch": "arm64"}), "of labels, the plugin may"),
    (metadata(annotations={"cordon.gas/card0": None}), "of annotations, the plugin may"),
    (metadata(finalizers=["example.com/stays"]), "must not change a spec, finalizers or owner references"),
    ({"status": {"capacity": {"cpu": "1000"}}}, "of resources, the plugin may"),
    ({"status": {"allocatable": {"cpu": None}}}, "of resources, the plugin may"),
    ({"status": {"conditions": None}}, "of a status, the plugin may"),
    ({"status": {"addresses": [OTHER_ADDRESS]}}, "of a status, the plugin may"),
    ({"status": {"phase": "Terminated"}}, "of a status, the plugin may"),
    ({"status": {"runtimeHandlers": [HANDLER]}}, "of a status, the plugin may"),
    ({"status": {"features": FEATURES}}, "of a status, the plugin may"),
)
OF_A_POD: tuple[tuple[Object, str], ...] = (
    (metadata(labels={"app": "stolen"}), "of labels, the plugin may"),
    (metadata(annotations={"gas-container-cards": "card1"}), "of annotations, the plugin may"),
    (metadata(ownerReferences=[OWNER]), "owner references"),
    ({"spec": {"activeDeadlineSeconds": 1}}, "must not change a spec"),
)
"""Patches, and why each is refused."""


def test_of_its_node_and_its_pods_the_plugin_may_change_only_what_is_about_gpus(stolen: KubeApi) -> None:
    for path, patches in ((f"/api/v1/nodes/{NODE}/status", OF_THE_NODE), (f"{PODS}/placed", OF_A_POD)):
        for patch, sentence in patches:
            with pytest.raises(RefusedError, match=sentence) as error:
                stolen.merge(path, patch)
            assert POLICY in error.value.message, patch
    stolen.merge(f"{PODS}/placed", metadata(annotations={"gas-allocated-cards": "card0"}))


def test_the_plugin_may_write_its_annotations_and_what_vocabularies_need_and_nothing_else(
    deployed: DeployedCluster, stolen: KubeApi
) -> None:
    for annotation in ("gas-cards", "gas-card-capacity", "hami.io/node-nvidia-register"):
        stolen.merge(f"/api/v1/nodes/{NODE}/status", metadata(annotations={annotation: "[]"}))
        assert deployed.api.get(f"/api/v1/nodes/{NODE}")["metadata"]["annotations"][annotation] == "[]"
        stolen.merge(f"/api/v1/nodes/{NODE}/status", metadata(annotations={annotation: None}))
    sums = ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio")
    count = {"aliyun.com/gpu-count": "2"} | dict.fromkeys((f"koordinator.sh/{name}" for name in sums), "200")
    count |= {"kubeshare/millicores": "2k", "kubeshare/memory.max": "8Gi"}
    stolen.merge(f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": count, "allocatable": count}})
    assert deployed.api.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"]["aliyun.com/gpu-count"] == "2"
    gone = dict.fromkeys(count)
    stolen.merge(f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": gone, "allocatable": gone}})
    with pytest.raises(
        RefusedError,
        match=r"of resources, the plugin may change only .* and aliyun.com/gpu-count and koordinator.sh/gpu",
    ):
        stolen.merge(f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": {"aliyun.com/gpu-mem": "2"}}})
    with pytest.raises(RefusedError, match="of resources, the plugin may change only"):
        stolen.merge(f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": {"koordinator.sh/gpu.shared": "2"}}})
    stolen.merge(f"{PODS}/placed", metadata(annotations={"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}))
    with pytest.raises(RefusedError, match="of annotations, the plugin may change only"):
        stolen.merge(f"/api/v1/nodes/{NODE}/status", metadata(annotations={"hami.io/device-cordon": "GPU-a"}))
    with pytest.raises(RefusedError, match="of annotations, the plugin may change only"):
        stolen.merge(f"{PODS}/placed", metadata(annotations={"ALIYUN_COM_GPU_MEM_IDX": "1"}))
