"""Keep the node's labels, annotations and resources in line with its cards, whoever changes them.

A vocabulary recognises what it writes by its exact name, so labels of other programs under the same prefix stay. An
annotation of such a name is removed even if another program wrote it: an outdated one would be wrong. Resources are
removed only from a node with the plugin's records of cards, since plugins of other systems write some of them as well.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Literal, NoReturn

from gas.cluster import paths
from gas.cluster.backoff import Backoff
from gas.cluster.connection import ApiServer
from gas.cluster.errors import Forbidden
from gas.cluster.events import Events as ApiEvents
from gas.cluster.events import Involved
from gas.cluster.objects import get_object, patch_node_status
from gas.objects.stored import Node, NodeStatus, ObjectId, Quantity
from gas.placement.inventory import Link
from gas.plugin.card_pods import CardPod
from gas.plugin.writer import Writer
from gas.values.amounts import MalformedQuantity, parse_quantity
from gas.values.card_records import ANNOTATION, CardRecord, parse_card_records
from gas.values.cards import Card
from gas.values.errors import GasError
from gas.values.timing import SYSTEM_TIMING, Timing
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.protocol import NodeDescription

logger = logging.getLogger(__name__)

MergePatch = Mapping[str, Mapping[str, Mapping[str, str | None]]]
"""``{"metadata": {"labels": …, "annotations": …}, "status": {"capacity": …, "allocatable": …}}``; None removes."""

PatchNode = Callable[[MergePatch], Awaitable[Node | None]]  # patches this node and returns it, None if it is gone
FORBIDDEN_PAUSE = 30.0  # seconds between attempts while an RBAC rule is missing, which an administrator must add first
PAUSE = 1.0  # seconds between two writes, in case another program keeps writing the same names

REPEAT = 1800.0  # seconds after which the event of a state is posted again


class NodeWriter(Writer[NodeDescription]):
    """Compare the node with its description whenever either changes, and patch the difference.

    It handles a `gas.cluster.watch.Watch` of this one node (``metadata.name=NAME``). Cards are handed out whether the
    node can be written or not.

    links        by card, the cards that are linked to it, as other programs say on the node
    on_links     called whenever `links` has changed
    recorded     the cards that the node has, as it says itself, whoever wrote it
    on_recorded  called with the first state of the node, and whenever `recorded` has changed
    """

    def __init__(self, patch_node: PatchNode, vocabularies: Vocabularies, timing: Timing = SYSTEM_TIMING) -> None:
        super().__init__()
        self.writes = 0  # number of patches that were applied
        self.trouble: str | None = None  # sentence about why the node cannot be written, else None
        self.first_seen: Node | None = None  # the node before this writer changed it; None while it is not known
        self._patch_node = patch_node
        self._vocabularies = vocabularies
        self._backoff = Backoff(timing=timing)
        self._node: Node | None = None
        self.links: Mapping[Card, tuple[Card, ...]] = {}
        self.on_links: Callable[[], None] = lambda: None
        self.recorded: tuple[CardRecord, ...] = ()
        self.on_recorded: Callable[[], None] = lambda: None

    def listed(self, nodes: list[Node]) -> None:
        for node in nodes:
            self.changed(node)

    def complete(self, listed: list[ObjectId]) -> None:
        if not listed:
            self._node = None

    def changed(self, node: Node) -> None:
        self._node = node
        is_first = self.first_seen is None
        self.first_seen = self.first_seen or node
        self._look.set()
        recorded, self.recorded = self.recorded, parse_card_records(node.annotations.get(ANNOTATION, "[]"))[0]
        if is_first or self.recorded != recorded:
            self.on_recorded()
        before, self.links = self.links, _links(self._vocabularies.links(node))
        if self.links != before:
            self.on_links()

    def deleted(self, _node: Node) -> None:
        self._node = None

    async def run(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            if self._held or self._node is None or self._wanted is None:
                continue
            is_ours = ANNOTATION in self._node.annotations
            patch = node_patch(self._node, self._wanted, self._vocabularies, removes_resources=is_ours)
            if patch is None:
                self.trouble = None
                continue
            if (retry_after := await self._write(patch)) is not None:
                self._look.set()
            await asyncio.sleep(PAUSE if retry_after is None else retry_after)

    async def _write(self, patch: MergePatch) -> float | None:
        """Write once. Return the seconds after which to try again; None after a success."""
        before = self._node
        try:
            patched = await self._patch_node(patch)
        except GasError as error:
            sentence = f"cannot write labels and resources on the node: {error}; cards are still allocated"
            if sentence != self.trouble:
                logger.error(sentence)
            self.trouble = sentence
            return FORBIDDEN_PAUSE if isinstance(error, Forbidden) else self._backoff.wait()
        if self._node is before:  # else the watch has shown a state that may be newer
            self._node = patched
        self._backoff.reset()
        self.trouble = None
        self.writes += 1
        logger.info("patched the node's labels and resources", extra={"patch": patch})
        return None


def _links(links: Iterable[Link]) -> dict[Card, tuple[Card, ...]]:
    """Return by card the cards that links between tiles join to it."""
    found: dict[Card, list[Card]] = {}
    for one, other in links:
        found.setdefault(one.card, []).append(other.card)
        found.setdefault(other.card, []).append(one.card)
    return {card: tuple(sorted(linked)) for card, linked in found.items()}


async def clear_node(api: ApiServer, name: str, vocabularies: Vocabularies) -> list[str] | None:
    """Remove everything that the plugin has written on the node; a plugin that still runs there writes it again.

    Returns the resources that stay, because kubelet writes them; None if the node does not exist. Raises ApiRefused,
    Forbidden, ApiUnavailable, OutcomeUnknown.
    """
    if (node := await get_object(api, paths.node(name), Node)) is None:
        return None
    patch = node_patch(node, NodeDescription(), vocabularies)
    if patch is not None and await patch_node_status(api, name, patch) is None:
        return None
    capacity = node.status.capacity if node.status is not None else None
    return [resource for resource in capacity or () if resource in vocabularies.resources]


def node_patch(
    node: Node, wanted: NodeDescription, vocabularies: Vocabularies, *, removes_resources: bool = True
) -> MergePatch | None:
    """Return the changes that make the node match ``wanted``, outdated names removed; None if it matches.

    The patch is for the node's subresource ``status``, where kube-apiserver accepts labels and annotations too, so
    cards and their amounts change in one write. Kubelet keeps resources that no device plugin has, and derives
    ``allocatable`` from ``capacity``; both are written, so that the amounts need not wait for kubelet's next update.
    """
    metadata = {
        "labels": _changes(node.labels, wanted.labels, vocabularies.owns_label),
        "annotations": _changes(node.annotations, wanted.annotations, vocabularies.owns_annotation),
    }
    amounts = {name: str(amount) for name, amount in wanted.resources.items()}
    found = node.status or NodeStatus()
    owns_resource = vocabularies.owns_resource if removes_resources else lambda _name: False
    status = {
        "capacity": _changes(_plain(found.capacity), amounts, owns_resource),
        "allocatable": _changes(_plain(found.allocatable), amounts, owns_resource),
    }
    patch = {
        part: changed
        for part, fields in (("metadata", metadata), ("status", status))
        if (changed := {name: changes for name, changes in fields.items() if changes})
    }
    return patch or None


def _changes(found: Mapping[str, str], wanted: Mapping[str, str], owns: Callable[[str], bool]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {name: value for name, value in wanted.items() if found.get(name) != value}
    changes.update((name, None) for name in found if owns(name) and name not in wanted)
    return changes


def _plain(resources: Mapping[str, Quantity] | None) -> dict[str, str]:
    """Return the amounts as plain numbers. Unparsable amounts compare unequal, so they are rewritten."""
    plain = dict.fromkeys(resources or {}, "")
    for name, quantity in (resources or {}).items():
        with suppress(MalformedQuantity):
            plain[name] = str(parse_quantity(quantity))
    return plain


class Events:
    """Post no events, for a plugin that does not use the cluster's API."""

    def on_pod(self, pod: CardPod, reason: str, message: str, *, is_warning: bool = True) -> None: ...

    def on_node(self, reason: str, message: str) -> None:
        """Post a normal event of the node."""

    def set_states(self, reason: str, sentences: Iterable[str]) -> None:
        """Replace the states of the node of one reason: a new sentence is posted now, and all of them are repeated."""


