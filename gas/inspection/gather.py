"""Read a cluster from the API server: nodes, GPU pods, the measured use of cards and the last decisions."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.credentials import DEFAULT_KUBECONFIG
from gas.cluster.errors import Forbidden
from gas.cluster.listing import Lister
from gas.cluster.watch import Watch
from gas.doctor.host_files import credentials_of
from gas.doctor.programs import EXTENDER, PLUGIN, Program, containers_with, flag_value, is_on
from gas.extender.decisions import Decision
from gas.extender.flags import Flags as ExtenderFlags
from gas.extender.hooks import Observer
from gas.inspection.cluster import Cluster, MeasuredUse, PlacementSettings, matters, settings_of
from gas.inspection.objects import InspectedNode, InspectedPod
from gas.plugin.flags import Flags as PluginFlags
from gas.values.cards import Card, MalformedCard
from gas.values.errors import GasError
from gas.values.quoted import quoted

T = TypeVar("T")

USER_AGENT = "kubectl-gas"

USE_TIMEOUT = 2.0
"""Seconds for the measured use of all nodes together; without it, bookings are still shown."""

MOST_AT_ONCE = 64
"""Most plugins that are asked for measurements at the same time."""

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
    api = ApiServer(await credentials_of(where.kubeconfig, where.context, os.environ), user_agent=USER_AGENT)
    logger.setLevel(logging.CRITICAL)
    try:
        yield api
    finally:
        logger.setLevel(level)
        await api.close()


async def read_cluster(api: ApiServer, *, counts_hosts: bool = False) -> Cluster:
    """Return the cluster as it is now. Raises ApiRefused, Forbidden, ApiUnavailable.

    ``counts_hosts`` keeps the pods without cards as well, which take CPU, memory and pod slots of nodes.
    """
    nodes, pods = await asyncio.gather(
        Lister(api, paths.nodes(), InspectedNode).fetch(),
        Lister(api, paths.pods(), InspectedPod, keep=_keep(counts_hosts=counts_hosts)).fetch(),
    )
    return Cluster.of(nodes.objects, pods.objects, counts_hosts=counts_hosts)


def _keep(*, counts_hosts: bool) -> Callable[[InspectedPod], bool]:
    return (lambda pod: bool(pod.node_name) or matters(pod)) if counts_hosts else matters


class Following(NamedTuple):
    """A cluster that watches keep up to date."""

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
) -> AsyncIterator[Following]:
    """Return a complete cluster that watches keep up to date while the ``async with`` lasts.

    ``settings`` are the extender's; None to read them from its pod. ``counts_hosts`` is as for `read_cluster`. Raises
    ApiRefused, Forbidden, ApiUnavailable if the cluster cannot be listed even once.
    """
    pods = await Lister(api, paths.pods(), InspectedPod, keep=matters).fetch()
    await api.request("GET", paths.nodes(), query={"limit": "1"})
    cluster = Cluster(settings or settings_of(pods.objects), observer, counts_hosts=counts_hosts)
    node_watch = Watch(Lister(api, paths.nodes(), InspectedNode), cluster.watched_nodes)
    pod_lister = Lister(api, paths.pods(), InspectedPod, keep=_keep(counts_hosts=counts_hosts))
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


async def read_use(
    api: ApiServer, cluster: Cluster, nodes: Iterable[str] | None = None, *, patience: float = USE_TIMEOUT
) -> tuple[str, ...]:
    """Read the measured use of cards from the plugins, through the API server, and keep it in the cluster.

    Returns a sentence about each reason why use is not known. ``nodes`` are all if None; ``patience`` is in seconds for
    all of them together.
    """
    only = None if nodes is None else set(nodes)
    plugins = [
        pod for pod in cluster.pods.records.values() if _is_plugin(pod) and (only is None or pod.node_name in only)
    ]
    measuring = [pod for pod in plugins if _measures(pod)]
    if not measuring:
        return ("use is not shown: no plugin measures it; see gas-plugin --usage",)
    gate = asyncio.Semaphore(MOST_AT_ONCE)
    reasons: dict[str, list[str]] = {}

    async def ask(pod: InspectedPod) -> None:
        async with gate:
            if forbidden:
                reasons[forbidden[0]].append(pod.node_name)
                return
            path = f"{_proxy(pod, PLUGIN, PluginFlags().metrics_port)}/usage"
            try:
                found.update(parse_use(await api.request("GET", path, timeout=USE_TIMEOUT)))
            except Forbidden as error:
                forbidden.append(f"this account may not get pods/proxy: {error}")
                reasons.setdefault(forbidden[0], []).append(pod.node_name)
            except GasError as error:
                # One sentence for all nodes, so without the pod's name.
                reasons.setdefault(str(error).replace(path, "/usage of the plugin"), []).append(pod.node_name)

    forbidden: list[str] = []
    found: dict[tuple[str, Card], MeasuredUse] = {}
    tasks = [asyncio.create_task(ask(pod)) for pod in measuring]
    _, late = await asyncio.wait(tasks, timeout=patience)
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    cluster.use = found
    if late:
        reasons.setdefault(f"their plugins did not respond within {patience:g} s", []).extend(
            pod.node_name for pod, task in zip(measuring, tasks, strict=True) if task in late
        )
    notes = [f"use is not shown for {_some(names)}: {reason}" for reason, names in sorted(reasons.items())]
    if len(measuring) < len(plugins):
        others = [pod.node_name for pod in plugins if pod not in measuring]
        notes.append(f"use is not shown for {_some(others)}: the plugin there does not measure it")
    return tuple(notes)


async def read_decisions(api: ApiServer, cluster: Cluster) -> tuple[str, ...]:
    """Read the extenders' last decisions, through the API server, and keep them in the cluster.

    Returns a sentence about each reason why they are not known.
    """
    extenders = [
        pod
        for pod in cluster.pods.records.values()
        if pod.node_name and not pod.is_over and containers_with(pod, EXTENDER)
    ]
    notes: dict[str, None] = {}
    found: list[Decision] = []

    async def ask(pod: InspectedPod) -> None:
        path = _proxy(pod, EXTENDER, ExtenderFlags().metrics_port)
        try:
            found.extend(parse_decisions(await api.request("GET", f"{path}/debug/decisions", timeout=USE_TIMEOUT)))
        except GasError as error:
            notes[f"the last decisions are not shown: {error}"] = None

    await asyncio.gather(*map(ask, extenders))
    cluster.decisions = sorted(found, key=lambda each: each.time, reverse=True)
    return tuple(notes)


def _some(names: Sequence[str]) -> str:
    return f"node {names[0]}" if len(names) == 1 else f"{len(names)} nodes such as {min(names)}"


def _is_plugin(pod: InspectedPod) -> bool:
    return bool(pod.node_name) and not pod.is_over and bool(containers_with(pod, PLUGIN))


def _measures(pod: InspectedPod) -> bool:
    return any(is_on(container, "usage", default=False) for container in containers_with(pod, PLUGIN))


def _proxy(pod: InspectedPod, program: Program, default: int) -> str:
    """Return the API server's proxy path to the plain port of a program's pod."""
    (container, *_) = containers_with(pod, program)
    text = flag_value(container, "metrics-port") or ""
    port = text if text.isascii() and text.isdigit() and len(text) <= 5 else default
    return f"{paths.pod(pod.metadata.namespace or DEFAULT_NAMESPACE, pod.metadata.name)}:{port}/proxy"


def namespace_of(where: Where) -> str:
    """Return the namespace of the kubeconfig's context; ``default`` if it names none or cannot be read."""
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
        entries = content.get("contexts")
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(context := entry.get("context"), dict):
                contexts.setdefault(str(entry.get("name")), str(context.get("namespace") or DEFAULT_NAMESPACE))
    return contexts.get(current, DEFAULT_NAMESPACE)


