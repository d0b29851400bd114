"""The API server as a static pod that kubelet runs proves itself to the extender after the configurator has run."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.admission_cluster import AdmissionCluster
from tests.e2e.api_server_pod import ApiServerPod
from tests.e2e.control_plane_node import ControlPlaneNode
from tests.e2e.deployed import DEPLOY
from tests.e2e.kube_api import Object, refusal
from tests.e2e.node_cell import running_node
from tests.e2e.plain_port import PlainPort
from tests.e2e.pods import PODS, container, pod
from tests.e2e.programs import running
from tests.e2e.waiting import wait_for

FLAG = "--admission-control-config-file=/etc/kubernetes/pki/gas/admission.yaml"


@pytest.fixture
def machine(binaries: Path) -> Iterator[tuple[AdmissionCluster, ControlPlaneNode, ApiServerPod]]:
    """Provide a node that runs its kube-scheduler and its kube-apiserver as kubeadm's manifests say."""
    with running(AdmissionCluster, binaries) as cluster, running_node(binaries, cluster.api) as node:
        machine = ControlPlaneNode(cluster, node, binaries)
        machine.start()
        server = ApiServerPod(cluster, node, machine)
        server.start()
        yield cluster, machine, server


def test_kubelet_restarts_the_api_server_and_it_proves_itself(
    machine: tuple[AdmissionCluster, ControlPlaneNode, ApiServerPod],
) -> None:
    cluster, node, server = machine
    cluster.kubectl.run("apply", "-k", DEPLOY / "overlays/admission")
    assert "the API server trusts" in node.configurator("--apply-secret")
    node.wait_for_scheduler("the configurator's", with_configuration=True)
    before = node.files()
    cluster.mounted.update()
    cluster.start_extender(
        f"--admission-client-ca={cluster.mounted.authority}", "--admission-client-names=kube-apiserver"
    )
    cluster.lead_services(cluster.admission_port)
    cluster.set_policy("create.pods.gas", "Fail")
    wait_for("a refusal", lambda: "failed calling webhook" in refused(cluster, "without"), seconds=60)
    started = server.container_id()

    said = node.configurator("--api-server", "--apply-secret")
    assert "new: a client certificate for kube-apiserver" in said
    server.wait(flag=FLAG)
    assert server.container_id() != started
    wait_for("a checked pod", lambda: not refused(cluster, "with"), seconds=60)
    assert "denied the request" in refused(cluster, "both", container("other", xe=1))
    assert cluster.reviews("validate") >= 2
    # kube-scheduler's certificate comes from the same authority.
    for certificate in (None, node.etc / "certs/client.crt"):
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            post(cluster.admission_port, certificate)
    assert post(cluster.admission_port, node.etc / "kubernetes/pki/gas/api-server.crt") == 400

    started = server.container_id()
    assert node.configurator("--api-server", "--apply-secret").startswith("nothing to change")
    assert server.container_id() == started

    # kube-apiserver loads another certificate without a restart; the extender does not trust its authority.
    foreign, own = cluster.authority.client("foreign"), node.etc / "kubernetes/pki/gas"
    shown = {own / "api-server.crt": foreign.certificate, own / "api-server.key": foreign.key}
    signed = {path: path.read_bytes() for path in shown}
    for path, other in shown.items():
        path.write_bytes(other.read_bytes())
    wait_for("a refusal", lambda: "failed calling webhook" in refused_anew(cluster, "foreign"), seconds=60)
    assert "new: a client certificate for kube-apiserver" in node.configurator("--apply-secret")
    wait_for("a checked pod", lambda: not refused_anew(cluster, "renewed"), seconds=60)
    assert server.container_id() == started

    node.configurator("--undo")
    for path, content in signed.items():
        path.write_bytes(content)
    node.configurator("--undo")
    server.wait(flag=None)
    assert node.files() == before
    wait_for("a refusal", lambda: "failed calling webhook" in refused(cluster, "undone"), seconds=60)


def refused(cluster: AdmissionCluster, name: str, *more: Object) -> str:
    """Return the sentence with which a new GPU pod is refused; empty if it is accepted."""
    return refusal(lambda: cluster.api.create(f"{PODS}?dryRun=All", pod(name, container(i915=1), *more)))


def refused_anew(cluster: AdmissionCluster, name: str) -> str:
    """Return `refused` for a pod whose check needs a new connection."""
    cluster.forwarders["gas-admission"].end_connections()
    return refused(cluster, name)


def post(port: int, certificate: Path | None) -> int:
    """Send an empty review, and return the status. Raises OSError or HTTPException if the caller is turned away.

    certificate  beside its key; None for a caller that has none
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return PlainPort(port, context=context).post("/validate", {})[0]
