"""kubectl and other commands of the documentation, as an administrator runs them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

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


def follow(block: str, directory: Path, env: dict[str, str]) -> str:
    """Run the lines as one script that ends at the first failure, and return its output."""
    done = subprocess.run(
        ["bash", "-e", "-c", block], cwd=directory, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}"
    return done.stdout
