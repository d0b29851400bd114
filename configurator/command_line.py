"""The command line of ``gas-configurator``, and what a person sees when it refuses."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from types import FrameType

from configurator.flags import Flags, help_text, own_version, parse_flags
from gas.daemon.early_signals import quiet_end_on_signals
from gas.daemon.go_flags import UsageError
from gas.daemon.standard_output import StandardOutput, printed
from gas.errors import GasError

_INTERRUPTED = 130


def run(argv: Sequence[str]) -> int:
    """Answers the exit code: 0 when all is as asked, 1 when it refused or failed, 2 for bad usage, 130 when stopped."""
    try:
        flags = parse_flags(argv)
    except UsageError as error:
        sys.stderr.write(f"gas-configurator: {error}\n")
        return error.exit_code
    if flags.show_help or flags.show_version:
        return printed("gas-configurator", help_text() if flags.show_help else f"gas-configurator {own_version()}")

    with quiet_end_on_signals():
        from configurator import program

    output = StandardOutput("gas-configurator")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        program.run(flags, user=os.geteuid(), now=datetime.now(UTC), say=output.say, coloured=_is_coloured(flags))
    except GasError as error:
        sys.stderr.write(f"gas-configurator: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("gas-configurator: stopped; no file was left half-way, run it again to go on\n")
        return _INTERRUPTED
    finally:
        # Nothing is left that could be stopped, and Python would show a traceback for a signal while it ends.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    return output.exit_code(0)


def _stop(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _is_coloured(flags: Flags) -> bool:
    if flags.colour == "auto":
        return sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return flags.colour == "always"
