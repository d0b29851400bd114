"""The manifest and the launcher with which krew installs ``kubectl gas``."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from gas.daemon.command import own_version
from scripts import krew

URL = "https://example.com/kubectl-gas.tar.gz"


def test_the_manifest_names_the_archive_and_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["krew", URL, str(tmp_path)])
    krew.main()
    content = (tmp_path / "kubectl-gas.tar.gz").read_bytes()
    krew.write(URL, tmp_path)
    assert (tmp_path / "kubectl-gas.tar.gz").read_bytes() == content
    manifest = yaml.safe_load((tmp_path / "gas.yaml").read_text(encoding="utf-8"))
    assert manifest["metadata"]["name"] == "gas"
    assert manifest["spec"]["version"] == f"v{own_version()}"
    (platform,) = manifest["spec"]["platforms"]
    assert (platform["uri"], platform["sha256"]) == (URL, hashlib.sha256(content).hexdigest())
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        modes = {entry.name: entry.mode for entry in tar}
    assert {each["from"] for each in platform["files"]} == modes.keys()
    assert modes[platform["bin"]] == 0o755


@pytest.mark.parametrize("arguments", [[], [URL], ["ftp://x", "d"]])
def test_wrong_arguments_end_with_a_sentence(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["krew", *arguments])
    with pytest.raises(SystemExit, match="expected a URL that begins with https://"):
        krew.main()


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    launcher = krew.FILES["kubectl-gas"][0]
    environment = {"PATH": f"{path}:/usr/bin:/bin"}
    return subprocess.run(["/bin/sh", str(launcher), *arguments], capture_output=True, text=True, env=environment)


def test_the_launcher_runs_the_program_with_all_arguments(tmp_path: Path) -> None:
    for name in ("gas", "kubectl-gas"):
        program = tmp_path / name
        program.write_text(f"#!{sys.executable}\nimport sys\nprint({name!r}, sys.argv[1:])\nsys.exit(7)\n")
        program.chmod(0o755)
    done = run(tmp_path, "top", "--where", "a b")
    assert (done.returncode, done.stdout) == (7, "kubectl-gas ['top', '--where', 'a b']\n")


def test_the_launcher_says_what_is_missing(tmp_path: Path) -> None:
    done = run(tmp_path, "top")
    assert done.returncode == 2
    assert "expected the programs gas and kubectl-gas on the PATH, found none" in done.stderr


def test_the_launcher_is_executable() -> None:
    assert os.access(krew.FILES["kubectl-gas"][0], os.X_OK)
