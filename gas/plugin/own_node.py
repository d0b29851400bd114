"""The plugin's own node: as the API server shows it with its pods, or without the API, by --resource-manager=false."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.events import Events as ApiEvents
from gas.cluster.objects import patch_node_status, patch_pod_annotations
from gas.cluster.watch import Watch
from gas.objects.stored import Node, NodePod
from gas.plugin.card_pods import CardPods, NoPods
from gas.plugin.devices.allocation import Allocation, Presentation, card_allocation, gpus_of
from gas.plugin.devices.allocation_policy import AllocationPolicy, preferred_ids
from gas.plugin.devices.device_ids import AllocateRequest, DeviceId, PreferredRequest
from gas.plugin.flags import Flags, WriteNode
from gas.plugin.kubelet.device_server import Prefer
from gas.plugin.kubelet.pod_resources import PodResources
from gas.plugin.matching.allocator import Allocator
from gas.plugin.matching.gpu_pods import GpuPods
from gas.plugin.matching.issued_environments import IssuedEnvironments
from gas.plugin.matching.matcher import Matcher
from gas.plugin.matching.pace import Pace
from gas.plugin.matching.pod_resolver import PodResolver
from gas.plugin.metrics import Metrics
from gas.plugin.node_writer import Events, NodeEvents, NodeWriter
from gas.plugin.part import Sample, Writer
from gas.plugin.receipts.receipt_writer import PodWrites, ReceiptReporter, ReceiptWriter
from gas.values.card_facts import CardFacts
from gas.values.card_records import ANNOTATION, CardRecord, parse_card_records
from gas.values.cards import Card
from gas.values.timing import Timing
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.protocol import NodeDescription

logger = logging.getLogger(__name__)

Task = Callable[[], Coroutine[Any, Any, None]]
Gpus = Callable[[], Collection[CardFacts]]


class CardCalls:
    """The replies to kubelet's calls about cards by the allocation policy alone.

    prefer  returns the ids that a container should get; None lets kubelet choose without asking
    tasks   run while the plugin does
    """

    tasks: Sequence[Task] = ()

    def __init__(self, policy: AllocationPolicy, gpus: Gpus, presentation: Presentation) -> None:
        self.prefer: Prefer | None = None if policy is AllocationPolicy.NONE else self._by_policy
        self._policy = policy
        self._gpus = gpus
        self._presentation = presentation

    def allocate(self, request: AllocateRequest) -> Allocation:
        """Return what a container gets."""
        return card_allocation(request.resource, gpus_of(request.ids, self._gpus()), self._presentation)

    def samples(self) -> Iterable[Sample]:
        """Return the samples of the metrics of calls."""
        return ()

    async def catch_up(self) -> None:
        """Learn before the first call what earlier calls were for."""

    def kubelet_restarted(self) -> None:
        """Note that kubelet has restarted."""

    async def _by_policy(self, request: PreferredRequest) -> Sequence[DeviceId]:
        return preferred_ids(self._policy, request)


class OwnNode:
    """The plugin's node and its pods: what is known of them, and what is written about them.

    This is the node of a plugin that does not use the cluster's API: nothing is known, and nothing is written.

    tasks    run while the plugin does
    writers  hold still while another plugin serves this node
    """

    pods: CardPods = NoPods()
    events = Events()
    tasks: Sequence[Task] = ()
    writers: Sequence[Writer] = ()

    def __init__(self, flags: Flags) -> None:
        self.flags = flags

    @property
    def links(self) -> Mapping[Card, Collection[Card]]:
        """The cards that are linked to each card, as other programs say on the node."""
        return {}

    def samples(self) -> Iterable[Sample]:
        """Return the samples of the metrics of the node."""
        return ()

    def subscribe(self, *, on_pods: Callable[[], None], on_links: Callable[[], None]) -> None:
        """Call these functions after each change of the node's pods, and of `links`."""

    async def recorded_cards(self) -> Sequence[CardRecord]:
        """Wait until node and pods are known. Return what the node said about its cards before this plugin wrote it."""
        return ()

    def describe(self, description: NodeDescription) -> None:
        """Make the node match this description."""

    def card_calls(self, resources: PodResources, gpus: Gpus, presentation: Presentation) -> CardCalls:
        """Return what replies to kubelet's calls about cards."""
        return CardCalls(self.flags.allocation_policy, gpus, presentation)


