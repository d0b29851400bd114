"""``gas-plugin``: the command line, and what a person sees when it cannot start."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from gas.daemon.go_flags import UsageError
from gas.daemon.logs import configure_logging
from gas.errors import GasError
from gas.plugin.environment import read_environment
from gas.plugin.flags import help_text, own_version, parse_flags

logger = logging.getLogger(__name__)


def main() -> int:
    """Run until told to stop. Answers the exit code: 0 after an orderly stop, 1 if it cannot start, 2 for bad usage."""
    try:
        flags = parse_flags(sys.argv[1:])
    except UsageError as error:
        sys.stderr.write(f"gas-plugin: {error}\n")
        return error.exit_code
    if flags.show_help or flags.show_version:
        sys.stdout.write(help_text() if flags.show_help else f"gas-plugin {own_version()}\n")
        return 0
    configure_logging(flags.verbosity, flags.log_format)
    for warning in flags.warnings:
        logger.warning(warning)

    from gas.plugin.program import run_plugin, uninstall

    try:
        if flags.uninstall:
            asyncio.run(uninstall(flags))
        else:
            asyncio.run(run_plugin(flags, read_environment(os.environ), own_version()))
    except GasError as error:
        logger.error("cannot %s: %s", "uninstall" if flags.uninstall else "start", error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
