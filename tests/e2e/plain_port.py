"""The plain port of a program: metrics, readiness, and documents."""

from __future__ import annotations

import http.client
from contextlib import closing
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlainPort:
    """A port on loopback that serves GET in plain HTTP. Raises OSError if no program responds."""

    port: int
    timeout: float = 10

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def samples(self) -> dict[str, float]:
        """Return sample -> value, named with its labels as ``/metrics`` writes it."""
        lines = (line for line in self.get("/metrics")[1].splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
