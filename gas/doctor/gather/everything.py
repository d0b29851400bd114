"""Gather the snapshot of a cluster: ask the API server, read the control plane's files, call the extender.

Nothing is changed anywhere.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import TypeVar

import aiohttp

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.credentials import Credentials
from gas.cluster.errors import ApiRefused, ApiUnavailable
from gas.cluster.listing import Lister
from gas.cluster.objects import get_object
from gas.doctor.flags import Flags
from gas.doctor.gather.accounts import find_accounts
from gas.doctor.gather.calls import call_extenders
from gas.doctor.gather.schedulers import find_schedulers
from gas.doctor.gather.topology_policies import read_topology_policies
from gas.doctor.gather.webhooks import find_webhooks
from gas.doctor.gpus import dry_pod_for, gpu_nodes
from gas.doctor.host_files import HostFiles
from gas.doctor.objects import AnyObject, Lease, ServerVersion
from gas.doctor.probe import Unseen, probe
from gas.doctor.programs import program_of
from gas.doctor.snapshot import Clock, Snapshot
from gas.objects.stored import DetailedNode, DetailedPod
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.known import KNOWN

T = TypeVar("T")

NODE_LEASES = "kube-node-lease"
NODE_FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures"
API_SERVER_CERTIFICATE = "pki/gas/api-server.crt"
"""Where gas-configurator puts it, below /etc/kubernetes."""

_VERSION = "/version"
_ALL_VOCABULARIES = Vocabularies(KNOWN)


async def look_at_everything(credentials: Credentials, api: ApiServer, flags: Flags) -> Snapshot:
    """Gather everything that the checks need. What cannot be seen is `Unseen` in the snapshot.

    Raises ApiUnavailable if the API server does not respond at all.
    """
    # The checks report objects that cannot be decoded; the log would repeat it.
    logging.getLogger("gas.cluster.listing").setLevel(logging.ERROR)
    await api.request("GET", _VERSION, timeout=flags.timeout)
    clock, version, nodes, pods, leases, features = await asyncio.gather(
        _server_clock(credentials, flags.timeout),
        probe(_server_version(api)),
        probe(_list(api, paths.nodes(), DetailedNode)),
        probe(_list(api, paths.pods(), DetailedPod, keep=_matters)),
        probe(_list(api, paths.leases(NODE_LEASES), Lease)),
        probe(_count_node_features(api)),
    )
    seen_nodes, unread_nodes = _split(nodes)
    seen_pods, unread_pods = _split(pods)
    files = HostFiles(flags.control_plane, flags.timeout)
    known_pods = () if isinstance(seen_pods, Unseen) else seen_pods
    found = await find_schedulers(api, files, known_pods, manifest=flags.manifest, configuration=flags.scheduler_config)
    dry_pod = None if isinstance(seen_nodes, Unseen) or not flags.dry_pod else dry_pod_for(seen_nodes, flags.node)
    question = dry_pod.question() if dry_pod is not None else None
    seen = Snapshot(
        now=time.time(),
        api_url=api.url,
        version=version,
        clock=clock,
        nodes=seen_nodes,
        pods=seen_pods,
        undecodable=unread_nodes + unread_pods,
        node_leases=leases if isinstance(leases, Unseen) else {each.metadata.name: each for each in leases[0]},
        feature_objects=features,
        schedulers=tuple(each.scheduler for each in found),
        calls=tuple(await call_extenders(api, files, found, question=question, timeout=flags.timeout)),
        accounts=tuple(await find_accounts(api, known_pods)),
        webhooks=await probe(find_webhooks(api, flags.timeout)),
        api_server_certificate=_api_server_certificate(files),
        only_node=flags.node,
        dry_pod=flags.dry_pod,
        control_plane=flags.control_plane,
    )
    policies = await read_topology_policies(api, [node.name for node in gpu_nodes(seen)], flags.timeout)
    return replace(seen, topology_policies=policies)


def _api_server_certificate(files: HostFiles) -> tuple[str, bytes] | None:
    path = files.control_plane / API_SERVER_CERTIFICATE
    content = files.read_here(path)
    return None if isinstance(content, Unseen) else (str(path), content)


async def _list(
    api: ApiServer, path: str, kind: type[T], *, keep: Callable[[T], bool] | None = None
) -> tuple[tuple[T, ...], int]:
    """Return the objects of a collection, and how many could not be decoded."""
    listing = await Lister(api, path, kind, keep=keep).fetch()
    return tuple(listing.objects), listing.undecodable


def _split(listed: tuple[tuple[T, ...], int] | Unseen) -> tuple[tuple[T, ...] | Unseen, int]:
    return (listed, 0) if isinstance(listed, Unseen) else listed


def _matters(pod: DetailedPod) -> bool:
    """Return whether a pod asks for GPUs or runs a program that the checks know."""
    return _ALL_VOCABULARIES.is_gpu_pod(pod) or any(map(program_of, pod.spec.containers or ()))


async def _count_node_features(api: ApiServer) -> int | None:
    """Return the number of NodeFeature objects; None if the cluster does not have that kind."""
    try:
        objects, undecodable = await _list(api, NODE_FEATURES, AnyObject)
    except ApiRefused as error:
        if error.status == 404:
            return None
        raise
    return len(objects) + undecodable


async def _server_version(api: ApiServer) -> str:
    version = await get_object(api, _VERSION, ServerVersion)
    if version is None:
        raise ApiUnavailable(f"the API server has no {_VERSION}")
    return version.git_version


async def _server_clock(credentials: Credentials, timeout: float) -> Clock | Unseen:
    """Read the API server's time from the header ``Date`` of a response."""
    address = credentials.address
    authorization = await credentials.authorization()
    headers = {"Authorization": authorization} if authorization is not None else {}
    again = "gas doctor   # again, once the API server responds"
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout)) as session:
            before = time.time()
            async with session.get(
                f"{address.url}{_VERSION}",
                headers=headers,
                ssl=address.tls,
                server_hostname=address.server_hostname,
                proxy=address.proxy,
                allow_redirects=False,
            ) as response:
                after = time.time()
                server = parsedate_to_datetime(response.headers["Date"]).timestamp()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return Unseen(f"the API server's time could not be read: {error or type(error).__name__}", again)
    except (KeyError, ValueError):
        return Unseen("the API server's response has no date", again)
    return Clock(before=before, server=server, after=after)
