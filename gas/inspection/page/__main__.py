"""The process of the page beside an extender: ``python -m gas.inspection.page DESCRIPTOR URL [FLAGS]``, its flags."""

from __future__ import annotations

import sys

from gas.daemon.command import quiet_end_on_signals, run_daemon


def main() -> int:
    """Serve until the extender ends. Return the exit code."""
    descriptor, url, *arguments = sys.argv[1:]
    with quiet_end_on_signals():
        from gas.extender.command_line import parse_flags
        from gas.inspection.page.program import run_beside_extender

        flags = parse_flags(arguments)
    return run_daemon(flags, lambda: run_beside_extender(flags, int(descriptor), url))


if __name__ == "__main__":
    sys.exit(main())
