"""The command line of ``gas-plugin``, and what a person sees when it cannot start."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Sequence

from gas.daemon.go_flags import UsageError
from gas.daemon.logs import configure_logging
from gas.daemon.standard_output import printed
from gas.errors import GasError
from gas.plugin.environment import read_environment
from gas.plugin.flags import Flags, help_text, own_version, parse_flags

logger = logging.getLogger(__name__)


def run(argv: Sequence[str]) -> int:
    """Run until told to stop. Answers the exit code: 0 after an orderly stop, 1 if it cannot start, 2 for bad usage."""
    try:
        flags = parse_flags(argv)
    except UsageError as error:
        sys.stderr.write(f"gas-plugin: {error}\n")
        return error.exit_code
    if flags.show_help or flags.show_version:
        return printed("gas-plugin", help_text() if flags.show_help else f"gas-plugin {own_version()}")
    configure_logging(flags.verbosity, flags.log_format)
    for warning in flags.warnings:
        logger.warning(warning)
    return _uninstall(flags) if flags.uninstall else _serve(flags)


def _serve(flags: Flags) -> int:
    from gas.plugin.program import run_plugin

    # What was imported stays for ever. To walk through it takes tens of milliseconds, for which kubelet would wait.
    gc.collect()
    gc.freeze()
    try:
        asyncio.run(run_plugin(flags, read_environment(os.environ), own_version()))
    except GasError as error:
        logger.error("cannot start: %s", error)
        return error.exit_code
    return 0


def _uninstall(flags: Flags) -> int:
    from gas.plugin.program import uninstall

    failures = asyncio.run(uninstall(flags))
    for failure in failures:
        logger.error("cannot uninstall all: %s", failure)
    return failures[0].exit_code if failures else 0
