"""Write deploy/gas.yaml, one file that `kubectl apply -f` installs, from the overlay `both`: ``make manifest``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
OVERLAY = ROOT / "deploy/overlays/both"
MANIFEST = ROOT / "deploy/gas.yaml"

_HEADER = """\
# Extender and device plugin in one file: `kubectl apply -f deploy/gas.yaml`. First make the image available to the
# nodes: docs/deploy.md. The extender's pod waits for the Secret extender-secret. `gas-configurator --apply-secret`
# creates it; create it yourself if you have certificates of your own.
# Written from deploy/overlays/both by `make manifest`: change the files there, not this one.
"""

_UNDERSTOOD = {"apiVersion", "kind", "namespace", "resources"}


def main() -> None:
    MANIFEST.write_text(manifest(OVERLAY), encoding="utf-8")


def manifest(overlay: Path) -> str:
    """Return the objects of an overlay as one YAML text, with the comments of their files.

    Raises ValueError if a kustomization does more than to list resources.
    """
    documents = [file.read_text(encoding="utf-8").strip() for file in _files(overlay)]
    return _HEADER + "".join(f"---\n{each}\n" for each in documents)


def _files(directory: Path) -> Iterator[Path]:
    kustomization = directory / "kustomization.yaml"
    written = yaml.safe_load(kustomization.read_text(encoding="utf-8"))
    if unknown := sorted(written.keys() - _UNDERSTOOD):
        raise ValueError(f"{kustomization}: {', '.join(unknown)}: only resources can be written into one file")
    for name in written["resources"]:
        resource = (directory / name).resolve()
        if resource.is_dir():
            yield from _files(resource)
        else:
            yield resource


if __name__ == "__main__":
    main()
