"""The image contains what the programs need, and nothing that only builds or attackers need."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from tests.e2e.helm import Helm
from tests.e2e.project_image import REPOSITORY, BuiltImage, buildah_without_registry, built_image, contents_of, files_of
from tests.e2e.release import pinned_version

LARGEST = 250_000_000
LICENCE = re.compile(rb"licen[cs]e|copyright|permission", re.IGNORECASE)
"""Every licence text contains one of these words."""


@pytest.fixture(scope="module")
def image(binaries: Path) -> BuiltImage:
    return built_image(binaries)


@pytest.fixture(scope="module")
def programs(image: BuiltImage) -> dict[str, int]:
    """Provide path -> mode of every executable file."""
    return {
        entry.name: entry.mode
        for entry in files_of(image.archive)
        if entry.isfile() and entry.mode & (stat.S_IXUSR | stat.S_ISUID | stat.S_ISGID)
    }


def test_it_is_small_and_runs_as_an_unprivileged_user_given_by_number(image: BuiltImage) -> None:
    """kubelet can check that a number is not root's, but not that a name is not."""
    print(f"image: {image.size / 1e6:.0f} MB, built in {image.seconds:.0f} s")
    assert image.size < LARGEST
    user, _, group = image.configuration["User"].partition(":")
    assert int(user) > 0
    assert int(group) > 0


def test_its_labels_say_what_it_is(image: BuiltImage) -> None:
    labels = image.configuration["Labels"]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert labels["org.opencontainers.image.version"] == project["version"]
    assert labels["org.opencontainers.image.licenses"] == project["license"]
    for name in ("title", "description", "revision", "base.name"):
        assert labels[f"org.opencontainers.image.{name}"]


def test_it_has_a_health_check_and_a_program_to_start(image: BuiltImage, programs: dict[str, int]) -> None:
    assert image.configuration["Healthcheck"]["Test"] == ["CMD", "gas-health-check"]
    assert image.configuration["Cmd"] == ["gas-extender"]
    for name in ("gas-extender", "gas-page", "gas-plugin", "gas-configurator", "gas"):
        assert f"opt/gas/bin/{name}" in programs


def test_no_compiler_no_installer_and_no_cache_is_in_it(image: BuiltImage, programs: dict[str, int]) -> None:
    names = {Path(path).name for path in programs}
    tool = re.compile(r"([a-z0-9_-]+-linux-gnu-)?(gcc|g\+\+|cc|ld|as|make|pip|pip3|uv|git)(-[0-9.]+)?")
    assert [name for name in names if tool.fullmatch(name)] == []
    packages = {
        found[1]
        for entry in files_of(image.archive)
        if (found := re.search(r"(?:site|dist)-packages/([^/]+)$", entry.name))
    }
    assert "gas" in packages
    assert not packages & {"pip", "setuptools", "hatchling", "wheel", "ensurepip", "pytest", "mypy"}
    kept = re.compile(r"(root/\.cache|var/cache/apt|var/lib/apt/lists|wheels|source)/.")
    assert [entry.name for entry in files_of(image.archive) if kept.match(entry.name) and entry.isfile()] == []


@pytest.fixture(scope="module")
def licences(image: BuiltImage) -> dict[str, bytes]:
    """Provide path -> text of every file below /licenses."""
    return contents_of(image.archive, re.compile(r"licenses/.+"))


def test_image_contains_the_licence_of_the_project(licences: dict[str, bytes]) -> None:
    assert licences["licenses/gas/LICENSE"] == (REPOSITORY / "LICENSE").read_bytes()


