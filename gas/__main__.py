"""``gas``: the administrator's commands. Each is a module of its own, which is imported when it is needed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from gas.daemon.command import interrupt_on_signals, own_version, print_text, quiet_end_on_signals

HELP = """Usage: gas COMMAND [flags]

Commands:
  doctor    checks a cluster and reports what GPU scheduling still needs, each with the command that fixes it
  top       shows what is booked and used of cards, of nodes, or by pods
  pods      lists the pods that ask for GPUs
  inspect   shows everything about one node
  fit       shows where the pods of manifests would land
  why       shows why a pod waits and what would let it run
  waste     shows capacity that is of no use
  defrag    plans the fewest moves of running pods that make room for a pod
  page      shows the cluster in a browser

kubectl gas has the same commands. gas COMMAND --help shows the flags of a command, gas --version the version.
gas-extender and gas-plugin are the programs that run in a cluster; gas-configurator configures kube-scheduler to call
the extender.
"""


def _doctor(argv: Sequence[str]) -> int:
    with quiet_end_on_signals():
        from gas.doctor.program import run

    with interrupt_on_signals(signal.SIGINT):
        return run(argv)


def _inspection(command: str) -> Callable[[Sequence[str]], int]:
    def run_it(argv: Sequence[str]) -> int:
        with quiet_end_on_signals():
            from gas.inspection.command_line import run

        with interrupt_on_signals(signal.SIGINT):
            return run((command, *argv), program="gas")

    return run_it


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "doctor": _doctor,
    **{
        command: _inspection(command) for command in ("top", "pods", "inspect", "fit", "why", "waste", "defrag", "page")
    },
}


def main() -> int:
    """Run one command. Return its exit code, or 2 if there is no such command."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in ("-h", "--help", "-help", "help"):
        return print_text("gas", HELP)
    if arguments and arguments[0] in ("--version", "-version"):
        return print_text("gas", f"gas {own_version()}\n")
    if not arguments or (command := COMMANDS.get(arguments[0])) is None:
        found = f"found {arguments[0][:80]!r}" if arguments else "found none"
        near = get_close_matches(arguments[0][:80], COMMANDS, n=1) if arguments else ()
        hint = f", did you mean {near[0]}?" if near else ""
        sys.stderr.write(f"gas: expected a command, {found}{hint}; see gas --help\n")
        return 2
    return command(arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
