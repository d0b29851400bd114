"""A control plane whose API server calls admission webhooks by their Services, and an extender that serves them.

There is no kube-proxy: the addresses of Services are those of loopback, and a forwarder for each Service listens there.
There is no kubelet that mounts the Secret either, so `Mounted` writes its files as kubelet does.
"""

from __future__ import annotations

import base64
import json
import random
import secrets
import subprocess
import sys
from pathlib import Path

from sandbox.certificates import Authority, PemFiles
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import Extender
from tests.e2e.helm import Helm
from tests.e2e.kube_api import KubeApi, Object, refusal, write_kubeconfig
from tests.e2e.kubectl import Kubectl
from tests.e2e.plain_port import PlainPort
from tests.e2e.ports import free_port
from tests.e2e.service import Forwarder
from tests.e2e.waiting import wait_for

REPOSITORY = Path(__file__).parents[2]
EXTENDER_ACCOUNT = "gpu-aware-scheduling-service-account"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SERVICES = "/api/v1/namespaces/default/services"
ENDPOINT_SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
KINDS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")


class LoopbackServices(ControlPlane):
    """A control plane whose Services get addresses of loopback, those in `service_range`."""

    def __init__(self, directory: Path, binaries: Path, authority: Authority) -> None:
        self.service_range = f"127.{random.randrange(10, 250)}.{random.randrange(0, 250)}.0/24"
        super().__init__(directory, binaries, authority)

    def restart(self) -> None:
        """Kill both servers and start them again, with the objects that they had."""
        self.stop()
        self.start()

    def _api_server_command(self, binaries: Path, authority: Authority) -> list[str]:
        return [
            f"--service-cluster-ip-range={self.service_range}" if "service-cluster-ip-range" in word else word
            for word in super()._api_server_command(binaries, authority)
        ]


class Mounted:
    """The files of the Secret ``extender-secret`` as kubelet mounts them: replaced as one, some time after a change."""

    def __init__(self, api: KubeApi, directory: Path) -> None:
        self.pair = PemFiles(directory / "tls.crt", directory / "tls.key")
        self.authority = directory / "ca.crt"
        self._api = api
        self._directory = directory

    def update(self) -> bool:
        """Write the files if the Secret is complete and has changed. Return whether it did."""
        data = secret_data(self._api, "extender-secret")
        wanted = {name: base64.b64decode(text) for name, text in data.items()}
        names = ("tls.crt", "tls.key", "ca.crt")
        if not wanted.keys() >= set(names):
            return False
        current = self._directory / "..data"
        if current.exists() and all((current / name).read_bytes() == wanted[name] for name in names):
            return False
        fresh = self._directory / f"..{secrets.token_hex(4)}"
        fresh.mkdir(parents=True)
        for name in names:
            (fresh / name).write_bytes(wanted[name])
        link = self._directory / "..data_tmp"
        link.symlink_to(fresh.name)
        link.rename(current)
        for name in names:
            if not (self._directory / name).is_symlink():
                (self._directory / name).symlink_to(f"..data/{name}")
        return True


def secret_data(api: KubeApi, name: str) -> dict[str, str]:
    """Return the encoded content of a Secret, empty if there is none of this name."""
    return (api.find(f"{SECRETS}/{name}") or {}).get("data") or {}