def test_image_contains_a_licence_of_every_debian_package(image: BuiltImage, licences: dict[str, bytes]) -> None:
    (status,) = contents_of(image.archive, re.compile(r"var/lib/dpkg/status")).values()
    installed = {
        found[1]
        for paragraph in status.decode().split("\n\n")
        if re.search(r"^Status: install ok installed$", paragraph, re.MULTILINE)
        and (found := re.search(r"^Package: (\S+)$", paragraph, re.MULTILINE))
    }
    assert {"base-files", "libc6", "python3"} <= installed
    without = {name for name in installed if not LICENCE.search(licences.get(f"licenses/debian/{name}/copyright", b""))}
    assert without == set()


def test_it_holds_a_licence_of_every_python_package(image: BuiltImage, licences: dict[str, bytes]) -> None:
    metadata = re.compile(r"opt/gas/lib/python3[^/]*/site-packages/([^/]+\.dist-info)/METADATA")
    installed = {Path(path).parent.name for path in contents_of(image.archive, metadata)}
    assert {name.partition("-")[0] for name in installed} >= {"aiohttp", "gas", "grpcio", "kubernetes"}
    kept = {
        found[1]
        for path, text in licences.items()
        if (found := re.match(r"licenses/python/([^/]+)/", path)) and LICENCE.search(text)
    }
    assert {name for name in installed if not name.startswith("gas-")} - kept == set()


def test_the_code_is_compiled_for_a_read_only_root(image: BuiltImage) -> None:
    names = {entry.name for entry in files_of(image.archive)}
    ours = [name for name in names if re.search(r"site-packages/gas/[a-z_/]+\.py$", name)]
    assert ours
    for name in ours:
        folder, _, file = name.rpartition("/")
        assert any(compiled.startswith(f"{folder}/__pycache__/{file.removesuffix('py')}") for compiled in names)


def test_no_program_is_setuid_or_setgid(image: BuiltImage) -> None:
    """In a container's view: the base's layer has some, and the next one hides them."""
    seen = {entry.name: entry.mode for entry in files_of(image.archive) if entry.isfile()}
    assert [name for name, mode in seen.items() if mode & (stat.S_ISUID | stat.S_ISGID)] == []


def test_a_release_has_this_image_and_a_chart_that_names_it_by_its_digest(
    image: BuiltImage, binaries: Path, tmp_path: Path
) -> None:
    folder, programs = tmp_path / "release", tmp_path / "bin"
    programs.mkdir()
    command = [sys.executable, "-m", "scripts.release", "registry.example", "https://x.example/gas.tar.gz", str(folder)]
    with buildah_without_registry(binaries, programs):
        done = subprocess.run(
            command, cwd=REPOSITORY, env={**os.environ, "PATH": str(programs)}, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,), (chart,) = folder.glob("*-image.tar"), folder.glob("*.tgz")
    with tarfile.open(archive) as tar:
        blobs = {entry.name: content.read() for entry in tar if (content := tar.extractfile(entry)) is not None}
    (listed,) = json.loads(blobs["index.json"])["manifests"]
    name = listed["digest"].replace("sha256:", "blobs/sha256/")
    assert hashlib.sha256(blobs[name]).hexdigest() == Path(name).name
    configuration = json.loads(blobs[f"blobs/sha256/{json.loads(blobs[name])['config']['digest'][7:]}"])
    assert configuration["config"]["User"] == image.configuration["User"]
    (bill,) = folder.glob("*.cdx.json")
    packages = {each["purl"] for each in json.loads(bill.read_text())["components"]}
    locked = re.findall(r"(?m)^([a-z0-9-]+)==(\S+)", (REPOSITORY / "requirements-image.lock").read_text())
    assert {each for each in packages if "pypi" in each} == {f"pkg:pypi/{name}@{version}" for name, version in locked}
    assert any(each.startswith("pkg:deb/debian/python3@") for each in packages)
    helm = Helm(binaries / "helm", tmp_path / "none", tmp_path)
    rendered = helm.run("template", "gas", str(chart), f"--kube-version={pinned_version()}")
    assert set(re.findall(r"image: (\S+)", rendered)) == {f"registry.example/gas@{listed['digest']}"}
