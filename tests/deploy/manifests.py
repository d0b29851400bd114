"""The manifests of deploy/ as they are written, before kustomize puts them together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "base"
COMPONENTS = DEPLOY / "components"
KUSTOMIZATIONS = sorted(DEPLOY.rglob("kustomization.yaml"))

Manifest = dict[str, Any]


def read(file: Path) -> list[Manifest]:
    """Return all documents of a file."""
    return [document for document in yaml.safe_load_all(file.read_text(encoding="utf-8")) if document is not None]


def one(directory: Path, kind: str) -> Manifest:
    """Return the only object of this kind in the files of a directory."""
    (found,) = [each for file in sorted(directory.glob("*.yaml")) for each in read(file) if each.get("kind") == kind]
    return found


VALIDATING, MUTATING = (
    one(COMPONENTS / "admission", f"{kind}WebhookConfiguration") for kind in ("Validating", "Mutating")
)
WEBHOOKS: dict[str, Manifest] = {each["name"]: each for each in (*VALIDATING["webhooks"], *MUTATING["webhooks"])}


def container(workload: Manifest) -> Manifest:
    """Return the only container of a Deployment or DaemonSet."""
    (found,) = workload["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def local_files(kustomization: Path) -> Iterator[Path]:
    """Yield the files and directories that a kustomization names."""
    written = read(kustomization)[0]
    for entry in (*written.get("resources", ()), *written.get("components", ())):
        yield kustomization.parent / entry
    for patch in written.get("patches", ()):
        if "path" in patch:
            yield kustomization.parent / patch["path"]
    for generator in written.get("configMapGenerator", ()):
        for file in generator["files"]:
            yield kustomization.parent / file.partition("=")[2]


def arguments(overlay: str, workload: str) -> list[str]:
    """Return the arguments that an overlay gives the first container of a Deployment or DaemonSet.

    tests/e2e compares them with what kubectl makes.
    """
    found: dict[tuple[str, str], list[str]] = {}
    _add_arguments(found, DEPLOY / "overlays" / overlay)
    (of_workload,) = (added for (_, name), added in found.items() if name == workload)
    return of_workload


def _add_arguments(found: dict[tuple[str, str], list[str]], directory: Path) -> None:
    """Add those of a kustomization's workloads, and then those of its patches, by kind and name of the workload."""
    (written,) = read(directory / "kustomization.yaml")
    for entry in (*written.get("resources", ()), *written.get("components", ())):
        if (directory / entry).is_dir():
            _add_arguments(found, directory / entry)
            continue
        for each in read(directory / entry):
            if each["kind"] in ("Deployment", "DaemonSet"):
                (first, *_) = each["spec"]["template"]["spec"]["containers"]
                found[each["kind"], each["metadata"]["name"]] = list(first["args"])
    for patch in written.get("patches", ()):
        operations = yaml.safe_load(patch["patch"]) if "target" in patch else ()
        added = [each["value"] for each in operations if each["path"] == "/spec/template/spec/containers/0/args/-"]
        for (kind, name), of_workload in found.items():
            if added and kind == patch["target"]["kind"] and re.fullmatch(patch["target"]["name"], name):
                of_workload.extend(added)
