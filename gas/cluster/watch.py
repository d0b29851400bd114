"""Show a handler all objects of one kind and their changes, through every failure of the API server."""

import asyncio
import logging
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from gas.cluster.backoff import Backoff
from gas.cluster.errors import ApiRefused, ApiUnavailable, Forbidden
from gas.cluster.listing import Lister
from gas.cluster.watch_events import EndlessLine, EventDecoder, KubernetesObject, LineSplitter, UnreadableEvent
from gas.objects.handler import Handler
from gas.objects.stored import ObjectId
from gas.values.errors import GasError
from gas.values.timing import SYSTEM_TIMING, Timing

if TYPE_CHECKING:
    from gas.cluster.connection import ApiServer

T = TypeVar("T", bound=KubernetesObject)
logger = logging.getLogger(__name__)

_SILENCE = 90.0
"""Seconds without a byte after which a watch is opened again. Bookmarks come about every minute once an object of the
kind has changed since the API server started. Before that a healthy watch is silent, and a new one costs nothing."""

_LIFE = (300, 600)  # seconds after which the server is asked to end a watch: a random value in between, as in client-go
_WORTH_WHILE = 5.0  # Seconds. A watch that ends sooner than this is followed by a pause.
_TURN = 0.02  # seconds of handling events after which other tasks get their turn: a chunk can hold thousands of events

_FORBIDDEN_PAUSE = 30.0
_VERSION_FROM_THE_FUTURE = "Too large resource version"
"""Message of an API server whose data was restored from an older backup. It never accepts the version again."""


class _UnknownLoss(GasError):
    """An object was deleted, and its event cannot be decoded."""


class Watch(Generic[T]):
    """A watch that keeps a handler up to date about the objects of one kind.

        list --> watch --(ends, breaks, falls silent)--> watch from the last version seen --> …
          ^        |
          `--------`--(the server no longer has that version: 410)

    While the API server is unavailable, requests are repeated without end, after pauses that grow to 10 s. The handler
    sees only the objects that the lister keeps. What its ``keep`` returns for an object must not change.

    last_contact  time of the API server's last response, by the monotonic clock; the time of construction before that
    refused       what permission is missing, as a sentence, while the API server forbids to list or watch; else None
    """

    def __init__(
        self,
        lister: Lister[T],
        handler: Handler[T],
        *,
        silence: float = _SILENCE,
        forbidden_pause: float = _FORBIDDEN_PAUSE,
        backoff: Backoff | None = None,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        self._clock, self._spread = timing.monotonic, timing.spread
        self.synced = asyncio.Event()  # set once the handler has the first complete list
        self.last_contact = self._clock()
        self.relists = 0  # number of complete lists after the first
        self.broken = 0  # number of lists and watches that ended in an error
        self.undecodable = 0  # number of objects and lines left out because they could not be decoded
        self.faults = 0  # number of handler calls that raised, which is a bug in the handler and is logged
        self.refused: str | None = None
        self._lister = lister
        self._path = lister.path
        self._handler = handler
        self._decoder = EventDecoder(lister.object_type, f"the watch of {lister.path}")
        self._silence = silence
        self._forbidden_pause = forbidden_pause
        self._backoff = backoff or Backoff(timing=timing)
        self._version: str | None = None
        self.trouble = ""  # the last error, while the watch is interrupted; else empty

    async def run(self) -> None:
        while True:
            opened: float | None = None
            pause = 0.0
            must_list = self._version is None
            try:
                if must_list:
                    await self._list()
                opened = self._clock()
                await self._watch()
            except Forbidden as error:
                pause = self._forbidden_pause
                self.broken += 1
                if self.refused is None:
                    logger.error("cannot watch %s: %s", self._path, error)
                self.refused = str(error)
            except ApiRefused as error:
                if error.status not in (401, 429):
                    self._version = None
                self._report(error)
            except ApiUnavailable as error:
                if _VERSION_FROM_THE_FUTURE in error.message:
                    self._version = None
                self._report(error)
            except (EndlessLine, _UnknownLoss) as error:
                self._version = None
                self._report(error)
            except Exception:
                self._version = None
                self.faults += 1
                logger.exception("the handler of %s failed", self._path)
            if opened is not None and self._clock() - opened >= _WORTH_WHILE:
                self._backoff.reset()
            elif must_list or self._version is not None:
                pause = max(pause, self._backoff.wait())
            # Else the version has just been dropped: list again at once, since changes are unknown until then.
            await asyncio.sleep(pause)

    async def _list(self) -> None:
        listing = await self._lister.fetch_paged(self._take_page)
        self.undecodable += listing.undecodable
        self._handler.complete(listing.objects)
        self._version = listing.version
        if self.synced.is_set():
            self.relists += 1
        self.synced.set()

    def _take_page(self, objects: list[T]) -> list[ObjectId]:
        self.last_contact = self._clock()
        self._handler.listed(objects)
        return [ObjectId(obj.metadata.name, obj.metadata.uid or "") for obj in objects]

    async def _watch(self) -> None:
        query = self._lister.selection | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(round(self._spread(*_LIFE))),
        }
        api = cast("ApiServer", self._lister.api)  # one that streams
        async with api.stream(self._path, query=query, silence=self._silence) as chunks:
            self._report_success()
            lines = LineSplitter()
            async for chunk in chunks:
                self.last_contact = turn = self._clock()
                for line in lines.feed(chunk):
                    self._take(line)
                    if self._clock() - turn >= _TURN:
                        await asyncio.sleep(0)
                        turn = self._clock()

    def _take(self, line: bytes) -> None:
        event = self._decoder.decode(line)
        if isinstance(event, UnreadableEvent):
            self._skip(event)
            return
        obj, keep = event.object, self._lister.keep
        if event.type != "BOOKMARK" and (keep is None or keep(obj)):
            try:
                (self._handler.deleted if event.type == "DELETED" else self._handler.changed)(obj)
            except Exception:
                self.faults += 1
                logger.exception("the handler of %s failed for %s", self._path, obj.metadata.name)
        self._version = obj.metadata.resource_version or self._version

    def _skip(self, event: UnreadableEvent) -> None:
        self._version = event.version or self._version
        if event.type == "BOOKMARK":
            return
        self.undecodable += 1
        name = event.name or "an unknown object"
        logger.warning("an event of the watch of %s about %s cannot be decoded: %s", self._path, name, event.why)
        if event.type == "DELETED":
            raise _UnknownLoss(f"{name} was deleted, but its event cannot be decoded; listing {self._path} again")

    def _report(self, error: GasError) -> None:
        """Log the error, as a warning only the first time."""
        self.broken += 1
        level = logging.DEBUG if self.trouble else logging.WARNING
        logger.log(level, "the watch of %s is interrupted: %s", self._path, error)
        self.trouble = str(error)

    def _report_success(self) -> None:
        self.last_contact = self._clock()
        if self.trouble or self.refused is not None:
            logger.info("the watch of %s is working again", self._path)
        self.trouble, self.refused = "", None
