"""The API server as a static pod that kubelet runs proves itself to the extender after the configurator has run."""

from __future__ import annotations

import http.client
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.admission_cluster import AdmissionCluster
from tests.e2e.api_server_pod import ApiServerPod
from tests.e2e.cell import missing_for_cells
from tests.e2e.control_plane_node import ControlPlaneNode
from tests.e2e.deployed import DEPLOY
from tests.e2e.kube_api import Object, RefusedError
from tests.e2e.node_cell import NodeCell
from tests.e2e.pods import PODS, container, pod
from tests.e2e.waiting import wait_for

FLAG = "--admission-control-config-file=/etc/kubernetes/pki/gas/admission.yaml"


@pytest.fixture
def machine(binaries: Path) -> Iterator[tuple[AdmissionCluster, ControlPlaneNode, ApiServerPod]]:
    """Provide a node that runs its kube-scheduler and its kube-apiserver as kubeadm's manifests say."""
    if (reason := missing_for_cells()) is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        directories = [
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"gas-{name}-"))) for name in ("api", "node")
        ]
        cluster = AdmissionCluster(directories[0], binaries)
        stack.callback(cluster.stop)
        cluster.start()
        node = NodeCell(directories[1], binaries, cluster.api)
        stack.callback(node.stop)
        node.start()
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
    wait_for("a refusal", lambda: "failed calling webhook" in refusal(cluster, "without"), seconds=60)
    started = server.container_id()

    said = node.configurator("--api-server", "--apply-secret")
    assert "new: a client certificate for kube-apiserver" in said
    server.wait(flag=FLAG)
    assert server.container_id() != started
    wait_for("a checked pod", lambda: not refusal(cluster, "with"), seconds=60)
    assert "denied the request" in refusal(cluster, "both", container("other", xe=1))
    assert cluster.reviews("validate") >= 2
    # kube-scheduler's certificate comes from the same authority.
    for certificate in (None, node.etc / "certs/client.crt"):
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            post(cluster.admission_port, certificate)
    assert post(cluster.admission_port, node.etc / "kubernetes/pki/gas/api-server.crt") == 400

    started = server.container_id()
    assert node.configurator("--api-server", "--apply-secret").startswith("nothing to change")
    assert server.container_id() == started

    node.configurator("--undo")
    server.wait(flag=None)
    assert node.files() == before
    wait_for("a refusal", lambda: "failed calling webhook" in refusal(cluster, "undone"), seconds=60)


def refusal(cluster: AdmissionCluster, name: str, *more: Object) -> str:
    """Return the sentence with which a new GPU pod is refused; empty if it is accepted."""
    try:
        cluster.api.create(f"{PODS}?dryRun=All", pod(name, container(i915=1), *more))
    except RefusedError as refused:
        return refused.message
    return ""


def post(port: int, certificate: Path | None) -> int:
    """Send an empty review, and return the status. Raises OSError or HTTPException if the caller is turned away.

    certificate  beside its key; None for a caller that has none
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        connection.request("POST", "/validate", "{}", {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()
