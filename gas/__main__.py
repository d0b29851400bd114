"""The programs ``gas``, ``kubectl-gas``, which kubectl calls for ``kubectl gas``, and the completion of its words."""

import gc
import signal
import sys

from gas.daemon.command import interrupt_on_signals, print_text, quiet_end_on_signals


def main() -> int:
    """Run a command of ``gas``. Return its exit code."""
    return _run("gas")


def kubectl_gas() -> int:
    """Run a command of ``kubectl gas``. Return its exit code."""
    return _run("kubectl gas")


def _run(program: str) -> int:
    gc.disable()  # it would walk over a large cluster again and again: a third of a command's time
    with quiet_end_on_signals():
        from gas.commands import load, run

        load(sys.argv[1:])

    with interrupt_on_signals(signal.SIGINT):
        return run(sys.argv[1:], program)


def complete() -> int:
    """Print candidates for the last word of a command line of ``kubectl gas``, in the form that kubectl reads."""
    with quiet_end_on_signals():
        from gas.commands import complete as candidates

        return print_text("kubectl_complete-gas", candidates(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
