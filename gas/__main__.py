"""``gas``: the administrator's commands. Each is a module of its own, imported when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from gas.daemon.early_signals import quiet_end_on_signals
from gas.daemon.standard_output import printed

HELP = """Usage: gas COMMAND [flags]

Commands:
  doctor    looks at a cluster and says what is missing, each with the command that mends it

gas COMMAND --help says more. The programs that run in a cluster are gas-extender and gas-plugin, the one that tells
kube-scheduler about the extender is gas-configurator.
"""


def _doctor(argv: Sequence[str]) -> int:
    with quiet_end_on_signals():
        from gas.doctor.program import run

    return run(argv)


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"doctor": _doctor}


def main() -> int:
    """Run one command. Answers its exit code; 2 for one that is not there."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in ("-h", "--help", "-help", "help"):
        return printed("gas", HELP)
    if not arguments or (command := COMMANDS.get(arguments[0])) is None:
        found = f"found {arguments[0][:80]!r}" if arguments else "found none"
        sys.stderr.write(f"gas: expected a command, {found}; see gas --help\n")
        return 2
    return command(arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
