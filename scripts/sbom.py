"""A bill of materials: the Debian and Python packages in the OCI archive of an image, as CycloneDX writes them in JSON.

Libraries that write such bills read locks and environments, which know nothing of Debian's packages.
"""

import json
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping
from email import message_from_bytes
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

DEBIAN = "var/lib/dpkg/status"
PYTHON = re.compile(r"opt/gas/lib/python3[^/]*/site-packages/[^/]+\.dist-info/METADATA")


def bill_of_materials(archive: Path, digest: str, version: str) -> str:
    """Return the bill of the image with this digest and version."""
    with tarfile.open(archive) as tar:
        layers = [each["digest"] for each in json.loads(_blob(tar, digest))["layers"]]
        files = {name: content for layer in layers for name, content in _listings(_blob(tar, layer))}
    image = {"type": "container", "name": "gas", "version": version, "purl": f"pkg:oci/gas@{quote(digest, safe=':')}"}
    components = [
        {"type": "library", "bom-ref": purl, "name": name, "version": package_version, "purl": purl}
        for purl, name, package_version in _packages(files)
    ]
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": image}}
    return json.dumps(bill | {"components": components}, indent=1) + "\n"


def _blob(tar: tarfile.TarFile, digest: str) -> bytes:
    name = f"blobs/{digest.replace(':', '/')}"
    content = tar.extractfile(name) or sys.exit(f"{tar.name}: expected {name} in it, as in an OCI archive")
    return content.read()


def _listings(layer: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a layer that name packages."""
    with tarfile.open(fileobj=BytesIO(layer)) as tar:
        for entry in tar:
            name = entry.name.removeprefix("./")
            if (name == DEBIAN or PYTHON.fullmatch(name)) and (content := tar.extractfile(entry)):
                yield name, content.read()


def _packages(files: Mapping[str, bytes]) -> Iterator[tuple[str, str, str]]:
    """Yield package URL, name and version of each package. The project itself is not in Debian or on PyPI."""
    for paragraph in files.get(DEBIAN, b"").strip().split(b"\n\n"):
        fields = message_from_bytes(paragraph)
        if fields["Status"] == "install ok installed":
            name, version = fields["Package"], fields["Version"]
            where = f"{quote(name)}@{quote(version, safe=':')}?arch={fields['Architecture']}"
            yield f"pkg:deb/debian/{where}", name, version
    for path, content in files.items():
        if path != DEBIAN:
            fields = message_from_bytes(content)
            name, version = re.sub("[-_.]+", "-", fields["Name"]).lower(), fields["Version"]
            if name != "gas":
                yield f"pkg:pypi/{name}@{quote(version)}", name, version