class WatchedNode(OwnNode):
    """The node and its pods as the API server shows them. While it is unreachable, cards are given by what is known.

    api  closed by the caller
    """

    def __init__(
        self, api: ApiServer, flags: Flags, vocabularies: Vocabularies, metrics: Metrics, timing: Timing
    ) -> None:
        super().__init__(flags)
        self.api = api
        self.vocabularies = vocabularies
        self.metrics = metrics
        self.clock = timing.monotonic
        events = ApiEvents(api, component="gas-plugin", instance=flags.node_name, timing=timing)
        self.events = NodeEvents(events, flags.node_name)
        self.gpu_pods = GpuPods(vocabularies, clock=timing.monotonic)
        self.pods = self.matcher = Matcher(self.gpu_pods)
        selector = f"spec.nodeName={flags.node_name}"
        self.pod_watch = Watch(api, paths.pods(), NodePod, self.gpu_pods, field_selector=selector, timing=timing)
        metrics.watches.follow("pods", self.pod_watch)
        self.tasks: tuple[Task, ...] = (self.pod_watch.run, events.run, self.events.repeat)
        self.writer = NodeWriter(partial(patch_node_status, api, flags.node_name), vocabularies)
        self.writers = (self.writer,)
        self._synced: list[Callable[[], Awaitable[object]]] = [self.pod_watch.synced.wait]
        if flags.write_node == WriteNode.PATCH:
            selector = f"metadata.name={flags.node_name}"
            node_watch = Watch(api, paths.nodes(), Node, self.writer, field_selector=selector, timing=timing)
            metrics.watches.follow("nodes", node_watch)
            self.tasks = (*self.tasks, node_watch.run, self.writer.run)
            self._synced.append(node_watch.synced.wait)

    @property
    def links(self) -> Mapping[Card, Collection[Card]]:
        return self.writer.links

    def samples(self) -> Iterable[Sample]:
        yield "gas_plugin_node_writes_total", (), self.writer.writes

    def subscribe(self, *, on_pods: Callable[[], None], on_links: Callable[[], None]) -> None:
        self.gpu_pods.subscribe(on_pods)
        self.writer.subscribe(on_links)

    async def recorded_cards(self) -> Sequence[CardRecord]:
        for is_synced in self._synced:
            await is_synced()
        node = self.writer.first_seen
        text = node.annotations.get(ANNOTATION) if node is not None else None
        return parse_card_records(text)[0] if text is not None else ()

    def describe(self, description: NodeDescription) -> None:
        self.writer.want(description)

    def card_calls(self, resources: PodResources, gpus: Gpus, presentation: Presentation) -> MatchedCalls:
        return MatchedCalls(self, resources, gpus, presentation)


class MatchedCalls(CardCalls):
    """The replies to kubelet's calls by the cards that were decided for the pods that the calls are for."""

    def __init__(self, node: WatchedNode, resources: PodResources, gpus: Gpus, presentation: Presentation) -> None:
        super().__init__(node.flags.allocation_policy, gpus, presentation)
        self._watch = node.pod_watch
        self._resources = resources
        self._matcher = node.matcher
        self._clock = node.clock
        resolver = PodResolver(node.matcher, resources, is_watching=self._is_watching)
        node.gpu_pods.subscribe(resolver.pods_changed)
        environments = IssuedEnvironments(node.vocabularies)
        pace = Pace(clock=node.clock)
        self.allocator = Allocator(
            node.matcher,
            resolver,
            environments,
            node.metrics.matches,
            pace,
            gpus=gpus,
            policy=node.flags.allocation_policy,
            presentation=presentation,
        )
        self.receipts = ReceiptWriter(
            node.gpu_pods,
            node.matcher,
            resources,
            environments,
            PodWrites(partial(patch_pod_annotations, node.api), clock=node.clock),
            vocabularies=node.vocabularies,
            pace=pace,
            reporter=ReceiptReporter(node.metrics.receipts, node.events),
        )
        self.tasks = (self.receipts.run,)
        self.prefer = self.allocator.prefer

    def allocate(self, request: AllocateRequest) -> Allocation:
        return self.allocator.allocate(request)

    def samples(self) -> Iterable[Sample]:
        yield "gas_plugin_receipts_written_total", (), self.receipts.written

    async def catch_up(self) -> None:
        """Learn, before kubelet calls, which pods wait and which of their containers an earlier run has served."""
        if not self._watch.synced.is_set():
            logger.warning("the pods of this node are not known yet; its cards are offered anyway")
        asked = self._clock()
        if listing := await self._resources.pods():
            self._matcher.learn(listing, asked=asked)

    def kubelet_restarted(self) -> None:
        self._matcher.kubelet_restarted()

    def _is_watching(self) -> bool:
        return self._watch.synced.is_set() and self._watch.refused is None
