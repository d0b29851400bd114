"""AdmissionReviews as the API server sends them: a call states only what the case is about."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from gas.extender.admission.review import Review, decode_review

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def review_json(
    new: Any = None,
    *,
    old: Any = None,
    resource: str = "pods",
    group: str = "",
    subresource: str | None = None,
    operation: str = "CREATE",
    namespace: str = "default",
    name: str = "pod",
    user: str = "alice",
    dry_run: bool = False,
    uid: str = UID,
) -> dict[str, Any]:
    """Return an AdmissionReview as JSON."""
    request = {
        "uid": uid,
        "kind": {"group": group, "version": "v1", "kind": "Pod"},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "name": name,
        "namespace": namespace,
        "operation": operation,
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "object": new,
        "oldObject": old,
        "dryRun": dry_run,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    if subresource is not None:
        request["subResource"] = subresource
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def review(new: Any = None, **fields: Any) -> Review:
    """Return the same, decoded."""
    return decode_review(json.dumps(review_json(new, **fields)).encode())


def patched(document: Mapping[str, Any], response: Mapping[str, Any]) -> Any:
    """Return an object with the patch of a response applied; only the operation "add" is known."""
    changed = json.loads(json.dumps(document))
    for operation in json.loads(base64.b64decode(response.get("patch", "W10="))):
        apply(changed, operation)
    return changed


def apply(document: Any, operation: Mapping[str, Any]) -> None:
    """Apply one operation "add" to a member of an object, in place."""
    assert operation["op"] == "add"
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
    for part in parents:
        document = document[int(part) if isinstance(document, list) else part]
    document[last] = operation["value"]


def as_json(value: Any) -> Any:
    """Return a value as it looks on the wire."""
    return json.loads(msgspec.json.encode(value))
