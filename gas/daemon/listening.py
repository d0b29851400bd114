"""The sockets we listen on, opened before anything is served so that a port in use is told at once."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import Any
from weakref import WeakSet

from gas.errors import GasError

BACKLOG = 1024

STALLED = 30_000
"""Milliseconds after which the kernel gives up on a peer that neither takes nor acknowledges what we send."""


class CannotListen(GasError):
    """A port is in use, not permitted, or not ours; the sentence names the flag that chooses it."""


class ListeningSocket(socket.socket):
    """A listening socket that knows which of its connections are still open."""

    def __init__(self, opened: socket.socket) -> None:
        super().__init__(opened.family, opened.type, opened.proto, fileno=opened.detach())
        self._accepted: WeakSet[socket.socket] = WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, peer = super().accept()
        self._accepted.add(accepted)
        return accepted, peer

    def break_off(self) -> None:
        """End every open connection now, whatever is still on its way; its owner sees it end and closes it."""
        for accepted in list(self._accepted):
            with contextlib.suppress(OSError):  # closed, or its peer is gone
                accepted.shutdown(socket.SHUT_RDWR)


def listen(address: str, port: int, *, flag: str, stalled: int = STALLED) -> ListeningSocket:
    """A TCP socket that takes connections from now on; what comes before somebody serves it waits.

    address  an IP address; empty is every address of the machine, IPv4 and IPv6 (IPv4 where there is no IPv6)
    port     0 is any free one
    flag     name of the flag that a person would change
    stalled  milliseconds, see STALLED

    Raises CannotListen.
    """
    try:
        opened = ListeningSocket(_open(address, port))
    except OSError as error:
        where = f"port {port}" + (f" of {address}" if address else "")
        raise CannotListen(f"--{flag}: cannot listen on {where}: {_why(error)}") from None
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled)
    # Connections inherit it. asyncio would set it only for sockets that were made with the protocol's number, and
    # without it an answer's last piece waits 40 ms for the client's acknowledgement of the first.
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setblocking(False)
    return opened


def _open(address: str, port: int) -> socket.socket:
    if address:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
    return socket.create_server(("0.0.0.0", port), backlog=BACKLOG)  # noqa: S104 -- every address is asked for


def _why(error: OSError) -> str:
    reasons = {
        errno.EADDRINUSE: "it is in use; stop what listens there or choose another one",
        errno.EACCES: "it is not permitted; ports below 1024 need a privilege, choose another one",
        errno.EADDRNOTAVAIL: "this machine does not have that address",
    }
    code = error.errno or 0
    return reasons.get(code, os.strerror(code))