class AdmissionCluster:
    """The control plane, and what an administrator uses. Call `start` once, `stop` at the end."""

    def __init__(self, directory: Path, binaries: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.control_plane = LoopbackServices(directory, binaries, self.authority)
        self.api: KubeApi = self.control_plane.admin
        self.kubeconfig = write_kubeconfig(directory / "admin.kubeconfig", self.api)
        self.kubectl = Kubectl(binaries / "kubectl", self.kubeconfig)
        self.helm = Helm(binaries / "helm", self.kubeconfig, directory)
        self.admission_port = free_port()
        self.mounted = Mounted(self.api, directory / "mounted")
        self.forwarders: dict[str, Forwarder] = {}
        self.extender: Extender | None = None

    def start(self) -> None:
        self.control_plane.start()
        self.control_plane.add_namespace("kube-system")
        resources = {"gpu.intel.com/i915": "1000", "gpu.intel.com/millicores": "2000"}
        amounts = {"cpu": "1000", "memory": "4000Gi", "pods": "10000", **resources}
        ready = [{"type": "Ready", "status": "True", "reason": "MadeUp"}]
        labels = {"gpu.intel.com/gpu-numbers": "0.1", "node-role.kubernetes.io/control-plane": ""}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
        self.api.create("/api/v1/nodes", {"metadata": {"name": "n1", "labels": labels}, "status": status})

    def stop(self) -> None:
        self.leave()
        self.control_plane.stop()

    def user(self, account: str) -> KubeApi:
        """Return the API as a service account of the namespace `default`."""
        return self.api.as_user(self.api.create(f"{ACCOUNTS}/{account}/token", {"spec": {}})["status"]["token"])

    def start_extender(self, *flags: str) -> Extender:
        """Start the extender with the mounted certificates, and wait until it decides."""
        if self.extender is None:
            kubeconfig = write_kubeconfig(self.directory / "extender.kubeconfig", self.user(EXTENDER_ACCOUNT))
            self.extender = Extender(
                "gas-extender",
                self.directory,
                kubeconfig=kubeconfig,
                serving=self.mounted.pair,
                authority=self.authority,
                flags=(f"--cacert={self.mounted.authority}", f"--admission-port={self.admission_port}", *flags),
            )
        self.extender.start_and_wait_until_ready()
        return self.extender

    def lead_services(self, target: int | None) -> None:
        """Let both Services lead to a port of this machine; None for one that never responds."""
        for name in ("gas-admission", "gas-binding"):
            spec = self.api.get(f"{SERVICES}/{name}")["spec"]
            if name in self.forwarders:
                self.forwarders[name].close()
            targets = () if target is None else (target,)
            self.forwarders[name] = Forwarder(spec["clusterIP"], spec["ports"][0]["port"], *targets)

    def leave(self) -> None:
        """Stop the extender and everything that leads to it."""
        for forwarder in self.forwarders.values():
            forwarder.close()
        self.forwarders.clear()
        if self.extender is not None:
            self.extender.program.kill()
            self.extender = None

    def webhooks(self) -> list[Object]:
        """Return all registered webhooks."""
        return [each for kind in KINDS for found in self.api.items(f"{WEBHOOKS}/{kind}") for each in found["webhooks"]]

    def set_policy(self, name: str, policy: str) -> None:
        """Set the failure policy of a validating webhook."""
        self.patch_webhook({"name": name, "failurePolicy": policy})

    def patch_webhook(self, changes: Object) -> None:
        """Merge changes into the validating webhook of this name."""
        patch = json.dumps({"webhooks": [changes]})
        self.kubectl.run("patch", KINDS[0], "gas-admission", "--type=strategic", f"--patch={patch}")

    def wait_until_webhooks_are_read(self) -> None:
        """Wait until the API server calls the validating webhooks as they are registered now.

        It reads changes of registrations in their order, some time later. So it has read the earlier ones once it
        calls a webhook that is registered last, at which nothing listens.
        """
        port = free_port()
        name = f"last-{port}.example.com"
        last = {
            "name": name,
            "clientConfig": {"url": f"https://127.0.0.1:{port}/"},
            "rules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
            ],
            "matchConditions": [{"name": "probe", "expression": "request.name == 'probe'"}],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"],
        }
        collection = f"{WEBHOOKS}/{KINDS[0]}"
        self.api.create(collection, {"metadata": {"name": "last"}, "webhooks": [last]})
        try:
            wait_for("the API server reads the webhooks", lambda: self._calls(name), seconds=60)
        finally:
            self.api.delete(f"{collection}/last")

    def _calls(self, webhook: str) -> bool:
        return webhook in refusal(lambda: self.api.create(f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": "probe"}}))

    def reviews(self, webhook: str) -> float:
        """Return how many reviews the extender has had on a path."""
        assert self.extender is not None
        samples = PlainPort(self.extender.endpoint.readiness_port).samples().items()
        counted = "gas_extender_reviews_total{"
        return sum(value for name, value in samples if name.startswith(counted) and f'"{webhook}"' in name)

    def add_endpoints(self) -> None:
        """Create an endpoint of both Services, as kube-controller-manager does. Connections use their addresses."""
        for name in ("gas-admission", "gas-binding"):
            self.api.create(
                ENDPOINT_SLICES,
                {
                    "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
                    "addressType": "IPv4",
                    "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": True}}],
                    "ports": [{"port": 9443}],
                },
            )

    def doctor(self, check: str) -> list[Object]:
        """Return the findings of one check of ``gas doctor``."""
        command = [sys.executable, "-m", "gas", "doctor", f"--kubeconfig={self.kubeconfig}", "-o=json", "--no-dry-pod"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
        found: list[Object] = json.loads(done.stdout)["findings"]
        return [each for each in found if each["check"] == check]

    def run_certificates_job(self) -> str:
        """Run the program of the chart's Job with the account and the arguments of that Job. Return its output."""
        (job,) = self.api.items("/apis/batch/v1/namespaces/default/jobs")
        (container,) = job["spec"]["template"]["spec"]["containers"]
        account = job["spec"]["template"]["spec"]["serviceAccountName"]
        kubeconfig = write_kubeconfig(self.directory / "job.kubeconfig", self.user(account))
        program, *arguments = container["command"]
        done = subprocess.run(
            [sys.executable, *arguments, *container["args"]],
            env={"PYTHONPATH": str(REPOSITORY), "KUBECONFIG": str(kubeconfig), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            cwd=self.directory,
        )
        assert done.returncode == 0, (program, done.stdout, done.stderr)
        return done.stdout
