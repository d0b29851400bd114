"""The choice of the replica that decides: it holds the Lease and knows what the leader before it did."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import Callable

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.lease import LeaderElection
from gas.cluster.listing import Lister
from gas.errors import GasError
from gas.extender.pods import Pods
from gas.objects import Pod

logger = logging.getLogger(__name__)

RETRY_PAUSE = 1.0
"""Seconds after a list of pods that failed."""


class Leadership:
    """Take part in the election of a leader, and catch up when this replica wins it.

        waiting --wins the election--> catching up --has listed the pods once more--> leading
           ^--------------no longer holds the Lease---------------'----------------------'

    A new leader lists the pods again, since the last binds of the old one may still be on their way to its watch.

    namespace, name  of the Lease
    speaks           selects the pods that ask for cards
    synced           is set while the watch of the pods has listed them
    """

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        name: str,
        *,
        pods: Pods,
        speaks: Callable[[Pod], bool],
        synced: asyncio.Event,
    ) -> None:
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._election = LeaderElection(api, namespace, name, identity=identity, on_change=self.changed)
        self._lister = Lister(api, paths.pods(), Pod, keep=speaks)
        self._pods = pods
        self._synced = synced
        self._has_caught_up = False
        self._catching_up: asyncio.Task[None] | None = None

    @property
    def leads(self) -> bool:
        """True if this replica holds the Lease."""
        return self._election.leads

    def why_not(self) -> str | None:
        """Return why this replica does not decide, None if it does."""
        if not self._election.leads:
            if self._election.refused is not None:
                return f"this replica of the extender cannot lead: {self._election.refused}"
            return "this replica of the extender is not the leader; kube-scheduler will retry"
        if not self._has_caught_up:
            return (
                "this replica of the extender has just become the leader and still reads the pods that the previous "
                "leader bound"
            )
        return None

    async def run(self) -> None:
        """Take part in the election, until cancelled or released."""
        try:
            await self._election.run()
        finally:
            self._stop_catching_up()

    async def release(self) -> None:
        """Stop leading and hand the Lease over, so that another replica takes it at once."""
        await self._election.release()

    def changed(self, leads: bool) -> None:  # noqa: FBT001 -- the form of the election's callback
        """Begin to catch up when the election is won, stop when it is lost."""
        self._has_caught_up = False
        self._stop_catching_up()
        if leads:
            self._catching_up = asyncio.get_running_loop().create_task(self._catch_up())

    def _stop_catching_up(self) -> None:
        if self._catching_up is not None:
            self._catching_up.cancel()
            self._catching_up = None

    async def _catch_up(self) -> None:
        while True:
            await self._synced.wait()
            try:
                self._pods.learn((await self._lister.fetch()).objects)
            except GasError as error:
                logger.warning("cannot read the pods that the previous leader bound: %s", error)
            except Exception:
                logger.exception("cannot process the pods that the previous leader bound")
            else:
                self._has_caught_up = True
                return
            await asyncio.sleep(RETRY_PAUSE)
