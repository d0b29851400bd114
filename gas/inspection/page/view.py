"""The cluster that the page shows: follows it, keeps the map up to date, and makes the documents."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn

from gas.cluster.backoff import Backoff
from gas.cluster.connection import ApiServer
from gas.inspection.cluster import Cluster, PlacementSettings
from gas.inspection.gather import Following, following, read_use
from gas.inspection.page import documents
from gas.inspection.page.board import Board, Changes
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two looks for changes."""

USE_INTERVAL = 10.0
"""Seconds between two readings of measured use, as often as plugins measure."""

USE_PATIENCE = 30.0
"""Seconds that one reading may take. Until it is complete, the one before is shown."""

WHY_TIMEOUT = 1.0
"""Seconds in which suggestions for one pod are looked for. Nothing else is served meanwhile."""

WHY_AGE = 5.0
"""Seconds for which suggestions are shown again without looking for them anew."""

MOST_WHYS = 64

MOST_NOTES = 3
"""Sentences about what could not be found out: each plugin may have its own reason."""

DECISIONS_AGE = 2.0
"""Seconds for which the last decisions are shown again without reading them anew."""

TURN = 0.02
"""Seconds of work after which requests get their turn."""

ReadDecisions = Callable[[Cluster], Awaitable[tuple[str, ...]]]
"""Reads the extender's last decisions into a cluster. Returns sentences about what could not be read."""


class NotRead(GasError):
    """The cluster has not been read yet."""


class View:
    """The state behind the page. Nothing can be shown before `run` has read the cluster.

    settings        of the extender; None to read them from its pod
    read_decisions  see `ReadDecisions`
    """

    def __init__(
        self, api: ApiServer, read_decisions: ReadDecisions, settings: PlacementSettings | None = None
    ) -> None:
        self._api = api
        self._settings = settings
        self._read_decisions = read_decisions
        self._following: Following | None = None
        self._trouble = "the cluster is being read"
        self._board = Board("")
        self._changes = Changes()
        self._notes: tuple[str, ...] = ()
        self._decisions_at = -DECISIONS_AGE
        self._decision_notes: tuple[str, ...] = ()
        self._whys: dict[tuple[str, str], tuple[float, dict[str, object]]] = {}

    async def run(self) -> NoReturn:
        """Follow the cluster until cancelled, also through failures of the API server and of the page itself."""
        backoff = Backoff()
        while True:
            try:
                self._changes = Changes()
                async with following(self._api, self._settings, self._changes, counts_hosts=True) as found:
                    backoff.reset()
                    self._board = Board(f"{time.time_ns():x}")
                    self._following = found
                    await self._keep_up(found.cluster)
            except GasError as error:
                self._following = None
                self._trouble = str(error)
                logger.warning("the page cannot show the cluster: %s", error)
            except Exception as error:
                self._following = None
                self._trouble = f"the page has failed: {type(error).__name__}"
                logger.exception("the page has failed and reads the cluster again")
            await asyncio.sleep(backoff.wait())

    async def _keep_up(self, cluster: Cluster) -> NoReturn:
        use = asyncio.create_task(self._read_use(cluster))
        seen = -1
        try:
            while True:
                names = self._changes.take()
                if cluster.nodes.version != seen:
                    seen = cluster.nodes.version
                    names += self._board.changed_states(cluster)
                begun = time.monotonic()
                for _ in self._board.update(cluster, list(dict.fromkeys(names))):
                    if time.monotonic() - begun > TURN:
                        await asyncio.sleep(0)
                        begun = time.monotonic()
                if use.done():
                    use.result()
                await asyncio.sleep(INTERVAL)
        finally:
            use.cancel()

    async def _read_use(self, cluster: Cluster) -> NoReturn:
        measured: set[str] = set()
        while True:
            self._notes = await read_use(self._api, cluster, patience=USE_PATIENCE)
            ledger = cluster.decider.ledger
            now = {booking.node for uid, _ in cluster.use if (booking := ledger.booking(uid)) is not None}
            for node in now | measured:
                self._changes.node_changed(node)
            measured = now
            await asyncio.sleep(USE_INTERVAL)

    @property
    def _cluster(self) -> Cluster:
        if self._following is None:
            raise NotRead(self._trouble)
        return self._following.cluster

    def state(self) -> dict[str, object]:
        """Return numbers and sentences about the whole cluster. ``trouble`` says why it may be out of date."""
        if self._following is None:
            return {"trouble": self._trouble, "notes": [], "pods": 0, "waiting": 0, "changes": 0}
        pods = self._cluster.decider.pods
        return {
            "trouble": self._following.trouble,
            "notes": _first([*self._cluster.settings.notes, *self._notes]),
            "waiting": len(pods.waiting),
            "changes": self._cluster.pods.version + self._board.version,
        }

    def whole(self) -> tuple[bytes, bytes]:
        """Return the whole map as JSON, and compressed. Raises NotRead."""
        if self._following is None:
            raise NotRead(self._trouble)
        return self._board.whole()

    def part_after(self, board: str, version: int, most: int) -> tuple[int, bytes] | None:
        """Return changes of the map, see `Board.part_after`."""
        return self._board.part_after(board, version, most)

    def node(self, name: str) -> dict[str, object]:
        """Return everything about a node. Raises NotRead, Missing."""
        return documents.node_document(self._cluster, name)

    def pods(self, text: str, state: str) -> dict[str, object]:
        """Return the pods that a text finds. Raises NotRead."""
        return documents.pods_document(self._cluster, text, state)

    async def pod(self, namespace: str, name: str) -> dict[str, object]:
        """Return the way of one pod. Raises NotRead, Missing."""
        await self._refresh_decisions()
        return documents.pod_document(self._cluster, namespace, name)

    async def why(self, namespace: str, name: str) -> dict[str, object]:
        """Return why a pod waits and what would let it run. Raises NotRead, Missing."""
        await self._refresh_decisions()
        now = time.monotonic()
        known = self._whys.get((namespace, name))
        if known is None or now - known[0] > WHY_AGE:
            found = documents.why_document(self._cluster, namespace, name, lambda: time.monotonic() - now > WHY_TIMEOUT)
            if len(self._whys) >= MOST_WHYS:
                self._whys.clear()
            known = self._whys[namespace, name] = time.monotonic(), found
            await asyncio.sleep(0)
        return known[1]

    async def decisions(self) -> dict[str, object]:
        """Return the last decisions. Raises NotRead."""
        await self._refresh_decisions()
        return {
            "decisions": documents.decisions_data(self._cluster.decisions),
            "notes": list(self._decision_notes),
        }

    async def _refresh_decisions(self) -> None:
        cluster = self._cluster
        if time.monotonic() - self._decisions_at > DECISIONS_AGE:
            self._decisions_at = time.monotonic()
            self._decision_notes = await self._read_decisions(cluster)


def _first(notes: list[str]) -> list[str]:
    """Return the first notes, and how many more there are."""
    more = len(notes) - MOST_NOTES
    return notes if more <= 0 else [*notes[:MOST_NOTES], f"and {more} more of such"]
