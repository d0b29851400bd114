"""Kubernetes' strategic merge patch, as far as pods and nodes are patched with it.

Maps merge and null removes, as in a merge patch. Of the lists, those below are merged item by item by the key that
tells their items apart. The directive ``$patch: delete`` takes an item out of such a list, ``$patch: replace`` replaces
a map. Other lists are replaced.
"""

from __future__ import annotations

from typing import Any

CONTENT_TYPE = "application/strategic-merge-patch+json"

_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "addresses": "type",
    "ownerReferences": "uid",
}


def strategic_merge_patched(target: Any, patch: Any) -> Any:
    """``target`` after ``patch``; neither is changed."""
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
    """Known items are merged in their place, new ones come first, as the real server orders them."""
    patches = {item[key]: item for item in patch if isinstance(item, dict) and key in item}
    known = {item.get(key) for item in target}
    new = [strategic_merge_patched({}, item) for word, item in patches.items() if word not in known]
    kept = []
    for item in target:
        change = patches.get(item.get(key), {})
        if change.get("$patch") != "delete":
            kept.append(strategic_merge_patched(item, change))
    return new + kept
