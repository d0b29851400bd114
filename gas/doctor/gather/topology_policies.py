"""Ask kubelets for the policy of their Topology Manager, through the API server's proxy to nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiUnavailable, Forbidden
from gas.cluster.objects import decode_object
from gas.doctor.objects import KubeletSettings
from gas.doctor.probe import Unseen, probe

IN_ALL = 30.0
"""Seconds after which no more kubelets are asked. Kubelets that do not respond cost a whole timeout each."""

_AT_ONCE = 20


async def read_topology_policies(api: ApiServer, nodes: Iterable[str], timeout: float) -> dict[str, str | Unseen]:
    """Return node -> the policy of its kubelet's Topology Manager, or why it could not be seen.

    timeout  seconds for each kubelet

    Needs the verb ``get`` on ``nodes/proxy``. Once the API server refuses it, no further kubelet is asked.
    """
    turns = asyncio.Semaphore(_AT_ONCE)
    deadline = time.monotonic() + IN_ALL
    refused: list[Forbidden] = []

    async def policy_of(node: str) -> str:
        path = f"{paths.node(node)}/proxy/configz"
        async with turns:
            if refused:
                raise refused[0]
            if (left := deadline - time.monotonic()) <= 0:
                raise ApiUnavailable(f"not asked: other kubelets took more than {IN_ALL:g} s")
            try:
                response = await api.request("GET", path, timeout=min(timeout, left))
            except Forbidden as error:
                refused.append(error)
                raise
        return decode_object(response, KubeletSettings, request=f"GET {path}").kubeletconfig.topology_manager_policy

    names = list(nodes)
    policies = await asyncio.gather(*(probe(policy_of(name)) for name in names))
    return dict(zip(names, policies, strict=True))
