"""Read a cluster from the API server: nodes, GPU pods, and the measured use of cards. Only reads, nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.credentials import DEFAULT_KUBECONFIG
from gas.cluster.errors import Forbidden
from gas.cluster.listing import Lister
from gas.cluster.watch import Watch
from gas.doctor.kubeconfig import credentials_of
from gas.doctor.programs import Program, containers_with, flag_value, is_on
from gas.errors import GasError
from gas.inspection.cluster import Cluster, matters, settings_of
from gas.inspection.objects import InspectedNode, InspectedPod
from gas.inspection.use import parse_use

USER_AGENT = "kubectl-gas"

METRICS_PORT = "9003"
"""The default of the plugin's flag --metrics-port."""

USE_TIMEOUT = 2.0
"""Seconds for the measured use of all nodes together: bookings are shown without it."""

MOST_AT_ONCE = 64
"""Plugins that are asked for their measurements at the same time."""

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The cluster that a command line names; empty texts stand for the usual kubeconfig and its context."""

    kubeconfig: str = ""
    context: str = ""


@asynccontextmanager
async def connected(where: Where) -> AsyncIterator[ApiServer]:
    """Connect to the API server, for as long as the ``async with`` lasts. Raises NoCluster.

    Nothing is logged meanwhile: what the commands have to say is in their output.
    """
    logger = logging.getLogger("gas")
    level = logger.level
    async with credentials_of(where.kubeconfig, where.context, os.environ) as credentials:
        api = ApiServer(credentials, user_agent=USER_AGENT)
        logger.setLevel(logging.CRITICAL)
        try:
            yield api
        finally:
            logger.setLevel(level)
            await api.close()


async def read_cluster(api: ApiServer) -> Cluster:
    """Return the cluster as it is now. Raises ApiRefused, Forbidden, ApiUnavailable."""
    nodes, pods = await asyncio.gather(
        Lister(api, paths.nodes(), InspectedNode).fetch(),
        Lister(api, paths.pods(), InspectedPod, keep=matters).fetch(),
    )
    return Cluster.of(nodes.objects, pods.objects)


@asynccontextmanager
async def following(api: ApiServer) -> AsyncIterator[Cluster]:
    """Return a cluster, complete from the start, that watches keep up to date while the ``async with`` lasts.

    Raises ApiRefused, Forbidden, ApiUnavailable if it cannot be listed even once.
    """
    pods = await Lister(api, paths.pods(), InspectedPod, keep=matters).fetch()
    await api.request("GET", paths.nodes(), query={"limit": "1"})
    cluster = Cluster(settings_of(pods.objects))
    node_watch = Watch(api, paths.nodes(), InspectedNode, cluster.nodes)
    pod_watch = Watch(api, paths.pods(), InspectedPod, cluster.pods, keep=matters)
    tasks = [asyncio.create_task(node_watch.run())]
    try:
        await node_watch.synced.wait()
        tasks.append(asyncio.create_task(pod_watch.run()))
        await pod_watch.synced.wait()
        yield cluster
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_use(api: ApiServer, cluster: Cluster, nodes: Iterable[str] | None = None) -> tuple[str, ...]:
    """Ask the plugins for the measured use of cards, through the API server, and keep it in the cluster.

    Returns a sentence about each reason why use is not known.

    nodes  only these; None for all
    """
    only = None if nodes is None else set(nodes)
    plugins = [
        pod for pod in cluster.pods.by_key.values() if _is_plugin(pod) and (only is None or pod.node_name in only)
    ]
    measuring = [pod for pod in plugins if _measures(pod)]
    if not measuring:
        return ("use is not shown: no plugin measures it; see gas-plugin --usage",)
    gate = asyncio.Semaphore(MOST_AT_ONCE)
    reasons: dict[str, list[str]] = {}
    refused = asyncio.Event()

    async def ask(pod: InspectedPod) -> None:
        async with gate:
            if refused.is_set():
                reasons.setdefault(forbidden[0], []).append(pod.node_name)
                return
            try:
                path = f"{paths.pod(pod.metadata.namespace or DEFAULT_NAMESPACE, pod.metadata.name)}:{_port(pod)}"
                body = await api.request("GET", f"{path}/proxy/usage", timeout=USE_TIMEOUT)
                cluster.use.update(parse_use(body))
            except Forbidden as error:
                forbidden.append(f"this account may not get pods/proxy: {error}")
                refused.set()
                reasons.setdefault(forbidden[0], []).append(pod.node_name)
            except GasError as error:
                reasons.setdefault(str(error), []).append(pod.node_name)

    forbidden: list[str] = []
    cluster.use.clear()
    tasks = [asyncio.create_task(ask(pod)) for pod in measuring]
    _, late = await asyncio.wait(tasks, timeout=USE_TIMEOUT)
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if late:
        reasons.setdefault(f"their plugins did not respond within {USE_TIMEOUT:g} s", []).extend(
            pod.node_name for pod, task in zip(measuring, tasks, strict=True) if task in late
        )
    notes = [f"use is not shown for {_some(names)}: {reason}" for reason, names in sorted(reasons.items())]
    if len(measuring) < len(plugins):
        notes.append(f"use is not shown for {len(plugins) - len(measuring)} nodes: their plugins do not measure it")
    return tuple(notes)


def _some(names: Sequence[str]) -> str:
    return f"node {names[0]}" if len(names) == 1 else f"{len(names)} nodes such as {min(names)}"


def _is_plugin(pod: InspectedPod) -> bool:
    return bool(pod.node_name) and not pod.is_over and bool(containers_with(pod, Program.PLUGIN))


def _measures(pod: InspectedPod) -> bool:
    return any(is_on(container, "usage", default=False) for container in containers_with(pod, Program.PLUGIN))


def _port(pod: InspectedPod) -> str:
    (container, *_) = containers_with(pod, Program.PLUGIN)
    port = flag_value(container, "metrics-port") or METRICS_PORT
    return port if port.isascii() and port.isdigit() and len(port) <= 5 else METRICS_PORT


def namespace_of(where: Where) -> str:
    """Return the namespace of the kubeconfig's context, ``default`` if it names none or cannot be read."""
    files = (where.kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG).split(os.pathsep)
    contexts: dict[str, str] = {}
    current = where.context
    for file in filter(None, files):
        try:
            content = YAML(typ="safe", pure=True).load(Path(file).expanduser().read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, YAMLError, RuntimeError):
            continue
        if not isinstance(content, dict):
            continue
        current = current or str(content.get("current-context") or "")
        for entry in content.get("contexts") or ():
            if isinstance(entry, dict) and isinstance(context := entry.get("context"), dict):
                contexts.setdefault(str(entry.get("name")), str(context.get("namespace") or DEFAULT_NAMESPACE))
    return contexts.get(current, DEFAULT_NAMESPACE)
