"""``gas doctor``: collect facts, check them, print the report."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence

import msgspec

from gas.cluster.connection import ApiServer
from gas.daemon.command import INTERRUPTED, print_text, run_command
from gas.doctor.all_parts import all_findings
from gas.doctor.flags import Flags, parse_flags
from gas.doctor.gather.everything import look_at_everything
from gas.doctor.kubeconfig import credentials_of
from gas.doctor.report import as_json, as_text, exit_code, shown
from gas.doctor.snapshot import Snapshot
from gas.values.errors import GasError

COULD_NOT_CHECK = 2


def run(argv: Sequence[str]) -> int:
    """Run the program. Return the exit code: 0 if all checks passed, 1 if one failed, 2 if one could not be made."""
    return run_command(Flags, argv, parse=parse_flags, run=_run, unwritten=COULD_NOT_CHECK)


def _run(flags: Flags) -> int:
    try:
        snapshot = asyncio.run(_gather(flags))
        findings = all_findings(snapshot)
    except GasError as error:
        return _report_failure(flags, error)
    except KeyboardInterrupt:
        return INTERRUPTED
    if flags.output == "json":
        text = as_json(snapshot, findings)
    else:
        colours = sys.stdout is not None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        width = max(60, min(120, shutil.get_terminal_size((100, 24)).columns))
        text = as_text(snapshot, findings, show_all=flags.show_all, colours=colours, width=width)
    return print_text(flags.program, text, exit_code=exit_code(findings), unwritten=COULD_NOT_CHECK)


def _report_failure(flags: Flags, error: GasError) -> int:
    sys.stderr.write(f"{flags.program}: {shown(str(error))}\n")
    if flags.output == "json":
        report = msgspec.json.encode({"error": str(error), "exitCode": COULD_NOT_CHECK}).decode()
        return print_text(flags.program, report, exit_code=COULD_NOT_CHECK, unwritten=COULD_NOT_CHECK)
    return COULD_NOT_CHECK


async def _gather(flags: Flags) -> Snapshot:
    async with credentials_of(flags.kubeconfig, flags.context, os.environ) as credentials:
        api = ApiServer(credentials, user_agent="gas-doctor")
        try:
            return await look_at_everything(credentials, api, flags)
        finally:
            await api.close()
