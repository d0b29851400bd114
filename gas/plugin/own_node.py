"""Represent the plugin's own node: as the API server shows it with its pods, or without the API."""

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.events import Events as ApiEvents
from gas.cluster.listing import Lister
from gas.cluster.objects import patch_node_status, patch_pod_metadata
from gas.cluster.watch import Watch
from gas.objects.stored import Node, Pod
from gas.plugin.devices.allocation import Allocation, card_allocation, check_one_card, gpus_of
from gas.plugin.devices.allocation_policy import AllocationPolicy, ids_of_one_card, preferred_ids
from gas.plugin.devices.device_ids import AllocateRequest, PreferredRequest
from gas.plugin.flags import Flags, WriteNode
from gas.plugin.kubelet.device_server import CallTracker, Prefer
from gas.plugin.kubelet.pod_resources import PodResources
from gas.plugin.matching.allocator import Allocator, IssuedEnvironments
from gas.plugin.matching.gpu_pods import GpuPods
from gas.plugin.matching.matcher import Matcher
from gas.plugin.matching.pod_resolver import PodResolver
from gas.plugin.metrics import Metrics
from gas.plugin.node_writer import Events, NodeEvents, NodeWriter
from gas.plugin.part import Sample
from gas.plugin.receipts.receipt_writer import ReceiptWriter
from gas.plugin.writer import Writer
from gas.values.card_facts import CardFacts
from gas.values.card_records import ANNOTATION, CardRecord, parse_card_records
from gas.values.cards import Card
from gas.values.timing import Timing
from gas.vocabularies.combined import Vocabularies, closeness_to
from gas.vocabularies.protocol import NodeDescription

logger = logging.getLogger(__name__)

Task = Callable[[], Coroutine[Any, Any, None]]
Gpus = Callable[[], Collection[CardFacts]]


class OwnNode:
    """The node of a plugin that does not use the cluster's API, by --resource-manager=false.

    Nothing is known or written, and cards are given by the allocation policy alone.

    prefer   returns the ids that a container should get; None lets kubelet choose without asking
    tasks    run while the plugin does
    writers  paused while another plugin serves this node
    """

    events = Events()
    tasks: Sequence[Task] = ()
    writers: Sequence[Writer[Any]] = ()

    def __init__(self, flags: Flags, vocabularies: Vocabularies, timing: Timing, gpus: Gpus) -> None:
        self._one_card = vocabularies.one_card_resources
        lets_kubelet_choose = flags.allocation_policy is AllocationPolicy.NONE and not self._one_card
        self.prefer: Prefer | None = None if lets_kubelet_choose else self._by_policy
        self._flags = flags
        self._gpus = gpus
        self._clock = timing.monotonic
        self.gpu_pods = GpuPods(vocabularies, gpus=gpus, clock=self._clock)
        self.pods = Matcher(self.gpu_pods, one_card=self._one_card)
        self.environments = IssuedEnvironments(vocabularies, gpus)

    @property
    def links(self) -> Mapping[Card, Collection[Card]]:
        """The cards that are linked to each card, as other programs say on the node."""
        return {}

    @property
    def recorded(self) -> Sequence[CardRecord]:
        """The cards that the node has, as it says itself, whoever wrote it."""
        return ()

    def samples(self) -> Iterable[Sample]:
        return ()

    def subscribe(
        self, *, on_pods: Callable[[], None], on_links: Callable[[], None], on_recorded: Callable[[], None]
    ) -> None:
        """Call these functions after each change of the node's pods, of `links` and of `recorded`."""
        self.gpu_pods.subscribe(on_pods)

    async def recorded_cards(self) -> Sequence[CardRecord]:
        """Wait until node and pods are known. Return what the node said about its cards before this plugin wrote it."""
        return ()

    def describe(self, description: NodeDescription) -> None: ...

    def allocate(self, request: AllocateRequest) -> Allocation:
        return self.allocate_to_any(request)

    def allocate_to_any(self, request: AllocateRequest) -> Allocation:
        """Return what a container of any pod gets with these ids. Raises NoSuchCards and SeveralCards."""
        check_one_card(request, self._one_card)
        return card_allocation(gpus_of(request.counts, self._gpus()), self._flags.presentation)

    async def catch_up(self) -> None:
        """Learn, before kubelet calls, which pods wait and which of their containers an earlier run has served."""

    async def _by_policy(self, request: PreferredRequest) -> Sequence[str]:
        ids = ids_of_one_card(request) if request.resource in self._one_card else ()
        return preferred_ids(
            self._flags.allocation_policy, request, decided=ids, closeness=lambda card: closeness_to(card, self._gpus())
        )


