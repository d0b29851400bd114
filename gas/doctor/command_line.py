"""``gas doctor``: collect facts, check them, print the report."""

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import click

from gas.cluster.connection import ApiServer
from gas.commands import Command, command, say, version_option
from gas.daemon import flag_values as values
from gas.daemon.command import INTERRUPTED, print_text
from gas.doctor.all_parts import all_findings
from gas.doctor.gather.everything import look_at_everything
from gas.doctor.report import as_json, as_text, exit_code
from gas.doctor.snapshot import Snapshot
from gas.inspection.connection import Parsed, Where, connection_options
from gas.values.errors import GasError

PROGRAM = "gas doctor"
COULD_NOT_CHECK = 2
DAY = 86_400.0


class _DoctorCommand(Command):
    """The command. Its options may also be spelled as Go's flags: ``-node=a``, ``--all=false``."""

    unwritten = COULD_NOT_CHECK

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [each for word in args for each in self._as_option(word, ctx)])

    def _as_option(self, word: str, ctx: click.Context) -> list[str]:
        found = re.fullmatch(r"--?([a-z][a-z-]*)(?:=(.*))?", word, re.DOTALL)
        name, value = found.groups() if found else ("", None)
        if name == "o" and value is not None:
            return [f"--output={value}"]
        if len(name) < 2:
            return [word]
        if value is None or not any(
            f"--{name}" in each.opts and getattr(each, "is_flag", False) for each in self.params
        ):
            return [f"--{word.lstrip('-')}"]
        try:
            return [f"--{name}"] if values.boolean(value) else []
        except ValueError as expected:
            raise click.UsageError(f"flag --{name}: expected {expected}, found {value[:80]!r}", ctx) from None


@command(
    "doctor",
    "Checks a cluster, and changes nothing. Exit code 0: all checks passed; 1: a check failed; 2: something could not"
    " be checked.",
    cls=_DoctorCommand,
)
@click.option(
    "--control-plane",
    metavar="DIR",
    type=Parsed(values.directory),
    default="/etc/kubernetes",
    show_default=True,
    help="Where /etc/kubernetes of the control-plane node is found, on this machine or mounted.",
)
@click.option(
    "--manifest",
    metavar="FILE",
    type=Parsed(values.file),
    show_default="manifests/kube-scheduler.yaml in --control-plane",
    help="Static pod manifest of kube-scheduler.",
)
@click.option(
    "--scheduler-config",
    metavar="FILE",
    type=Parsed(values.file),
    show_default="the file that --config in the manifest names",
    help="Configuration of a kube-scheduler that is not a static pod. Cannot be combined with --manifest.",
)
@click.option(
    "--node", metavar="NAME", type=Parsed(values.object_name), show_default="every node", help="Node to check."
)
@click.option("--no-dry-pod", is_flag=True, help="Do not ask the extender about a pod that does not exist.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the report.",
)
@click.option(
    "--verbose", "--all", "show_all", is_flag=True, help="Show every finding by itself, and each passed check."
)
@version_option(PROGRAM)
def doctor(*, node: str | None, no_dry_pod: bool, output: str, show_all: bool, **others: Any) -> int:
    where = Where(**{each.name: others.pop(each.name) for each in fields(Where)})
    if others["manifest"] is not None and others["scheduler_config"] is not None:
        raise click.UsageError("flags --manifest and --scheduler-config: expected one of them")
    others |= {"node": node or "", "asks_dry_pod": not no_dry_pod, "timeout": min(where.patience, DAY)}
    try:
        snapshot = asyncio.run(_gather(where, others))
        findings = all_findings(snapshot)
    except GasError as error:
        say(str(error), program=PROGRAM)
        report = json.dumps({"error": str(error), "exitCode": COULD_NOT_CHECK}) if output == "json" else ""
        return _print(report, COULD_NOT_CHECK) if report else COULD_NOT_CHECK
    except KeyboardInterrupt:
        return INTERRUPTED
    if output == "json":
        return _print(as_json(snapshot, findings), exit_code(findings))
    colours = sys.stdout is not None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    width = max(60, min(120, shutil.get_terminal_size((100, 24)).columns))
    text = as_text(snapshot, findings, show_all=show_all, colours=colours, width=width)
    return _print(text, exit_code(findings))


def _print(text: str, code: int) -> int:
    return print_text(PROGRAM, text, exit_code=code, unwritten=COULD_NOT_CHECK)


async def _gather(where: Where, options: Mapping[str, Any]) -> Snapshot:
    credentials = await where.credentials()
    async with ApiServer(credentials, user_agent="gas-doctor") as api:
        return await look_at_everything(credentials, api, **options)


doctor.params += connection_options("--timeout")