class UnusableDocument(GasError):
    """A document is not one of a plugin that measures, or of an extender that keeps its decisions."""


class _Engine(msgspec.Struct, frozen=True):
    busy: float = 0.0


class _CardUse(msgspec.Struct, frozen=True, rename="camel"):
    memory_used: int | None = None
    engines: dict[str, _Engine] | None = None


class _PodUse(msgspec.Struct, frozen=True):
    uid: str = ""
    cards: dict[str, _CardUse] | None = None


class _Usage(msgspec.Struct, frozen=True):
    trouble: str | None = None
    pods: list[_PodUse] | None = None


def parse_use(document: bytes) -> Mapping[tuple[str, Card], MeasuredUse]:
    """Return the use by pod UID and card of the plugin's document ``/usage``. Raises UnusableDocument."""
    read = _decoded(document, _Usage, "/usage of gas-plugin")
    if read.trouble:
        raise UnusableDocument(read.trouble)
    found: dict[tuple[str, Card], MeasuredUse] = {}
    for pod in read.pods or ():
        for name, use in (pod.cards or {}).items():
            try:
                card = Card.parse(name)
            except MalformedCard as error:
                raise UnusableDocument(f"the use of pod {quoted(pod.uid)}: {error}") from error
            busy = max((engine.busy for engine in use.engines.values()), default=None) if use.engines else None
            found[pod.uid, card] = MeasuredUse(use.memory_used, busy)
    return found


def parse_decisions(document: bytes) -> list[Decision]:
    """Return the decisions of the extender's document ``/debug/decisions``. Raises UnusableDocument."""
    return _decoded(document, list[Decision], "/debug/decisions of gas-extender")


def _decoded(document: bytes, kind: type[T], name: str) -> T:
    try:
        return msgspec.json.decode(document, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnusableDocument(f"expected the document {name}, found something else: {error}") from error
