"""Small images, made without a registry: the one that holds a pod's sandbox, one with a shell, and one program each."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.programs import ProgramError

_APPLETS = ("cat", "echo", "env", "grep", "ls", "sh", "sleep", "true")


@dataclass(frozen=True, slots=True)
class Image:
    """An image. A ``name`` with a host part is imported unchanged; a bare name would not be."""

    name: str
    entrypoint: tuple[str, ...]


PAUSE = Image("e2e.local/pause:1", ("/bin/sleep", "1000000000"))
BUSYBOX = Image("e2e.local/busybox:1", ("/bin/sh",))


def write_images(directory: Path) -> tuple[Path, ...]:
    """Write an archive in the form of ``docker save`` for each image. Raises ProgramError without a static busybox."""
    found = shutil.which("busybox")
    if found is None:
        raise ProgramError("busybox is missing; tests/e2e/set-up.sh installs it")
    program = Path(found).read_bytes()
    if b"/ld-linux" in program:
        raise ProgramError(f"{found} needs libraries that no image has; install Debian's busybox-static in its place")
    layer = _layer(program, _APPLETS)
    return tuple(_archive(directory, image, layer) for image in (PAUSE, BUSYBOX))


def _layer(busybox: bytes, applets: Sequence[str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as layer:
        for name in ("bin", "dev", "etc", "proc", "sys"):
            _add(layer, name, kind=tarfile.DIRTYPE)
        _add(layer, "tmp", kind=tarfile.DIRTYPE, mode=0o1777)
        _add(layer, "bin/busybox", busybox)
        for applet in applets:
            _add(layer, f"bin/{applet}", kind=tarfile.SYMTYPE, link="busybox")
    return content.getvalue()


def _archive(directory: Path, image: Image, layer: bytes) -> Path:
    file = directory / f"{image.name.replace('/', '-').replace(':', '-')}.tar"
    write_archive(file, image.name, layer, Entrypoint=list(image.entrypoint))
    return file


def write_program_image(archive: Path, name: str, program: Path) -> None:
    """Write an image with the program in /bin and the libraries that it needs, in the form of ``docker save``."""
    needed = subprocess.run(["ldd", program], capture_output=True, text=True)
    libraries = re.findall(r"/\S+", needed.stdout) if needed.returncode == 0 else []  # else it needs none
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as opened:
        opened.add(program.resolve(), f"bin/{program.name}")
        for library in libraries:
            opened.add(Path(library).resolve(), library.lstrip("/"))
    write_archive(archive, name, layer.getvalue())


def write_archive(file: Path, name: str, layer: bytes, **config: object) -> None:
    """Write an image of one layer in the form of ``docker save``."""
    configuration = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], **config},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    written = json.dumps(configuration).encode()
    config_name = f"{hashlib.sha256(written).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(file, "w") as archive:
        _add(archive, config_name, written)
        _add(archive, "layer.tar", layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _add(
    archive: tarfile.TarFile,
    name: str,
    content: bytes = b"",
    *,
    kind: bytes = tarfile.REGTYPE,
    mode: int = 0o755,
    link: str = "",
) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.mode, entry.linkname = len(content), kind, mode, link
    archive.addfile(entry, io.BytesIO(content))
