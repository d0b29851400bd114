"""Processes that the tests start and stop. They do not outlive the test run."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from tests.e2e.ports import is_listening
from tests.e2e.waiting import wait_for


class ProgramError(Exception):
    """A program ended, or did not become healthy; the sentence ends with the last lines of its log."""


class Program:
    """One process in a session and process group of its own, its output appended to a file.

    The kernel kills it when the thread that started it ends, so start programs from the main thread.
    """

    def __init__(self, name: str, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        self._command = ["setpriv", "--pdeathsig", "KILL", "--", *command]
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """The process id of the running or last process. Raises ProgramError if it was never started."""
        if self._process is None:
            raise ProgramError(f"{self.name} was not started")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *flags: str) -> None:
        """Start it, with these flags beside its usual ones."""
        if self.is_running:
            raise ProgramError(f"{self.name} is running already, as process {self.pid}")
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*self._command, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )

    def wait_until_healthy(self, port: int, healthy: Callable[[], bool], *, seconds: float = 60) -> None:
        """Wait until this process listens on the port and the check succeeds. Raises ProgramError."""

        def has_answer() -> bool:
            return not self.is_running or (is_listening(self.pid, port) and healthy())

        try:
            wait_for(f"{self.name} healthy on port {port}", has_answer, seconds=seconds, every=0.05)
        except TimeoutError as error:
            raise ProgramError(f"{error}\n{self.log_tail()}") from None
        if not self.is_running:
            raise ProgramError(f"{self.name} ended instead of becoming healthy\n{self.log_tail()}")

    def kill(self) -> None:
        """Send SIGKILL to its process group. Does nothing if it has ended."""
        if self._process is not None:
            if self.is_running:
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def pause(self) -> None:
        """Send SIGSTOP: it stops until `resume` or `kill`."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def terminate(self, *, seconds: float = 30) -> int:
        """Send SIGTERM and return the exit status. Raises ProgramError if it does not end in time."""
        if self._process is None:
            raise ProgramError(f"{self.name} was not started")
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ProgramError(f"{self.name} ran on {seconds:g} s after SIGTERM\n{self.log_tail()}") from None

    def log_text(self) -> str:
        """Return everything that it wrote since it was last started."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines that it wrote, under a heading."""
        if not self.log.exists():
            return f"--- {self.name} wrote no log"
        with self.log.open(errors="replace") as log:
            return f"--- last lines of {self.name}:\n" + "".join(deque(log, lines))


class Startable(Protocol):
    """A cluster of programs. `start` is called once, `stop` at the end, also of a start that fails."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


C = TypeVar("C", bound=Startable)


@contextmanager
def running(kind: Callable[[Path, Path], C], binaries: Path) -> Iterator[C]:
    """Run a cluster with its files in a temporary directory, with a short path because sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="gas-e2e-") as directory:
        started = kind(Path(directory), binaries)
        try:
            started.start()
            yield started
        finally:
            started.stop()
