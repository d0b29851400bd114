"""``gas doctor``: look, check, report."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import version

import msgspec

from gas.cluster.connection import ApiServer
from gas.daemon.go_flags import UsageError
from gas.daemon.standard_output import StandardOutput
from gas.doctor.checks.all_checks import all_findings
from gas.doctor.flags import Flags, help_text, parse_flags
from gas.doctor.gather.everything import look_at_everything
from gas.doctor.kubeconfig import credentials_of
from gas.doctor.report import as_json, as_text, exit_code, shown
from gas.doctor.snapshot import Snapshot
from gas.errors import GasError

COULD_NOT_LOOK = 2


def run(argv: Sequence[str]) -> int:
    """The whole program; answers the exit code."""
    try:
        flags = parse_flags(argv)
    except UsageError as error:
        sys.stderr.write(f"gas doctor: {shown(str(error))}\n")
        return error.exit_code
    if flags.show_help or flags.show_version:
        return _printed(help_text() if flags.show_help else f"gas doctor {version('gas')}", 0)
    try:
        snapshot = asyncio.run(_look(flags))
        findings = all_findings(snapshot)
    except GasError as error:
        return _report_failure(flags, error)
    except KeyboardInterrupt:
        return 130
    if flags.output == "json":
        text = as_json(snapshot, findings)
    else:
        colours = sys.stdout is not None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        width = max(60, min(120, shutil.get_terminal_size((100, 24)).columns))
        text = as_text(snapshot, findings, show_all=flags.show_all, colours=colours, width=width)
    return _printed(text, exit_code(findings))


def _report_failure(flags: Flags, error: GasError) -> int:
    sys.stderr.write(f"gas doctor: {shown(str(error))}\n")
    if flags.output == "json":
        told = msgspec.json.encode({"error": str(error), "exitCode": COULD_NOT_LOOK}).decode()
        return _printed(told, COULD_NOT_LOOK)
    return COULD_NOT_LOOK


def _printed(text: str, code: int) -> int:
    """The exit code; another one when the text does not get to whom it is for, as on a full disk."""
    output = StandardOutput("gas doctor", unwritten=COULD_NOT_LOOK)
    output.say(text)
    return output.exit_code(code)


async def _look(flags: Flags) -> Snapshot:
    async with credentials_of(flags.kubeconfig, flags.context, os.environ) as credentials:
        api = ApiServer(credentials, user_agent="gas-doctor")
        try:
            return await look_at_everything(credentials, api, flags)
        finally:
            await api.close()
