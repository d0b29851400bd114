"""The project's image, built from its Containerfile by buildah, on a base that was made without a registry."""

from __future__ import annotations

import ast
import atexit
import fcntl
import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.e2e.programs import ProgramError

REPOSITORY = Path(__file__).parents[2]
NAME = "docker.io/library/gas:0.1.0"
"""The full name of ``gas:0.1.0`` in the manifests."""

_PIP_SETTINGS = ("index-url", "extra-index-url", "find-links", "no-index", "cert", "trusted-host")
_STAGES_KEPT = 4
_CERTIFICATES = "/pip-certificates.crt"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """The project's image.

    archive        in the form of ``docker save``
    size           bytes of its files
    configuration  as Docker has it: User, Cmd, Labels, Healthcheck …
    seconds        that the build took
    """

    archive: Path
    size: int
    configuration: dict[str, Any]
    seconds: float


@cache
def built_image(binaries: Path) -> BuiltImage:
    """Build the image once in a test run, with the layers of earlier runs where nothing changed. Raises ProgramError.

    binaries  the directory with ``base.tar``; buildah's storage is beside it
    """
    directory = Path(tempfile.mkdtemp(prefix="gas-image-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    buildah = _Buildah(binaries.parent / "buildah")
    with buildah.alone():
        buildah.take_base(_base_name(), binaries / "base.tar")
        before = buildah.image_id(NAME)
        started = time.monotonic()
        buildah.run(
            "build", "--format=docker", *_without_registry(),
            f"--tag={NAME}", f"--file={REPOSITORY / 'Containerfile'}", str(REPOSITORY),
        )  # fmt: skip
        seconds = time.monotonic() - started
        if before not in (None, buildah.image_id(NAME)):
            buildah.run("rmi", "--force", str(before))
        buildah.forget_old_stages()
        archive = directory / "gas.tar"
        buildah.run("push", "--quiet", NAME, f"docker-archive:{archive}:{NAME}")
        found = json.loads(buildah.run("inspect", "--type=image", NAME))
        (listed,) = json.loads(buildah.run("images", "--json", NAME))
    return BuiltImage(
        archive=archive, size=_bytes(listed["size"]), configuration=found["Docker"]["config"], seconds=seconds
    )


def files_of(archive: Path) -> Iterator[tarfile.TarInfo]:
    """Yield every entry of every layer, also of hidden files, by its path without a leading ``./``."""
    for entry, _ in _entries(archive):
        yield entry


def contents_of(archive: Path, path: re.Pattern[str]) -> dict[str, bytes]:
    """Return path -> content of every plain file whose whole path matches. Of several layers, the last one counts."""
    found = {}
    for entry, layer in _entries(archive):
        if entry.isfile() and path.fullmatch(entry.name):
            found[entry.name] = _content(layer, entry).read()
    return found


def _entries(archive: Path) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """Yield every entry with its layer, in the order of the layers."""
    with tarfile.open(archive) as outer:
        (manifest,) = json.load(_content(outer, "manifest.json"))
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=_content(outer, name)) as layer:
                for entry in layer:
                    entry.name = entry.name.removeprefix("./")
                    yield entry, layer


def _content(archive: tarfile.TarFile, member: str | tarfile.TarInfo) -> IO[bytes]:
    found = archive.extractfile(member)
    if found is None:
        raise ProgramError(f"{member} is not a file of the image's archive")
    return found


@contextmanager
def buildah_without_registry(binaries: Path, directory: Path) -> Iterator[None]:
    """Put a ``buildah`` into a directory that builds as here, on the base that is in the same storage."""
    buildah = _Buildah(binaries.parent / "buildah")
    command = shlex.join(["exec", *buildah.command])
    program = directory / "buildah"
    build = f'shift; {command} build {shlex.join(_without_registry())} "$@"'
    program.write_text(f'#!/bin/sh\nPATH=/usr/bin:/bin\nif [ "$1" = build ]; then {build}; fi\n{command} "$@"\n')
    program.chmod(0o755)
    with buildah.alone():
        yield


def _without_registry() -> list[str]:
    return ["--isolation=chroot", "--network=host", "--pull-never", "--layers", *_pip_arguments()]


class _Buildah:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)

    @property
    def command(self) -> list[str]:
        storage = ("--root", str(self._directory / "storage"), "--runroot", str(self._directory / "run"))
        return ["buildah", "--storage-driver=overlay", *storage]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock, so that no other test run builds."""
        with (self._directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def run(self, *arguments: str) -> str:
        """Run buildah and return its output. Raises ProgramError."""
        command = [*self.command, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            last = "\n".join((done.stdout + done.stderr).splitlines()[-60:])
            raise ProgramError(f"buildah {arguments[0]} failed with status {done.returncode}:\n{last}")
        return done.stdout

    def image_id(self, name: str) -> str | None:
        lines = self.run("images", "--all", "--quiet", "--no-trunc", "--filter", f"reference={name}").split()
        return lines[0] if lines else None

    def forget_old_stages(self) -> None:
        """Remove the stages of earlier builds, except those of the last builds."""
        listed = json.loads(self.run("images", "--json"))
        stages = sorted((image for image in listed if not image["names"]), key=lambda image: image["createdatraw"])
        for image in stages[:-_STAGES_KEPT]:
            self.run("rmi", "--force", image["id"])

    def take_base(self, name: str, archive: Path) -> None:
        """Import the base under the name in the Containerfile, unless this archive was imported before."""
        stamp = self._directory / "base"
        wanted = f"{name} {archive.stat().st_mtime_ns}"
        if stamp.exists() and stamp.read_text() == wanted and self.image_id(name) is not None:
            return
        container = self.run("from", "scratch").strip()
        self.run("add", "--quiet", container, str(archive), "/")
        self.run("commit", "--quiet", "--rm", container, name)
        stamp.write_text(wanted)


def _base_name() -> str:
    names: set[str] = set(re.findall(r"^FROM (\S+/\S+)", (REPOSITORY / "Containerfile").read_text(), re.MULTILINE))
    (name,) = names
    return name


def _pip_arguments() -> list[str]:
    """Return the build arguments that let pip find its packages where pip finds them here."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    found: dict[str, str] = {}
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, setting = key.rpartition(".")
        if setting in _PIP_SETTINGS and (setting not in found or section == ":env:"):
            found[setting] = ast.literal_eval(value)
    arguments = []
    if certificates := found.pop("cert", None):
        arguments.append(f"--volume={certificates}:{_CERTIFICATES}:ro")
        found["cert"] = _CERTIFICATES
    for place in found.get("find-links", "").split():
        if Path(place).is_dir():
            arguments.append(f"--volume={place}:{place}:ro")
    return arguments + [f"--build-arg=PIP_{name.replace('-', '_').upper()}={value}" for name, value in found.items()]


def _bytes(text: str) -> int:
    """Parse a size as buildah lists it: ``"216 MB"``."""
    number, unit = text.split()
    return int(float(number) * {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9}[unit])
