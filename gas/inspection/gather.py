"""Read a cluster once from the API server: nodes, GPU pods, the measured use of cards and the last decisions."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from gas.cluster import paths
from gas.cluster.errors import ApiRefused, Forbidden
from gas.cluster.listing import Lister
from gas.cluster.reader import Reader, Reads
from gas.extender.decisions import Decision
from gas.inspection.cluster import Cluster, MeasuredUse, matters
from gas.inspection.connection import DEFAULT_NAMESPACE, Where
from gas.inspection.objects import InspectedNode, InspectedPod, ResourceSlice
from gas.inspection.reasons import Diagnosis, Reason, of_numbers
from gas.objects.stored import DeviceClass, ObjectMeta
from gas.programs import EXTENDER, PLUGIN, Program, containers_with, flag_value, is_on
from gas.values.card_facts import MOST_MEMORY
from gas.values.cards import Card, MalformedCard
from gas.values.errors import UNDECODABLE, GasError
from gas.values.quoted import quoted, shown

T = TypeVar("T")
K = TypeVar("K", DeviceClass, ResourceSlice)

USER_AGENT = "kubectl-gas"

USE_TIMEOUT = 2.0  # seconds for the measured use of all nodes together; without it, bookings are still shown

NOT_MEASURED = "use is not shown: no plugin measures it; see gas-plugin --usage"

LONGEST_TROUBLE = 500  # characters of a plugin's own sentence: any pod may look like a plugin
MOST_AT_ONCE = 64  # most plugins that are asked for measurements at the same time


@asynccontextmanager
async def reading(where: Where) -> AsyncIterator[Reads]:
    """Read from the API server for as long as the ``async with`` lasts. Raises NoCluster."""
    credentials = await where.credentials()
    if credentials.address.proxy:
        from gas.inspection.following import connected

        async with connected(where) as api:
            yield api
            return
    reader = Reader(credentials, user_agent=USER_AGENT, patience=where.patience)
    with unlogged():
        try:
            yield reader
        finally:
            reader.close()


@contextmanager
def unlogged() -> Iterator[None]:
    """Log nothing meanwhile: what the commands have to say is in their output."""
    logger = logging.getLogger("gas")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


async def read_cluster(api: Reads, *, counts_hosts: bool = False) -> Cluster:
    """Return the cluster as it is now. Raises ApiRefused, Forbidden, ApiUnavailable.

    ``counts_hosts`` keeps the pods without cards as well, which take CPU, memory and pod slots of nodes.
    """
    nodes, pods, classes = await asyncio.gather(
        Lister(api, paths.NODES, InspectedNode).fetch(),
        Lister(api, paths.PODS, InspectedPod, keep=kept(counts_hosts=counts_hosts)).fetch(),
        _fetched(Lister(api, paths.DEVICE_CLASSES, DeviceClass)),
    )
    cluster = Cluster.of(nodes.objects, pods.objects, counts_hosts=counts_hosts)
    cluster.classes.listed(classes)
    if cluster.classes.of_resource:
        slices = await _fetched(Lister(api, paths.RESOURCE_SLICES, ResourceSlice))
        cluster.of_drivers = frozenset(each.spec.node_name for each in slices if each.spec.node_name)
    return cluster


async def _fetched(lister: Lister[K]) -> list[K]:
    """Return all objects of a kind; none if there is no such kind, or this account may not list it."""
    try:
        return (await lister.fetch()).objects
    except ApiRefused:
        return []


class _Namespace(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


async def read_namespaces(where: Where) -> list[str]:
    """Return the names of all namespaces. Raises NoCluster, ApiRefused, Forbidden, ApiUnavailable."""
    async with reading(where) as api:
        listed = await Lister(api, paths.NAMESPACES, _Namespace).fetch()
        return [each.metadata.name for each in listed.objects]


def kept(*, counts_hosts: bool) -> Callable[[InspectedPod], bool]:
    return (lambda pod: bool(pod.node_name) or matters(pod)) if counts_hosts else matters


async def read_use(
    api: Reads, cluster: Cluster, nodes: Iterable[str] | None = None, *, patience: float = USE_TIMEOUT
) -> tuple[str, ...]:
    """Read the measured use of cards from the plugins, through the API server, and keep it in the cluster.

    Returns a sentence about each reason why use is not known. ``nodes`` are all if None; ``patience`` is in seconds for
    all of them together.
    """
    only = None if nodes is None else set(nodes)
    plugins = [pod for pod in _running(cluster, PLUGIN) if only is None or pod.node_name in only]
    measuring = [pod for pod in plugins if any(is_on(each, "usage") for each in containers_with(pod, PLUGIN))]
    if not measuring:
        return (NOT_MEASURED,)
    from gas.plugin.flags import Flags as PluginFlags

    node_of = {uid: pod.node_name for uid, pod in cluster.pods.records.items()}
    gate = asyncio.Semaphore(MOST_AT_ONCE)
    reasons: dict[str, list[str]] = {}

    async def ask(pod: InspectedPod) -> None:
        async with gate:
            if forbidden:
                reasons[forbidden[0]].append(pod.node_name)
                return
            path = f"{_proxy(pod, PLUGIN, PluginFlags().metrics_port)}/usage"
            try:
                use = parse_use(await api.request("GET", path, timeout=USE_TIMEOUT))
                # Any pod may look like a plugin, so it is believed about pods of its own node only.
                found.update({key: each for key, each in use.items() if node_of.get(key[0]) == pod.node_name})
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


async def read_decisions(api: Reads, cluster: Cluster) -> tuple[str, ...]:
    """Read the extenders' last decisions, through the API server, and keep them in the cluster.

    Returns a sentence about each reason why they are not known.
    """
    if not (extenders := list(_running(cluster, EXTENDER))):
        return ()
    from gas.extender.flags import Flags as ExtenderFlags

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


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    reason: str
    nodes: int
    has_cards: bool = False


class _PodExplanation(msgspec.Struct, frozen=True):
    reason: str = ""
    nodes: int = 0
    passing: int = 0
    groups: tuple[_Group, ...] = ()
    faults: str = ""


async def read_explanation(where: Where, namespace: str, name: str) -> tuple[Diagnosis, int]:
    """Ask the extender why a pod waits, and return it with the number of nodes.

    Raises NoCluster, ApiRefused, Forbidden, ApiUnavailable, UnusableDocument.
    """
    async with reading(where) as api:
        body = await api.request("GET", paths.explanation(namespace, name))
        found = _decoded(body, _PodExplanation, "of gas-extender about a pod")
        if found.reason:
            return Diagnosis(found.reason), found.nodes
        asked = _decoded(await api.request("GET", paths.pod(namespace, name)), InspectedPod, "of a pod")
    groups = [Reason(each.reason, each.nodes, may_fit=each.has_cards) for each in found.groups]
    return of_numbers(groups, found.passing, found.nodes, found.faults, asked), found.nodes


def _running(cluster: Cluster, program: Program) -> Iterator[InspectedPod]:
    for pod in cluster.pods.records.values():
        if pod.node_name and not pod.is_over and containers_with(pod, program):
            yield pod


def _some(names: Sequence[str]) -> str:
    return f"node {names[0]}" if len(names) == 1 else f"{len(names)} nodes such as {min(names)}"


def _proxy(pod: InspectedPod, program: Program, default: int) -> str:
    """Return the API server's proxy path to the plain port of a program's pod."""
    (container, *_) = containers_with(pod, program)
    text = flag_value(container, "metrics-port") or ""
    port = text if text.isascii() and text.isdigit() and len(text) <= 5 else default
    return f"{paths.pod(pod.metadata.namespace or DEFAULT_NAMESPACE, pod.metadata.name)}:{port}/proxy"


class UnusableDocument(GasError):
    """A document is not one of a plugin that measures, or of an extender that keeps its decisions."""


class _Engine(msgspec.Struct, frozen=True):
    busy: Annotated[float, Meta(ge=0, le=1000)] = 0.0


class _CardUse(msgspec.Struct, frozen=True, rename="camel"):
    memory_used: Annotated[int, Meta(ge=0, le=MOST_MEMORY)] | None = None
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
        raise UnusableDocument(shown(read.trouble, LONGEST_TROUBLE))
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
    except UNDECODABLE as error:
        raise UnusableDocument(f"expected the document {name}, found something else: {error}") from error
