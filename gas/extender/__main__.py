"""``gas-extender``: the program's start. What it does is in `gas.extender.command_line`."""

from __future__ import annotations

import sys

from gas.daemon.early_signals import quiet_end_on_signals


def main() -> int:
    """Run until told to stop. Answers the exit code."""
    with quiet_end_on_signals():
        from gas.extender.command_line import run

        return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
