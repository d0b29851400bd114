"""Determine whether this replica may decide, and the reason why not."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Protocol, TypeVar

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.listing import Lister
from gas.cluster.watch import Watch
from gas.extender.late_bindings import RETRY_PAUSE, ListPods
from gas.objects.stored import Pod
from gas.values.errors import GasError

P = TypeVar("P", bound=Pod)

logger = logging.getLogger(__name__)


class Leader(Protocol):
    """The choice of the replica that decides."""

    @property
    def leads(self) -> bool:
        """Return whether this replica is chosen. Before it decides, it must also catch up."""

    def why_not(self) -> str | None: ...
    async def run(self) -> None:
        """Take part in the choice. Calls `Core.chosen` with each new value of `leads`."""

    async def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Alone:
    """The only replica: it is always chosen."""

    chosen: Callable[[bool], None]
    leads: ClassVar[bool] = True

    def why_not(self) -> None: ...
    async def run(self) -> None:
        self.chosen(True)

    async def release(self) -> None: ...


async def read_bound_pods(
    list_pods: ListPods, learn: Callable[[list[Pod]], None], *, retry_pause: float = RETRY_PAUSE
) -> None:
    """Learn from a list of all GPU pods, since the watch may not have shown those that another process bound."""
    while True:
        try:
            learn(await list_pods())
        except GasError as error:
            logger.warning("cannot read the pods that were bound before: %s", error)
        except Exception:
            logger.exception("cannot process the pods that were bound before")
        else:
            return
        await asyncio.sleep(retry_pause)


def lister_of_pods(
    api: ApiServer, kind: type[P], is_gpu_pod: Callable[[Pod], bool], field_selector: str | None = None
) -> Callable[[], Awaitable[list[P]]]:
    lister = Lister(api, paths.PODS, kind, keep=is_gpu_pod, field_selector=field_selector)

    async def fetch() -> list[P]:
        return (await lister.fetch()).objects

    return fetch


REPORT_PERIOD = 0.2  # seconds between two checks whether readiness has changed; no event has all of its reasons


class NotReady(GasError):
    """The replica may not decide now. The scheduler gets the sentence, and its connection ends with that response."""


def check_ready(why_not: Callable[[], str | None]) -> None:
    if (sentence := why_not()) is not None:
        raise NotReady(sentence)


class Readiness:
    """The readiness of this replica to decide: it has all lists, is the one that is chosen, and has caught up.

        waiting --chosen--> catching up --has caught up, all lists read--> ready
           ^---------------no longer chosen---------'----------------------'

    Only a replica that is ready decides, binds and patches.

    catch_up  awaited before the first decision after this replica was chosen
    """

    def __init__(
        self, watches: Mapping[str, Watch[Any]], leader: Leader, catch_up: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._watches = watches
        self._leader = leader
        self._catch_up = catch_up
        self._catching_up: asyncio.Task[None] | None = None
        self._has_caught_up = False
        self._is_stopping = False
        self._trouble = ""
        self._has_begun = False

    def chosen(self, leads: bool) -> None:  # noqa: FBT001 -- the form of a leader's callback
        """Note whether this replica is chosen to decide."""
        self._has_caught_up = False
        if self._catching_up is not None:
            self._catching_up.cancel()
            self._catching_up = None
        if leads:
            self._catching_up = asyncio.get_running_loop().create_task(self._catch_up())
            self._catching_up.add_done_callback(self._caught_up)

    def _caught_up(self, task: asyncio.Task[None]) -> None:
        if task is self._catching_up and not task.cancelled():
            task.result()
            self._has_caught_up = True

    def stop(self) -> None:
        """Note that the program ends: requests in progress are still decided, but new ones should go elsewhere."""
        self._is_stopping = True

    def note(self, trouble: str) -> None:
        """Note what keeps this replica from catching up, such as a missing permission; empty if nothing does."""
        self._trouble = trouble

    def why_not(self) -> str | None:
        """Return the sentence for the ``Error`` of a response; None if this replica decides."""
        sentence = self._why_not()
        return f"{sentence}; {self._trouble}" if sentence and self._trouble else sentence

    def _why_not(self) -> str | None:
        for kind, watch in self._watches.items():
            if watch.refused is not None:
                cannot = "can no longer be watched" if watch.synced.is_set() else "cannot be listed"
                return f"the ledger is not complete, {kind} {cannot}: {watch.refused}"
            if not watch.synced.is_set():
                trouble = f"; the last try failed: {watch.trouble}" if watch.trouble else ""
                return f"the ledger is not complete yet: the first list of {kind} is still being read{trouble}"
        if (why_not := self._leader.why_not()) is not None:
            return why_not
        if not self._has_caught_up:
            return (
                "this replica of the extender has just become the leader and still reads the pods that the previous "
                "leader bound"
            )
        return None

    def why_not_serving(self) -> str | None:
        """Return the sentence for ``/readyz``; None if new requests may come."""
        return "this replica of the extender is stopping" if self._is_stopping else self.why_not()

    def may_act(self) -> bool:
        return self.why_not() is None

    def has_begun(self) -> bool:
        """Return whether this replica decides and `report` has called ``on_ready`` since it began to."""
        return self._has_begun and self.may_act()

    async def report(self, on_ready: Callable[[], None]) -> NoReturn:
        """Log every change of readiness, and call ``on_ready`` whenever this replica begins to decide."""
        before: str | None = ""
        while True:
            why_not = self.why_not()
            if why_not != before:
                logger.info("ready" if why_not is None else f"not ready: {why_not}")
                self._has_begun = why_not is None
                if why_not is None:
                    on_ready()
            before = why_not
            await asyncio.sleep(REPORT_PERIOD)
