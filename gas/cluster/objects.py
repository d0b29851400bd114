"""Requests about single objects: read one, patch a pod or a node, bind a pod to a node.

Every function here raises ApiRefused, Forbidden or ApiUnavailable, and those that write OutcomeUnknown as well.
"""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import msgspec

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused, ApiUnavailable
from gas.objects.stored import Node, Pod
from gas.values.errors import UNDECODABLE

MERGE_PATCH = "application/merge-patch+json"

_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

T = TypeVar("T")


class _Verdict(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _Verdict | None = None


async def may_access(api: ApiServer, spec: Mapping[str, object]) -> bool:
    """Return whether the user in the spec of a SubjectAccessReview may do what it says."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    response = await api.request("POST", _ACCESS_REVIEWS, body=msgspec.json.encode(review))
    status = decode_object(response, _AccessReview, request=f"POST {_ACCESS_REVIEWS}").status
    return status is not None and status.allowed


async def get_object(api: ApiServer, path: str, kind: type[T], *, urgent: bool = False) -> T | None:
    """Return the object at a path, decoded as ``kind``; None if it does not exist. ``urgent`` skips the rate limit."""
    response = await _existing(api, "GET", path, urgent=urgent)
    return None if response is None else decode_object(response, kind, request=f"GET {path}")


async def get_pod(api: ApiServer, namespace: str, name: str, *, urgent: bool = False) -> Pod | None:
    """Return the pod as the API server has it now; None if it does not exist. ``urgent`` skips the rate limit."""
    return await get_object(api, paths.pod(namespace, name), Pod, urgent=urgent)


LONGEST_LABEL = 63  # characters of the value of a label
LATEST_SEND = 4.0
"""Seconds in which a Binding is sent again if the API server is busy. A replica that no longer leads must not send one
once another replica may lead, which is 5 s later."""


async def bind_pod(
    api: ApiServer, pod: Pod, node: str, annotations: Mapping[str, str], *, labels: Collection[str] = ()
) -> None:
    """Set the node and the annotations of the pod in this version in one write: both change, or neither does.

    Raises ApiRefused when nothing was changed: 404, the pod does not exist; 409, the name belongs to another pod
    (UID), the pod has another version, or it is bound already or is being deleted. Raises OutcomeUnknown when the write
    was sent without a response: read the pod to find out. Any other ApiUnavailable means that nothing was sent. Raises
    MalformedName if no pod can have that name. The API server does not check that the node exists. Source: contract
    E11.2, E11.3.

    labels  names of annotations that the pod gets as labels, too, if they are not too long for one. API servers before
            1.35 drop the labels of a Binding.
    """
    namespace, name = pod.metadata.namespace or "default", pod.metadata.name
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": pod.uid,
        "resourceVersion": pod.metadata.resource_version,
        "annotations": annotations,
    }
    if wanted := {each: text for each in labels if 0 < len(text := annotations.get(each, "")) <= LONGEST_LABEL}:
        metadata["labels"] = wanted
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    body = msgspec.json.encode(binding)
    await api.request("POST", paths.binding(namespace, name), body=body, repeat_within=LATEST_SEND)


async def patch_pod_metadata(
    api: ApiServer,
    namespace: str,
    name: str,
    uid: str,
    annotations: Mapping[str, str | None],
    *,
    labels: Mapping[str, str | None] | None = None,
    urgent: bool = False,
) -> bool:
    """Set annotations and labels of the pod with this UID and remove those whose value is None; the others stay.

    Returns False if that pod is gone. A new pod of the same name is left alone. ``urgent`` skips the rate limit.
    """
    metadata: dict[str, object] = {"uid": uid, "annotations": annotations}
    if labels is not None:
        metadata["labels"] = labels
    path = paths.pod(namespace, name)
    try:
        return await _existing(api, "PATCH", path, {"metadata": metadata}, urgent=urgent) is not None
    except ApiRefused as error:
        # A UID cannot change, so naming it asks whether this is the same pod. For another pod the status is 422.
        if error.status == 422 and "metadata.uid" in error.message:
            return False
        raise


async def patch_node_annotations(api: ApiServer, name: str, annotations: Mapping[str, str | None]) -> bool:
    """Set annotations of a node and remove those whose value is None. Returns False if the node does not exist."""
    patch = {"metadata": {"annotations": annotations}}
    return await _existing(api, "PATCH", paths.node(name), patch) is not None


async def patch_node_status(api: ApiServer, name: str, patch: Mapping[str, object]) -> Node | None:
    """Merge a patch of metadata and status into a node in one write. Its spec stays as it is.

    Returns the node after the write; None if it does not exist. Needs the verb ``patch`` on ``nodes/status``.
    """
    path = f"{paths.node(name)}/status"
    response = await _existing(api, "PATCH", path, patch)
    return None if response is None else decode_object(response, Node, request=f"PATCH {path}")


def decode_object(response: bytes, kind: type[T], *, request: str) -> T:
    """Decode the body of a response. Raises ApiUnavailable, with the request's name, if it is something else."""
    try:
        return msgspec.json.decode(response, type=kind)
    except UNDECODABLE as error:
        raise ApiUnavailable(f"expected an object from {request}, found something else: {error}") from error


async def _existing(
    api: ApiServer, method: str, path: str, patch: Mapping[str, object] | None = None, *, urgent: bool = False
) -> bytes | None:
    """Send a request about an object and return the response; None if the object does not exist."""
    body = None if patch is None else msgspec.json.encode(patch)
    try:
        return await api.request(method, path, body=body, content_type=MERGE_PATCH, urgent=urgent)
    except ApiRefused as error:
        if error.status == 404:
            return None
        raise
