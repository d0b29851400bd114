"""``kubectl-gas``, which kubectl calls for ``kubectl gas``, and ``kubectl_complete-gas``, which completes its words."""

from __future__ import annotations

import signal
import sys

from gas.daemon.command import interrupt_on_signals, print_text, quiet_end_on_signals


def main() -> int:
    """Run one command. Return its exit code."""
    with quiet_end_on_signals():
        from gas.inspection.command_line import run

    with interrupt_on_signals(signal.SIGINT):
        return run(sys.argv[1:])


def complete() -> int:
    """Print candidates for the last word of the command line, in the form that kubectl reads."""
    with quiet_end_on_signals():
        from gas.inspection.command_line import complete as candidates

        return print_text("kubectl_complete-gas", candidates(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
