"""The three patch formats of the Kubernetes API: merge, strategic merge and JSON patch.

The strategic merge patch is implemented as far as pods and nodes need it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from sandbox.api.failure import bad_request, rejected_patch, unsupported_media_type

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

Object = dict[str, Any]

_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "addresses": "type",
    "ownerReferences": "uid",
}
"""Lists that a strategic merge patch merges item by item, with the field that identifies an item."""


class DoesNotApply(Exception):
    """A JSON patch operation names a missing path, or a ``test`` operation fails."""


def patch_function(content_type: str) -> Callable[[Object, bytes], Object]:
    """Return the function that applies a patch of this content type to an object.

    The function takes the object and the request body, leaves the object unchanged, and returns the patched one.
    It raises ApiFailure: 400 if the patch cannot be decoded, 422 if a JSON patch does not apply.

    Raises ApiFailure (415) for any other content type.
    """
    try:
        apply = _APPLY[content_type.partition(";")[0].strip()]
    except KeyError:
        raise unsupported_media_type() from None

    def patched(value: Object, body: bytes) -> Object:
        try:
            patch = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise bad_request(f"error decoding patch: {error}") from error
        result = apply(value, patch)
        if not isinstance(result, dict):
            raise bad_request("error decoding patch: expected an object")
        return result

    return patched


def merge_patched(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396): maps merge, null removes, everything else replaces.

    Neither argument is changed.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patched(merged.get(name), value)
    return merged


def strategic_merge_patched(target: Any, patch: Any) -> Any:
    """Apply a strategic merge patch. Neither argument is changed.

    Maps merge and null removes, as in a merge patch. The lists of `_MERGE_KEYS` are merged item by item; other lists
    are replaced. ``$patch: delete`` removes an item of a merged list, ``$patch: replace`` replaces a map.
    """
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    merged = dict(target) if isinstance(target, dict) and directive != "replace" else {}
    for name, value in patch.items():
        if name == "$patch" or name.startswith("$setElementOrder/"):
            continue
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, list) and (key := _MERGE_KEYS.get(name)) is not None:
            merged[name] = _merged_list(merged.get(name) or [], value, key)
        else:
            merged[name] = strategic_merge_patched(merged.get(name), value)
    return merged


def _merged_list(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    """Merge known items in place and put new items first, in the order that kube-apiserver uses."""
    patches = {item[key]: item for item in patch if isinstance(item, dict) and key in item}
    known = {item.get(key) for item in target}
    new = [strategic_merge_patched({}, item) for word, item in patches.items() if word not in known]
    kept = []
    for item in target:
        change = patches.get(item.get(key), {})
        if change.get("$patch") != "delete":
            kept.append(strategic_merge_patched(item, change))
    return new + kept


def json_patched(target: Any, operations: list[Any]) -> Any:
    """Return a copy of ``target`` with all operations of a JSON patch (RFC 6902) applied.

    As in kube-apiserver, ``replace`` of a missing member adds it.

    Raises DoesNotApply if any operation fails; no operation is applied then.
    """
    document = copy.deepcopy(target)
    for operation in operations:
        try:
            _apply_operation(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as broken:
            raise DoesNotApply(str(operation)) from broken
    return document


def _apply_operation(document: Any, operation: dict[str, Any]) -> None:
    path = _tokens(operation["path"])
    match operation["op"]:
        case "test":
            if _value_at(document, path) != operation["value"]:
                raise DoesNotApply(str(operation))
        case "remove":
            _remove(document, path)
        case "replace" | "add" as word:
            _put(document, path, operation["value"], insert=word == "add")
        case "move":
            _put(document, path, _remove(document, _tokens(operation["from"])), insert=True)
        case "copy":
            found = copy.deepcopy(_value_at(document, _tokens(operation["from"])))
            _put(document, path, found, insert=True)
        case _:
            raise DoesNotApply(str(operation))


def _tokens(path: str) -> list[str]:
    if not path.startswith("/"):
        raise DoesNotApply(path)
    return [token.replace("~1", "/").replace("~0", "~") for token in path[1:].split("/")]


def _value_at(document: Any, path: list[str]) -> Any:
    found = document
    for token in path:
        found = found[int(token)] if isinstance(found, list) else found[token]
    return found


def _remove(document: Any, path: list[str]) -> Any:
    parent = _value_at(document, path[:-1])
    return parent.pop(int(path[-1])) if isinstance(parent, list) else parent.pop(path[-1])


def _put(document: Any, path: list[str], value: Any, *, insert: bool) -> None:
    parent, place = _value_at(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[place] = value
    elif place == "-" and insert:
        parent.append(value)
    elif insert and int(place) <= len(parent):
        parent.insert(int(place), value)
    else:
        parent[int(place)] = value


def _apply_json(value: Object, patch: Any) -> Any:
    if not isinstance(patch, list):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type []jsonPatchOp")
    try:
        return json_patched(value, patch)
    except DoesNotApply as failure:
        raise rejected_patch() from failure


_APPLY: dict[str, Callable[[Object, Any], Any]] = {
    MERGE_PATCH: merge_patched,
    STRATEGIC_MERGE_PATCH: strategic_merge_patched,
    JSON_PATCH: _apply_json,
}
