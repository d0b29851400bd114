"""Follow a cluster: connect for long, and keep nodes and pods up to date by watches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.listing import Lister
from gas.cluster.watch import Watch
from gas.extender.hooks import Observer
from gas.inspection.cluster import Cluster, PlacementSettings, matters, settings_of
from gas.inspection.connection import SILENCE, Where
from gas.inspection.gather import USER_AGENT, kept, unlogged
from gas.inspection.objects import InspectedNode, InspectedPod

_FIRST_TIMEOUT = 60.0


@asynccontextmanager
async def connected(where: Where) -> AsyncIterator[ApiServer]:
    """Connect to the API server, for as long as the ``async with`` lasts. Raises NoCluster."""
    with unlogged():
        async with ApiServer(await where.credentials(), user_agent=USER_AGENT) as api:
            yield api


class Following(NamedTuple):
    cluster: Cluster
    watches: tuple[Watch[InspectedNode], Watch[InspectedPod]]

    @property
    def trouble(self) -> str:
        """Why the cluster may be out of date; empty while it is not."""
        return next((watch.trouble for watch in self.watches if watch.trouble), "")


@asynccontextmanager
async def following(
    api: ApiServer,
    settings: PlacementSettings | None = None,
    observer: Observer | None = None,
    *,
    counts_hosts: bool = False,
    patience: float = SILENCE,
) -> AsyncIterator[Following]:
    """Return a complete cluster that watches keep up to date while the ``async with`` lasts.

    ``settings`` are the extender's; None to read them from its pod. ``counts_hosts`` is as for `read_cluster`;
    ``patience`` is in seconds for the first response. Raises ApiRefused, Forbidden, ApiUnavailable if the cluster
    cannot be listed even once.
    """
    await api.request("GET", paths.NODES, query={"limit": "1"}, timeout=min(patience, _FIRST_TIMEOUT))
    pods = await Lister(api, paths.PODS, InspectedPod, keep=matters).fetch()
    cluster = Cluster(settings or settings_of(pods.objects), observer, counts_hosts=counts_hosts)
    node_watch = Watch(Lister(api, paths.NODES, InspectedNode), cluster.watched_nodes)
    pod_lister = Lister(api, paths.PODS, InspectedPod, keep=kept(counts_hosts=counts_hosts))
    pod_watch = Watch(pod_lister, cluster.watched_pods)
    tasks = [asyncio.create_task(node_watch.run())]
    try:
        await node_watch.synced.wait()
        tasks.append(asyncio.create_task(pod_watch.run()))
        await pod_watch.synced.wait()
        yield Following(cluster, (node_watch, pod_watch))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
