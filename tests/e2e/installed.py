"""Extender and plugin installed by deploy/ and running from the project's image."""

from __future__ import annotations

import base64

from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus, write_tree
from tests.e2e.deployed import DEPLOY, DeployedCluster, extender_ports, plugin_with_cards
from tests.e2e.images import BUSYBOX
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.node_cell import NodeCell
from tests.e2e.pods import PODS, container, get_pod, pod
from tests.e2e.ports import free_port
from tests.e2e.waiting import wait_for


class Installed:
    """deploy/overlays/monitoring applied, extender and plugin running from the image as pods of the real node."""

    def __init__(self, deployed: DeployedCluster, node: NodeCell) -> None:
        self.deployed = deployed
        self.api: KubeApi = deployed.api
        self.node = node
        self.metrics_port = free_port()
        self.plugin_port = free_port()
        self.tree = node.directory / "tree"
        self.features = node.directory / "features.d"

    def apply(self) -> None:
        """Apply the certificates, then everything else at once, as docs/deploy.md describes."""
        serving = self.deployed.authority.server("gas-service")
        files = {"tls.crt": serving.certificate, "tls.key": serving.key, "ca.crt": self.deployed.authority.certificate}
        data = {name: base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}
        self.api.create(
            "/api/v1/namespaces/default/secrets",
            {"metadata": {"name": "extender-secret"}, "type": "kubernetes.io/tls", "data": data},
        )
        self.deployed.kubectl.run("apply", "-k", DEPLOY / "overlays/monitoring")

    def start_extender(self) -> None:
        asked = self.deployed.pod_of("deployments", "gpu-aware-scheduling")
        runnable = extender_ports(self.deployed.on_this_node(asked), self.deployed.extender_port, self.metrics_port)
        self.extender_seconds = self.deployed.run_until_ready(runnable)

    def start_plugin(self) -> None:
        """Start the plugin with fake cards, at the same path as on the node, where kubelet finds the device nodes."""
        if not self.tree.exists():
            write_tree(self.tree, fake_gpus(FLEX_170, 2), character_devices=True)
        asked = self.deployed.pod_of("daemonsets", "gas-plugin")
        runnable = self.deployed.on_this_node(asked, "--shared-dev-num=2")
        runnable = plugin_with_cards(runnable, self.plugin_port, self.node, self.tree)
        self.plugin_seconds = self.deployed.run_until_ready(runnable)

    def run_gpu_pod(
        self, name: str, *, millicores: int = 500, node: str | None = None, user: int | None = None
    ) -> Object:
        """Create a pod and return it when it runs. With a node it goes there without scheduler and extender."""
        self.create_gpu_pod(name, millicores=millicores, node=node, user=user)
        wait_for(f"pod {name} running", lambda: get_pod(self.api, name)["status"]["phase"] == "Running", seconds=60)
        return get_pod(self.api, name)

    def create_gpu_pod(self, name: str, *, millicores: int, node: str | None = None, user: int | None = None) -> None:
        written = pod(name, container(i915=1, millicores=millicores))
        written["spec"] |= {
            **({"securityContext": {"runAsUser": user}} if user is not None else {}),
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            **({"nodeName": node} if node else {}),
        }
        written["spec"]["containers"][0] |= {
            "image": BUSYBOX.name,
            "imagePullPolicy": "Never",
            "command": ["/bin/sleep", "100000"],
        }
        self.api.create(PODS, written)
