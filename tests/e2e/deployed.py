"""A cluster with the objects of deploy/, and its programs as pods of the project's image on a real node.

There is no kube-controller-manager, so the tests make the pods that a Deployment or DaemonSet asks for. There is no
network of pods and no kube-proxy either: they use the network of the node, on ports of their own, and find the API
server by its real address instead of the one of its Service. All else is as in the manifests.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from sandbox.certificates import Authority
from tests.e2e.control_plane import ControlPlane
from tests.e2e.kube_api import KubeApi, Object, write_kubeconfig
from tests.e2e.kubectl import Kubectl
from tests.e2e.node_cell import NodeCell
from tests.e2e.pods import PODS, delete_now, get_pod
from tests.e2e.ports import free_port
from tests.e2e.programs import Program
from tests.e2e.scheduler import KubeScheduler
from tests.e2e.waiting import wait_for

DEPLOY = Path(__file__).parents[2] / "deploy"
EXTENDER_ACCOUNT = "system:serviceaccount:default:gpu-aware-scheduling-service-account"
PLUGIN_ACCOUNT = "system:serviceaccount:default:gas-plugin"

_WORKLOADS = "/apis/apps/v1/namespaces/default"
_REFUSALS = (401, 403)
_FURTHER_KINDS = {
    "/apis/monitoring.coreos.com/v1/podmonitors": "monitoring.coreos.com_podmonitors.yaml",
    "/apis/monitoring.coreos.com/v1/prometheusrules": "monitoring.coreos.com_prometheusrules.yaml",
    "/apis/security.openshift.io/v1/securitycontextconstraints": (
        "0000_03_config-operator_01_securitycontextconstraints.crd.yaml"
    ),
}


class AuditedControlPlane(ControlPlane):
    """A control plane whose API server logs every request of a service account."""

    def _api_server_command(self, binaries: Path, authority: Authority) -> list[str]:
        policy = self.directory / "audit-policy.json"
        rules = [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}]
        policy.write_text(
            json.dumps(
                {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
            )
        )
        self.audit_log = self.directory / "audit.log"
        return [
            *super()._api_server_command(binaries, authority),
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
        ]

    def audited(self, account: str) -> list[dict[str, Any]]:
        """Return the requests of a user so far, including those in progress."""
        events = (json.loads(line) for line in self.audit_log.read_text().splitlines())
        return [event for event in events if event["user"]["username"] == account]


class DeployedCluster:
    """A separate control plane, in which the tests look at the objects of deploy/.

    Call `start` once, `stop` at the end.
    """

    def __init__(self, directory: Path, binaries: Path) -> None:
        self.binaries = binaries
        self._directory = directory
        self.authority = Authority(directory)
        self.control_plane = AuditedControlPlane(directory, binaries, self.authority)
        self.api: KubeApi = self.control_plane.admin
        self.extender_port = free_port()
        self.scheduler = KubeScheduler(
            directory, binaries, self.authority, self.control_plane.scheduler, self.extender_port
        )
        self.kubectl = Kubectl(binaries / "kubectl", write_kubeconfig(directory / "admin.kubeconfig", self.api))

    @property
    def programs(self) -> list[Program]:
        return [*self.control_plane.programs, self.scheduler.program]

    def start(self) -> None:
        self.control_plane.start()
        self.scheduler.start(ignorable=False)
        # What kube-controller-manager hands out to every namespace, and pods with a token wait for.
        authority = self.authority.certificate.read_text()
        self.api.create(
            "/api/v1/namespaces/default/configmaps",
            {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": authority}},
        )

    def stop(self) -> None:
        for program in reversed(self.programs):
            program.kill()

    def add_further_kinds(self) -> None:
        """Create the definitions of PodMonitor, PrometheusRule and OpenShift's SecurityContextConstraints."""
        for file in _FURTHER_KINDS.values():
            self.kubectl.run("apply", "--server-side", "-f", self.binaries / file)
        for path in _FURTHER_KINDS:
            wait_for(f"the kind of {path}", lambda path=path: self.api.find(path))  # type: ignore[misc]

    def pod_of(self, kind: str, name: str) -> Object:
        """Return the pod of a Deployment or DaemonSet (``deployments``, ``daemonsets``) without creating it."""
        template = self.api.get(f"{_WORKLOADS}/{kind}/{name}")["spec"]["template"]
        metadata = {"name": name, "labels": template["metadata"]["labels"]}
        return {"metadata": metadata, "spec": deepcopy(template["spec"])}

    def on_this_node(self, written: Object, *arguments: str) -> Object:
        """Return the pod with the changes that it needs to run here (see the top of this file).

        arguments  more ones of the only container
        """
        changed = deepcopy(written)
        spec = changed["spec"]
        spec["hostNetwork"] = True
        address = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.api.port)}
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            container.setdefault("env", []).extend({"name": key, "value": value} for key, value in address.items())
        if arguments:
            (container,) = spec["containers"]
            container["args"] = [*container.get("args", []), *arguments]
        return changed

    def run_until_ready(self, written: Object, *, seconds: float = 60) -> float:
        """Create a pod, wait until it is ready, and return the seconds that took."""
        started = time.monotonic()
        name = self.api.create(PODS, written)["metadata"]["name"]
        wait_for(f"pod {name} ready", lambda: is_ready(get_pod(self.api, name)), seconds=seconds, every=0.05)
        return time.monotonic() - started

    def delete(self, name: str) -> None:
        delete_now(self.api, name)


