"""Growth of the extender's start and memory with nodes and placed pods, on a made-up API server."""

from dataclasses import dataclass

from benchmarks.clusters import Size
from benchmarks.growth import NODES, PODS, USUAL, exponent
from benchmarks.plot import Line, plot
from benchmarks.processes import cpu_seconds, resident_bytes
from benchmarks.results import Figure, Results
from benchmarks.stage import stage

MB = 1e6


@dataclass(frozen=True, slots=True)
class Started:
    """The extender when it has just become ready.

    seconds   processor time until then
    resident  MB
    """

    seconds: float
    resident: float


def start_growth() -> Results:
    by_nodes = {number: _start(Size(number, 4 * number)) for number in NODES}
    by_pods = {number: _start(Size(USUAL.nodes, number)) for number in PODS}
    figures = []
    plots = {}
    for what, found in (("nodes", by_nodes), ("pods", by_pods)):
        seconds = Line("processor time", [(number, each.seconds) for number, each in found.items()])
        resident = Line("resident memory", [(number, each.resident) for number, each in found.items()])
        for line, unit in ((seconds, "s"), (resident, "MB")):
            (first, low), (last, high) = line.points[0], line.points[-1]
            grows = f"{first:,} to {last:,} {what}, exponent {exponent(line.points):.2f}"
            figures.append(Figure(f"{line.name}: {grows}", high, low, unit))
        plots[f"start-by-{what}"] = plot(f"Processor time until ready, by {what}", x=what, y="s", lines=[seconds])
        plots[f"memory-by-{what}"] = plot(f"Resident memory when ready, by {what}", x=what, y="MB", lines=[resident])
    title = f"Start to ready; by nodes with 4 placed pods each, by placed pods on {USUAL.nodes:,} nodes"
    return Results("start-growth", title, figures, ours="largest", other="smallest", plots=plots)


def _start(size: Size) -> Started:
    with stage(size) as running:
        pid = running.ours.program.pid
        return Started(cpu_seconds(pid), resident_bytes(pid) / MB)
