"""Binding a pod to a node: the one write of a placement."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gas.cluster import paths
from gas.cluster.connection import ApiServer


class _Meta(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    annotations: Mapping[str, str]


class _Target(msgspec.Struct, rename="camel"):
    name: str
    kind: str = "Node"
    api_version: str = "v1"


class _Binding(msgspec.Struct, rename="camel"):
    metadata: _Meta
    target: _Target
    kind: str = "Binding"
    api_version: str = "v1"


async def bind_pod(
    api: ApiServer, *, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
) -> None:
    """Set the pod's node and put the annotations on it, in one write that does both or nothing.

    Raises ApiRefused when nothing was changed: 404, there is no such pod; 409, it is another pod (UID), is
    bound already or is being deleted. Raises OutcomeUnknown when the write was sent and nobody knows; reading
    the pod tells. Any other ApiUnavailable means that nothing was sent. MalformedName: no pod can be called
    that. The API server does not ask whether the node exists. Source: contract E11.2, E11.3.
    """
    binding = _Binding(_Meta(name, namespace, uid, annotations), _Target(node))
    await api.request("POST", paths.binding(namespace, name), body=msgspec.json.encode(binding))
