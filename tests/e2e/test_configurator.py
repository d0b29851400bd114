"""The configurator with kubeadm's manifest, a real kubelet that runs it, and our extender."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import Cluster
from tests.e2e.control_plane_node import REPOSITORY, STATIC_PODS, ControlPlaneNode
from tests.e2e.extender import Extender
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object, write_kubeconfig
from tests.e2e.kubectl import Kubectl
from tests.e2e.pods import PODS, cards_by_pod, container, pod
from tests.e2e.project_image import built_image
from tests.e2e.waiting import wait_for

SERVICE = "gas-service.default.svc.cluster.local"


@pytest.fixture(scope="module")
def machine(gpu_node: GpuNode, binaries: Path) -> ControlPlaneNode:
    """Provide a control-plane node whose kube-scheduler is the only one, and has bound a pod."""
    cluster = gpu_node.cluster
    cluster.scheduler.stop()
    machine = ControlPlaneNode(cluster, gpu_node.node, binaries)
    machine.start()
    # Instead of CoreDNS, which would answer with the Service's address: kubelet writes it into the pod's /etc/hosts.
    machine.add_host(SERVICE)
    cluster.add_node("n1", labels={"gpu.intel.com/gpu-numbers": "0.1"}, resources={"gpu.intel.com/i915": "2"})
    cluster.api.create(PODS, pod("before"))
    wait_for("a pod is bound by kubeadm's kube-scheduler", lambda: "before" in cards_by_pod(cluster.api), seconds=60)
    return machine


def test_kubeadm_writes_what_the_fast_tests_work_on(machine: ControlPlaneNode) -> None:
    written = machine.manifest.read_text().replace(machine.address, "127.0.0.1")
    found = re.search(r"kube-scheduler:v(1\.\d+)\.\d+", written)
    assert found is not None
    committed = REPOSITORY / "tests/configurator/kubeadm" / found[1] / "kube-scheduler.yaml"
    expected = re.sub(r"kube-scheduler:v[\d.]+", found[0], committed.read_text())
    # The address is a flag, and kubeadm puts such flags after its own.
    assert sorted(written.splitlines()) == sorted(expected.splitlines())


def test_scheduler_calls_the_extender_with_what_the_configurator_made_and_undo_brings_all_back(
    running_cluster: Cluster, machine: ControlPlaneNode
) -> None:
    cluster = running_cluster
    before = machine.files()

    # Look before: nothing is changed.
    assert "+  dnsPolicy: ClusterFirstWithHostNet" in machine.configurator("-dry-run", url(cluster))
    assert machine.files() == before

    # All defaults but the port, on which this machine has to be free.
    said = machine.configurator(url(cluster), "--apply-secret")
    assert "the Secret default/extender-secret is in the cluster" in said
    machine.wait_for_scheduler("the configurator's", with_configuration=True)
    extender = start_extender(cluster, machine)
    cluster.api.create(PODS, pod("first", container(i915=1)))
    cluster.api.create(PODS, pod("second", container(i915=1)))
    wait_for("both are bound", lambda: {"first", "second"} <= cards_by_pod(cluster.api).keys(), seconds=60)
    cards = cards_by_pod(cluster.api)
    assert {cards["first"], cards["second"]} == {"card0", "card1"}
    assert extender.metric('gas_extender_requests_total{result="bound",verb="bind"}') == 2

    assert machine.configurator(url(cluster)) == "nothing to change\n"
    machine.configurator("--undo")
    assert machine.files() == before
    machine.wait_for_scheduler("kubeadm's own again", with_configuration=False)
    cluster.api.create(PODS, pod("after"))
    wait_for("a pod is bound without the extender", lambda: "after" in cards_by_pod(cluster.api), seconds=60)


def test_job_does_the_same_from_the_image(
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


def test_manifests_are_accepted(running_cluster: Cluster, binaries: Path, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "admin.kubeconfig", running_cluster.api)
    kubectl = Kubectl(binaries / "kubectl", kubeconfig)
    deploy = REPOSITORY / "deploy"
    assert "job.batch/gas-configurator created" in kubectl.run(
        "apply", "--dry-run=server", "-k", deploy / "configurator"
    )
    for name in ("configmap-getter.yaml", "scheduler-extender-configmap.yaml", "tas+gas-extender-configmap.yaml"):
        said = kubectl.run("apply", "--dry-run=server", "-f", deploy / "extender-configuration" / name)
        assert "created" in said


def url(cluster: Cluster) -> str:
    return f"--url=https://{SERVICE}:{cluster.service.port}"


def start_extender(cluster: Cluster, machine: ControlPlaneNode) -> Extender:
    """Start the extender with the files that the Secret would be mounted as."""
    secret = cluster.api.get("/api/v1/namespaces/default/secrets/extender-secret")
    assert secret["type"] == "kubernetes.io/tls"
    mounted = machine.etc.parent / "gas-cert"
    mounted.mkdir()
    for name, text in secret["data"].items():
        (mounted / name).write_bytes(base64.b64decode(text))
    pair = (f"--cert={mounted}/tls.crt", f"--key={mounted}/tls.key")
    extender = cluster.extender("gas", *pair, f"--cacert={mounted}/ca.crt", "--allowed-names=kube-scheduler", "-v=4")
    extender.start_and_wait_until_ready()
    return extender


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
