"""The frame of every program: parse flags, print help, handle signals, report errors, write output.

A program's ``main`` enters `quiet_end_on_signals`, imports its other modules, and returns what `run_command` returns.
Nothing slow is imported here, so that the first signal handler is in place a moment after the start.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

    from gas.daemon.flags import CommandFlags, DaemonFlags, Declaration

    F = TypeVar("F", bound=CommandFlags)

INTERRUPTED = 130  # exit code of a program that was stopped by Ctrl-C or another signal: what a shell shows for SIGINT


def run_command(
    declaration: Declaration[F], argv: Sequence[str], *, parse: Callable[[Sequence[str]], F], run: Callable[[F], int]
) -> int:
    """Parse the command line; then print the help or the version, or run the program. Return the exit code."""
    from gas.daemon.flags import UsageError, help_text

    try:
        flags = parse(argv)
    except UsageError as error:
        sys.stderr.write(f"{declaration.program}: {error}\n")
        return error.exit_code
    if flags.show_help:
        return print_text(flags.program, help_text(declaration))
    if flags.show_version:
        return print_text(flags.program, f"{flags.program} {own_version()}")
    return run(flags)


def run_daemon(flags: DaemonFlags, main: Callable[[], Coroutine[Any, Any, int | None]]) -> int:
    """Set up logging and run ``main`` on an event loop. Return the exit code: what ``main`` returns, or 0 for None."""
    import asyncio
    import logging

    from gas.daemon.logs import configure_logging
    from gas.values.errors import GasError

    logger = logging.getLogger(__name__)
    configure_logging(flags.verbosity, flags.log_format)
    for warning in flags.warnings:
        logger.warning(warning)
    try:
        return asyncio.run(main()) or 0
    except GasError as error:
        logger.error("cannot start: %s", error)
        return error.exit_code


def own_version() -> str:
    from importlib.metadata import version

    return version("gas")


@contextmanager
def quiet_end_on_signals() -> Iterator[None]:
    """End the program at once on SIGINT and SIGTERM, with the exit code that a shell shows for them (130, 143).

    Use it while a program imports its modules. By default Python would print a traceback for SIGINT. As the
    first process of a container, which the kernel shields from signals without a handler, the program would not notice
    SIGTERM. Nothing is closed or undone, so nothing may have been started yet; an event loop that handles the signals
    itself takes over. When the block ends, the previous handlers are restored.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        os._exit(128 + number)

    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)


@contextmanager
def interrupt_on_signals(*numbers: signal.Signals) -> Iterator[None]:
    """Raise KeyboardInterrupt in the main thread for each of the signals; ignore them when the block has ended.

    For SIGINT Python does so by itself, but not if the program was started with SIGINT ignored, as shells start
    background jobs. After the block nothing is left to stop, and Python would print a traceback for a signal that
    arrives while it exits.
    """
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)


def stop_on_signals(on_stop: Callable[[str], None]) -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set, after a call of ``on_stop`` with the signal's name."""
    import asyncio

    stopping = asyncio.Event()

    def stop(name: str) -> None:
        on_stop(name)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    return stopping


class StandardOutput:
    """Standard output of a command that must not fail in the middle of its work because it cannot write.

    A reader that goes away, as with ``| head``, is not an error. Any other failure, such as a full disk, is reported by
    `exit_code` at the end. Characters that the locale of the terminal does not have are written as escapes.

    unwritten  the exit code, at least, of a command whose text could not be written
    """

    def __init__(self, program: str, *, unwritten: int = 1) -> None:
        self._program = program
        self._unwritten = unwritten
        self._problem: str | None = None

    def write(self, text: str) -> None:
        """Write one or more lines; a line end is added if there is none."""
        if sys.stdout is None:  # closed by the process that started the program
            return
        encoding = sys.stdout.encoding or "utf-8"
        lines = text if text.endswith("\n") else text + "\n"
        try:
            sys.stdout.write(lines.encode(encoding, "backslashreplace").decode(encoding))
            sys.stdout.flush()
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self._problem = self._problem or error.strerror or str(error)
            # What is left in the buffer would fail a second time at the end of the program.
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 -- it is for the rest of the program

    def exit_code(self, otherwise: int) -> int:
        """Return the exit code of the command. If text could not be written, report it on stderr and never return 0."""
        if self._problem is None:
            return otherwise
        rest = "" if otherwise else "; nothing else failed"
        sys.stderr.write(f"{self._program}: cannot write to standard output: {self._problem}{rest}\n")
        return max(otherwise, self._unwritten)


def print_text(program: str, text: str, *, exit_code: int = 0, unwritten: int = 1) -> int:
    """Write a text as the last step of a program, and return the program's exit code."""
    output = StandardOutput(program, unwritten=unwritten)
    output.write(text)
    return output.exit_code(exit_code)
