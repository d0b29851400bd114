"""Single nodes on the API server."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused
from gas.cluster.pods import MERGE_PATCH


async def patch_node_annotations(api: ApiServer, name: str, annotations: Mapping[str, str | None]) -> bool:
    """Set annotations of a node, and take those away whose value is None; others stay.

    False: there is no such node. Raises ApiRefused, Forbidden, ApiUnavailable, OutcomeUnknown.
    """
    patch = msgspec.json.encode({"metadata": {"annotations": annotations}})
    try:
        await api.request("PATCH", paths.node(name), body=patch, content_type=MERGE_PATCH)
    except ApiRefused as error:
        if error.status == 404:
            return False
        raise
    return True
