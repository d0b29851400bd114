"""Check that clocks agree: certificates, tokens and Leases depend on it."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import aiohttp

from gas.cluster import paths
from gas.cluster.credentials import Credentials
from gas.cluster.listing import Lister
from gas.doctor.check import Check, Sources
from gas.doctor.findings import Finding, Unseen, about, not_seen, ok, probe, warning
from gas.doctor.gpus import gpu_nodes
from gas.doctor.objects import Lease
from gas.doctor.snapshot import Snapshot

CLOCK, LEASES = "clock", "node_leases"  # gathered: the API server's `Clock`, and by node its kubelet's heartbeat
TOLERANCE = 5.0  # seconds that two clocks may differ
SILENCE = 60.0  # Seconds without a heartbeat of a ready node. Kubelet sends one every ten seconds.

SET_CLOCK = "timedatectl status   # on that machine; systemd-timesyncd or chrony keeps a clock right"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The time of this machine before and after a request, and the API server's in whole seconds, since the epoch."""

    before: float
    server: float
    after: float

    @property
    def ahead(self) -> float:
        """The least number of seconds by which the API server's clock is ahead."""
        if self.server > self.after:
            return self.server - self.after
        return min(self.server + 1 - self.before, 0.0)


async def _gather(sources: Sources) -> Mapping[str, object]:
    listing = await probe(Lister(sources.api, paths.leases("kube-node-lease"), Lease).fetch())
    leases = listing if isinstance(listing, Unseen) else {each.metadata.name: each for each in listing.objects}
    return {CLOCK: await _server_clock(sources.credentials, sources.timeout), LEASES: leases}


async def _server_clock(credentials: Credentials, timeout: float) -> Clock | Unseen:
    address = credentials.address
    authorization = await credentials.authorization()
    headers = {"Authorization": authorization} if authorization is not None else {}
    again = "gas doctor   # again, once the API server responds"
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout)) as session:
            before = time.time()
            async with session.get(
                f"{address.url}/version",
                headers=headers,
                ssl=address.tls,
                server_hostname=address.server_hostname,
                proxy=address.proxy,
                allow_redirects=False,
            ) as response:
                after = time.time()
                server = parsedate_to_datetime(response.headers["Date"]).timestamp()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return Unseen(f"the API server's time could not be read: {str(error) or 'no response in time'}", again)
    except (KeyError, ValueError):
        return Unseen("the API server's response has no date", again)
    return Clock(before=before, server=server, after=after)


def check_clocks(snapshot: Snapshot) -> Iterator[Finding]:
    """Compare the API server's clock with this machine's, and with the heartbeats of the GPU nodes."""
    clock: Clock | Unseen = snapshot.gathered[CLOCK]
    leases: Mapping[str, Lease] | Unseen = snapshot.gathered[LEASES]
    if isinstance(clock, Unseen):
        yield not_seen("API server", clock)
        return
    yield from about("this machine and the API server", [_of_server(clock.ahead)])
    if isinstance(leases, Unseen):
        yield not_seen("heartbeats of nodes", leases)
        return
    for node in gpu_nodes(snapshot):
        lease = leases.get(node.name)
        renewed = lease.spec.renew_time if lease is not None and lease.spec is not None else None
        if renewed is not None and node.is_ready:
            yield from about(f"node {node.name}", [_of_heartbeat(clock.server - renewed.timestamp())])


def _of_server(ahead: float) -> Finding:
    if abs(ahead) <= TOLERANCE:
        return ok("their clocks agree")
    return warning(
        f"their clocks differ by {abs(ahead):.0f} s",
        SET_CLOCK,
        expected=f"at most {TOLERANCE:g} s",
        found=f"the API server is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}",
    )


def _of_heartbeat(age: float) -> Finding:
    if age < -TOLERANCE:
        return warning(
            "its last heartbeat is in the future, so its clock is ahead",
            SET_CLOCK,
            expected=f"at most {TOLERANCE:g} s",
            found=f"{-age:.0f} s ahead of the API server",
        )
    if age > SILENCE:
        return warning(
            "its last heartbeat is old although the node is ready: its clock is behind, or kubelet just stopped",
            SET_CLOCK,
            expected=f"a heartbeat in the last {SILENCE:g} s",
            found=f"one {age:.0f} s ago by the API server's clock",
        )
    return ok("its clock agrees with the API server's")


CHECKS = (Check(name="clocks", title="clocks", findings=check_clocks, gather=_gather),)
