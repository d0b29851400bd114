"""Single pods on the API server."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused, ApiUnavailable
from gas.objects import Pod

MERGE_PATCH = "application/merge-patch+json"
_POD = msgspec.json.Decoder(Pod)


async def get_pod(api: ApiServer, namespace: str, name: str) -> Pod | None:
    """The pod as the API server holds it now; None when there is none of that name.

    Raises ApiRefused, Forbidden, ApiUnavailable.
    """
    path = paths.pod(namespace, name)
    try:
        body = await api.request("GET", path)
    except ApiRefused as error:
        if error.status == 404:
            return None
        raise
    try:
        return _POD.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiUnavailable(f"expected a pod from GET {path}, found something else: {error}") from error


async def patch_pod_labels(
    api: ApiServer, namespace: str, name: str, uid: str, labels: Mapping[str, str | None]
) -> bool:
    """Set labels of this very pod, and take those away whose value is None; others stay.

    False: the pod is gone, or another pod has its name now, which was not touched.
    Raises ApiRefused, Forbidden, ApiUnavailable, OutcomeUnknown.
    """
    return await _patch_metadata(api, namespace, name, {"uid": uid, "labels": labels})


async def patch_pod_annotations(
    api: ApiServer, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
) -> bool:
    """The same for annotations."""
    return await _patch_metadata(api, namespace, name, {"uid": uid, "annotations": annotations})


async def _patch_metadata(api: ApiServer, namespace: str, name: str, metadata: Mapping[str, object]) -> bool:
    patch = msgspec.json.encode({"metadata": metadata})
    try:
        await api.request("PATCH", paths.pod(namespace, name), body=patch, content_type=MERGE_PATCH)
    except ApiRefused as error:
        # A UID cannot be changed, so naming one is asking whether it is this pod: the answer to "no" is 422.
        if error.status == 404 or (error.status == 422 and "metadata.uid" in error.message):
            return False
        raise
    return True
