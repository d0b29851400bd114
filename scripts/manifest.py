"""Write what is generated in deploy/: ``make manifest``. A test checks that every file is current.

deploy/gas.yaml, one file that `kubectl apply -f` installs, is made of the overlay `both`. A chart must be complete, so
it has copies of files that stand elsewhere. `scripts.vocabulary_files`, `scripts.scheduler_configurations` and
`scripts.roles` make the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from scripts.roles import role_files
from scripts.scheduler_configurations import scheduler_configurations
from scripts.vocabulary_files import vocabulary_files

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


COPIES = {
    "alerts.yaml": "components/monitoring/alerts.yaml",
    "dashboard.json": "components/monitoring/dashboard.json",
    "own-node-only.yaml": "base/plugin/own-node-only.yaml",
    "sharepods.yaml": "components/sharepods/definition.yaml",
    "webhooks.yaml": "components/admission/webhooks.yaml",
}
"""Files of the chart -> the files of deploy/ that they are copies of; that of an optional part goes with the part."""


def main() -> None:
    for make in _STEPS:
        for file, text in make().items():
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")


def written() -> dict[Path, str]:
    """Return the text of each file that is written."""
    return {file: text for make in _STEPS for file, text in make().items()}


def _copies() -> dict[Path, str]:
    deploy = MANIFEST.parent
    return {
        deploy / "chart/files" / name: (deploy / original).read_text(encoding="utf-8")
        for name, original in COPIES.items()
        if (deploy / original).exists()
    }


def _one_file() -> dict[Path, str]:
    return {MANIFEST: manifest(OVERLAY)}


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


_STEPS = (vocabulary_files, scheduler_configurations, role_files, _copies, _one_file)
"""What is written, in this order: later files are made of earlier ones."""

if __name__ == "__main__":
    main()
