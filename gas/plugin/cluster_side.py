"""The parts of the plugin that use the cluster's API: matching, receipts on pods, labels and resources on the node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Literal

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.events import Events, Involved
from gas.cluster.objects import patch_node_status, patch_pod_annotations
from gas.cluster.watch import Watch
from gas.objects.stored import Node, NodePod
from gas.plugin.devices.allocation import Presentation
from gas.plugin.flags import Flags, WriteNode
from gas.plugin.kubelet.pod_resources import PodResources
from gas.plugin.limits.dmem import DMEM, Controller
from gas.plugin.limits.limit_files import LimitFiles
from gas.plugin.limits.memory_limits import MemoryLimits, MemoryLimitsOf
from gas.plugin.matching.allocator import Allocator
from gas.plugin.matching.gpu_pods import GpuPod, GpuPods
from gas.plugin.matching.issued_environments import IssuedEnvironments
from gas.plugin.matching.matcher import Matcher
from gas.plugin.matching.pod_resolver import PodResolver
from gas.plugin.metrics import Metrics
from gas.plugin.node.lasting_events import LastingEvents
from gas.plugin.node.node_writer import NodeWriter
from gas.plugin.receipts.pod_writes import PodWrites
from gas.plugin.receipts.receipt_writer import Pace, ReceiptWriter
from gas.plugin.receipts.receipts import Receipt, ReceiptKind
from gas.plugin.usage.usage_monitor import UsageMonitor
from gas.plugin.usage.usage_report import usage_figures
from gas.values.card_facts import CardFacts
from gas.values.card_records import ANNOTATION, CardRecord, parse_card_records
from gas.values.cards import Card
from gas.values.timing import SYSTEM_TIMING, Timing
from gas.vocabularies.combined import Vocabularies

logger = logging.getLogger(__name__)

FIRST_LIST = 1.0
"""Seconds to wait for the first list of pods before devices are offered without it."""


class ClusterSide:
    """The parts that need the cluster's API. While it is unreachable, cards are handed out by what is known.

    api           closed by the caller
    resources     kubelet's PodResources, closed by the caller
    gpus          returns the cards that this node has now
    presentation  how containers see the cards
    on_pods       called after each change of the pods of this node
    on_links      called after each change of the links between its cards
    controller    of cgroups, for memory limits
    """

    def __init__(
        self,
        api: ApiServer,
        flags: Flags,
        metrics: Metrics,
        resources: PodResources,
        vocabularies: Vocabularies,
        *,
        gpus: Callable[[], Collection[CardFacts]],
        presentation: Presentation,
        on_pods: Callable[[], None] = lambda: None,
        on_links: Callable[[], None] = lambda: None,
        controller: Controller = DMEM,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        self._clock = clock = timing.monotonic
        self._on_pods = on_pods
        self.limits: MemoryLimits | None = None
        self._metrics = metrics
        self._node = flags.node_name
        self._resources = resources
        self.events = Events(api, component="gas-plugin", instance=flags.node_name, timing=timing)
        self.node_events = LastingEvents(self._post_on_node)
        self.pods = GpuPods(vocabularies, self._pods_changed, clock=clock)
        self.matcher = Matcher(self.pods)
        own_pods = f"spec.nodeName={flags.node_name}"
        self.pod_watch = Watch(api, paths.pods(), NodePod, self.pods, field_selector=own_pods, timing=timing)
        self._resolver = PodResolver(
            self.matcher,
            resources,
            is_watching=lambda: self.pod_watch.synced.is_set() and self.pod_watch.refused is None,
        )
        environments = IssuedEnvironments(vocabularies)
        self.allocator = Allocator(
            self.matcher,
            self._resolver,
            environments,
            vocabularies,
            metrics,
            gpus=gpus,
            policy=flags.allocation_policy,
            presentation=presentation,
            on_allocated=self._allocated,
            clock=clock,
        )
        self.receipts = ReceiptWriter(
            self.pods,
            self.matcher,
            resources,
            environments,
            PodWrites(partial(patch_pod_annotations, api), clock=clock),
            vocabularies=vocabularies,
            pace=Pace(lambda: self.allocator.last_call, clock=clock),
            on_receipt=self._report_receipt,
            on_wrong_environment=self._report_wrong_environment,
        )
        self.node_writer: NodeWriter | None = None
        self._node_watch: Watch[Node] | None = None
        if flags.write_node is WriteNode.PATCH:
            patch_node = partial(patch_node_status, api, flags.node_name)
            self.node_writer = NodeWriter(patch_node, vocabularies, on_links=on_links)
            own_node = f"metadata.name={flags.node_name}"
            self._node_watch = Watch(api, paths.nodes(), Node, self.node_writer, field_selector=own_node, timing=timing)
        self.usage: UsageMonitor | None = None
        if flags.usage:
            self.usage = UsageMonitor(self.pods, gpus, flags.prefix / "proc", self._report_use)
        if flags.memory_limits is MemoryLimitsOf.POD:
            files = LimitFiles(flags.prefix / "sys/fs/cgroup", controller)
            self.limits = MemoryLimits(self.pods, self.matcher.holders, gpus, files, self._report_limits)
        self._show_metrics()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start to watch, compare and write, until cancelled."""
        loops = (
            self.pod_watch,
            self.receipts,
            self.events,
            self.node_events,
            self._node_watch,
            self.node_writer,
            self.usage,
            self.limits,
        )
        for loop in loops:
            if loop is not None:
                tasks.create_task(loop.run())

    async def first_lists(self) -> None:
        """Wait until the pods of this node are known, and the node itself as it was before."""
        await self.pod_watch.synced.wait()
        if self._node_watch is not None:
            await self._node_watch.synced.wait()

    def recorded_cards(self) -> tuple[CardRecord, ...]:
        """Return what the node said about its cards before this plugin wrote it; empty if that is unknown."""
        node = self.node_writer.first_seen if self.node_writer is not None else None
        text = node.annotations.get(ANNOTATION) if node is not None else None
        return parse_card_records(text)[0] if text is not None else ()

    def card_users(self) -> dict[Card, set[str]]:
        """Return by card the UIDs of the pods that kubelet has admitted with it and that have not ended."""
        users: dict[Card, set[str]] = {}
        for pod in self.pods:
            if pod.is_admitted and pod.given is not None:
                for card in {card for container in pod.given.containers for card in container.cards}:
                    users.setdefault(card, set()).add(pod.uid)
        return users

    async def catch_up(self) -> None:
        """Learn, before kubelet calls, which pods wait and which of their containers an earlier run has served."""
        if not self.pod_watch.synced.is_set():
            logger.warning("the pods of this node are not known yet; its cards are offered anyway")
        asked = self._clock()
        if listing := await self._resources.pods():
            self.matcher.learn(listing, asked=asked)

    def _post_on_node(self, reason: str, message: str) -> None:
        """Post a warning event on the node."""
        # kubectl describe finds a node's events by its name in place of the UID, as kubelet writes them.
        involved = Involved(kind="Node", name=self._node, uid=self._node)
        self.events.post(involved, severity="Warning", reason=reason, message=message)

    def _pods_changed(self) -> None:
        self._resolver.pods_changed()
        self._on_pods()
        if self.limits is not None:
            self.limits.pods_changed()

    def _allocated(self) -> None:
        self.receipts.compare_soon()

    def _report_receipt(self, pod: GpuPod, receipt: Receipt) -> None:
        """Count and log the receipt, and post an event on the pod."""
        metrics = self._metrics
        is_mismatch = receipt.kind is ReceiptKind.MISMATCH
        counter = {
            ReceiptKind.MISMATCH: metrics.mismatches,
            ReceiptKind.ADOPTED: metrics.adopted,
            ReceiptKind.REPAIRED: metrics.repaired,
        }[receipt.kind]
        counter.inc()
        level = logging.WARNING if is_mismatch else logging.INFO
        logger.log(level, "%s", receipt.sentence, extra={"pod": pod.key, **receipt.annotations})
        severity: Literal["Normal", "Warning"] = "Warning" if is_mismatch else "Normal"
        self._post_on_pod(pod, severity, _REASONS[receipt.kind], receipt.sentence)

    def _report_wrong_environment(self, pod: GpuPod, sentence: str) -> None:
        """Count and log variables that are wrong, and post an event on the pod."""
        self._metrics.tile_mismatches.inc()
        logger.warning("%s", sentence, extra={"pod": pod.key})
        self._post_on_pod(pod, "Warning", "GPUEnvironmentMismatch", sentence)

    def _report_use(self, pod: GpuPod, sentence: str) -> None:
        """Log that a pod uses more memory than it requested, and post an event on it."""
        logger.warning("%s", sentence, extra={"pod": pod.key})
        self._post_on_pod(pod, "Warning", "GPUMemoryOverRequest", sentence)

    def _report_limits(self, troubles: Collection[str]) -> None:
        """Keep the events of the node about pods that have no memory limits."""
        self.node_events.keep("GPUMemoryLimitsMissing", troubles)

    def _post_on_pod(self, pod: GpuPod, severity: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        namespace, _, name = pod.key.partition("/")
        involved = Involved(kind="Pod", name=name, uid=pod.uid, namespace=namespace)
        self.events.post(involved, severity=severity, reason=reason, message=message)

    def _show_metrics(self) -> None:
        metrics = self._metrics
        metrics.watches.follow("pods", self.pod_watch)
        if self._node_watch is not None:
            metrics.watches.follow("nodes", self._node_watch)
        if (limits := self.limits) is not None:
            metrics.limited_pods.set_function(lambda: limits.limited)
            metrics.limits_missing.set_function(lambda: limits.trouble is not None)
        if (usage := self.usage) is not None:
            metrics.usage.follow(lambda: usage_figures(usage))
        writer = self.node_writer
        metrics.totals.follow_writes(
            receipts_written=lambda: self.receipts.written,
            node_writes=None if writer is None else lambda: writer.writes,
        )


_REASONS = {
    ReceiptKind.MISMATCH: "GPUAllocationMismatch",
    ReceiptKind.ADOPTED: "GPUCardsAdopted",
    ReceiptKind.REPAIRED: "GPUReceiptRepaired",
}
