"""Follow the cluster for the page, keep the map up to date, and make documents as `kubectl gas` does."""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from heapq import nsmallest
from itertools import islice
from typing import NoReturn, TypeVar

import msgspec
from cachetools import TTLCache

from gas.cluster.backoff import Backoff
from gas.cluster.connection import ApiServer
from gas.decision.names import TIMESTAMP, WRITTEN_ANNOTATIONS
from gas.extender.decisions import Decision
from gas.extender.hooks import Change
from gas.inspection.cluster import Cluster, PlacementSettings, natural
from gas.inspection.following import Following, following
from gas.inspection.gather import read_use
from gas.inspection.node_view import node_data
from gas.inspection.objects import InspectedPod, not_checked
from gas.inspection.page.board import Board, Changes
from gas.inspection.reasons import Diagnoses
from gas.inspection.report import Report, columns, sort_rows
from gas.inspection.rows import asks, column_of, pod_row, resources
from gas.inspection.why import as_time, explain, explanation_data
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

INTERVAL = 1.0  # seconds between two looks for changes
USE_INTERVAL = 10.0  # seconds between two readings of measured use, as often as plugins measure
USE_PATIENCE = 30.0  # Seconds that one reading may take. Until it is complete, the one before is shown.
WHY_TIMEOUT = 1.0  # Seconds for finding suggestions for one pod. Nothing else is served meanwhile.
WHY_AGE = 5.0  # seconds for which suggestions are shown again without another search

MOST_WHYS = 64
MOST_PODS = 200  # Most pods in one list. A search finds the others.

_SORTED_BY = ("namespace", "owner", "state", "node", "cards", "used", "busy", "priority", "created", "asks")
"""What pods can be sorted by, apart from what they hold."""

SAMPLE_INTERVAL = 60.0  # seconds between two samples of how full the cluster is
MOST_SAMPLES = 360
MOST_DECISIONS = 200
MOST_NOTES = 3  # most sentences about what is not known: each plugin may have its own reason
DECISIONS_AGE = 2.0  # seconds for which the last decisions are shown again without reading them once more
TURN = 0.02  # seconds of work after which requests are served

T = TypeVar("T")

ReadDecisions = Callable[[Cluster], Awaitable[tuple[str, ...]]]
"""Reads the extender's last decisions into a cluster, and returns sentences about what could not be read."""


class NotRead(GasError):
    """The cluster has not been read yet."""