class NodeEvents(Events):
    def __init__(self, events: ApiEvents, node: str) -> None:
        self._events = events
        # kubectl describe finds a node's events by its name in place of the UID, as kubelet writes them.
        self._node = Involved(kind="Node", name=node, uid=node)
        self._states: dict[str, tuple[str, ...]] = {}

    def on_pod(self, pod: CardPod, reason: str, message: str, *, is_warning: bool = True) -> None:
        namespace, _, name = pod.key.partition("/")
        involved = Involved(kind="Pod", name=name, uid=pod.uid, namespace=namespace)
        self._events.post(involved, severity="Warning" if is_warning else "Normal", reason=reason, message=message)

    def on_node(self, reason: str, message: str) -> None:
        self._post(reason, message, severity="Normal")

    def set_states(self, reason: str, sentences: Iterable[str]) -> None:
        before, now = self._states.get(reason, ()), tuple(dict.fromkeys(sentences))
        self._states[reason] = now
        for sentence in now:
            if sentence not in before:
                self._post(reason, sentence)

    async def repeat(self) -> NoReturn:
        """Post all states again at each interval, until cancelled."""
        while True:
            await asyncio.sleep(REPEAT)
            for reason, sentences in self._states.items():
                for sentence in sentences:
                    self._post(reason, sentence)

    def _post(self, reason: str, message: str, *, severity: Literal["Normal", "Warning"] = "Warning") -> None:
        self._events.post(self._node, severity=severity, reason=reason, message=message)
