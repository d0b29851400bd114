"""Read nodes and pods from YAML and JSON: the examples, and the output of ``kubectl get nodes,pods -A -o yaml``."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from gas.inspection.objects import InspectedNode, InspectedPod
from gas.values.errors import GasError

T = TypeVar("T", InspectedNode, InspectedPod)


class BadManifest(GasError):
    """A file that cannot be used at all. The sentence names the file and what was expected."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Manifest(Generic[T]):
    written: dict[str, Any]
    typed: T


@dataclass(frozen=True, slots=True)
class Manifests:
    """The objects of a file, in their order."""

    nodes: list[Manifest[InspectedNode]] = field(default_factory=list)
    pods: list[Manifest[InspectedPod]] = field(default_factory=list)
    sharepods: list[Manifest[InspectedPod]] = field(default_factory=list)  # those that pods are made for
    ignored: Counter[str] = field(default_factory=Counter)  # number of objects of each other kind
    # a sentence for each object that cannot be used, with its place in the file
    unusable: list[str] = field(default_factory=list)


class _Loader(yaml.CSafeLoader):
    """Load YAML with dates as text, as Kubernetes does."""

    yaml_implicit_resolvers = {  # noqa: RUF012 -- declared so by the library
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
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
        except msgspec.DecodeError:
            pass
    try:
        return list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError) as error:
        raise BadManifest(f"{file}: not YAML: {' '.join(str(error).split())}") from error


def _read_document(document: object, where: str, found: Manifests) -> None:
    for place, item, kind in _items(document, where, found):
        name = _name(item)
        where_named = f"{place}, {kind} {name}" if name else f"{place}, {kind}"
        try:
            if kind == "Node":
                found.nodes.append(Manifest(item, msgspec.convert(item, InspectedNode)))
            elif kind == "Pod":
                found.pods.append(Manifest(item, msgspec.convert(item, InspectedPod)))
            elif kind == "SharePod":
                found.sharepods.append(Manifest(item, msgspec.convert(item, InspectedPod)))
            else:
                found.ignored[kind] += 1
        except msgspec.ValidationError as error:
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
