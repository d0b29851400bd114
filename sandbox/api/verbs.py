"""Implement the verbs of the Kubernetes API over the storage, without HTTP."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sandbox.api.failure import ApiFailure, Cause, bad_request, conflict, details_of, invalid, not_found
from sandbox.api.kinds import NAMESPACES, PODS, Kind, is_over, system_time, timestamp
from sandbox.api.patches import patched
from sandbox.api.storage import Storage, Stored, Value
from sandbox.api.validation import (
    SERVER_SET,
    admit_pod,
    causes_of,
    new_metadata,
    pod_update_causes,
    read_metadata,
    with_defaults,
)

Object = dict[str, Any]


class Api:
    """The requests that a client can make. Every method raises ApiFailure where kube-apiserver would refuse.

    ``namespace`` is None for kinds without a namespace. The namespaces ``default`` and ``kube-system`` always exist.
    """

    def __init__(
        self,
        storage: Storage,
        now: Callable[[], datetime] = system_time,
        new_uid: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self.storage = storage
        self._now = now
        self._new_uid = new_uid
        for name in ("default", "kube-system"):
            self.create(NAMESPACES, None, {"metadata": {"name": name}})

    def get(self, kind: Kind, namespace: str | None, name: str) -> Stored:
        if (stored := self.storage.get(kind.plural, _key(namespace, name))) is None:
            raise not_found(kind, name)
        return stored

    def create(self, kind: Kind, namespace: str | None, sent: Object) -> Stored:
        _check_type(kind, sent)
        metadata = new_metadata(kind, sent.get("metadata"), namespace, self._now(), self._new_uid())
        value = with_defaults(kind, {**sent, "metadata": metadata})
        if kind is PODS:
            metadata["generation"] = 1
            value = admit_pod(value)
        elif kind is NAMESPACES:
            value["status"] = {"phase": "Active"}
        _refuse_if(kind, metadata.get("name", ""), causes_of(kind, value))
        if namespace is not None and self.storage.get(NAMESPACES.plural, namespace) is None:
            raise not_found(NAMESPACES, namespace)
        key = _key(namespace, metadata["name"])
        if self.storage.get(kind.plural, key) is not None:
            message = f'{kind.qualified} "{metadata["name"]}" already exists'
            raise ApiFailure(409, "AlreadyExists", message, details_of(kind, metadata["name"]))
        return self.storage.put(kind.plural, key, value)

    def update(self, kind: Kind, namespace: str | None, name: str, sent: Object, subresource: str = "") -> Stored:
        """Replace an object, or only its status. If a ``resourceVersion`` is sent, it must be the current one."""
        _check_type(kind, sent)
        before = self.get(kind, namespace, name)
        metadata = read_metadata(kind, sent.get("metadata"))
        if metadata.setdefault("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        if (wanted := metadata.get("uid")) and wanted != (uid := before.value["metadata"]["uid"]):
            raise conflict(kind, name, _failed_precondition(f"{kind.plural}/{before.key}", "UID", wanted, uid))
        if not kind.blind_update and not metadata.get("resourceVersion"):
            message = "Invalid value: 0: must be specified for an update"
            raise invalid(kind, name, [Cause("metadata.resourceVersion", message)])
        return self._replace(kind, before, {**sent, "metadata": metadata}, subresource)

    def patch(
        self, kind: Kind, namespace: str | None, name: str, patch: tuple[str, bytes], subresource: str = ""
    ) -> Stored:
        """Patch an object, or only its status. ``patch`` is the content type and the body."""
        before = self.get(kind, namespace, name)
        after = patched(dict(before.value), *patch)
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
        """Delete an object. Return the current state of a pod, None for other kinds, which are removed at once.

        options  DeleteOptions: ``gracePeriodSeconds`` (overrides ``grace``) and ``preconditions``, with a ``uid`` and a
                 ``resourceVersion``
        grace    seconds, from the query
        """
        before = self.get(kind, namespace, name)
        preconditions, metadata = options.get("preconditions") or {}, before.value["metadata"]
        for field, word, happened in (
            ("uid", "UID", "deleted and then recreated"),
            ("resourceVersion", "ResourceVersion", "modified"),
        ):
            if (wanted := preconditions.get(field)) and wanted != (found := metadata[field]):
                why = (
                    f"the {word} in the precondition ({wanted}) does not match the {word} in record ({found}). "
                    f"The object might have been {happened}"
                )
                raise conflict(kind, name, why)
        seconds = options.get("gracePeriodSeconds")
        if kind is not PODS:
            self.storage.remove(kind.plural, before.key)
            return None
        marked = _marked_for_deletion(before.value, grace if seconds is None else seconds, self._now())
        if marked is None:
            return before
        after = self.storage.put(kind.plural, before.key, marked)
        return self.storage.remove(kind.plural, before.key) if _is_finished(after.value) else after

    def bind(self, namespace: str, name: str, binding: Object) -> None:
        """Set a pod's node and copy the annotations of the Binding to the pod, in one write."""
        _check_binding(name, binding)
        pod = self.get(PODS, namespace, name)
        self.storage.put(PODS.plural, pod.key, _bound(pod.value, binding, self._now()))

    def _replace(self, kind: Kind, before: Stored, sent: Object, subresource: str) -> Stored:
        name, old = before.value["metadata"]["name"], before.value["metadata"]
        if (version := sent["metadata"].get("resourceVersion")) and version != old["resourceVersion"]:
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise conflict(kind, name, why)
        kept = {field: old[field] for field in (*SERVER_SET, "namespace") if field in old}
        after = {**with_defaults(kind, sent), "metadata": {**sent["metadata"], **kept}}
        if subresource == "status":
            after = {**before.value, "metadata": after["metadata"], "status": after.get("status", {})}
        elif kind.has_status and "status" in before.value:
            after["status"] = before.value["status"]
        elif kind.has_status:
            after.pop("status", None)
        causes = causes_of(kind, after)
        if kind is PODS:
            causes += pod_update_causes(dict(before.value), after)
        _refuse_if(kind, name, causes)
        stored = self.storage.put(kind.plural, before.key, after)
        return self.storage.remove(kind.plural, before.key) if _is_finished(stored.value) else stored


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


