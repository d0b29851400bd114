"""TCP ports on loopback: free ports, addresses with all ports free, and which process listens on a port."""

from __future__ import annotations

import random
import socket
from ipaddress import IPv4Address
from pathlib import Path

_LISTEN = "0A"

_reserved: list[socket.socket] = []
"""One socket for each port that was returned: bound, never listening, open until the test run ends."""


def free_port() -> int:
    """Return a port that no other program on this machine is given, also while its own program restarts.

    A bound socket keeps the port from other test runs and from outgoing connections. A program that sets SO_REUSEADDR,
    as servers do, can still listen on it.
    """
    reserved = socket.socket()
    reserved.bind(("", 0))
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _reserved.append(reserved)
    port: int = reserved.getsockname()[1]
    return port


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
