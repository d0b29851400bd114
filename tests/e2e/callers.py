"""Programs of the network that call the admission port as if they were the API server."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Caller:
    """A program that can reach the port and knows the authority of the extender's certificate."""

    port: int
    authority: Path

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send a review, and return status and body of the response."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=self._tls())
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    @contextmanager
    def begun(self, path: str, *, size: int) -> Iterator[ssl.SSLSocket]:
        """Begin a review of this many bytes, of which only the first come."""
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=30) as raw,
            self._tls().wrap_socket(raw, server_hostname="127.0.0.1") as client,
        ):
            client.sendall(head.encode() + b" " * 1000)
            yield client

    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority))


def status(client: ssl.SSLSocket) -> int:
    """Return the status of the response to a begun review."""
    return int(client.recv(1000).split()[1])
