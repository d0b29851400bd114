"""Keeps what the node says about its cards true, whoever changes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gas.cluster.backoff import Backoff
from gas.cluster.connection import ApiServer
from gas.cluster.errors import Forbidden
from gas.cluster.objects import get_node, patch_node_status
from gas.errors import GasError
from gas.objects import Node
from gas.plugin.node.node_description import NOTHING_OF_OURS, MergePatch, node_patch
from gas.vocabulary import NodeDescription

logger = logging.getLogger(__name__)

PatchNode = Callable[[MergePatch], Awaitable[Node | None]]
"""Writes the patch on this node; answers the node after it, None when there is no such node."""

FORBIDDEN_PAUSE = 30.0
"""Seconds between two tries while a rule is missing: somebody must act first."""

PAUSE = 1.0
"""Seconds between two writes, should something else write the same names again and again."""


class NodeWriter:
    """Compares the node with what it should say, whenever either changes, and patches what differs.

    Fed by a watch of this one node (``metadata.name=NAME``): it is a handler of `gas.cluster.watch.Watch`. Cards are
    given out whether the node can be written or not.

    writes   patches that were carried out
    trouble  while the node cannot be written: the sentence that says why
    """

    def __init__(
        self,
        patch_node: PatchNode,
        *,
        pause: float = PAUSE,
        forbidden_pause: float = FORBIDDEN_PAUSE,
        backoff: Backoff | None = None,
    ) -> None:
        self.writes = 0
        self.trouble: str | None = None
        self._patch_node = patch_node
        self._pause = pause
        self._forbidden_pause = forbidden_pause
        self._backoff = backoff or Backoff()
        self._node: Node | None = None
        self._wanted: NodeDescription | None = None
        self._look = asyncio.Event()
        self._held = False

    def want(self, description: NodeDescription) -> None:
        """What the node shall say from now on. Before the first call nothing is written."""
        self._wanted = description
        self._look.set()

    def hold(self) -> None:
        """Write nothing until `go_on`: another plugin of this node describes it."""
        self._held = True

    def go_on(self) -> None:
        self._held = False
        self._look.set()

    def replaced(self, nodes: list[Node]) -> None:
        self._node = nodes[0] if nodes else None
        self._look.set()

    def changed(self, node: Node) -> None:
        self._node = node
        self._look.set()

    def deleted(self, _node: Node) -> None:
        self._node = None

    async def run(self) -> None:
        """For ever, until cancelled."""
        while True:
            await self._look.wait()
            self._look.clear()
            if self._held or self._node is None or self._wanted is None:
                continue
            if (patch := node_patch(self._node, self._wanted)) is None:
                self.trouble = None
                continue
            if (retry_after := await self._write(patch)) is not None:
                self._look.set()
            await asyncio.sleep(self._pause if retry_after is None else retry_after)

    async def _write(self, patch: MergePatch) -> float | None:
        """Write once. Seconds after which to try again, None when that is not needed."""
        try:
            self._node = await self._patch_node(patch)
        except GasError as error:
            sentence = (
                f"cannot write the labels and resources of the node's cards, which are given out all the same: {error}"
            )
            if sentence != self.trouble:
                logger.error("%s", sentence)
            self.trouble = sentence
            return self._forbidden_pause if isinstance(error, Forbidden) else self._backoff.wait()
        self._backoff.reset()
        self.trouble = None
        self.writes += 1
        logger.info("wrote what the node says about its cards", extra={"patch": patch})
        return None


async def clear_node(api: ApiServer, name: str) -> bool:
    """Take everything that the plugin has written off the node, for good once no plugin runs on it.

    False: there is no such node. Raises ApiRefused, Forbidden, ApiUnavailable, OutcomeUnknown.
    """
    if (node := await get_node(api, name)) is None:
        return False
    if (patch := node_patch(node, NOTHING_OF_OURS)) is None:
        return True
    return await patch_node_status(api, name, patch) is not None