class View:
    """The state behind the page. Nothing can be shown before `run` has read the cluster.

    ``settings`` are the extender's; None to read them from its pod. ``grafana`` is the URL to link to, empty for none.
    """

    def __init__(
        self,
        api: ApiServer,
        read_decisions: ReadDecisions,
        settings: PlacementSettings | None = None,
        grafana: str = "",
    ) -> None:
        self._api = api
        self._grafana = grafana
        self._settings = settings
        self._read_decisions = read_decisions
        self._following: Following | None = None
        self._diagnoses: Diagnoses | None = None
        self._trouble = "the cluster is being read"
        self._board = Board("")
        self._changes = Changes()
        self._notes: tuple[str, ...] = ()
        self._samples: deque[dict[str, object]] = deque(maxlen=MOST_SAMPLES)
        self._sampled_at = -SAMPLE_INTERVAL
        self._decisions_at = -DECISIONS_AGE
        self._decision_notes: tuple[str, ...] = ()
        self._whys: TTLCache[tuple[str, str], dict[str, object]] = TTLCache(MOST_WHYS, WHY_AGE)

    async def run(self) -> NoReturn:
        """Follow the cluster until cancelled, also through failures of the API server and of the page itself."""
        backoff = Backoff()
        while True:
            try:
                self._changes = Changes()
                async with following(self._api, self._settings, self._changes, counts_hosts=True) as found:
                    backoff.reset()
                    self.show(found, Board(f"{time.time_ns():x}"))
                    await self._keep_up(found.cluster)
            except GasError as error:
                self._trouble = str(error)
                logger.warning("the page cannot show the cluster: %s", error)
            except Exception:
                self._trouble = "the page has failed; its log says why"
                logger.exception("the page has failed and reads the cluster again")
            self._following = None
            await asyncio.sleep(backoff.wait())

    def show(self, found: Following, board: Board) -> None:
        self._following = found
        self._diagnoses = Diagnoses(found.cluster)
        self._board = board

    async def _keep_up(self, cluster: Cluster) -> NoReturn:
        use = asyncio.create_task(self._read_use(cluster))
        seen = -1
        try:
            while True:
                names = self._changes.take()
                if cluster.nodes.version != seen:
                    seen = cluster.nodes.version
                    names += self._board.changed_states(cluster)
                await _in_turns(self._board.update(cluster, list(dict.fromkeys(names))))
                if time.monotonic() >= self._sampled_at + SAMPLE_INTERVAL:
                    self._sampled_at = time.monotonic()
                    pods = cluster.decider.pods
                    waiting = len(pods.waiting) - pods.suspended().total()
                    self._samples.append({"waiting": waiting, "booked": self._board.booked_shares()})
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
                self._changes.node_changed(node, Change.PODS)
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
            return {
                "trouble": self._trouble,
                "notes": [],
                "grafana": self._grafana,
                "waiting": 0,
                "suspended": 0,
                "changes": 0,
            }
        pods = self._cluster.decider.pods
        suspended = pods.suspended().total()
        notes = [*self._cluster.settings.notes, *self._notes]
        more = len(notes) - MOST_NOTES
        return {
            "trouble": self._following.trouble,
            "notes": notes[:MOST_NOTES] + ([f"and {more} more of such"] if more > 0 else []),
            "grafana": self._grafana,
            "waiting": len(pods.waiting) - suspended,
            "suspended": suspended,
            "changes": self._cluster.pods.version + self._board.version,
        }

    def whole(self) -> bytes:
        """Return the whole map as JSON. Raises NotRead."""
        if self._following is None:
            raise NotRead(self._trouble)
        return self._board.whole()

    def part_after(self, board: str, version: int) -> tuple[int, bytes] | None:
        return self._board.part_after(board, version)

    def node(self, name: str) -> dict[str, object]:
        """Return everything about a node. Raises NotRead, Missing."""
        labels = self._cluster.node(name).labels
        return node_data(self._cluster, name) | {"labels": dict(sorted(labels.items()))}

    async def pods(self, text: str, state: str, sort: str = "") -> dict[str, object]:
        """Return the pods whose names or node contain a text, or of the namespace if it ends with a slash.

        ``state`` may be ``waiting`` or ``bound``; empty for all. ``sort`` is a column, in descending order after a
        hyphen; empty for those that wait first. Raises NotRead, BadExpression.
        """
        cluster, wanted = self._cluster, text.lower()
        found: dict[str, InspectedPod] = {}
        for pod in cluster.gpu_pods:
            names = f"{pod.key} {pod.node_name}".lower()
            matches = names.startswith(wanted) if wanted.endswith("/") else wanted in names
            if matches and (not state or (state == "bound") == bool(pod.node_name)):
                found[pod.key] = pod
        if sort:
            keys = sorted(found, key=natural)
            known = columns(*_SORTED_BY, *map(column_of, resources(cluster)))
            report = Report(known, await _in_turns(pod_row(cluster, found[key]) for key in keys))
            rows = sort_rows(report, sort, "parameter sort").rows[:MOST_PODS]
            keys = [f"{row['namespace']}/{row['name']}" for row in rows]
        else:
            keys = nsmallest(MOST_PODS, found, key=lambda key: (bool(found[key].node_name), natural(key)))
        return {"total": len(found), "pods": [self._listed(found[key]) for key in keys]}

    async def namespaces(self) -> dict[str, object]:
        """Return how many pods each namespace has, and what they hold. Raises NotRead."""
        cluster = self._cluster
        names = [*map(column_of, resources(cluster)), "used"]
        sums: dict[str, Counter[str]] = {}
        for row in await _in_turns(pod_row(cluster, pod) for pod in cluster.gpu_pods):
            of_pod = {name: amount for name in names if isinstance(amount := row.get(name), int)}
            counts = {"pods": 1, "waiting": int(row["state"] == "Waiting")}
            sums.setdefault(str(row["namespace"]), Counter()).update(counts | of_pod)
        return {"namespaces": [{"namespace": name, **sums[name]} for name in sorted(sums, key=natural)]}

    def history(self) -> dict[str, object]:
        """Return how full the cluster was and how many pods waited, the oldest sample first."""
        return {"seconds": SAMPLE_INTERVAL, "samples": list(self._samples)}

    async def pod(self, namespace: str, name: str) -> dict[str, object]:
        """Return the way of one pod: request, decision, what kubelet gave, and use. Raises NotRead, Missing."""
        await self._refresh_decisions()
        cluster = self._cluster
        pod = cluster.pod(namespace, name)
        booking = cluster.decider.ledger.booking(pod.uid)
        held: list[dict[str, object]] = []
        if booking is not None:
            for card, amounts in booking.footprint.amounts.items():
                use = cluster.use.get((pod.uid, card))
                held.append(
                    {
                        "card": str(card),
                        "amounts": dict(amounts),
                        "tiles": sorted(booking.footprint.tiles.get(card, ())),
                        "used": use.memory if use is not None else None,
                        "busy": use.busy if use is not None else None,
                    }
                )
        return {
            **self._listed(pod),
            "uid": pod.uid,
            "labels": dict(sorted((pod.metadata.labels or {}).items())),
            "held": held,
            "booking": booking.state.value if booking is not None else None,
            "written": {
                key: as_time(text) if key == TIMESTAMP else text
                for key in WRITTEN_ANNOTATIONS
                if (text := pod.annotations.get(key))
            },
            "decisions": _decisions_data(each for each in cluster.decisions if each.uid == pod.uid),
        }

    async def why(self, namespace: str, name: str) -> dict[str, object]:
        """Return why a pod waits and what would let it run, as `kubectl gas why` does. Raises NotRead, Missing."""
        await self._refresh_decisions()
        if (found := self._whys.get((namespace, name))) is None:
            pod = self._cluster.pod(namespace, name)
            until = time.monotonic() + WHY_TIMEOUT
            explanation = explain(self._cluster, pod, lambda: time.monotonic() > until)
            found = {
                **explanation_data(explanation),
                "not_checked": list(not_checked(pod)) if explanation.groups else [],
            }
            self._whys[namespace, name] = found
        return found

    async def decisions(self) -> dict[str, object]:
        await self._refresh_decisions()
        return {"decisions": _decisions_data(self._cluster.decisions), "notes": list(self._decision_notes)}

    def _listed(self, pod: InspectedPod) -> dict[str, object]:
        row: dict[str, object] = {**pod_row(self._cluster, pod), "asks": asks(self._cluster, pod)}
        if not pod.node_name and self._diagnoses is not None:
            row["note"] = self._diagnoses.of(pod).line
        return row

    async def _refresh_decisions(self) -> None:
        cluster = self._cluster
        if time.monotonic() - self._decisions_at > DECISIONS_AGE:
            self._decisions_at = time.monotonic()
            self._decision_notes = await self._read_decisions(cluster)


async def _in_turns(steps: Iterable[T]) -> list[T]:
    """Return what the steps yield. Requests are served in between."""
    found, begun = [], time.monotonic()
    for step in steps:
        found.append(step)
        if time.monotonic() - begun > TURN:
            await asyncio.sleep(0)
            begun = time.monotonic()
    return found


def _decisions_data(decisions: Iterable[Decision]) -> list[dict[str, object]]:
    return [msgspec.to_builtins(each) for each in islice(decisions, MOST_DECISIONS)]
