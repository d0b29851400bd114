"""The whole look at a cluster, in the order in which one thing leads to the next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TypeVar

from gas.cluster.connection import ApiServer
from gas.cluster.credentials import Credentials
from gas.doctor.dry_pod import dry_pod_for
from gas.doctor.flags import Flags
from gas.doctor.gather.accounts import find_accounts
from gas.doctor.gather.calls import call_extenders
from gas.doctor.gather.cluster import (
    count_node_features,
    list_node_leases,
    list_nodes,
    list_pods,
    server_clock,
    server_version,
)
from gas.doctor.gather.schedulers import find_schedulers
from gas.doctor.host_files import HostFiles
from gas.doctor.looked import Unseen, looked, looked_for
from gas.doctor.snapshot import Snapshot

T = TypeVar("T")


async def look_at_everything(credentials: Credentials, api: ApiServer, flags: Flags) -> Snapshot:
    """Ask the API server, read the control plane's files, call the extender. Nothing is changed anywhere.

    Raises ApiUnavailable when there is no API server to be asked; anything else that cannot be seen is told in the
    snapshot.
    """
    await api.request("GET", "/version", timeout=flags.timeout)
    clock, version, nodes, pods, leases, features = await asyncio.gather(
        server_clock(credentials, flags.timeout),
        looked(server_version(api)),
        looked(list_nodes(api)),
        looked(list_pods(api)),
        looked(list_node_leases(api)),
        looked_for(count_node_features(api)),
    )
    seen_nodes, unread_nodes = _split(nodes)
    seen_pods, unread_pods = _split(pods)
    files = HostFiles(flags.control_plane, flags.timeout)
    known_pods = () if isinstance(seen_pods, Unseen) else seen_pods
    found = await find_schedulers(api, files, known_pods, manifest=flags.manifest, configuration=flags.scheduler_config)
    dry_pod = None if isinstance(seen_nodes, Unseen) or not flags.dry_pod else dry_pod_for(seen_nodes, flags.node)
    question = dry_pod.question() if dry_pod is not None else None
    return Snapshot(
        now=time.time(),
        api_url=api.url,
        version=version,
        clock=clock,
        nodes=seen_nodes,
        pods=seen_pods,
        undecodable=unread_nodes + unread_pods,
        node_leases=leases,
        feature_objects=features,
        schedulers=tuple(each.scheduler for each in found),
        calls=tuple(await call_extenders(api, files, found, question=question, timeout=flags.timeout)),
        accounts=tuple(await find_accounts(api, known_pods)),
        only_node=flags.node,
        dry_pod=flags.dry_pod,
        control_plane=flags.control_plane,
    )


def _split(listed: tuple[Iterable[T], int] | Unseen) -> tuple[tuple[T, ...] | Unseen, int]:
    return (listed, 0) if isinstance(listed, Unseen) else (tuple(listed[0]), listed[1])
