"""Steps that a program of the cluster takes again and again while a test runs."""

from __future__ import annotations

import contextlib
import http.client
import threading
from abc import ABC, abstractmethod
from typing import Self


class Repeated(ABC):
    """Take a step again and again, on a thread of its own, while the block runs.

    It waits for an API server that is away. Any other failure ends it, and is raised at the end of the block.

    every  seconds between two steps
    """

    def __init__(self, name: str, *, every: float) -> None:
        self._every = every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._failure: Exception | None = None

    @abstractmethod
    def step(self) -> None:
        """Take one step."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._every):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    self.step()
        except Exception as error:  # noqa: BLE001 -- the thread that made this one raises it
            self._failure = error
