"""The command line of ``gas-extender``, and what a person sees when it cannot start."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence

from gas.daemon.go_flags import UsageError
from gas.daemon.logs import configure_logging
from gas.daemon.standard_output import printed
from gas.errors import GasError
from gas.extender.flags import help_text, own_version, parse_flags

logger = logging.getLogger(__name__)


def run(argv: Sequence[str]) -> int:
    """Run until told to stop. Answers the exit code: 0 after an orderly stop, 1 if it cannot start, 2 for bad usage."""
    try:
        flags = parse_flags(argv)
    except UsageError as error:
        sys.stderr.write(f"gas-extender: {error}\n")
        return error.exit_code
    if flags.show_help or flags.show_version:
        return printed("gas-extender", help_text() if flags.show_help else f"gas-extender {own_version()}")
    configure_logging(flags.verbosity, flags.log_format)
    for warning in flags.warnings:
        logger.warning(warning)

    from gas.extender.program import run_extender

    try:
        asyncio.run(run_extender(flags, own_version()))
    except GasError as error:
        logger.error("cannot start: %s", error)
        return error.exit_code
    return 0
