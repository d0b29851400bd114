"""kubectl and other commands of the documentation, as an administrator runs them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.kube_api import KubeApi, write_kubeconfig
from tests.e2e.programs import ProgramError


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The program, with one kubeconfig."""

    program: Path
    kubeconfig: Path

    def run(self, *arguments: str | Path, text: str | None = None) -> str:
        """Run kubectl with ``text`` as input, and return its output with warnings. Raises ProgramError if it fails."""
        command = [self.program, f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=text or "", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise ProgramError(f"kubectl {' '.join(map(str, arguments))} failed:\n{done.stdout}")
        return done.stdout


class KubectlGas:
    """Run ``kubectl gas`` with a real kubectl, which finds the program on the PATH, as a user who may only read."""

    def __init__(self, kubectl: Path, directory: Path, api: KubeApi) -> None:
        self._kubectl = kubectl
        self._directory = directory
        plugin = directory / "kubectl-gas"
        program = "import sys; from gas.__main__ import kubectl_gas; sys.exit(kubectl_gas())"
        plugin.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{program}" "$@"\n', encoding="utf-8")
        plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
        self._kubeconfig = write_kubeconfig(directory / "reader.kubeconfig", api)

    def __call__(self, *arguments: str) -> tuple[int, str]:
        done = self.run(*arguments)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode, done.stdout

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PATH": f"{self._directory}:{os.environ['PATH']}",
            "KUBECONFIG": str(self._kubeconfig),
        }
        command = [str(self._kubectl), "gas", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)

    def data(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json")[1])


def follow(block: str, directory: Path, env: dict[str, str]) -> str:
    """Run the lines as one script that ends at the first failure, and return its output."""
    done = subprocess.run(
        ["bash", "-e", "-c", block], cwd=directory, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}"
    return done.stdout