class WatchedNode(OwnNode):
    """The node and its pods as the API server shows them. While it is unreachable, cards are given by what is known.

    The caller closes ``api`` and ``resources``. ``calls`` are kubelet's, to all servers.
    """

    def __init__(
        self,
        api: ApiServer,
        flags: Flags,
        vocabularies: Vocabularies,
        metrics: Metrics,
        timing: Timing,
        *,
        gpus: Gpus,
        resources: PodResources,
        calls: CallTracker,
    ) -> None:
        super().__init__(flags, vocabularies, timing, gpus)
        self._resources = resources
        events = ApiEvents(api, component="gas-plugin", instance=flags.node_name, timing=timing)
        self.events = NodeEvents(events, flags.node_name)
        selector = f"spec.nodeName={flags.node_name}"
        self._watch = Watch(Lister(api, paths.PODS, Pod, field_selector=selector), self.gpu_pods, timing=timing)
        metrics.watches.follow("pods", self._watch)
        resolver = PodResolver(self.pods, resources, is_watching=self._is_watching)
        self.gpu_pods.subscribe(resolver.pods_changed)
        self._allocator = Allocator(
            self.pods, resolver, self.environments, metrics, flags, gpus=gpus, clock=self._clock
        )
        self.prefer = self._allocator.prefer
        self._receipts = ReceiptWriter(
            self.pods,
            resources,
            self.environments,
            partial(patch_pod_metadata, api),
            calls=calls,
            metrics=metrics,
            events=self.events,
        )
        self.tasks: tuple[Task, ...] = (self._watch.run, events.run, self.events.repeat, self._receipts.run)
        self._writer = NodeWriter(partial(patch_node_status, api, flags.node_name), vocabularies, timing)
        self.writers = (self._writer,)
        self._synced: list[Callable[[], Awaitable[object]]] = [self._watch.synced.wait]
        if flags.write_node == WriteNode.PATCH:
            selector = f"metadata.name={flags.node_name}"
            node_watch = Watch(Lister(api, paths.NODES, Node, field_selector=selector), self._writer, timing=timing)
            metrics.watches.follow("nodes", node_watch)
            self.tasks = (*self.tasks, node_watch.run, self._writer.run)
            self._synced.append(node_watch.synced.wait)

    @property
    def links(self) -> Mapping[Card, Collection[Card]]:
        return self._writer.links

    @property
    def recorded(self) -> Sequence[CardRecord]:
        return self._writer.recorded

    def samples(self) -> Iterable[Sample]:
        yield "gas_plugin_node_writes_total", (), self._writer.writes
        yield "gas_plugin_receipts_written_total", (), self._receipts.written

    def subscribe(
        self, *, on_pods: Callable[[], None], on_links: Callable[[], None], on_recorded: Callable[[], None]
    ) -> None:
        super().subscribe(on_pods=on_pods, on_links=on_links, on_recorded=on_recorded)
        self._writer.on_links = on_links
        self._writer.on_recorded = on_recorded

    async def recorded_cards(self) -> Sequence[CardRecord]:
        for is_synced in self._synced:
            await is_synced()
        node = self._writer.first_seen
        text = node.annotations.get(ANNOTATION) if node is not None else None
        return parse_card_records(text)[0] if text is not None else ()

    def describe(self, description: NodeDescription) -> None:
        self._writer.want(description)

    def allocate(self, request: AllocateRequest) -> Allocation:
        self._receipts.compare_soon()
        return self._allocator.allocate(request)

    async def catch_up(self) -> None:
        if not self._watch.synced.is_set():
            logger.warning("the pods of this node are not known yet; its cards are offered anyway")
        asked = self._clock()
        if listing := await self._resources.pods():
            self.pods.learn(listing, asked=asked)

    def _is_watching(self) -> bool:
        return self._watch.synced.is_set() and self._watch.refused is None