def extender_ports(pod: Object, port: int, metrics_port: int) -> Object:
    """Return the extender's pod with these ports of its node. The probes refer to ports by name."""
    return _with_ports(pod, {"extender": port, "metrics": metrics_port}, {"port": port, "metrics-port": metrics_port})


def plugin_with_cards(pod: Object, metrics_port: int, node: NodeCell, tree: Path) -> Object:
    """Return the plugin's pod on a node with this port, and with a tree of fake cards at the same path as on the node.

    Nothing is made on the machine that the tests run on.
    """
    changed = _with_ports(pod, {"metrics": metrics_port}, {"metrics-port": metrics_port})
    spec = changed["spec"]
    (container,) = spec["containers"]
    container["args"].append(f"--prefix={tree}")
    spec["nodeName"] = node.name
    spec["volumes"].append({"name": "tree", "hostPath": {"path": str(tree), "type": "Directory"}})
    container["volumeMounts"].append({"name": "tree", "mountPath": str(tree), "readOnly": True})
    for mount in container["volumeMounts"]:
        if mount["name"] == "cgroup":
            mount["mountPath"] = f"{tree}{mount['mountPath']}"  # a plugin with a prefix looks below it
    for volume in spec["volumes"]:
        if volume["name"] == "features":
            volume["hostPath"]["path"] = str(node.directory / "features.d")
    return changed


def _with_ports(pod: Object, ports: dict[str, int], flags: dict[str, int]) -> Object:
    changed = deepcopy(pod)
    (container,) = changed["spec"]["containers"]
    for port in container["ports"]:
        port["containerPort"] = port["hostPort"] = ports[port["name"]]
    container["args"] = [*container.get("args", []), *(f"--{flag}={value}" for flag, value in flags.items())]
    return changed


def is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def refused(events: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence for each audited request that was forbidden or not authenticated."""
    found = ((event, event.get("responseStatus", {})) for event in events)
    return [
        f"{event['verb']} {event['requestURI']}: {status['code']} {status.get('message', '')}"
        for event, status in found
        if status.get("code") in _REFUSALS
    ]


def uses(events: Sequence[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """Return how often each verb on each resource was requested: ``("patch", "nodes/status")``."""
    return Counter(_uses(events))


def _uses(events: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for event in events:
        if (found := event.get("objectRef")) is not None and "resource" in found:
            yield event["verb"], "/".join(filter(None, (found["resource"], found.get("subresource"))))
