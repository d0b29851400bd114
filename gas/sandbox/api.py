"""The verbs of the Kubernetes API over the storage: what a request does, without HTTP."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from gas.sandbox import events, json_patch, leases, merge_patch, nodes, pods, strategic_merge_patch
from gas.sandbox.binding import bound, check_binding
from gas.sandbox.deletion import is_finished, marked_for_deletion
from gas.sandbox.failure import (
    ApiFailure,
    Cause,
    already_exists,
    bad_request,
    conflict,
    invalid,
    modified,
    not_found,
    rejected_patch,
    unsupported_media_type,
)
from gas.sandbox.kinds import EVENTS, LEASES, NAMESPACES, NODES, PODS, Kind
from gas.sandbox.metadata import SERVER_SET, metadata_causes, new_metadata, read_metadata
from gas.sandbox.storage import Storage, Stored

Object = dict[str, Any]


def _now() -> datetime:
    return datetime.now(UTC)


class Api:
    """What a client of the API can do. Every method raises ApiFailure where the real server would refuse.

    Namespaces ``default`` and ``kube-system`` are there from the start; for kinds without one it is None.
    """

    def __init__(self, storage: Storage, now: Callable[[], datetime] = _now) -> None:
        self.storage = storage
        self._now = now
        for name in ("default", "kube-system"):
            self.create(NAMESPACES, None, {"metadata": {"name": name}})

    def get(self, kind: Kind, namespace: str | None, name: str) -> Stored:
        if (stored := self.storage.get(kind.plural, _key(namespace, name))) is None:
            raise not_found(kind, name)
        return stored

    def create(self, kind: Kind, namespace: str | None, sent: Object) -> Stored:
        """Store a new object with what the server adds to it."""
        _check_type(kind, sent)
        metadata = new_metadata(kind, sent.get("metadata"), namespace, self._now())
        value = _with_defaults(kind, {**sent, "metadata": metadata})
        if kind is PODS:
            metadata["generation"] = 1
            value = pods.admitted(value)
        elif kind is NAMESPACES:
            value["status"] = {"phase": "Active"}
        _refuse_if(kind, metadata.get("name", ""), _causes(kind, value))
        if namespace is not None and self.storage.get(NAMESPACES.plural, namespace) is None:
            raise not_found(NAMESPACES, namespace)
        key = _key(namespace, metadata["name"])
        if self.storage.get(kind.plural, key) is not None:
            raise already_exists(kind, metadata["name"])
        return self.storage.put(kind.plural, key, value)

    def update(self, kind: Kind, namespace: str | None, name: str, sent: Object, subresource: str = "") -> Stored:
        """Replace an object, or only its status; with a ``resourceVersion`` only that version of it."""
        _check_type(kind, sent)
        before = self.get(kind, namespace, name)
        metadata = read_metadata(kind, sent.get("metadata"))
        if metadata.setdefault("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        if (uid := metadata.get("uid")) and uid != before.value["metadata"]["uid"]:
            raise conflict(kind, name, _uid_precondition(uid, before))
        if not kind.blind_update and not metadata.get("resourceVersion"):
            message = "Invalid value: 0: must be specified for an update"
            raise invalid(kind, name, [Cause("metadata.resourceVersion", message)])
        return self._replace(kind, before, {**sent, "metadata": metadata}, subresource)

    def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: tuple[str, bytes],
        subresource: str = "",
    ) -> Stored:
        """Change an object, or only its status, with a patch: its content type and its body."""
        content_type, body = patch
        patched_by = _PATCH_TYPES.get(content_type.partition(";")[0].strip())
        if patched_by is None:
            raise unsupported_media_type()
        before = self.get(kind, namespace, name)
        after = patched_by(dict(before.value), _decoded_patch(body))
        metadata = after.get("metadata") or {}
        if metadata.get("name") != name:
            raise bad_request(
                f"the name of the object ({metadata.get('name')}) does not match the name on the URL ({name})"
            )
        uid = before.value["metadata"]["uid"]
        if metadata.get("uid", uid) != uid:
            message = f'Invalid value: "{metadata["uid"]}": field is immutable'
            raise invalid(kind, name, [Cause("metadata.uid", message)])
        try:
            return self._replace(kind, before, {**after, "metadata": read_metadata(kind, metadata)}, subresource)
        except ApiFailure as failure:
            if failure.code == 400:
                raise invalid(kind, name, [Cause("patch", f"Invalid value: {failure}")]) from failure
            raise

    def delete(
        self, kind: Kind, namespace: str | None, name: str, options: Object, grace: int | None = None
    ) -> Stored | None:
        """Delete an object; answers the pod as it is now, or None for the kinds that simply go.

        options  DeleteOptions: ``gracePeriodSeconds`` (wins over ``grace``), ``preconditions`` with ``uid``
        """
        before = self.get(kind, namespace, name)
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != (uid := before.value["metadata"]["uid"]):
            why = (
                f"the UID in the precondition ({wanted}) does not match the UID in record ({uid}). "
                "The object might have been deleted and then recreated"
            )
            raise conflict(kind, name, why)
        seconds = options.get("gracePeriodSeconds")
        marked = marked_for_deletion(kind, before.value, grace if seconds is None else seconds, self._now())
        if marked is None:
            return before
        if kind is not PODS:
            self.storage.remove(kind.plural, before.key)
            return None
        after = self.storage.put(kind.plural, before.key, marked.value)
        return self.storage.remove(kind.plural, before.key) if is_finished(after.value) else after

    def bind(self, namespace: str, name: str, binding: Object) -> None:
        """Give a pod its node, and the annotations of the Binding, in one write."""
        check_binding(name, binding)
        pod = self.get(PODS, namespace, name)
        self.storage.put(PODS.plural, pod.key, bound(pod.value, binding, self._now()))

    def _replace(self, kind: Kind, before: Stored, sent: Object, subresource: str) -> Stored:
        name, old = before.value["metadata"]["name"], before.value["metadata"]
        if (version := sent["metadata"].get("resourceVersion")) and version != old["resourceVersion"]:
            raise modified(kind, name)
        kept = {field: old[field] for field in (*SERVER_SET, "namespace") if field in old}
        after = {**_with_defaults(kind, sent), "metadata": {**sent["metadata"], **kept}}
        if subresource == "status":
            after = {**before.value, "metadata": after["metadata"], "status": after.get("status", {})}
        elif kind.has_status:
            after["status"] = before.value["status"]
        causes = _causes(kind, after)
        if kind is PODS:
            causes += pods.update_causes(dict(before.value), after)
        _refuse_if(kind, name, causes)
        stored = self.storage.put(kind.plural, before.key, after)
        return self.storage.remove(kind.plural, before.key) if is_finished(stored.value) else stored


def _key(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace is not None else name


def _check_type(kind: Kind, sent: Object) -> None:
    if not isinstance(sent, dict):
        raise bad_request(f'{kind.name} in version "v1" cannot be handled as a {kind.name}: expected an object')
    found = (sent.get("apiVersion", kind.api_version), sent.get("kind", kind.name))
    if found != (kind.api_version, kind.name):
        raise bad_request(
            f"the API version in the data ({found[0]}, Kind={found[1]}) does not match "
            f"the expected API version ({kind.api_version}, Kind={kind.name})"
        )


def _with_defaults(kind: Kind, value: Object) -> Object:
    bare = {name: part for name, part in value.items() if name not in ("kind", "apiVersion") and part is not None}
    if kind is PODS:
        return pods.with_defaults(bare)
    if kind is NODES:
        return nodes.with_defaults(bare)
    if kind is LEASES:
        return leases.with_defaults(bare)
    return bare


def _causes(kind: Kind, value: Object) -> list[Cause]:
    causes = metadata_causes(value["metadata"])
    if kind is PODS:
        causes += pods.causes(value)
    elif kind is NODES:
        causes += nodes.causes(value)
    elif kind is LEASES:
        causes += leases.causes(value)
    elif kind is EVENTS:
        causes += events.causes(value)
    return causes


def _refuse_if(kind: Kind, name: str, causes: list[Cause]) -> None:
    if causes:
        raise invalid(kind, name, causes)


def _uid_precondition(wanted: str, before: Stored) -> str:
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{before.plural}/{before.key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, "
        f"UID in object meta: {before.value['metadata']['uid']}"
    )


def _decoded_patch(patch: bytes) -> Any:
    try:
        return msgspec.json.decode(patch)
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from error


def _merge(value: Object, patch: Any) -> Object:
    return _as_object(merge_patch.merge_patched(value, patch), patch)


def _strategic(value: Object, patch: Any) -> Object:
    return _as_object(strategic_merge_patch.strategic_merge_patched(value, patch), patch)


def _json(value: Object, operations: Any) -> Object:
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type []jsonPatchOp")
    try:
        return _as_object(json_patch.json_patched(value, operations), {})
    except json_patch.DoesNotApply as failure:
        raise rejected_patch() from failure


def _as_object(patched: Any, patch: Any) -> Object:
    if not isinstance(patch, dict) or not isinstance(patched, dict):
        raise bad_request("error decoding patch: expected an object")
    return patched


_PATCH_TYPES: dict[str, Callable[[Object, Any], Object]] = {
    merge_patch.CONTENT_TYPE: _merge,
    strategic_merge_patch.CONTENT_TYPE: _strategic,
    json_patch.CONTENT_TYPE: _json,
}
