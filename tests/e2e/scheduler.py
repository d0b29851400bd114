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
        self.has_usual_settings = True
        self._authority = authority
        self._port = free_port()
        self._extender_port = extender_port
        name = "kube-scheduler"
        self._client = authority.client(name)
        self._kubeconfig = write_kubeconfig(directory / f"{name}.kubeconfig", api)
        self._configuration = directory / f"{name}.json"
        command = [
            str(binaries / name),
            f"--config={self._configuration}",
            *serving_flags(name, authority, self._port),
        ]
        self.program = Program(name, command, log=directory / f"{name}.log")

    def start(
        self, *, ignorable: bool = True, preempts: bool = False, scores: bool = False, feature_gates: str = ""
    ) -> None:
        """Start. With `ignorable`, the original's setting, an extender that fails is skipped.

        preempts       whether the extender is asked before pods are evicted
        scores         whether the extender scores nodes
        feature_gates  those that differ from the defaults, such as ``A=true,B=false``
        """
        self.has_usual_settings = ignorable and not (preempts or scores or feature_gates)
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
        self.program.start(*([f"--feature-gates={feature_gates}"] if feature_gates else []))
        self.program.wait_until_healthy(self._port, lambda: is_ready(self._port, self._authority))

    def stop(self) -> None:
        self.program.kill()


def serving_flags(name: str, authority: Authority, port: int) -> list[str]:
    """Return the flags with which a program of the control plane serves its health, which needs no user."""
    serving = authority.server(f"{name}-serving")
    options = {
        "bind-address": "127.0.0.1",
        "secure-port": str(port),
        "tls-cert-file": str(serving.certificate),
        "tls-private-key-file": str(serving.key),
        "authentication-skip-lookup": "true",
    }
    return [f"--{option}={value}" for option, value in options.items()]


def is_ready(port: int, authority: Authority, path: str = "/readyz") -> bool:
    """Return whether a program with `serving_flags` reports on this path that it is ready."""
    context = ssl.create_default_context(cafile=authority.certificate)
    return PlainPort(port, context=context).is_ready(path)


def extender_entry(port: int, authority: Authority, client: PemFiles, *, ignorable: bool) -> dict[str, Any]:
    """Return the entry under ``extenders`` (contract E13.1) for an extender on loopback."""
    known = Vocabularies(KNOWN)
    return {
        "urlPrefix": f"https://127.0.0.1:{port}",
        "filterVerb": "scheduler/filter",
        "bindVerb": "scheduler/bind",
        "weight": 1,
        "enableHTTPS": True,
        "managedResources": [
            {"name": name, "ignoredByScheduler": name in known.ignored_resources} for name in known.managed_resources
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
