"""What the plugin has to do with the cluster: whose devices are asked for, receipts on pods, labels on the node."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Literal

from gas.card_facts import CardFacts
from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.events import Events, Involved
from gas.cluster.objects import patch_node_status, patch_pod_annotations
from gas.cluster.watch import Watch
from gas.objects import Node, NodePod
from gas.plugin.devices.container_answer import Presentation
from gas.plugin.flag_table import WriteNode
from gas.plugin.flags import Flags
from gas.plugin.kubelet.pod_resources import PodResources
from gas.plugin.matching.answers import Answers
from gas.plugin.matching.given_masks import GivenMasks
from gas.plugin.matching.look_up import LookUp
from gas.plugin.matching.matching import Matching
from gas.plugin.matching.waiting_pods import PodOfNode, PodsOfNode
from gas.plugin.metrics import Metrics
from gas.plugin.node.node_writer import NodeWriter
from gas.plugin.receipts.receipt_writer import ReceiptWriter
from gas.plugin.receipts.receipts import Receipt, ReceiptKind

logger = logging.getLogger(__name__)

FIRST_LIST = 1.0
"""Seconds that the first list of pods gets before devices are offered without it."""

LISTED_WITHIN = 2.0
"""Seconds for kubelet's answer; while it waits for ours `gas.plugin.matching.look_up.LOOK_UP_WITHIN` ends earlier."""


class ClusterSide:
    """The parts that need the cluster's API. Cards are given out while it is away, as far as is known.

    api           closed by whoever made it
    gpus          the cards of this node as they are now
    presentation  how containers see them
    """

    def __init__(
        self,
        api: ApiServer,
        flags: Flags,
        metrics: Metrics,
        *,
        gpus: Callable[[], Collection[CardFacts]],
        presentation: Presentation,
    ) -> None:
        self._metrics = metrics
        self._node = flags.node_name
        socket = flags.kubelet_dir / "pod-resources" / "kubelet.sock"
        self._resources = PodResources(socket, timeout=LISTED_WITHIN)
        self.events = Events(api, component="gas-plugin", instance=flags.node_name)
        self.pods = PodsOfNode(self._pods_changed)
        self.matching = Matching(self.pods)
        self.pod_watch = Watch(api, paths.pods(), NodePod, self.pods, field_selector=f"spec.nodeName={flags.node_name}")
        self._look_up = LookUp(
            self.matching,
            self._resources,
            watches=lambda: self.pod_watch.synced.is_set() and self.pod_watch.refused is None,
        )
        masks = GivenMasks()
        self.answers = Answers(
            self.matching,
            self._look_up,
            masks,
            metrics,
            gpus=gpus,
            policy=flags.allocation_policy,
            presentation=presentation,
            on_allocated=self._allocated,
        )
        self.receipts = ReceiptWriter(
            self.pods,
            self.matching,
            self._resources,
            masks,
            partial(patch_pod_annotations, api),
            last_call=lambda: self.answers.last_call,
            on_receipt=self._tell_receipt,
            on_mask=self._tell_mask,
        )
        self.node_writer: NodeWriter | None = None
        self._node_watch: Watch[Node] | None = None
        if flags.write_node is WriteNode.PATCH:
            self.node_writer = NodeWriter(partial(patch_node_status, api, flags.node_name))
            self._node_watch = Watch(
                api, paths.nodes(), Node, self.node_writer, field_selector=f"metadata.name={flags.node_name}"
            )
        self._show_metrics()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Watch, compare and write, until cancelled."""
        for loop in (self.pod_watch, self.receipts, self.events, self._node_watch, self.node_writer):
            if loop is not None:
                tasks.create_task(loop.run())

    async def catch_up(self) -> None:
        """Before kubelet calls: which pods wait, and which of their containers an earlier run has served."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LIST):
                await self.pod_watch.synced.wait()
        if not self.pod_watch.synced.is_set():
            logger.warning("the pods of this node are not known yet; its cards are offered all the same")
        asked = time.monotonic()
        if listing := await self._resources.pods():
            self.matching.learn(listing, asked=asked)

    async def close(self) -> None:
        """End the connection to kubelet."""
        await self._resources.close()

    def tell_node(self, reason: str, message: str) -> None:
        """A warning on the node."""
        # kubectl describe looks for a node's events under its name as UID, as kubelet writes them.
        involved = Involved(kind="Node", name=self._node, uid=self._node)
        self.events.post(involved, severity="Warning", reason=reason, message=message)

    def _pods_changed(self) -> None:
        self._look_up.pods_changed()

    def _allocated(self) -> None:
        self.receipts.look_soon()

    def _tell_receipt(self, pod: PodOfNode, receipt: Receipt) -> None:
        """Count, and say it."""
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
        self._tell_pod(pod, severity, _REASONS[receipt.kind], receipt.sentence)

    def _tell_mask(self, pod: PodOfNode, sentence: str) -> None:
        """Count, and say it."""
        self._metrics.tile_mismatches.inc()
        logger.warning("%s", sentence, extra={"pod": pod.key})
        self._tell_pod(pod, "Warning", "GPUTilesNotAsDecided", sentence)

    def _tell_pod(self, pod: PodOfNode, severity: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        namespace, _, name = pod.key.partition("/")
        involved = Involved(kind="Pod", name=name, uid=pod.uid, namespace=namespace)
        self.events.post(involved, severity=severity, reason=reason, message=message)

    def _show_metrics(self) -> None:
        metrics = self._metrics
        metrics.watches.follow("pods", self.pod_watch)
        if self._node_watch is not None:
            metrics.watches.follow("nodes", self._node_watch)
        metrics.totals.receipts_written = lambda: self.receipts.written
        if (writer := self.node_writer) is not None:
            metrics.totals.node_writes = lambda: writer.writes


_REASONS = {
    ReceiptKind.MISMATCH: "GPUCardsNotAsDecided",
    ReceiptKind.ADOPTED: "GPUCardsAdopted",
    ReceiptKind.REPAIRED: "GPUReceiptRepaired",
}
