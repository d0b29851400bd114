"""The first moments of a replica: it reads what the one before it has bound, then it decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.listing import Lister
from gas.objects.stored import Pod
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

RETRY_PAUSE = 1.0
"""Seconds after a list that failed."""

ListPods = Callable[[], Awaitable[list[Pod]]]
"""() -> GPU pods as they are now. Raises GasError."""


class Leader(Protocol):
    """Which of several replicas decides.

    leads          whether this replica does, once it has caught up
    write_timeout  seconds after which a Binding is given up, so that none is written after another replica took over
    """

    write_timeout: float | None

    @property
    def leads(self) -> bool: ...
    def why_not(self) -> str | None: ...
    async def run(self) -> None: ...
    async def release(self) -> None: ...


class Alone:
    """The only replica: it decides as soon as it has caught up, once, at its start.

    catch_up   awaited before the first decision if it ``has_to``
    """

    write_timeout: float | None = None
    leads = True

    def __init__(self, catch_up: Callable[[], Awaitable[None]], *, has_to: bool) -> None:
        self._catch_up = catch_up
        self._has_caught_up = not has_to

    def why_not(self) -> str | None:
        """Return why this replica does not decide, None if it does."""
        if self._has_caught_up:
            return None
        return "the extender has just started and still ends the reviews of bindings that it allowed before"

    async def run(self) -> None:
        """Catch up."""
        if not self._has_caught_up:
            await self._catch_up()
            self._has_caught_up = True

    async def release(self) -> None:
        """Return at once: no other replica waits."""


async def read_bound_pods(
    list_pods: ListPods, learn: Callable[[list[Pod]], None], *, retry_pause: float = RETRY_PAUSE
) -> None:
    """Learn from a list of all GPU pods, since binds of another process may still be on their way to the watch."""
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


def lister_of_pods(api: ApiServer, is_gpu_pod: Callable[[Pod], bool], field_selector: str | None = None) -> ListPods:
    """Return a function that lists the GPU pods that a field selector selects."""
    lister = Lister(api, paths.pods(), Pod, keep=is_gpu_pod, field_selector=field_selector)

    async def fetch() -> list[Pod]:
        return (await lister.fetch()).objects

    return fetch
