"""`make build`, `make image` and `make release`, with a stand-in for the program that builds images."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from gas.daemon.command import own_version
from scripts.krew import archive

ROOT = Path(__file__).parents[1]
DIGEST = f"sha256:{'a' * 64}"
URL = "https://registry.example/kubectl-gas.tar.gz"

STAND_IN = """\
#!{python}
import pathlib, shutil, sys
with open({log!r}, "a") as log:
    print(pathlib.Path(sys.argv[0]).name, *sys.argv[1:], file=log)
target = sys.argv[-1]
if target.startswith("oci-archive:"):
    shutil.copy({image!r}, target.split(":")[1])
"""

DEBIAN = """\
Package: libstdc++6
Status: install ok installed
Architecture: amd64
Version: 1:14.2~rc1-19
Description: its library
 of C++

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""
PACKAGES = "opt/gas/lib/python3.13/site-packages"
LAYERS = [
    {"var/lib/dpkg/status": "Package: of-an-earlier-layer\nStatus: install ok installed\n", "etc/passwd": ""},
    {
        "var/lib/dpkg/status": DEBIAN,
        f"{PACKAGES}/ruamel.yaml-0.19.dist-info/METADATA": "Name: ruamel.yaml\nVersion: 1+b",
    },
    {f"{PACKAGES}/gas-0.1.0.dist-info/METADATA": "Name: gas\nVersion: 0.1.0\n\nName: x", f"{PACKAGES}/x/METADATA": ""},
]


def oci_archive() -> bytes:
    """Return an image of these layers, as buildah writes it."""
    blobs = {
        f"blobs/sha256/{n}": archive({k: (v.encode(), 0o644) for k, v in each.items()}) for n, each in enumerate(LAYERS)
    }
    blobs["index.json"] = json.dumps({"manifests": [{"digest": DIGEST}]}).encode()
    manifest = {"layers": [{"digest": f"sha256:{number}"} for number in range(len(LAYERS))]}
    blobs[f"blobs/{DIGEST.replace(':', '/')}"] = json.dumps(manifest).encode()
    return archive({name: (content, 0o644) for name, content in blobs.items()})


class Machine:
    """A machine with programs that only record how they were called."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "log"
        self._programs = directory / "bin"
        self._programs.mkdir()
        self._image = directory / "image.tar"
        self._image.write_bytes(oci_archive())

    def add(self, *names: str) -> None:
        for name in names:
            program = self._programs / name
            program.write_text(STAND_IN.format(python=sys.executable, log=str(self._log), image=str(self._image)))
            program.chmod(0o755)

    def run(self, module: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        environment = {**os.environ, "PATH": str(self._programs)}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    def calls(self) -> list[str]:
        return self._log.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


SAVE = "podman push r/gas:1 docker-archive:g.tar:r/gas:1"
BUILD = f"--file {ROOT}/Containerfile --tag r/gas:1 {ROOT}"


@pytest.mark.parametrize(
    ("programs", "target", "expected"),
    [
        (["buildah", "docker"], [], [f"buildah build --format docker {BUILD}"]),
        (["docker"], ["push"], [f"docker build {BUILD}", "docker push r/gas:1"]),
        (["podman"], ["g.tar"], [f"podman build --format docker {BUILD}", SAVE]),
        (["docker"], ["g.tar"], [f"docker build {BUILD}", "docker save --output g.tar r/gas:1"]),
    ],
    ids=["builds-only", "pushes", "writes-an-archive", "writes-an-archive-with-docker"],
)  # fmt: skip
def test_the_image_is_built_and_goes_where_it_should(
    machine: Machine, programs: list[str], target: list[str], expected: list[str]
) -> None:
    machine.add(*programs)
    assert machine.run("scripts.image", "r/gas:1", *target).returncode == 0
    assert machine.calls() == expected


def test_the_image_is_loaded_into_containerd(machine: Machine) -> None:
    machine.add("buildah", "ctr")
    assert machine.run("scripts.image", "r/gas:1", "load").returncode == 0
    _, push, load = machine.calls()
    archive = load.removeprefix("ctr --namespace=k8s.io images import ")
    assert push == f"buildah push r/gas:1 docker-archive:{archive}:r/gas:1"


@pytest.mark.parametrize(
    ("program", "command", "words"),
    [
        ("", ["image", "gas:1"], "expected buildah, podman or docker on the PATH, found none"),
        ("buildah", ["image"], "expected the name of the image"),
        ("docker", ["release", "r", URL, "folder"], "expected buildah or podman on the PATH, found docker only"),
        ("buildah", ["release", "r", "ftp://x", "folder"], "a URL that begins with https://"),
        ("buildah", ["release", "r", URL, ROOT / "docs"], "docs: expected an empty folder, found admission.md"),
    ],
    ids=["no-builder", "no-name", "docker-only", "no-url", "not-empty"],
)
def test_what_is_missing_is_a_sentence(
    machine: Machine, tmp_path: Path, program: str, command: list[str], words: str
) -> None:
    machine.add(*program.split())
    done = machine.run(
        f"scripts.{command[0]}", *(tmp_path / each if each == "folder" else each for each in command[1:])
    )
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_release_has_image_chart_wheel_and_krews_files_and_pushes_nothing(machine: Machine, tmp_path: Path) -> None:
    machine.add("buildah")
    folder, version = tmp_path / "release", own_version()
    done = machine.run("scripts.release", "registry.example/gpu", URL, folder)
    assert done.returncode == 0, done.stderr
    files = {each.name: each.read_bytes() for each in folder.iterdir()}
    wheel = f"gas-{version}-py3-none-any.whl"
    image, bill = f"gas-{version}-image.tar", f"gas-{version}-image.cdx.json"
    others = {image, bill, f"gas-{version}.tgz", "kubectl-gas.tar.gz", "gas.yaml", wheel}
    assert files.keys() == others | {"SHA256SUMS"}
    sums = {name: value for value, name in (line.split() for line in files["SHA256SUMS"].decode().splitlines())}
    assert sums == {name: hashlib.sha256(files[name]).hexdigest() for name in others}

    listed = json.loads(files[bill])
    assert listed["metadata"]["component"]["purl"] == f"pkg:oci/gas@{DIGEST}"
    assert [(each["name"], each["version"], each["purl"]) for each in listed["components"]] == [
        ("libstdc++6", "1:14.2~rc1-19", "pkg:deb/debian/libstdc%2B%2B6@1:14.2~rc1-19?arch=amd64"),
        ("ruamel-yaml", "1+b", "pkg:pypi/ruamel-yaml@1%2Bb"),
    ]

    with tarfile.open(fileobj=io.BytesIO(files[f"gas-{version}.tgz"])) as chart:
        written = {entry.name: chart.extractfile(entry) for entry in chart}
        values = yaml.safe_load(content.read() if (content := written["gas/values.yaml"]) else b"")
    source = ROOT / "deploy/chart"
    assert written.keys() == {f"gas/{file.relative_to(source)}" for file in source.rglob("*") if file.is_file()}
    expected = yaml.safe_load((source / "values.yaml").read_text(encoding="utf-8"))
    expected["image"] |= {"registry": "registry.example/gpu", "digest": DIGEST}
    assert values == expected
    assert yaml.safe_load(files["gas.yaml"])["spec"]["platforms"][0]["uri"] == URL
    assert [call.split()[:2] for call in machine.calls()] == [["buildah", "build"], ["buildah", "push"]]
    assert machine.calls()[1].endswith(f" oci-archive:{folder}/gas-{version}-image.tar:{version}")
    assert f"docker://registry.example/gpu/gas:{version}   # {DIGEST}" in done.stdout
