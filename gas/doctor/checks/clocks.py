"""Check that clocks agree: certificates, tokens and Leases depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from gas.doctor.findings import Finding, ok, unknown, warning
from gas.doctor.gpus import gpu_nodes
from gas.doctor.probe import Unseen
from gas.doctor.snapshot import Clock, Snapshot

CHECK = "clocks"
TOLERANCE = 5.0
"""Seconds that two clocks may differ."""

SILENCE = 60.0
"""Seconds without a heartbeat of a ready node. Kubelet sends one every ten seconds."""

SET_CLOCK = "timedatectl status   # on that machine; systemd-timesyncd or chrony keeps a clock right"


def check_clocks(snapshot: Snapshot) -> Iterator[Finding]:
    """Compare the API server's clock with this machine's, and with the heartbeats of the GPU nodes."""
    clock = snapshot.clock
    if isinstance(clock, Unseen):
        yield unknown(CHECK, "API server", clock.why, clock.mend)
        return
    ahead = _ahead(clock)
    if abs(ahead) > TOLERANCE:
        yield warning(
            CHECK,
            "this machine and the API server",
            f"their clocks differ by {abs(ahead):.0f} s",
            SET_CLOCK,
            expected=f"at most {TOLERANCE:g} s",
            found=f"the API server is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}",
        )
    else:
        yield ok(CHECK, "this machine and the API server", "their clocks agree")
    if isinstance(snapshot.node_leases, Unseen):
        yield unknown(CHECK, "heartbeats of nodes", snapshot.node_leases.why, snapshot.node_leases.mend)
        return
    for node in gpu_nodes(snapshot):
        where = f"node {node.name}"
        lease = snapshot.node_leases.get(node.name)
        renewed = _moment(lease.spec.renew_time if lease is not None and lease.spec is not None else None)
        if renewed is None or not node.is_ready:
            continue
        age = clock.server - renewed
        if age < -TOLERANCE:
            yield warning(
                CHECK,
                where,
                "its last heartbeat is in the future, so its clock is ahead",
                SET_CLOCK,
                expected=f"at most {TOLERANCE:g} s",
                found=f"{-age:.0f} s ahead of the API server",
            )
        elif age > SILENCE:
            yield warning(
                CHECK,
                where,
                "its last heartbeat is old although the node is ready: its clock is behind, or kubelet just stopped",
                SET_CLOCK,
                expected=f"a heartbeat in the last {SILENCE:g} s",
                found=f"one {age:.0f} s ago by the API server's clock",
            )
        else:
            yield ok(CHECK, where, "its clock agrees with the API server's")


def _ahead(clock: Clock) -> float:
    """Return the seconds by which the API server's clock is ahead at least. Its time has whole seconds."""
    if clock.server > clock.after:
        return clock.server - clock.after
    return min(clock.server + 1 - clock.before, 0.0)


def _moment(text: str | None) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None
