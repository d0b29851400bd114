"""Addresses that lead to other ports of this machine, in place of kube-proxy."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass

from tests.e2e.plain_port import PlainPort
from tests.e2e.ports import free_port

_PATIENCE = 5.0


class Forwarder:
    """Listen on an address and pass each connection on to a port of this machine.

    Of several ports it takes each in turn, as kube-proxy does. With none, connections are accepted but never served, as
    behind a firewall that drops packets.
    """

    def __init__(self, address: str, port: int, *targets: int) -> None:
        self.connections = 0
        self._targets = targets
        self._listening = socket.create_server((address, port), backlog=512)
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening and end all connections: the next attempt is refused."""
        _shut(self._listening)
        self.end_connections()

    def end_connections(self) -> None:
        """End all connections, and accept new ones."""
        for each in self._open:
            _shut(each)
        self._open.clear()

    def target(self, number: int) -> int | None:
        """Return the port for a connection, given how many came before; None for one that is not served."""
        return self._targets[number % len(self._targets)] if self._targets else None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._serve, args=(client, self.connections), daemon=True).start()
            self.connections += 1

    def _serve(self, client: socket.socket, number: int) -> None:
        if (target := self.target(number)) is None:
            return
        try:
            server = socket.create_connection(("127.0.0.1", target), timeout=10)
        except OSError:
            _shut(client)
            return
        server.settimeout(None)
        self._open.append(server)
        threading.Thread(target=_pump, args=(server, client), daemon=True).start()
        _pump(client, server)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Ports on loopback of one replica: for the extender's protocol, and for ``/readyz`` in plain HTTP."""

    port: int
    readiness_port: int


class Service(Forwarder):
    """Forward each new connection to an endpoint that is ready at that time, or close it.

    Connections that exist stay with their endpoint when it stops being ready, as in a real cluster.

    endpoints   may be replaced at any time
    is_patient  whether a connection waits some seconds for an endpoint that is ready
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.endpoints: tuple[Endpoint, ...] = ()
        self.is_patient = False
        super().__init__("127.0.0.1", self.port)

    def target(self, number: int) -> int | None:
        end = time.monotonic() + (_PATIENCE if self.is_patient else 0)
        while True:
            for endpoint in self.endpoints:
                if PlainPort(endpoint.readiness_port, timeout=2).is_ready():
                    return endpoint.port
            if time.monotonic() >= end:
                return 0  # at which no program listens
            time.sleep(0.05)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    _shut(source)
    _shut(sink)


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
