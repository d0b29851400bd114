"""TCP ports on loopback: free ports, addresses with all ports free, and which process listens on a port."""

from __future__ import annotations

import random
import socket
from ipaddress import IPv4Address
from pathlib import Path

_LISTEN = "0A"
_BELOW_EPHEMERAL = range(20_000, 32_000)
"""Outgoing connections use ports from 32768 on, so a port of this range stays free while its program restarts."""

_given: set[int] = set()
"""Ports that were returned. Their programs may not listen yet."""


def free_port() -> int:
    """Return a port that no program on loopback uses, never the same twice. Raises OSError after 100 tries."""
    for port in random.sample(sorted(set(_BELOW_EPHEMERAL) - _given), 100):
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise OSError(f"100 ports between {_BELOW_EPHEMERAL.start} and {_BELOW_EPHEMERAL.stop} were tried; all in use")


def own_address() -> str:
    """Return an unused address in 127.0.0.0/8, for a program whose port is fixed."""
    return str(IPv4Address(random.randrange(int(IPv4Address("127.1.0.1")), int(IPv4Address("127.255.0.0")))))


def is_listening(pid: int, port: int) -> bool:
    """Return whether this process listens on the port, and not one that was left over."""
    proc = Path(f"/proc/{pid}")
    try:
        held = {str(fd.readlink()) for fd in (proc / "fd").iterdir()}
        tables = [(proc / "net" / name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    except FileNotFoundError:  # the process, or a descriptor of it, is gone
        return False
    for line in (line for table in tables for line in table):
        _, local, _, state, *_, inode = line.split()[:10]
        if state == _LISTEN and int(local.rsplit(":", 1)[1], 16) == port and f"socket:[{inode}]" in held:
            return True
    return False
