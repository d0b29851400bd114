"""With a feature file nobody keeps the annotation ``gas-card-capacity`` true: tells of one that is not.

An earlier run with ``--write-node=patch`` may have left it, and the extender would believe it for ever. It is not taken
away: where the plugin does not write the node, whoever runs the node may write the annotation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gas.cluster.errors import Forbidden
from gas.errors import GasError
from gas.intel import names
from gas.intel.card_capacity import parse_card_capacity
from gas.objects import Node
from gas.plugin.node_description import NodeDescription

logger = logging.getLogger(__name__)

RETRY = 30.0
"""Seconds until the node is asked for again, when it could not be had."""


class LeftOverCapacity:
    """Looks at the node whenever its cards are others, and warns of each annotation that says something else.

    get_node  answers the node, None when there is none; raises GasError
    """

    def __init__(self, get_node: Callable[[], Awaitable[Node | None]], *, retry: float = RETRY) -> None:
        self._get_node = get_node
        self._retry = retry
        self._wanted = NodeDescription()
        self._look = asyncio.Event()

    def want(self, description: NodeDescription) -> None:
        """What the node's cards are from now on. Before the first call nobody looks."""
        self._wanted = description
        self._look.set()

    async def run(self) -> None:
        """Until cancelled, or until this account turns out not to be allowed to read nodes: then nothing is told."""
        while True:
            await self._look.wait()
            self._look.clear()
            try:
                node = await self._get_node()
            except Forbidden:
                return
            except GasError:
                await asyncio.sleep(self._retry)
                self._look.set()
                continue
            if node is not None:
                self._compare(node)

    def _compare(self, node: Node) -> None:
        found = node.annotations.get(names.CARD_CAPACITY)
        if found is None or _amounts(found) == _amounts(self._wanted.annotations.get(names.CARD_CAPACITY, "")):
            return
        logger.warning(
            "the node's annotation %s, left by --write-node=patch or written by hand, says something else about its "
            "cards than there is now; the extender believes it, and with a feature file nobody puts it right. To take "
            "it off: kubectl annotate node %s %s-",
            names.CARD_CAPACITY,
            node.name,
            names.CARD_CAPACITY,
        )


def _amounts(annotation: str) -> object:
    return parse_card_capacity(annotation, [])