def _refuse_if(kind: Kind, name: str, causes: list[Cause]) -> None:
    if causes:
        raise invalid(kind, name, causes)


def _failed_precondition(key: str, word: str, wanted: str, found: str) -> str:
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {found}"
    )


def _check_binding(name: str, binding: dict[str, Any]) -> None:
    """Raise ApiFailure if the Binding names another pod or does not name a node."""
    if (binding.get("metadata") or {}).get("name") != name:
        raise bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    if target.get("kind", "Node") not in ("Node", ""):
        supported = 'supported values: "Node", "<empty>"'
        raise ApiFailure(500, "", f'target.kind: Unsupported value: "{target["kind"]}": {supported}')
    if not target.get("name"):
        raise ApiFailure(500, "", "target.name: Required value")


def _bound(pod: Value, binding: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return the bound pod, with its node and the annotations of the Binding.

    Raises ApiFailure (409) if the UID differs, or if the pod is already bound or is being deleted.
    """
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = binding["metadata"].get(field)
        if wanted and wanted != metadata[field]:
            key = f"pods/{metadata['namespace']}/{name}"
            raise conflict(PODS, name, _failed_precondition(key, word, wanted, metadata[field]))
    if "deletionTimestamp" in metadata:
        raise conflict(PODS, name, f"pod {name} is being deleted, cannot be assigned to a host", "binding")
    if node := pod["spec"].get("nodeName"):
        raise conflict(PODS, name, f'pod {name} is already assigned to node "{node}"', "binding")
    annotations = {**metadata.get("annotations", {}), **(binding["metadata"].get("annotations") or {})}
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": timestamp(now)}
    others = [other for other in pod["status"].get("conditions", []) if other["type"] != "PodScheduled"]
    return {
        **pod,
        "metadata": {**metadata, **({"annotations": annotations} if annotations else {})},
        "spec": {**pod["spec"], "nodeName": binding["target"]["name"]},
        "status": {**pod["status"], "conditions": [*others, condition]},
    }


def _marked_for_deletion(pod: Value, grace: int | None, now: datetime) -> dict[str, Any] | None:
    """Return the pod marked for deletion; None if it already ends no later than this request demands.

    ``grace`` is in seconds; None for the pod's own. It is 0 for pods without a node and for pods that have ended.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    seconds = spec.get("terminationGracePeriodSeconds", 30) if grace is None else max(grace, 0)
    if not spec.get("nodeName") or is_over(pod):
        seconds = 0
    asked = now
    if "deletionTimestamp" in metadata:
        running = metadata["deletionGracePeriodSeconds"]
        if seconds >= running > 0:
            return None
        asked = datetime.fromisoformat(metadata["deletionTimestamp"]) - timedelta(seconds=running)
    marks = {"deletionTimestamp": timestamp(asked + timedelta(seconds=seconds)), "deletionGracePeriodSeconds": seconds}
    if "deletionTimestamp" not in metadata:
        marks["generation"] = metadata.get("generation", 1) + 1
    return {**pod, "metadata": {**metadata, **marks}}


def _is_finished(value: Value) -> bool:
    """Return whether a deletion is complete: the object has neither a grace period nor a finalizer left."""
    metadata = value["metadata"]
    return (
        "deletionTimestamp" in metadata
        and metadata.get("deletionGracePeriodSeconds", 0) == 0
        and not metadata.get("finalizers")
    )
