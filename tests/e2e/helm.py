"""Helm as an administrator runs it, and the values in docs/."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import yaml

from tests.e2e.kube_api import Object
from tests.e2e.programs import ProgramError
from tests.e2e.release import pinned_version

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "deploy/chart"
PAGE = REPOSITORY / "docs/chart.md"
PAGES = sorted((REPOSITORY / "docs").glob("*.md"))

_DOCUMENTED = re.compile(r"^```yaml\n# values: (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def documented_values() -> dict[str, str]:
    """Return each block of values on the pages, by the name in its first line."""
    return {name: text for page in PAGES for name, text in _DOCUMENTED.findall(page.read_text(encoding="utf-8"))}


class Helm:
    """The program, with one kubeconfig and files of its own instead of the user's."""

    def __init__(self, program: Path, kubeconfig: Path, directory: Path) -> None:
        self._program = program
        self._kubeconfig = kubeconfig
        self.directory = directory
        homes = {f"HELM_{name}_HOME": str(directory / f"helm-{name.lower()}") for name in ("CACHE", "CONFIG", "DATA")}
        self._env = {**os.environ, **homes}

    def run(self, *arguments: str, values: str | None = None) -> str:
        """Run Helm and return its output. Raises ProgramError with all output if it fails.

        values  the content of a file of values
        """
        command = [str(self._program), f"--kubeconfig={self._kubeconfig}", *arguments]
        if values is not None:
            file = self.directory / "values.yaml"
            file.write_text(values)
            command.append(f"--values={file}")
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=self._env)
        if done.returncode != 0:
            raise ProgramError(f"helm {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def template(self, *arguments: str, values: str | None = None, kubernetes: str | None = None) -> str:
        """Return the chart's objects for a version of Kubernetes, by default the selected one."""
        version = f"--kube-version={kubernetes or pinned_version()}"
        return self.run("template", "gas", str(CHART), version, *arguments, values=values)


def objects(rendered: str) -> list[Object]:
    """Return the objects of a YAML text with several documents."""
    return [each for each in yaml.safe_load_all(rendered) if each is not None]
