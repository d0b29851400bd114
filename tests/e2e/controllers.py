"""The part of kube-controller-manager, which does not run in these tests: pods of workloads, endpoints of a Service."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.deployed import DeployedCluster, extender_ports, plugin_with_cards
from tests.e2e.kube_api import Object
from tests.e2e.node_cell import NodeCell
from tests.e2e.pods import get_pod
from tests.e2e.ports import free_port

_WORKLOADS = "/apis/apps/v1/namespaces/default"
_SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


class Controllers:
    """Create one pod each of extender and plugin, changed so that they can run here (`tests.e2e.deployed`).

    address  of this machine, the endpoint of the Service
    cards    the tree of fake cards for the plugin
    """

    def __init__(self, cluster: DeployedCluster, node: NodeCell, address: str, cards: Path) -> None:
        self._cluster = cluster
        self._node = node
        self._address = address
        self._cards = cards

    def make_pods(self) -> None:
        """Create the pods, wait until they are ready, and update the workloads' status and the Service's endpoints."""
        self._cluster.run_until_ready(self._plugin_pod())
        # The only one that needs kube-scheduler, which may have to wait until it leads.
        self._cluster.run_until_ready(self._extender_pod())
        self._set_status(
            "deployments", "gpu-aware-scheduling", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"
        )
        numbers = ("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberAvailable")
        self._set_status("daemonsets", "gas-plugin", *numbers, "numberReady")
        extender = get_pod(self._cluster.api, "gpu-aware-scheduling")
        self._cluster.api.create(
            _SLICES,
            {
                "metadata": {"name": "gas-service", "labels": {"kubernetes.io/service-name": "gas-service"}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [extender["status"]["podIP"]], "conditions": {"ready": True}}],
                "ports": [{"port": 9001}],
            },
        )

    def take_pods_away(self) -> None:
        """Delete the pods of workloads that are gone."""
        self._cluster.api.delete(f"{_SLICES}/gas-service")
        for name in ("gpu-aware-scheduling", "gas-plugin"):
            self._cluster.delete(name)

    def _extender_pod(self) -> Object:
        asked = self._cluster.pod_of("deployments", "gpu-aware-scheduling")
        runnable = self._cluster.on_this_node(asked, f"--bind-address={self._address}")
        return extender_ports(runnable, 9001, free_port())

    def _plugin_pod(self) -> Object:
        asked = self._cluster.pod_of("daemonsets", "gas-plugin")
        return plugin_with_cards(self._cluster.on_this_node(asked), free_port(), self._node, self._cards)

    def _set_status(self, kind: str, name: str, *numbers: str) -> None:
        """Report one pod of the newest generation in every field of the status."""
        path = f"{_WORKLOADS}/{kind}/{name}"
        generation = self._cluster.api.get(path)["metadata"]["generation"]
        status = {"observedGeneration": generation} | dict.fromkeys(numbers, 1)
        if kind == "daemonsets":
            status["numberMisscheduled"] = 0
        self._cluster.api.merge(f"{path}/status", {"status": status})
