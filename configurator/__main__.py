"""``gas-configurator``: the program's start. What it does is in `configurator.command_line`."""

from __future__ import annotations

import sys

from gas.daemon.early_signals import quiet_end_on_signals


def main() -> int:
    """One run. Answers the exit code."""
    with quiet_end_on_signals():
        from configurator.command_line import run
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
