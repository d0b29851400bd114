"""JSON merge patch (RFC 7396): maps merge, null removes, everything else replaces."""

from __future__ import annotations

from typing import Any

CONTENT_TYPE = "application/merge-patch+json"


def merge_patched(target: Any, patch: Any) -> Any:
    """``target`` after ``patch``; neither is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patched(merged.get(name), value)
    return merged
