"""A real API server accepts every manifest of deploy/, also as an upgrade of the original's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e import original
from tests.e2e.deployed import DEPLOY, DeployedCluster
from tests.e2e.kube_api import RefusedError, refusal
from tests.e2e.programs import running
from tests.e2e.waiting import wait_for

OVERLAYS = sorted(file.parent.name for file in DEPLOY.glob("overlays/*/kustomization.yaml"))
COMPONENTS = sorted(file.parent.name for file in DEPLOY.glob("components/*/kustomization.yaml"))


@pytest.fixture(scope="module")
def deployed(binaries: Path) -> Iterator[DeployedCluster]:
    with running(DeployedCluster, binaries) as cluster:
        cluster.add_further_kinds()
        yield cluster


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_takes_the_overlay(deployed: DeployedCluster, overlay: str) -> None:
    said = deployed.kubectl.run("apply", "--dry-run=server", "-k", DEPLOY / "overlays" / overlay)
    assert "created (server dry run)" in said
    assert "Warning" not in said


def test_the_admission_policy_limits_a_plugin_whose_name_has_a_prefix(
    deployed: DeployedCluster, tmp_path: Path
) -> None:
    api = deployed.api
    (tmp_path / "kustomization.yaml").write_text(
        f"namePrefix: my-\nresources: [{_relative(DEPLOY / 'overlays/plugin', tmp_path)}]\n"
    )
    deployed.kubectl.run("apply", "-k", tmp_path)
    api.create("/api/v1/nodes", {"metadata": {"name": "prefixed"}})
    path = "/api/v1/namespaces/default/serviceaccounts/my-gas-plugin/token"
    stolen = api.as_user(api.create(path, {"spec": {}})["status"]["token"])
    label = {"metadata": {"labels": {"gpu.intel.com/cards": "card0"}}}

    assert "does not name the node that the plugin runs on" in wait_for(
        "the policy", lambda: refusal(lambda: stolen.merge("/api/v1/nodes/prefixed/status", label))
    )
    deployed.kubectl.run("delete", "-k", tmp_path)
    api.delete("/api/v1/nodes/prefixed")


def test_the_api_server_takes_the_configurator_and_the_objects_for_kube_scheduler(deployed: DeployedCluster) -> None:
    deployed.kubectl.run("apply", "--dry-run=server", "-k", DEPLOY / "configurator")
    objects = [
        file
        for file in sorted(DEPLOY.glob("extender-configuration/*.yaml"))
        if "KubeSchedulerConfiguration" not in {each["kind"] for each in yaml.safe_load_all(file.read_text())}
    ]
    assert len(objects) == 3
    for file in objects:
        deployed.kubectl.run("apply", "--dry-run=server", "-f", file)


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_api_server_takes_each_component_in_a_kustomization_of_ones_own(
    deployed: DeployedCluster, component: str, tmp_path: Path
) -> None:
    """In another namespace and with another image, as docs/deploy.md describes."""
    deployed.kubectl.run(
        "apply", "-f", "-", text='{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu"}}'
    )
    (tmp_path / "deploy").symlink_to(DEPLOY)
    own = tmp_path / "own"
    own.mkdir()
    (own / "kustomization.yaml").write_text(
        "namespace: gpu\n"
        f"resources: [{_relative(DEPLOY / 'overlays/both', own)}]\n"
        f"components: [{_relative(DEPLOY / 'components' / component, own)}]\n"
        "images: [{name: gas, newName: registry.example/gpu/gas, newTag: v9}]\n"
    )
    rendered = deployed.kubectl.run("kustomize", own)
    for each in yaml.safe_load_all(rendered):
        assert each["metadata"].get("namespace", "gpu") == "gpu", each["metadata"]
        assert all(subject.get("namespace", "gpu") == "gpu" for subject in each.get("subjects", ()))
    assert set(re.findall(r"\bimage: (.*)", rendered)) == {"registry.example/gpu/gas:v9"}
    said = deployed.kubectl.run("apply", "--dry-run=server", "-k", own)
    assert "Warning" not in said


# contract E14.2
def test_pods_of_the_extender_may_run_where_only_restricted_pods_may(deployed: DeployedCluster) -> None:
    api = deployed.api
    deployed.kubectl.run("apply", "-k", DEPLOY / "overlays/replicas")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.create("/api/v1/namespaces", {"metadata": {"name": "restricted", "labels": labels}})
    accounts = "/api/v1/namespaces/restricted/serviceaccounts"
    pods = "/api/v1/namespaces/restricted/pods?dryRun=All"
    for account in ("gpu-aware-scheduling-service-account", "gas-plugin"):
        api.create(accounts, {"metadata": {"name": account}})
    api.create(pods, deployed.pod_of("deployments", "gpu-aware-scheduling"))
    with pytest.raises(RefusedError, match="violates PodSecurity") as error:
        api.create(pods, deployed.pod_of("daemonsets", "gas-plugin"))
    # It is root and sees directories of the node, as a device plugin has to, and nothing more than that.
    assert "hostPath" in error.value.message
    for more in ("capabilities", "privileged=", "host namespaces", "allowPrivilegeEscalation", "seccompProfile"):
        assert more not in error.value.message
    deployed.kubectl.run("delete", "-k", DEPLOY / "overlays/replicas")


def test_the_original_is_upgraded_in_place_and_comes_back(deployed: DeployedCluster) -> None:
    api = deployed.api
    paths = {
        "Deployment": "/apis/apps/v1/namespaces/default/deployments/gpu-aware-scheduling",
        "Service": "/api/v1/namespaces/default/services/gas-service",
        "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles/gas-handler",
        "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/handle-gas",
        "ServiceAccount": "/api/v1/namespaces/default/serviceaccounts/gpu-aware-scheduling-service-account",
    }
    deployed.kubectl.run("apply", "-f", "-", text=original.MANIFESTS)
    before = {kind: api.get(path) for kind, path in paths.items()}
    deployed.kubectl.run("apply", "-k", DEPLOY / "overlays/original-certificates")
    after = {kind: api.get(path) for kind, path in paths.items()}
    assert {kind: found["metadata"]["uid"] for kind, found in after.items()} == {
        kind: found["metadata"]["uid"] for kind, found in before.items()
    }
    assert after["Service"]["spec"]["clusterIP"] == before["Service"]["spec"]["clusterIP"]
    assert after["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    (container,) = after["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["gas-extender"]
    assert "runAsUser" not in container["securityContext"]
    assert "update" not in str(after["ClusterRole"]["rules"])

    deployed.kubectl.run("apply", "-f", "-", text=original.MANIFESTS)
    (container,) = api.get(paths["Deployment"])["spec"]["template"]["spec"]["containers"]
    assert container["image"] == original.IMAGE
    assert "args" not in container
    deployed.kubectl.run("delete", "-k", DEPLOY / "overlays/original-certificates")


def _relative(path: Path, start: Path) -> str:
    """Return a relative path, because kustomize accepts no absolute paths."""
    return str(Path(*[".."] * (len(start.resolve().parts) - 1), *path.resolve().parts[1:]))
