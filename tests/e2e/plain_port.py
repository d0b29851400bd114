"""The plain port of a program: metrics, readiness, and documents."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlainPort:
    """A port on loopback that serves plain HTTP, or TLS with a ``context``. Raises OSError if no program responds."""

    port: int
    timeout: float = 10
    context: ssl.SSLContext | None = None

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text."""
        return self._ask("GET", path)

    def post(self, path: str, body: Mapping[str, object]) -> tuple[int, str]:
        return self._ask("POST", path, json.dumps(body))

    def _ask(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        if self.context is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        else:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=self.timeout, context=self.context)
        with closing(connection):
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")

    def is_ready(self, path: str = "/readyz") -> bool:
        try:
            return self.get(path)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def samples(self) -> dict[str, float]:
        """Return sample -> value, named with its labels as ``/metrics`` writes it."""
        lines = (line for line in self.get("/metrics")[1].splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
