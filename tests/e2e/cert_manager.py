"""cert-manager: its definitions, and the parts of it that sign certificates and give webhooks their authority."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.e2e.kube_api import KubeApi, write_kubeconfig
from tests.e2e.programs import Program, ProgramError
from tests.e2e.waiting import wait_for

GROUP = "/apis/cert-manager.io/v1"
KINDS = ("certificates", "certificaterequests", "issuers", "clusterissuers")


def add_cert_manager_kinds(api: KubeApi, binaries: Path) -> None:
    """Create cert-manager's own definitions, without the labels that its chart fills in."""
    for kind in KINDS:
        file = binaries / f"crd-{kind}.yaml"
        if not file.exists():
            raise ProgramError(f"{file} is missing; run tests/e2e/set-up.sh first")
        definition = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
        definition["metadata"] = {"name": definition["metadata"]["name"]}
        api.ensure("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    for kind in KINDS:
        wait_for(f"the kind of {kind}", lambda kind=kind: api.find(f"{GROUP}/{kind}"))  # type: ignore[misc]


class CertManager:
    """The controllers that sign with an authority in a Secret, and the cainjector, with all permissions.

    It is a context manager.
    """

    def __init__(self, directory: Path, binaries: Path, api: KubeApi) -> None:
        kubeconfig = write_kubeconfig(directory / "cert-manager.kubeconfig", api)
        self.programs = [
            Program(name, [str(binaries / name), str(kubeconfig)], log=directory / f"{name}.log")
            for name in ("signer", "cainjector")
        ]

    def __enter__(self) -> CertManager:
        for program in self.programs:
            program.start()
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            program.kill()

    def check(self) -> None:
        """Raise ProgramError if one of them has ended."""
        for program in self.programs:
            if not program.is_running:
                raise ProgramError(f"{program.name} has ended\n{program.log_tail()}")


def renew(api: KubeApi, namespace: str, certificate: str) -> None:
    """Have a certificate issued again, as ``cmctl renew`` does."""
    path = f"{GROUP}/namespaces/{namespace}/certificates/{certificate}"
    found = api.get(path)
    condition = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "renewed by a test",
        "lastTransitionTime": found["metadata"]["creationTimestamp"],
        "observedGeneration": found["metadata"]["generation"],
    }
    api.merge(f"{path}/status", {"status": {"conditions": [*found["status"]["conditions"], condition]}})
