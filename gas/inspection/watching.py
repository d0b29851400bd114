"""Draw a report repeatedly while the cluster changes, without flicker and without a full list each time."""

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gas.cluster.connection import ApiServer
from gas.daemon.command import StandardOutput
from gas.inspection.cluster import Cluster
from gas.inspection.connection import Where
from gas.inspection.following import connected, following
from gas.inspection.gather import read_use
from gas.inspection.output import DONE, UNREACHABLE, Look, table_lines, written
from gas.inspection.report import Report
from gas.values.quoted import escaped

INTERVAL = 1.0  # least seconds between two drawings
USE_INTERVAL = 10.0  # seconds between two readings of measured use, as often as plugins measure


async def watch_report(
    where: Where,
    make: Callable[[Cluster], Report],
    form: str,
    look: Callable[[], Look],
    *,
    program: str,
    counts_hosts: bool = False,
) -> int:
    """Follow the cluster until interrupted or nothing more can be written, and return the exit code.

    A terminal shows as many rows as it has lines. Any other output, and a terminal that cannot draw over its lines
    (``TERM=dumb``), gets the whole report after each change. Raises as `following` does. ``program`` is as the user
    typed it, for messages.
    """
    async with (
        connected(where) as api,
        following(api, counts_hosts=counts_hosts, patience=where.patience) as (cluster, _),
    ):
        screen = Console(highlight=False, markup=False, emoji=False)
        can_redraw = sys.stdout.isatty() and screen.is_terminal and not screen.is_dumb_terminal
        if can_redraw and form in ("table", "wide"):
            with Live(console=screen, screen=True, auto_refresh=False) as live:
                async for notes in _changes(api, cluster):
                    lines = screen_lines(make(cluster), notes, wide=form == "wide", look=look())
                    live.update(Group(*(Text.from_ansi(line, no_wrap=True) for line in lines)), refresh=True)
            return DONE
        output, reader = StandardOutput(program, unwritten=UNREACHABLE), sys.stdout
        async for _ in _changes(api, cluster):
            output.write(written(make(cluster), form, look()) or "\n")
            if sys.stdout is not reader:
                break
        return output.exit_code(DONE)


def screen_lines(report: Report, notes: tuple[str, ...], *, wide: bool, look: Look, height: int = 0) -> list[str]:
    """Return as many lines of a report as the terminal has, and a last line with the number of rows."""
    height = height or shutil.get_terminal_size((100, 24)).lines
    most = max(height - 2, 1)
    lines = table_lines(report, wide=wide, look=look, most=most)
    total = len(report.rows)
    count = (
        ("1 row" if total == 1 else f"{total} rows")
        if total <= most
        else f"{most} of {total} rows; see --sort-by and --where"
    )
    return [*lines, escaped("; ".join((count, *(report.notes or notes[:1]))))[: look.width]]


async def _changes(api: ApiServer, cluster: Cluster) -> AsyncIterator[tuple[str, ...]]:
    """Yield notes about the use at once and whenever something has changed, at most once in an interval."""
    drawn: tuple[int, int, float] | None = None
    read_at = -USE_INTERVAL
    notes: tuple[str, ...] = ()
    while True:
        if time.monotonic() - read_at >= USE_INTERVAL:
            notes = await read_use(api, cluster)
            read_at = time.monotonic()
        seen = (cluster.nodes.version, cluster.pods.version, read_at if cluster.use else 0.0)
        if seen != drawn:
            drawn = seen
            yield notes
        await asyncio.sleep(INTERVAL)
