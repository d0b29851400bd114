"""Gather a cluster's snapshot, changing nothing, from the API server, the control plane's files and the extender."""

import asyncio
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.credentials import Credentials
from gas.cluster.listing import Lister, Listing
from gas.cluster.objects import decode_object
from gas.doctor.all_parts import CHECKS
from gas.doctor.check import Sources
from gas.doctor.findings import Unseen, probe
from gas.doctor.gather.calls import call_extender
from gas.doctor.gather.schedulers import find_schedulers
from gas.doctor.gpus import dry_pod_for
from gas.doctor.host_files import HostFiles
from gas.doctor.objects import ServerVersion
from gas.doctor.snapshot import Snapshot
from gas.inspection.objects import InspectedNode, InspectedPod
from gas.programs import PROGRAMS, SCHEDULER
from gas.vocabularies.known import EVERY

T = TypeVar("T")

_VERSION = "/version"
_ALL_PROGRAMS = (*PROGRAMS, *(program for check in CHECKS for program in check.programs))


async def look_at_everything(
    credentials: Credentials,
    api: ApiServer,
    *,
    control_plane: Path,  # directory that stands for /etc/kubernetes
    manifest: Path | None = None,  # of kube-scheduler; None for the usual one
    # of a kube-scheduler that is not a static pod; None for the file that the manifest names
    scheduler_config: Path | None = None,
    node: str = "",  # name of the only node to check; empty for all
    asks_dry_pod: bool = True,
    timeout: float = 10.0,  # seconds for each request or file
) -> Snapshot:
    """Gather what the checks need, or why it is unseen.

    Raises ApiUnavailable if the API server does not respond at all.
    """
    # The checks report objects that cannot be decoded; the log would repeat it.
    logging.getLogger("gas.cluster.listing").setLevel(logging.ERROR)
    response = await api.request("GET", _VERSION, timeout=timeout)
    nodes, pods = await asyncio.gather(
        probe(Lister(api, paths.NODES, InspectedNode).fetch()),
        probe(Lister(api, paths.PODS, InspectedPod, keep=_is_checked).fetch()),
    )
    seen_nodes, unread_nodes = _split(nodes)
    seen_pods, unread_pods = _split(pods)
    files = HostFiles(control_plane, timeout)
    snapshot = Snapshot(
        now=time.time(),
        api_url=api.url,
        version=decode_object(response, ServerVersion, request=f"GET {_VERSION}").git_version,
        nodes=seen_nodes,
        pods=seen_pods,
        undecodable=unread_nodes + unread_pods,
        only_node=node,
        dry_pod=asks_dry_pod,
        control_plane=control_plane,
    )
    schedulers = await find_schedulers(
        api, files, snapshot.running(SCHEDULER), manifest=manifest, configuration=scheduler_config
    )
    dry_pod = None if isinstance(seen_nodes, Unseen) or not asks_dry_pod else dry_pod_for(seen_nodes, node)
    question = dry_pod.question() if dry_pod is not None else None
    calls = [
        await call_extender(api, files, scheduler, entry, question=question, timeout=timeout)
        for scheduler in schedulers
        for entry in scheduler.entries
    ]
    snapshot = replace(snapshot, schedulers=tuple(schedulers), calls=tuple(calls))
    sources = Sources(credentials=credentials, api=api, files=files, timeout=timeout, snapshot=snapshot)
    gathered = await asyncio.gather(*(check.gather(sources) for check in CHECKS if check.gather is not None))
    return replace(snapshot, gathered={name: value for each in gathered for name, value in each.items()})


def _split(listed: Listing[T] | Unseen) -> tuple[tuple[T, ...] | Unseen, int]:
    """Return the objects of a list, and the number that could not be decoded."""
    return (listed, 0) if isinstance(listed, Unseen) else (tuple(listed.objects), listed.undecodable)


def _is_checked(pod: InspectedPod) -> bool:
    return EVERY.is_gpu_pod(pod) or any(
        program.runs_in(container) for container in pod.spec.containers or () for program in _ALL_PROGRAMS
    )
