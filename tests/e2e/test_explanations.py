"""A user with rights in one namespace asks why a pod waits: real kubectl, a real API server that aggregates the API."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.certificates import Authority
from tests.e2e.admission_cluster import ENDPOINT_SLICES, EXTENDER_ACCOUNT, SERVICES, LoopbackServices
from tests.e2e.deployed import DEPLOY
from tests.e2e.extender import Extender
from tests.e2e.kube_api import KubeApi, RefusedError, write_kubeconfig
from tests.e2e.kubectl import Kubectl, KubectlGas
from tests.e2e.pods import container, pod
from tests.e2e.ports import free_port
from tests.e2e.service import Forwarder
from tests.e2e.waiting import wait_for

RBAC = "/apis/rbac.authorization.k8s.io/v1"
API = "/apis/explain.gas/v1alpha1"


@dataclass
class Tenant:
    """A user who may get and list the pods of the namespace team, and nothing else."""

    api: KubeApi
    gas: KubectlGas
    extender: Extender
    explain_port: int


@pytest.fixture(scope="module")
def tenant(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenant]:
    directory = tmp_path_factory.mktemp("explanations")
    authority, front = Authority(directory), Authority(directory, "front-proxy-ca")
    plane = LoopbackServices(directory, binaries, authority)
    proxy, port = front.client("front-proxy-client"), free_port()
    try:
        plane.start()
        plane.restart_api_server(
            f"--requestheader-client-ca-file={front.certificate}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={proxy.certificate}",
            f"--proxy-client-key-file={proxy.key}",
        )
        for name in ("kube-system", "team"):
            plane.add_namespace(name)
        forwarder = _installed(plane, directory, binaries, port)
        extender = _extender(plane, directory, authority, port)
        extender.start_and_wait_until_ready()
        plane.admin.create("/api/v1/nodes", _node("secret-node"))
        plane.admin.create("/api/v1/namespaces/team/pods", pod("big", container(i915=1, memory_max="9G")))
        plane.admin.create("/api/v1/namespaces/default/pods", pod("secret-pod", container(i915=1, memory_max="9G")))
        user = _user_of_one_namespace(plane.admin)
        yield Tenant(user, KubectlGas(binaries / "kubectl", directory, user), extender, port)
        extender.program.kill()
        forwarder.close()
    finally:
        plane.stop()


def _installed(plane: LoopbackServices, directory: Path, binaries: Path, port: int) -> Forwarder:
    """Apply the component, and let its Service lead to the extender's port on this machine."""
    folder = directory / "installed"
    folder.mkdir()
    bases = {"resources": DEPLOY / "base/extender", "components": DEPLOY / "components/explanations"}
    lines = [f"{kind}: [{os.path.relpath(path, folder)}]" for kind, path in bases.items()]
    (folder / "kustomization.yaml").write_text("\n".join(lines), encoding="utf-8")
    kubectl = Kubectl(binaries / "kubectl", write_kubeconfig(directory / "admin.kubeconfig", plane.admin))
    kubectl.run("apply", "-k", folder)
    service = {"kubernetes.io/service-name": "gas-explanations"}
    endpoint = {"addresses": ["192.0.2.1"], "conditions": {"ready": True}}
    plane.admin.create(
        ENDPOINT_SLICES,
        {
            "metadata": {"name": "gas-explanations", "labels": service},
            "addressType": "IPv4",
            "endpoints": [endpoint],
            "ports": [{"port": 9445}],
        },
    )
    spec = plane.admin.get(f"{SERVICES}/gas-explanations")["spec"]
    return Forwarder(spec["clusterIP"], spec["ports"][0]["port"], port)


def _extender(plane: LoopbackServices, directory: Path, authority: Authority, port: int) -> Extender:
    account = f"/api/v1/namespaces/default/serviceaccounts/{EXTENDER_ACCOUNT}/token"
    api = plane.admin.as_user(plane.admin.create(account, {"spec": {}})["status"]["token"])
    return Extender(
        "gas-extender",
        directory,
        kubeconfig=write_kubeconfig(directory / "extender.kubeconfig", api),
        serving=authority.server("gas-extender"),
        authority=authority,
        flags=(f"--explain-port={port}",),
    )


def _node(name: str) -> dict[str, object]:
    amounts = {
        "cpu": "8",
        "memory": "64Gi",
        "pods": "100",
        "gpu.intel.com/i915": "2",
        "gpu.intel.com/memory.max": "16G",
    }
    ready = [{"type": "Ready", "status": "True", "reason": "MadeUp"}]
    labels = {"gpu.intel.com/gpu-numbers": "0.1"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def _user_of_one_namespace(admin: KubeApi) -> KubeApi:
    admin.create("/api/v1/namespaces/team/serviceaccounts", {"metadata": {"name": "jane"}})
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    admin.create(f"{RBAC}/namespaces/team/roles", {"metadata": {"name": "jane"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "jane"}
    subjects = [{"kind": "ServiceAccount", "namespace": "team", "name": "jane"}]
    binding = {"metadata": {"name": "jane"}, "roleRef": reference, "subjects": subjects}
    admin.create(f"{RBAC}/namespaces/team/rolebindings", binding)
    token = admin.create("/api/v1/namespaces/team/serviceaccounts/jane/token", {"spec": {}})["status"]["token"]
    return admin.as_user(token)


def test_why_works_for_a_user_with_rights_in_one_namespace(tenant: Tenant) -> None:
    wait_for("the API is aggregated", lambda: tenant.gas.run("why", "big", "-n", "team").returncode == 0)
    done = tenant.gas.run("why", "big", "-n", "team")
    reason = "no card has 9.0 GB of memory.max free"
    assert done.stdout == f"team/big: {reason}\n\non 1 of 1 nodes: {reason}\n"
    assert "only the extender's reasons are shown" in done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_a_pod_of_another_namespace_is_not_explained(tenant: Tenant) -> None:
    for name in ("secret-pod", "none"):
        done = tenant.gas.run("why", name, "-n", "default")
        assert (done.returncode, done.stdout) == (3, "")
        assert "does not let system:serviceaccount:team:jane get pods" in done.stderr


def test_forged_headers_and_no_token_get_nothing(tenant: Tenant) -> None:
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    for token, status in ((tenant.api.token, 403), ("", 403), ("wrong", 401)):
        assert _get(tenant, f"{API}/namespaces/default/pods/secret-pod", token, forged)[0] == status
    with pytest.raises((ssl.SSLError, ConnectionError)):  # past the API server
        _get(tenant, f"{API}/namespaces/default/pods/secret-pod", "", forged, port=tenant.explain_port)


def test_the_kind_is_discovered(tenant: Tenant) -> None:
    names = [each["name"] for each in tenant.api.get(API)["resources"]]
    assert names == ["pods"]
    with pytest.raises(RefusedError, match="403"):
        tenant.api.get(f"{API}/namespaces/team/pods")


def _get(
    tenant: Tenant, path: str, token: str, headers: dict[str, str], *, port: int | None = None
) -> tuple[int, object]:
    context = ssl.create_default_context(cafile=str(tenant.api.authority))
    connection = http.client.HTTPSConnection("127.0.0.1", port or tenant.api.port, timeout=30, context=context)
    try:
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", path, headers={**headers, **authorization})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
