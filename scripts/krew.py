"""Write what krew installs as ``kubectl gas``: ``python -m scripts.krew URL DIRECTORY``.

URL is where the archive of a release will be found. DIRECTORY gets the archive and the manifest ``gas.yaml``, which
names URL and the archive's checksum.
"""

import gzip
import hashlib
import io
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from gas.daemon.command import own_version

ROOT = Path(__file__).parents[1]
FILES = {"kubectl-gas": (ROOT / "deploy/krew/kubectl-gas", 0o755), "LICENSE": (ROOT / "LICENSE", 0o644)}


def archive(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Return an archive of these contents and modes by name: the same bytes for the same files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, (text, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), mode
            tar.addfile(entry, io.BytesIO(text))
    return gzip.compress(content.getvalue(), mtime=0)


def manifest(url: str, checksum: str) -> str:
    """Return the manifest for krew."""
    return f"""apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: gas
spec:
  version: v{own_version()}
  shortDescription: Show the GPUs of a cluster card by card
  description: |
    Shows what is booked and used of each GPU card, who holds it, why a pod waits
    and what would let it run, and where the pods of a manifest would land.
    Needs only the right to read nodes and pods. Only cordon and uncordon, of one
    card, change anything.
  caveats: |
    The commands are in the program gas, a Python package: install it with pipx,
    and see that gas is on the PATH.
  platforms:
    - selector:
        matchExpressions:
          - {{key: os, operator: In, values: [linux, darwin]}}
      uri: {url}
      sha256: {checksum}
      bin: kubectl-gas
      files:
        - {{from: kubectl-gas, to: .}}
        - {{from: LICENSE, to: .}}
"""


def main() -> None:
    """Write archive and manifest. Ends with a sentence if the arguments are not a URL and a directory."""
    if len(sys.argv) != 3 or not sys.argv[1].startswith("https://"):
        sys.exit("python -m scripts.krew: expected a URL that begins with https:// and a directory")
    url, directory = sys.argv[1], Path(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    write(url, directory)


def write(url: str, directory: Path) -> None:
    content = archive({name: (file.read_bytes(), mode) for name, (file, mode) in FILES.items()})
    (directory / "kubectl-gas.tar.gz").write_bytes(content)
    (directory / "gas.yaml").write_text(manifest(url, hashlib.sha256(content).hexdigest()), encoding="utf-8")


if __name__ == "__main__":
    main()
