"""Apply JSON merge patches, the only format of patches that the clients of the sandbox send."""

from typing import Any

import msgspec

from sandbox.api.failure import ApiFailure, bad_request

MERGE_PATCH = "application/merge-patch+json"

Object = dict[str, Any]


def patched(value: Object, content_type: str, body: bytes) -> Object:
    """Return a patched copy. Raises ApiFailure: 415 for another content type, 400 if the patch cannot be decoded."""
    if content_type.partition(";")[0].strip() != MERGE_PATCH:
        raise ApiFailure(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    try:
        patch = msgspec.json.decode(body, type=Object)
    except msgspec.MsgspecError as error:
        raise bad_request(f"error decoding patch: {error}") from error
    result: Object = merge_patched(value, patch)
    return result


def merge_patched(target: Any, patch: Any) -> Any:
    """Return a copy with a JSON merge patch applied (RFC 7396): maps merge, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patched(merged.get(name), value)
    return merged
