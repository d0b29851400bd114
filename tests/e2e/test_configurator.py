"""The configurator with kubeadm's manifest, a real kubelet that runs it, and our extender."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import Cluster
from tests.e2e.control_plane_node import REPOSITORY, STATIC_PODS, ControlPlaneNode
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object
from tests.e2e.project_image import built_image
from tests.e2e.waiting import wait_for

SERVICE = "gas-service.default.svc.cluster.local"


@pytest.fixture(scope="module")
def machine(gpu_node: GpuNode, binaries: Path) -> ControlPlaneNode:
    """Provide a control-plane node."""
    cluster = gpu_node.cluster
    cluster.scheduler.stop()
    machine = ControlPlaneNode(cluster, gpu_node.node, binaries)
    machine.start()
    # Instead of CoreDNS, which would answer with the Service's address: kubelet writes it into the pod's /etc/hosts.
    machine.add_host(SERVICE)
    return machine


def test_kubeadm_writes_what_the_fast_tests_work_on(machine: ControlPlaneNode) -> None:
    written = machine.manifest.read_text().replace(machine.address, "127.0.0.1")
    found = re.search(r"kube-scheduler:v(1\.\d+)\.\d+", written)
    assert found is not None
    committed = REPOSITORY / "tests/configurator/kubeadm" / found[1] / "kube-scheduler.yaml"
    expected = re.sub(r"kube-scheduler:v[\d.]+", found[0], committed.read_text())
    # The address is a flag, and kubeadm puts such flags after its own.
    assert sorted(written.splitlines()) == sorted(expected.splitlines())


def test_job_configures_kube_scheduler_from_the_image_and_undo_brings_all_back(
    running_cluster: Cluster, gpu_node: GpuNode, machine: ControlPlaneNode, binaries: Path
) -> None:
    cluster = running_cluster
    gpu_node.node.containerd.import_image(built_image(binaries).archive)
    cluster.api.merge(
        f"/api/v1/nodes/{gpu_node.node.name}", {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}
    )
    cluster.control_plane.add_namespace("kube-system")
    (machine.etc / "certs").mkdir()  # as a Job leaves it behind: what is mounted cannot be removed
    before = machine.files()

    said = run_job(gpu_node, "configure", "--apply-secret", url(cluster))
    assert "the Secret default/extender-secret is in the cluster" in said
    machine.wait_for_scheduler("the Job's", with_configuration=True)
    # The same as from the node itself, where nothing is left to do.
    assert machine.configurator(url(cluster)) == "nothing to change\n"

    run_job(gpu_node, "take-back", "--undo")
    assert machine.files() == before
    machine.wait_for_scheduler("kubeadm's own after the Job", with_configuration=False)


def url(cluster: Cluster) -> str:
    return f"--url=https://{SERVICE}:{cluster.service.port}"


def run_job(gpu_node: GpuNode, name: str, *arguments: str) -> str:
    """Create the pod of deploy/'s Job, and return its output when it has succeeded."""
    job = yaml.safe_load((REPOSITORY / "deploy/configurator/job.yaml").read_text())
    written: Object = {"metadata": {"name": name}, "spec": job["spec"]["template"]["spec"]}
    written["spec"]["containers"][0]["args"] = list(arguments)
    api = gpu_node.cluster.api
    api.create(STATIC_PODS, written)

    def ended() -> Object | None:
        found = api.get(f"{STATIC_PODS}/{name}")
        return found if found["status"].get("phase") in ("Succeeded", "Failed") else None

    found = wait_for(f"the end of the pod {name}", ended, seconds=90, every=0.2)
    said = gpu_node.node.log(found, "configurator")
    assert found["status"]["phase"] == "Succeeded", said
    return said
