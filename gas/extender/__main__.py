"""``gas-extender``: the start of the program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gas.daemon.command import own_version, quiet_end_on_signals, run_command, run_daemon

if TYPE_CHECKING:
    from gas.extender.flags import Flags


def main() -> int:
    """Serve until SIGTERM or SIGINT. Return the exit code: 0 after a clean stop, 1 for a failure, 2 for bad usage."""
    with quiet_end_on_signals():
        from gas.extender.command_line import COMMAND_LINE, parse_flags

        return run_command(COMMAND_LINE, sys.argv[1:], parse=parse_flags, run=_run)


def _run(flags: Flags) -> int:
    from gas.extender.program import run_extender

    return run_daemon(flags, lambda: run_extender(flags, own_version()))


if __name__ == "__main__":
    sys.exit(main())
