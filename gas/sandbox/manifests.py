"""Nodes and pods from YAML files: the examples, and what ``kubectl get nodes,pods -A -o yaml`` writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gas.errors import GasError

Object = dict[str, Any]


class BadManifest(GasError):
    """A file that cannot be used; the sentence names file, document and what was expected there."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Manifests:
    """The objects of one or more files, in their order, without what an API server had added.

    ignored  kinds that are no nodes and no pods, and how many of each
    """

    nodes: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)

    def add(self, other: Manifests) -> None:
        self.nodes.extend(other.nodes)
        self.pods.extend(other.pods)
        for kind, count in other.ignored.items():
            self.ignored[kind] = self.ignored.get(kind, 0) + count


def read_manifests(file: Path) -> Manifests:
    """Read one file of YAML or JSON documents; a List counts as its items. Raises BadManifest."""
    try:
        documents = list(yaml.load_all(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))
    except OSError as error:
        raise BadManifest(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadManifest(f"{file} is not text in UTF-8: {error.reason} at byte {error.start}") from error
    except yaml.YAMLError as error:
        raise BadManifest(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise BadManifest(f"{file} is nested too deeply") from error
    found = Manifests()
    for number, document in enumerate(documents, start=1):
        if document is None:
            continue
        for where, item in _items(document, f"{file}, document {number}"):
            _sort(item, where, found)
    return found


def _items(document: object, where: str) -> Iterator[tuple[str, Object]]:
    if not isinstance(document, dict):
        raise BadManifest(f"{where}: expected a Kubernetes object, found {type(document).__name__}")
    if str(document.get("kind", "")).endswith("List"):
        items = document.get("items") or []
        if not isinstance(items, list):
            raise BadManifest(f"{where}: expected a list in items, found {type(items).__name__}")
        for place, item in enumerate(items):
            if not isinstance(item, dict):
                raise BadManifest(f"{where}, items[{place}]: expected an object, found {type(item).__name__}")
            yield f"{where}, items[{place}]", item
    else:
        yield where, document


def _sort(item: Object, where: str, found: Manifests) -> None:
    kind = item.get("kind")
    if not isinstance(kind, str):
        raise BadManifest(f"{where}: expected an object with a kind, found {kind!r}")
    if kind == "Node":
        found.nodes.append(_node(item, where))
    elif kind == "Pod":
        found.pods.append(_pod(item, where))
    else:
        found.ignored[kind] = found.ignored.get(kind, 0) + 1


def _node(item: Object, where: str) -> Object:
    status = _mapping(item, "status", where)
    allocatable = status.get("allocatable") or status.get("capacity") or {}
    return {
        "metadata": _metadata(item, where),
        "spec": _mapping(item, "spec", where),
        "status": {"allocatable": allocatable, "capacity": status.get("capacity") or allocatable},
    }


def _pod(item: Object, where: str) -> Object:
    return {
        "metadata": _metadata(item, where),
        "spec": _mapping(item, "spec", where),
        "status": {"phase": _mapping(item, "status", where).get("phase", "Pending")},
    }


def _metadata(item: Object, where: str) -> Object:
    metadata = _mapping(item, "metadata", where)
    if not isinstance(metadata.get("name"), str):
        raise BadManifest(f"{where}: expected a name in metadata, found {metadata.get('name')!r}")
    kept = {name: metadata[name] for name in ("name", "labels", "annotations") if metadata.get(name)}
    return kept | ({"namespace": metadata.get("namespace") or "default"} if item["kind"] == "Pod" else {})


def _mapping(item: Object, name: str, where: str) -> Object:
    value = item.get(name) or {}
    if not isinstance(value, dict):
        raise BadManifest(f"{where}: expected a mapping in {name}, found {type(value).__name__}")
    return value
