"""An image of one program, created without a registry."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path


def write_program_image(archive: Path, name: str, program: Path) -> None:
    """Write an image with the program in /bin and the libraries that it needs, in the form of ``docker save``."""
    needed = subprocess.run(["ldd", program], capture_output=True, text=True)
    libraries = re.findall(r"/\S+", needed.stdout) if needed.returncode == 0 else []  # else it needs none
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as opened:
        opened.add(program.resolve(), f"bin/{program.name}")
        for library in libraries:
            opened.add(Path(library).resolve(), library.lstrip("/"))
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    configuration = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as opened:
        opened.add(layer, "layer.tar")
        for entry, written in (("config.json", configuration), ("manifest.json", manifest)):
            text = json.dumps(written).encode()
            header = tarfile.TarInfo(entry)
            header.size = len(text)
            opened.addfile(header, io.BytesIO(text))
    layer.unlink()
