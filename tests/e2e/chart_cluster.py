"""A cluster in which the chart is installed, with its pods on a real node."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Sequence
from copy import deepcopy
from functools import cached_property
from pathlib import Path

from sandbox.certificates import Authority
from tests.e2e.cert_manager import add_cert_manager_kinds
from tests.e2e.deployed import AuditedControlPlane, DeployedCluster, is_ready
from tests.e2e.helm import CHART, Helm
from tests.e2e.kube_api import KubeApi, Object, write_kubeconfig
from tests.e2e.kubectl import Kubectl
from tests.e2e.node_cell import NodeCell
from tests.e2e.programs import ProgramError
from tests.e2e.release import selected_release
from tests.e2e.waiting import wait_for

NAMESPACE = "gas-system"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"

_NOT_THE_CHARTS = ("Event", "Lease")
"""Kinds of objects that the control plane creates at any time."""
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class PolicyControlPlane(AuditedControlPlane):
    """A control plane with mutating admission policies."""

    def _api_server_command(self, binaries: Path, authority: Authority) -> list[str]:
        return [*super()._api_server_command(binaries, authority), *selected_release().mutating_policy_flags]


class ChartCluster(DeployedCluster):
    """A cluster without a kube-scheduler of its own. The release is installed in the namespace `NAMESPACE`."""

    def __init__(self, directory: Path, binaries: Path) -> None:
        super().__init__(directory, binaries)
        self.control_plane = PolicyControlPlane(directory, binaries, self.authority)
        self.api: KubeApi = self.control_plane.admin
        kubeconfig = write_kubeconfig(directory / "admin.kubeconfig", self.api)
        self.kubectl = Kubectl(binaries / "kubectl", kubeconfig)
        self.helm = Helm(binaries / "helm", kubeconfig, directory)

    def start(self) -> None:
        self.control_plane.start()
        authority = self.authority.certificate.read_text()
        self.control_plane.add_namespace(NAMESPACE)
        for namespace in ("default", NAMESPACE):
            self.api.create(
                f"/api/v1/namespaces/{namespace}/configmaps",
                {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": authority}},
            )
        self.add_further_kinds()
        add_cert_manager_kinds(self.api, self.binaries)

    def install(self, verb: str, *arguments: str, values: str | None = None) -> str:
        """Run ``helm install`` or ``helm upgrade`` for the release, and return its output."""
        return self.helm.run(verb, "gas", str(CHART), f"--namespace={NAMESPACE}", *arguments, values=values)

    def everything(self) -> set[str]:
        """Return ``Kind/namespace/name`` of every object, except of kinds that the control plane creates."""
        found = set()
        context = ssl.create_default_context(cafile=self.api.authority)
        connection = http.client.HTTPSConnection("127.0.0.1", self.api.port, timeout=30, context=context)
        headers = {"Authorization": f"Bearer {self.api.token}", "Accept": _METADATA}
        with contextlib.closing(connection):
            for path, kind in self._kinds.items():
                connection.request("GET", path, headers=headers)
                for each in json.loads(connection.getresponse().read())["items"] or ():
                    metadata = each["metadata"]
                    found.add(f"{kind}/{metadata.get('namespace', '')}/{metadata['name']}")
        return found

    @cached_property
    def _kinds(self) -> dict[str, str]:
        """Path -> kind of everything that can be listed and deleted, each in one version."""
        groups = [["v1"]]
        for group in self.api.get("/apis")["groups"]:
            groups.append([version["groupVersion"] for version in group["versions"]])
        found = {}
        for versions in groups:
            known: set[str] = set()
            for version in versions:
                path = f"/apis/{version}" if "/" in version else f"/api/{version}"
                for resource in self.api.get(path)["resources"]:
                    kind = resource["kind"]
                    if {"list", "delete"} <= set(resource["verbs"]) and kind not in {*known, *_NOT_THE_CHARTS}:
                        known.add(kind)
                        found[f"{path}/{resource['name']}"] = kind
        return found

    def secret(self, name: str) -> dict[str, bytes]:
        """Return the data of a Secret in the release's namespace."""
        data = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}").get("data") or {}
        return {key: base64.b64decode(text) for key, text in data.items()}

    def workload(self, kind: str, name: str) -> Object:
        """Return a workload of the release; ``kind`` as in paths: deployments, daemonsets."""
        return self.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind}/{name}")

    def jobs(self) -> list[Object]:
        return self.api.items(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs")

    def runnable(self, template: Object, name: str, *, hosts: Sequence[str] = ()) -> Object:
        """Return the pod of a template with the changes that it needs to run here; see `tests.e2e.deployed`.

        hosts  names that resolve to this machine, as the cluster's DNS resolves the name of a Service
        """
        pod = {"metadata": {"name": name, "labels": template["metadata"]["labels"]}, "spec": template["spec"]}
        pod = self.on_this_node(pod)
        if hosts:
            pod["spec"]["hostAliases"] = [{"ip": "127.0.0.1", "hostnames": list(hosts)}]
        return pod

    def run(self, pod: Object, node: NodeCell) -> Object:
        """Create a pod on the node without a scheduler."""
        placed = deepcopy(pod)
        placed["spec"]["nodeName"] = node.name
        return self.api.create(PODS, placed)

    def pod(self, name: str) -> Object:
        return self.api.get(f"{PODS}/{name}")

    def wait_until_ready(self, name: str, node: NodeCell, *, since: float, seconds: float = 60) -> float:
        """Wait until a pod is ready, and return the seconds since ``since``."""
        try:
            wait_for(f"pod {name} ready", lambda: is_ready(self.pod(name)), seconds=seconds, every=0.05)
        except TimeoutError as error:
            raise ProgramError(f"{error}\n{self._logs(name, node)}") from None
        return time.monotonic() - since

    def wait_until_succeeded(self, name: str, node: NodeCell) -> str:
        """Wait until a pod has succeeded, and return the output of its one container."""
        wait_for(
            f"the end of pod {name}",
            lambda: self.pod(name)["status"]["phase"] in ("Succeeded", "Failed"),
            seconds=60,
            every=0.05,
        )
        if self.pod(name)["status"]["phase"] != "Succeeded":
            raise ProgramError(f"pod {name} has failed\n{self._logs(name, node)}")
        return self._logs(name, node)

    def _logs(self, name: str, node: NodeCell) -> str:
        pod = self.pod(name)
        names = [container["name"] for container in pod["spec"]["containers"]]
        return "\n".join([*(node.log(pod, each) for each in names), str(pod["status"].get("containerStatuses", ""))])
