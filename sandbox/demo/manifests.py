"""Nodes and pods from YAML and JSON files: the examples, and what ``kubectl get nodes,pods -A -o yaml`` writes.

Only the fields that the sandbox uses are read, with their types. So everything that an API server, a kubelet or a
controller has added is dropped, and a field of the wrong type is found early.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gas.objects.stored import Quantity
from gas.values.errors import GasError

Amounts = dict[str, Quantity]


class _Fields(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    def as_object(self) -> dict[str, Any]:
        """Return the object in the form of the API, without unset fields."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class Metadata(_Fields, frozen=True):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Resources(_Fields, frozen=True):
    limits: Amounts | None = None
    requests: Amounts | None = None


class Container(_Fields, frozen=True):
    name: str | None = None
    image: str | None = None
    resources: Resources | None = None
    restart_policy: str | None = None


class Unread(_Fields, frozen=True):
    """A field of which only the presence matters."""


class PodSpec(_Fields, frozen=True):
    node_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_selector: dict[str, str] | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    affinity: Unread | None = None
    topology_spread_constraints: list[Unread] | None = None


class PodStatus(_Fields, frozen=True):
    phase: str | None = None


class PodManifest(_Fields, frozen=True):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None

    @property
    def name(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.metadata.name or self.metadata.generate_name or ''}"

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or "default"

    @property
    def is_over(self) -> bool:
        return self.status is not None and self.status.phase in ("Succeeded", "Failed")


class Taint(_Fields, frozen=True):
    effect: str | None = None


class NodeSpec(_Fields, frozen=True):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(_Fields, frozen=True):
    allocatable: Amounts | None = None
    capacity: Amounts | None = None


class NodeManifest(_Fields, frozen=True):
    metadata: Metadata = Metadata()
    spec: NodeSpec | None = None
    status: NodeStatus | None = None

    @property
    def name(self) -> str:
        return self.metadata.name or ""

    @property
    def keeps_pods_away(self) -> bool:
        """Return whether the node has a taint that keeps away pods without a toleration."""
        taints = (self.spec.taints if self.spec is not None else None) or []
        return any(taint.effect in ("NoSchedule", "NoExecute") for taint in taints)


_DEEPEST = 200
_DATE = "tag:yaml.org,2002:timestamp"


class BadManifest(GasError):
    """A file that cannot be used at all. The sentence names the file and what was expected."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Manifests:
    """The objects of a file, in their order.

    ignored   number of objects of each other kind
    unusable  a sentence for each object that cannot be used, with its place in the file
    """

    nodes: list[NodeManifest] = field(default_factory=list)
    pods: list[PodManifest] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    unusable: list[str] = field(default_factory=list)


class _Loader(yaml.CSafeLoader):
    """A YAML loader that keeps dates as text, as Kubernetes does, and limits the depth, as the C stack is limited."""

    _depth = 0

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        """Count the depth on the way into a node."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise RecursionError
        super().descend_resolver(current_node, current_index)

    def ascend_resolver(self) -> None:
        """Count the depth on the way out."""
        self._depth -= 1
        super().ascend_resolver()


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _DATE]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read_manifests(file: Path) -> Manifests:
    """Read a file of YAML or JSON documents. A List counts as its items.

    Objects that cannot be used are reported in the result. Raises BadManifest if the whole file cannot be used.
    """
    found = Manifests()
    for number, document in enumerate(_documents(file), start=1):
        if document is not None:
            _read_document(document, f"{file}, document {number}", found)
    return found


def _documents(file: Path) -> list[Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadManifest(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadManifest(f"{file}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    if text.lstrip().startswith("{"):
        try:
            return [msgspec.json.decode(text)]  # much faster than parsing it as YAML
        except (msgspec.DecodeError, RecursionError):
            pass
    try:
        return list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError) as error:
        raise BadManifest(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise BadManifest(f"{file}: nested too deeply") from error


def _read_document(document: object, where: str, found: Manifests) -> None:
    for place, item, kind in _items(document, where, found):
        name = _name(item)
        where_named = f"{place}, {kind} {name}" if name else f"{place}, {kind}"
        try:
            if kind == "Node":
                found.nodes.append(msgspec.convert(item, NodeManifest))
            elif kind == "Pod":
                found.pods.append(msgspec.convert(item, PodManifest))
            else:
                found.ignored[kind] += 1
        except (msgspec.ValidationError, RecursionError) as error:
            found.unusable.append(f"{where_named}: {_sentence(error)}")


def _items(document: object, where: str, found: Manifests) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the place of each object, the object and its kind."""
    if not isinstance(document, dict):
        found.unusable.append(f"{where}: expected a Kubernetes object, found {_short(document)}")
        return
    kind = document.get("kind")
    if not isinstance(kind, str):
        found.unusable.append(f"{where}: expected an object with a kind, found {_short(kind)}")
    elif not kind.endswith("List"):
        yield where, document, kind
    elif not isinstance(items := document.get("items") or [], list):
        found.unusable.append(f"{where}: expected a list in items, found {_short(items)}")
    else:
        for place, item in enumerate(items):
            of_item = (item.get("kind") or kind.removesuffix("List")) if isinstance(item, dict) else None
            if isinstance(item, dict) and of_item and isinstance(of_item, str):
                yield f"{where}, items[{place}]", item, of_item
            else:
                found.unusable.append(f"{where}, items[{place}]: expected an object with a kind, found {_short(item)}")


def _name(item: dict[str, Any]) -> str:
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def _sentence(error: Exception) -> str:
    """Turn ``Expected `int`, got `str` - at `$.spec.priority` `` into ``expected … at `spec.priority` ``."""
    text = str(error).replace(" - at `$.", " at `")
    return f"{text[:1].lower()}{text[1:]}"


def _short(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
