"""Listening sockets, and the places of their connections."""

import contextlib
import errno
import os
import socket
import time
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from gas.values.errors import GasError

BACKLOG = 1024

STALLED = 30_000  # milliseconds until the kernel closes the connection of a peer that neither receives nor acknowledges

MOST_ADMISSION_CONNECTIONS = 512
"""Open connections of the admission port whose request is complete or responded to, and again as many others. Any
client may connect to it: a connection takes 0.3 MB once it has sent a byte, and more with a part of a request. The API
server opens one for each review that waits, and keeps few."""

MOST_SCHEDULER_CONNECTIONS = 2048
"""The same of kube-scheduler's port. kube-scheduler opens one for each bind in progress, and a connection that finds no
place is a bind that fails, so there are many more than it needs."""

LEAST_TIME = 0.5  # seconds that a connection has for its handshake and request before another may take its place


class CannotListen(GasError):
    """A port is in use or not permitted, or its address is not this machine's. The message names the flag to change."""


class ListeningSocket(socket.socket):
    """A listening socket that keeps track of its open connections, and may limit them.

    A connection is *unproven* until all of a request has arrived, and again from the headers of the next request until
    that one is complete. Unproven connections have places of their own, so clients that send nothing, or slowly, take
    none from the others.

    most        connections with a complete request or between two requests. A further one takes the place of the one
                that has been idle for the longest time, and is closed if all have a request in progress. As many
                others may be unproven. A further one takes the place of the oldest, but waits in the kernel's
                queue until that has had its time. None: any number
    least_time  seconds, see LEAST_TIME
    """

    def __init__(self, opened: socket.socket, most: int | None = None, least_time: float = LEAST_TIME) -> None:
        super().__init__(opened.family, opened.type, opened.proto, fileno=opened.detach())
        self._most = most
        self._least_time = least_time
        self._unproven: WeakKeyDictionary[socket.socket, float] = WeakKeyDictionary()
        """Since when; the oldest are the first."""
        self._idle: WeakKeyDictionary[socket.socket, None] = WeakKeyDictionary()
        """Those that are idle for the longest time are the first."""
        self._busy: WeakSet[socket.socket] = WeakSet()

    def seconds_to_place(self) -> float:
        """Return how long a further connection has to wait before it may be accepted."""
        if self._most is None or len(self._unproven) < self._most:
            return 0.0
        return max(0.0, next(iter(self._unproven.values())) + self._least_time - time.monotonic())

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, peer = super().accept()
        if self._most is not None and len(self._unproven) >= self._most:
            _drop_first(self._unproven)
        self._unproven[accepted] = time.monotonic()
        return accepted, peer

    def request_begins(self, accepted: socket.socket) -> None:
        """Note that the headers of a request have arrived."""
        if self._idle.pop(accepted, False) is None:
            self._unproven[accepted] = time.monotonic()

    def request_is_complete(self, accepted: socket.socket) -> None:
        """Note that all of a request has arrived. The connection is closed if there is no place for it."""
        if self._unproven.pop(accepted, None) is None:
            return
        if self._most is None or len(self._busy) + len(self._idle) < self._most or _drop_first(self._idle):
            self._busy.add(accepted)
        else:
            _shut_down(accepted)

    def request_ends(self, accepted: socket.socket) -> None:
        """Note that a request has its response."""
        self.request_is_complete(accepted)
        if accepted in self._busy:
            self._busy.discard(accepted)
            self._idle[accepted] = None

    def break_off(self) -> None:
        """Shut down every open connection now, also those with a request in progress. Their owner closes them."""
        for accepted in [*self._unproven, *self._idle, *self._busy]:
            _shut_down(accepted)


def _drop_first(connections: WeakKeyDictionary[socket.socket, Any]) -> bool:
    """Shut down the first connection. Return whether there was one."""
    accepted = next(iter(connections), None)
    if accepted is None:
        return False
    del connections[accepted]
    _shut_down(accepted)
    return True


def _shut_down(accepted: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        accepted.shutdown(socket.SHUT_RDWR)


def listen(
    # an IP address; empty is every address of the machine, IPv4 and IPv6 (only IPv4 where there is no IPv6)
    address: str,
    port: int,  # 0 picks a free port
    *,
    flag: str,  # name of the flag that the error message names
    stalled: int = STALLED,
    most: int | None = None,
    least_time: float = LEAST_TIME,
) -> ListeningSocket:
    """Open a TCP socket. It accepts connections from now on; they wait until it is served. Raises CannotListen."""
    try:
        opened = ListeningSocket(_open(address, port), most, least_time)
    except OSError as error:
        where = f"port {port}" + (f" of {address}" if address else "")
        raise CannotListen(f"--{flag}: cannot listen on {where}: {_why(error)}") from None
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled)
    # Connections inherit TCP_NODELAY. asyncio would set it only for sockets that were made with the protocol's number,
    # and without it the last piece of a response waits 40 ms for the client's acknowledgement of the first.
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
        errno.EADDRINUSE: "it is in use; stop the program that listens there, or choose another port",
        errno.EACCES: "it is not permitted; ports below 1024 need a privilege, choose another port",
        errno.EADDRNOTAVAIL: "this machine does not have that address",
    }
    code = error.errno or 0
    return reasons.get(code, os.strerror(code))
