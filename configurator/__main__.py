"""Start ``gas-configurator``."""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gas.daemon.command import INTERRUPTED, StandardOutput, interrupt_on_signals, quiet_end_on_signals, run_command
from gas.values.errors import GasError

if TYPE_CHECKING:
    from configurator.flags import Flags


def main() -> int:
    """Run once. Return the exit code: 0 if done, 1 if it refused or failed, 2 for bad usage, 130 after a signal."""
    with quiet_end_on_signals():
        from configurator.flags import Flags, parse_flags

    return run_command(Flags, sys.argv[1:], parse=parse_flags, run=_run)


def _run(flags: Flags) -> int:
    with quiet_end_on_signals():
        from configurator import program

    output = StandardOutput(flags.program)
    try:
        with interrupt_on_signals(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            program.run(flags, user=os.geteuid(), now=datetime.now(UTC), say=output.write, coloured=_is_coloured(flags))
    except GasError as error:
        sys.stderr.write(f"{flags.program}: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write(f"{flags.program}: stopped; no file was left half-way, run it again to go on\n")
        return INTERRUPTED
    return output.exit_code(0)


def _is_coloured(flags: Flags) -> bool:
    can_show = sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return flags.colour == "always" or (flags.colour == "auto" and can_show)


if __name__ == "__main__":
    sys.exit(main())
