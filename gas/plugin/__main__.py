"""Start ``gas-plugin``."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from gas.daemon.command import own_version, quiet_end_on_signals, run_command, run_daemon

if TYPE_CHECKING:
    from gas.plugin.flags import Flags


def main() -> int:
    """Serve until SIGTERM or SIGINT. Return the exit code: 0 after a clean stop, 1 for a failure, 2 for bad usage."""
    with quiet_end_on_signals():
        from gas.plugin.flags import COMMAND_LINE, parse_flags

        return run_command(COMMAND_LINE, sys.argv[1:], parse=parse_flags, run=_run)


def _run(flags: Flags) -> int:
    from gas.plugin.flags import read_environment
    from gas.plugin.program import run_plugin, uninstall

    if flags.uninstall:
        return run_daemon(flags, lambda: uninstall(flags))
    # Imported modules are never freed. To collect them takes tens of milliseconds, for which kubelet would wait.
    gc.collect()
    gc.freeze()
    return run_daemon(flags, lambda: run_plugin(flags, read_environment(os.environ), own_version()))


if __name__ == "__main__":
    sys.exit(main())
