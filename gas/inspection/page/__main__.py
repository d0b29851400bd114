"""Start ``gas-page``, the page as a container of the extender's pod."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from gas.daemon.command import quiet_end_on_signals, run_command, run_daemon

if TYPE_CHECKING:
    from gas.inspection.page.flags import Flags


def main() -> int:
    """Serve until SIGTERM or SIGINT. Return the exit code: 0 after a clean stop, 1 for a failure, 2 for bad usage."""
    with quiet_end_on_signals():
        from gas.daemon.flags import read_flags
        from gas.inspection.page.flags import Flags

        return run_command(Flags, sys.argv[1:], parse=partial(read_flags, Flags), run=_run)


def _run(flags: Flags) -> int:
    from gas.inspection.page.program import serve_page

    return run_daemon(flags, lambda: serve_page(flags))


if __name__ == "__main__":
    sys.exit(main())
