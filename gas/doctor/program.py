"""``gas doctor``: look, check, report."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import msgspec

from gas.cluster.connection import ApiServer
from gas.cluster.credentials import DEFAULT_KUBECONFIG, find_credentials
from gas.daemon.go_flags import UsageError
from gas.doctor.checks.all_checks import all_findings
from gas.doctor.flags import Flags, help_text, parse_flags
from gas.doctor.gather.everything import look_at_everything
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
        sys.stdout.write(help_text() if flags.show_help else f"gas doctor {version('gas')}\n")
        return 0
    try:
        snapshot = asyncio.run(_look(flags))
        findings = all_findings(snapshot)
    except GasError as error:
        return _report_failure(flags, error)
    except KeyboardInterrupt:
        return 130
    if flags.output == "json":
        sys.stdout.write(as_json(snapshot, findings) + "\n")
    else:
        colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        width = max(60, min(120, shutil.get_terminal_size((100, 24)).columns))
        sys.stdout.write(as_text(snapshot, findings, show_all=flags.show_all, colours=colours, width=width))
    return exit_code(findings)


def _report_failure(flags: Flags, error: GasError) -> int:
    if flags.output == "json":
        sys.stdout.write(msgspec.json.encode({"error": str(error), "exitCode": COULD_NOT_LOOK}).decode() + "\n")
    sys.stderr.write(f"gas doctor: {shown(str(error))}\n")
    return COULD_NOT_LOOK


async def _look(flags: Flags) -> Snapshot:
    with kubeconfig(flags.kubeconfig, flags.context, os.environ) as path:
        credentials = await find_credentials(path, explicit=path is not None)
        api = ApiServer(credentials, user_agent="gas-doctor")
        try:
            return await look_at_everything(credentials, api, flags)
        finally:
            await api.close()


@contextmanager
def kubeconfig(file: str, context: str, environ: Mapping[str, str]) -> Iterator[str | None]:
    """The path to read: the file that was named, or None for the usual ones; with another context laid over them.

    Of several files the last one that names a current context wins, so that the context alone is written to a file.
    """
    if not context:
        yield file or None
        return
    with tempfile.TemporaryDirectory(prefix="gas-doctor-") as directory:
        overlay = Path(directory) / "context"
        content = {"apiVersion": "v1", "kind": "Config", "current-context": context}
        overlay.write_bytes(msgspec.json.encode(content))
        yield f"{file or environ.get('KUBECONFIG') or DEFAULT_KUBECONFIG}{os.pathsep}{overlay}"
