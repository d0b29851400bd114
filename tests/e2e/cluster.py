"""A cluster without machines: the real control plane, nodes that are only objects, and extenders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox.certificates import Authority
from tests.e2e.accounts import FULL_RULES, ORIGINAL_RULES, add_account
from tests.e2e.control_plane import ControlPlane
from tests.e2e.controller_manager import ControllerManager
from tests.e2e.extender import Extender
from tests.e2e.kube_api import KubeApi, Object, write_kubeconfig
from tests.e2e.programs import Program
from tests.e2e.scheduler import KubeScheduler
from tests.e2e.service import Service
from tests.e2e.verbs import Verbs

_LEFT_BY_TESTS = (
    "/api/v1/nodes",
    "/api/v1/namespaces/default/events",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
)


class Cluster:
    """The cluster of a test run. Call `start` once, `clean` after each test, `stop` at the end."""

    def __init__(self, directory: Path, binaries: Path) -> None:
        self._directory = directory
        self.authority = Authority(directory)
        self.serving = self.authority.server("gas-extender")
        self.control_plane = ControlPlane(directory, binaries, self.authority)
        self.service = Service()
        self.scheduler = KubeScheduler(
            directory, binaries, self.authority, self.control_plane.scheduler, self.service.port
        )
        self.controller_manager = ControllerManager(
            directory, binaries, self.authority, self.control_plane.admin
        )  # runs only in tests that start it
        self.client = self.authority.client("e2e")
        self._extenders: list[Extender] = []
        self._connections: list[Verbs] = []

    @property
    def api(self) -> KubeApi:
        """The API as a user with all permissions."""
        return self.control_plane.admin

    @property
    def programs(self) -> list[Program]:
        return [
            *self.control_plane.programs,
            self.scheduler.program,
            self.controller_manager.program,
            *(extender.program for extender in self._extenders),
        ]

    def start(self) -> None:
        self.control_plane.start()
        self.add_accounts()
        self.scheduler.start()

    def add_accounts(self) -> None:
        """Make the accounts of extenders, unless they exist, with fresh tokens."""
        self.original_account = add_account(
            self.api, "gpu-aware-scheduling-service-account", "gas-handler", ORIGINAL_RULES
        )
        # With an ending that the webhook of bindings knows the extender by.
        name = "full-gpu-aware-scheduling-service-account"
        self.full_account = add_account(self.api, name, "gas-extender", FULL_RULES)

    def stop(self) -> None:
        for program in reversed(self.programs):
            program.kill()
        self.service.close()

    def restart_scheduler(
        self, *, ignorable: bool = True, preempts: bool = False, scores: bool = False, feature_gates: str = ""
    ) -> None:
        """Restart kube-scheduler with the settings that `KubeScheduler.start` describes."""
        self.scheduler.stop()
        self.scheduler.start(ignorable=ignorable, preempts=preempts, scores=scores, feature_gates=feature_gates)

    def extender(self, name: str, *flags: str, account: KubeApi | None = None) -> Extender:
        """Return a replica behind the address that kube-scheduler calls. It is not started yet.

        It has exactly the permissions of the original's role unless another account is given.
        """
        kubeconfig = write_kubeconfig(self._directory / f"{name}.kubeconfig", account or self.original_account)
        extender = Extender(
            name,
            self._directory,
            kubeconfig=kubeconfig,
            serving=self.serving,
            authority=self.authority,
            flags=flags,
        )
        self._extenders.append(extender)
        self.service.endpoints = tuple(extender.endpoint for extender in self._extenders)
        return extender

    def verbs(self, extender: Extender) -> Verbs:
        """Return a connection to this replica that is closed after the test."""
        verbs = Verbs(extender.endpoint.port, self.authority, self.client)
        self._connections.append(verbs)
        return verbs

    def add_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        resources: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
    ) -> Object:
        """Create a node that is ready and has room for any ordinary pod; `resources` have their full names."""
        amounts = {"cpu": "1000", "memory": "4000Gi", "pods": "10000", **(resources or {})}
        body = {
            "metadata": {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})},
            "spec": {"taints": [dict(taint) for taint in taints]},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "MadeUp"}],
            },
        }
        return self.api.create("/api/v1/nodes", body)

    def add_gpu_node(self, name: str, *, cards: int = 2, places: int = 10, **amounts: str) -> None:
        """Create a node with cards of 1000 millicores, each for this many containers.

        amounts  of other resources, in place of the millicores; ``memory_max`` is gpu.intel.com/memory.max
        """
        found = {"i915": str(places * cards)} | (amounts or {"millicores": str(1000 * cards)})
        resources = {f"gpu.intel.com/{key.replace('_', '.')}": amount for key, amount in found.items()}
        self.add_node(name, labels={"gpu.intel.com/gpu-numbers": ".".join(map(str, range(cards)))}, resources=resources)

    def clean(self) -> None:
        """Remove what a test left, and restart what it stopped."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        for extender in self._extenders:
            extender.program.kill()
        self._extenders.clear()
        self.controller_manager.program.kill()
        self.service.endpoints, self.service.is_patient = (), False
        if not self.control_plane.api_server.is_running:
            self.control_plane.start_api_server()
        for namespace in self.api.items("/api/v1/namespaces"):
            pods = f"/api/v1/namespaces/{namespace['metadata']['name']}/pods"
            self.api.delete_all(pods, gracePeriodSeconds="0")
        for collection in _LEFT_BY_TESTS:
            self.api.delete_all(collection)
        if not self.scheduler.program.is_running or not self.scheduler.has_usual_settings:
            self.restart_scheduler()
