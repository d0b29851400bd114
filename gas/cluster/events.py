"""Write events, which ``kubectl describe`` shows on pods and nodes, without delaying anything else."""

import asyncio
import logging
import socket
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec
from cachetools import TTLCache

from gas.cluster import paths
from gas.cluster.backoff import Backoff
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused, ApiUnavailable, Forbidden
from gas.cluster.objects import MERGE_PATCH
from gas.values.timing import SYSTEM_TIMING, Timing

logger = logging.getLogger(__name__)

_QUIET = 300.0  # seconds in which an equal event is counted, but not written again
_REMEMBERED = 3600.0  # Seconds that an event is remembered. An API server keeps events for an hour as well.
_MUTED = 600.0  # seconds without another attempt after the API server has forbidden to write events

_TRIES = 8
_DONE = 200
_LONGEST_MESSAGE = 1024


class Involved(NamedTuple):
    """The object that an event is about. ``namespace`` is empty for a node, whose events are in ``default``."""

    kind: str
    name: str
    uid: str
    namespace: str = ""
    api_version: str = "v1"

    @property
    def event_namespace(self) -> str:
        return self.namespace or "default"


class _Key(NamedTuple):
    involved: Involved
    severity: str
    reason: str
    message: str


@dataclass(slots=True)
class _Record:
    first: datetime
    last: datetime
    name: str = ""  # of the Event object; empty until it is written
    count: int = 0  # how often it was posted
    due: float = 0.0  # time, by the clock, from which it may be written again
    queued: bool = False


class Events:
    """A queue of events that a background task writes: call `post` at any time, and `run` once.

    Equal events (object, severity, reason, message) are written once in 5 minutes; a later write raises the count of
    the Event object. Without the permission to write events they are dropped, which is logged once.

    written, dropped  number of events
    """

    def __init__(
        self,
        api: ApiServer,
        component: str = "gas-extender",  # name of the reporting program
        instance: str | None = None,  # name of the replica; the host's name by default
        *,
        per_second: float = 5.0,  # highest number of writes
        queue_size: int = 1000,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        self.written = 0
        self.dropped = 0
        self._api = api
        self._component = component
        self._instance = instance or socket.gethostname()
        self._spacing = 1 / per_second
        self._timing = timing
        self._clock = timing.monotonic
        self._queue: asyncio.Queue[tuple[_Key, _Record]] = asyncio.Queue(queue_size)
        self._records: TTLCache[_Key, _Record] = TTLCache(10_000, _REMEMBERED, timer=timing.monotonic)
        self._muted: TTLCache[tuple[str, str], None] = TTLCache(1_000, _MUTED, timer=timing.monotonic)
        self._warned = False

    def post(self, involved: Involved, *, severity: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Put an event in the queue and return at once. If the queue is full, the event is dropped.

        reason   CamelCase word for programs, ``CardsExhausted``
        message  sentence, cut to 1,024 characters
        """
        if len(message) > _LONGEST_MESSAGE:
            message = f"{message[: _LONGEST_MESSAGE - 1]}…"
        key = _Key(involved, severity, reason, message)
        now = self._timing.now()
        record = self._records.get(key) or _Record(first=now, last=now)
        self._records[key] = record
        record.count += 1
        record.last = now
        if record.queued or record.due > self._clock():
            return
        try:
            self._queue.put_nowait((key, record))
        except asyncio.QueueFull:
            self.dropped += 1
        else:
            record.queued = True

    async def run(self) -> None:
        while True:
            key, record = await self._queue.get()
            record.queued = False
            try:
                done = await self._deliver(key, record)
            except Exception:
                done = False
                logger.exception("cannot write an event about %s", key.involved.name)
            if done:
                self.written += 1
                await asyncio.sleep(self._spacing)
            else:
                self.dropped += 1

    async def _deliver(self, key: _Key, record: _Record) -> bool:
        """Write the event and return whether that worked. Tries a few times while the API server is unavailable."""
        backoff = Backoff(timing=self._timing)
        for _ in range(_TRIES):
            try:
                return await self._write(key, record)
            except ApiUnavailable as error:
                logger.debug("cannot write an event yet: %s", error)
                await asyncio.sleep(backoff.wait())
        return False

    async def _write(self, key: _Key, record: _Record) -> bool:
        namespace = key.involved.event_namespace
        status = 404
        if record.name:
            patch = {"count": record.count, "lastTimestamp": _timestamp(record.last)}
            status = await self._send("PATCH", namespace, paths.event(namespace, record.name), patch)
        if status == 404:
            # Chosen before it is sent: if the response is lost, the next attempt patches what may exist.
            record.name = f"{key.involved.name[:200].rstrip('.-')}.{self._timing.nanoseconds():x}"
            status = await self._send("POST", namespace, paths.events(namespace), self._body(key, record))
        record.due = self._clock() + _QUIET
        if status != _DONE:
            record.name = ""
        return status == _DONE

    async def _send(self, method: str, namespace: str, path: str, body: dict[str, object]) -> int:
        """Send a request and return its status: 200, or that of a refusal."""
        if (method, namespace) in self._muted:
            return 403
        content_type = MERGE_PATCH if method == "PATCH" else "application/json"
        try:
            await self._api.request(method, path, body=msgspec.json.encode(body), content_type=content_type)
        except Forbidden as error:
            if error.missing_permission is not None:
                self._muted[method, namespace] = None
                level = logging.DEBUG if self._warned else logging.WARNING
                logger.log(level, "no events are written: %s", error)
                self._warned = True
            return error.status
        except ApiRefused as error:
            logger.debug("an event was refused: %s", error)
            return error.status
        return _DONE

    def _body(self, key: _Key, record: _Record) -> dict[str, object]:
        involved = key.involved
        return {
            "metadata": {"name": record.name, "namespace": involved.event_namespace},
            "involvedObject": {
                "apiVersion": involved.api_version,
                "kind": involved.kind,
                "namespace": involved.namespace,
                "name": involved.name,
                "uid": involved.uid,
            },
            "type": key.severity,
            "reason": key.reason,
            "message": key.message,
            "count": record.count,
            "firstTimestamp": _timestamp(record.first),
            "lastTimestamp": _timestamp(record.last),
            "source": {"component": self._component, "host": self._instance},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }


def _timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
