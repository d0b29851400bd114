"""Choose the replica that decides: it holds the Lease and has caught up with the leader before it."""

import asyncio
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from gas.cluster.connection import ApiServer
from gas.cluster.lease import LeaderElection
from gas.values.timing import SYSTEM_TIMING, Timing

SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The file in which a pod finds the name of its own namespace."""


def own_namespace(environ: Mapping[str, str] = os.environ, file: Path = SERVICE_ACCOUNT_NAMESPACE) -> str:
    """Return the namespace of this pod: $POD_NAMESPACE, else the service account's, else ``default``."""
    if named := environ.get("POD_NAMESPACE"):
        return named
    try:
        return file.read_text(encoding="utf-8").strip() or "default"
    except (OSError, UnicodeDecodeError):  # not in a pod, or in one without a token
        return "default"


class Leadership:
    """Take part in the election of a leader, and catch up when this replica wins it.

        waiting --wins the election--> catching up --has caught up--> leading
           ^--------------no longer holds the Lease-------'--------------'

    catch_up  awaited before the first decision
    identity  unique among all replicas that ever run; made of the host's name and chance by default
    """

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        name: str,
        *,
        catch_up: Callable[[], Awaitable[None]],
        identity: str | None = None,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self._election = LeaderElection(api, namespace, name, identity=identity, on_change=self.changed, timing=timing)
        self._catch_up_with_others = catch_up
        self._has_caught_up = False
        self._catching_up: asyncio.Task[None] | None = None

    @property
    def leads(self) -> bool:
        """True if this replica holds the Lease."""
        return self._election.leads

    def why_not(self) -> str | None:
        if not self._election.leads:
            if self._election.refused is not None:
                return f"this replica of the extender cannot lead: {self._election.refused}"
            return "this replica of the extender is not the leader; the client will retry"
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
        """Stop leading and release the Lease, so that another replica takes it at once."""
        await self._election.release()

    def changed(self, leads: bool) -> None:  # noqa: FBT001 -- the form of the election's callback
        self._has_caught_up = False
        self._stop_catching_up()
        if leads:
            self._catching_up = asyncio.get_running_loop().create_task(self._catch_up())

    def _stop_catching_up(self) -> None:
        if self._catching_up is not None:
            self._catching_up.cancel()
            self._catching_up = None

    async def _catch_up(self) -> None:
        await self._catch_up_with_others()
        self._has_caught_up = True
