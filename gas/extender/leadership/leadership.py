"""Choose the replica that decides: it holds the Lease."""

import os
import socket
import uuid
from collections.abc import Callable, Mapping
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
    """Take part in the election of a leader.

    on_change  is called with each new value of `leads`
    identity   unique among all replicas that ever run; made of the host's name and chance by default
    """

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        name: str,
        *,
        on_change: Callable[[bool], None],
        identity: str | None = None,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self._election = LeaderElection(api, namespace, name, identity=identity, on_change=on_change, timing=timing)

    @property
    def leads(self) -> bool:
        """True if this replica holds the Lease."""
        return self._election.leads

    def why_not(self) -> str | None:
        if self._election.leads:
            return None
        if self._election.refused is not None:
            return f"this replica of the extender cannot lead: {self._election.refused}"
        return "this replica of the extender is not the leader; the client will retry"

    async def run(self) -> None:
        """Take part in the election, until cancelled or released."""
        await self._election.run()

    async def release(self) -> None:
        """Stop leading and release the Lease, so that another replica takes it at once."""
        await self._election.release()
