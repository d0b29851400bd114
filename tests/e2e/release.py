"""The release of Kubernetes that the tests run against, and the settings that depend on it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SET_UP = Path(__file__).with_name("set-up.sh")


@dataclass(frozen=True, slots=True)
class Release:
    """A minor release: ``Release(37)`` is Kubernetes 1.37."""

    minor: int

    @property
    def mutating_policy_flags(self) -> tuple[str, ...]:
        """The flags of kube-apiserver that enable MutatingAdmissionPolicy, which is on by default from 1.36 on."""
        if self.minor >= 36:
            return ()
        return (
            "--feature-gates=MutatingAdmissionPolicy=true",
            "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
        )

    def __str__(self) -> str:
        return f"1.{self.minor}"


@cache
def selected_release() -> Release:
    """Return the release that ``KUBERNETES`` selects, the newest by default."""
    return Release(int(_set_up("--release").removeprefix("1.")))


@cache
def pinned_version() -> str:
    """Return the version that the selected release is pinned to, such as ``v1.37.1``."""
    module = (SET_UP.parent / f"components/kubernetes-{selected_release()}/go.mod").read_text()
    (version,) = (line.split()[-1] for line in module.splitlines() if line.startswith("require k8s.io/kubernetes "))
    return version


@cache
def program_directory() -> Path:
    """Return the directory with the programs that ``set-up.sh`` has built so far for the selected release."""
    return Path(_set_up("--where"))


def _set_up(question: str) -> str:
    return subprocess.run([SET_UP, question], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
