"""kube-scheduler, configured to call the extender as the original's users configure it."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.known import KNOWN
from sandbox.certificates import Authority, PemFiles
from tests.e2e.kube_api import KubeApi, write_kubeconfig
from tests.e2e.plain_port import PlainPort
from tests.e2e.ports import free_port
from tests.e2e.programs import Program


class KubeScheduler:
    """One kube-scheduler. It can be stopped and started again."""

    def __init__(
        self,
        directory: Path,
        binaries: Path,
        authority: Authority,
        api: KubeApi,
        extender_port: int,
    ) -> None:
        self.ignorable = True
        self.preempts = False
        self.scores = False
        self._authority = authority
        self._port = free_port()
        self._extender_port = extender_port
        name = "kube-scheduler"
        self._client = authority.client(name)
        self._kubeconfig = write_kubeconfig(directory / f"{name}.kubeconfig", api)
        self._configuration = directory / f"{name}.json"
        serving = authority.server(f"{name}-serving")
        options = {
            "config": str(self._configuration),
            "bind-address": "127.0.0.1",
            "secure-port": str(self._port),
            "tls-cert-file": str(serving.certificate),
            "tls-private-key-file": str(serving.key),
            # Only the health check calls it, and that needs no user.
            "authentication-skip-lookup": "true",
        }
        command = [
            str(binaries / "kube-scheduler"),
            *(f"--{name}={value}" for name, value in options.items()),
        ]
        self.program = Program(name, command, log=directory / f"{name}.log")

    def start(self, *, ignorable: bool = True, preempts: bool = False, scores: bool = False) -> None:
        """Start. With `ignorable`, the original's setting, an extender that fails is skipped.

        preempts  whether the extender is asked before pods are evicted
        scores    whether the extender scores nodes
        """
        self.ignorable, self.preempts, self.scores = ignorable, preempts, scores
        entry = extender_entry(self._extender_port, self._authority, self._client, ignorable=ignorable)
        if preempts:
            entry["preemptVerb"] = "scheduler/preempt"
        if scores:
            entry["prioritizeVerb"] = "scheduler/prioritize"
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self._kubeconfig)},
            "leaderElection": {"leaderElect": False},
            "extenders": [entry],
        }
        self._configuration.write_text(json.dumps(configuration, indent=1))
        self.program.start()
        self.program.wait_until_healthy(self._port, self._is_ready)

    def stop(self) -> None:
        self.program.kill()

    def _is_ready(self) -> bool:
        context = ssl.create_default_context(cafile=self._authority.certificate)
        return PlainPort(self._port, context=context).is_ready()


def extender_entry(port: int, authority: Authority, client: PemFiles, *, ignorable: bool) -> dict[str, Any]:
    """Return the entry under ``extenders`` (contract E13.1) for an extender on loopback."""
    return {
        "urlPrefix": f"https://127.0.0.1:{port}",
        "filterVerb": "scheduler/filter",
        "bindVerb": "scheduler/bind",
        "weight": 1,
        "enableHTTPS": True,
        "managedResources": [
            {"name": name, "ignoredByScheduler": False} for name in Vocabularies(KNOWN).managed_resources
        ],
        "ignorable": ignorable,
        "nodeCacheCapable": True,
        "tlsConfig": {
            "insecure": False,
            "certFile": str(client.certificate),
            "keyFile": str(client.key),
            "caFile": str(authority.certificate),
        },
    }
