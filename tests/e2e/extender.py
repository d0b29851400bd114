"""The extender as a process, started as its Deployment starts it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sandbox.certificates import Authority, PemFiles
from tests.e2e.kube_api import Object
from tests.e2e.plain_port import PlainPort
from tests.e2e.ports import free_port
from tests.e2e.programs import Program
from tests.e2e.service import Endpoint


class Extender:
    """One replica. It can be killed and started again on the same ports."""

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        kubeconfig: Path,
        serving: PemFiles,
        authority: Authority,
        flags: tuple[str, ...] = (),
    ) -> None:
        self.endpoint = Endpoint(port=free_port(), readiness_port=free_port())
        self._plain = PlainPort(self.endpoint.readiness_port)
        options = {
            "kubeConfig": kubeconfig,
            "cert": serving.certificate,
            "key": serving.key,
            "cacert": authority.certificate,
            "bind-address": "127.0.0.1",
            "port": self.endpoint.port,
            "metrics-address": "127.0.0.1",
            "metrics-port": self.endpoint.readiness_port,
        }
        command = [
            sys.executable,
            "-m",
            "gas.extender",
            *(f"--{name}={value}" for name, value in options.items()),
        ]
        env = {"POD_NAMESPACE": "default", "PYTHONUNBUFFERED": "1"}
        self.program = Program(name, [*command, *flags], log=directory / f"{name}.log", env=env)

    def start(self) -> None:
        """Start without waiting for anything."""
        self.program.start()

    def start_and_wait_until_ready(self, *, seconds: float = 120) -> None:
        """Start and wait. Raises ProgramError if it ends or is not ready in time, as a replica that does not lead."""
        self.program.start()
        self.program.wait_until_healthy(self.endpoint.readiness_port, self.is_ready, seconds=seconds)

    def is_ready(self) -> bool:
        return self._plain.is_ready()

    def why_not_ready(self) -> str | None:
        """Return the text of ``/readyz`` while the replica is not ready, or None."""
        status, text = self.plain("/readyz")
        return None if status == 200 else text

    def books(self) -> Object:
        """Return ``/debug/books``."""
        books: Object = json.loads(self.plain("/debug/books")[1])
        return books

    def booked(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return node -> card -> resource without prefix -> amount, of cards that are in use."""
        found: dict[str, dict[str, dict[str, int]]] = {}
        for node, cards in self.books()["nodes"].items():
            for card, books in cards.items():
                if books["booked"]:
                    found.setdefault(node, {})[card] = books["booked"]
        return found

    def metric(self, sample: str, default: float | None = None) -> float:
        """Return the value of a sample, named with its labels as ``/metrics`` writes it.

        Raises KeyError for a sample that there is not, unless there is a default.
        """
        samples = self._plain.samples()
        return samples[sample] if default is None else samples.get(sample, default)

    def plain(self, path: str) -> tuple[int, str]:
        """Return status and text of a GET on the plain port. Raises OSError if the replica cannot be reached."""
        return self._plain.get(path)
