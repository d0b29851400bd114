"""kube-apiserver as kubeadm runs it: a static pod that a real kubelet starts from the manifest that kubeadm wrote."""

from __future__ import annotations

import json
import shutil

from sandbox.certificates import write_pair
from tests.e2e.admission_cluster import AdmissionCluster
from tests.e2e.control_plane_node import STATIC_PODS, ControlPlaneNode
from tests.e2e.kube_api import RefusedError
from tests.e2e.node_cell import NodeCell
from tests.e2e.waiting import wait_for

_CLUSTER = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: 192.0.2.1, bindPort: {port}}}
patches: {{directory: {patches}}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
networking: {{serviceSubnet: {services}}}
etcd:
  external: {{endpoints: ["http://127.0.0.1:{etcd}"], caFile: "", certFile: "", keyFile: ""}}
apiServer:
  certSANs: [127.0.0.1]
  extraArgs:
  - {{name: bind-address, value: 127.0.0.1}}
  - {{name: endpoint-reconciler-type, value: none}}
  - {{name: token-auth-file, value: /etc/kubernetes/pki/tokens.csv}}
  - {{name: service-account-issuer, value: https://kubernetes.default.svc}}
  - {{name: disable-admission-plugins, value: TaintNodesByCondition}}
"""
"""Settings that the process has as well: its addresses, the tokens of the tests, and what needs no controllers."""

_PROBES = [
    {"op": "replace", "path": f"/spec/containers/0/{name}Probe/httpGet/host", "value": "127.0.0.1"}
    for name in ("liveness", "readiness", "startup")
]
"""A patch for kubeadm: kubelet probes the address that kube-apiserver listens on, not the one that it advertises."""

_SECONDS = 180
"""Enough for kubelet to end one kube-apiserver and start the next on a busy machine."""


class ApiServerPod:
    """kube-apiserver as a static pod of a control-plane node, in place of the process that the cluster began with.

    It has the same address, authority, tokens and objects.
    """

    def __init__(self, cluster: AdmissionCluster, node: NodeCell, machine: ControlPlaneNode) -> None:
        self._cluster = cluster
        self._node = node
        self._machine = machine
        self.manifest = machine.etc / "kubernetes/manifests/kube-apiserver.yaml"

    def start(self) -> None:
        """End the process, let kubeadm write the manifest, and return when kubelet runs it."""
        plane, pki = self._cluster.control_plane, self._machine.etc / "kubernetes/pki"
        pki.mkdir()
        write_pair(self._cluster.authority.pair, pki / "ca.crt", pki / "ca.key")
        for ours, kubeadms in (
            ("service-accounts.pub", "sa.pub"),
            ("service-accounts.key", "sa.key"),
            ("tokens.csv", "tokens.csv"),
        ):
            shutil.copy(plane.directory / ours, pki / kubeadms)
        patches = self._node.directory / "patches"
        patches.mkdir()
        (patches / "kube-apiserver0+json.json").write_text(json.dumps(_PROBES))
        configuration = _CLUSTER.format(
            port=plane.admin.port, services=plane.service_range, etcd=plane.etcd_port, patches=patches
        )
        self._machine.kubeadm(configuration, "certs all")
        plane.stop_api_server()
        self._machine.kubeadm(configuration, "control-plane apiserver")
        self._machine.import_program(self.manifest, "kube-apiserver")
        self.wait(flag=None)

    def wait(self, *, flag: str | None) -> None:
        """Wait until kubelet runs kube-apiserver with this flag, without --admission-control-config-file if None."""
        wait_for(f"kube-apiserver as a pod with {flag}", lambda: self._runs_with(flag), seconds=_SECONDS, every=0.5)

    def container_id(self) -> str:
        """Return the id of the running container, which changes when kubelet restarts it."""
        status = self._cluster.api.get(f"{STATIC_PODS}/kube-apiserver-{self._node.name}")["status"]
        return str(status["containerStatuses"][0]["containerID"])

    def _runs_with(self, flag: str | None) -> bool:
        try:
            pod = self._cluster.api.get(f"{STATIC_PODS}/kube-apiserver-{self._node.name}")
        except (OSError, RefusedError):
            return False
        words = pod["spec"]["containers"][0]["command"]
        given = [word for word in words if word.startswith("--admission-control-config-file=")]
        statuses = pod["status"].get("containerStatuses", ())
        is_running = any("running" in each["state"] for each in statuses)
        return given == ([] if flag is None else [flag]) and is_running and self._cluster.api.is_ready()
