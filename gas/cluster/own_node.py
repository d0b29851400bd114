"""The node that a program runs on, as the API server has it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused, ApiUnavailable
from gas.cluster.pods import MERGE_PATCH
from gas.objects import Node

_NODE = msgspec.json.Decoder(Node)


async def get_node(api: ApiServer, name: str) -> Node | None:
    """The node as it is now; None when there is none of that name. Raises ApiRefused, Forbidden, ApiUnavailable."""
    return await _answered(api, "GET", paths.node(name), None)


async def patch_node_status(api: ApiServer, name: str, patch: Mapping[str, object]) -> Node | None:
    """Merge a patch of metadata and status into a node: all of it in one write, or nothing. Its spec stays.

    Answers the node as it is after that; None when there is none of that name. The permission that is needed is the
    verb ``patch`` on ``nodes/status``. Raises ApiRefused, Forbidden, ApiUnavailable, OutcomeUnknown.
    """
    return await _answered(api, "PATCH", f"{paths.node(name)}/status", msgspec.json.encode(patch))


async def _answered(api: ApiServer, method: str, path: str, body: bytes | None) -> Node | None:
    try:
        answer = await api.request(method, path, body=body, content_type=MERGE_PATCH)
    except ApiRefused as error:
        if error.status == 404:
            return None
        raise
    try:
        return _NODE.decode(answer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiUnavailable(f"expected a node from {method} {path}, found something else: {error}") from error
