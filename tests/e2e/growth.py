"""The outcome of a long run: figures, growth of programs, the table of both, and the exit code."""

from __future__ import annotations

import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression, median
from typing import NamedTuple

BOUNDS = {"MB of memory": (4.0, 12.0), "open files": (4.0, 16.0), "threads": (1.0, 4.0)}
"""What a program may grow by an hour, and in all, since it also goes up and down. Above both it grows without end."""

Sample = tuple[float, dict[str, float]]
"""Hours since the start, and what was found then."""


class Growth(NamedTuple):
    """The slope of the line through the second half, and the medians of the second and the last tenth.

    The first half fills what has a limit, such as the extender's memory of a thousand needs.
    """

    an_hour: float
    first: float
    last: float
    is_endless: bool

    def __str__(self) -> str:
        ends = ", **grows without end**" if self.is_endless else ""
        slope = f"{self.an_hour:+.1f} an hour in the second half"
        return f"{self.first:.0f} after the first tenth, {self.last:.0f} at the end, {slope}{ends}"


def growth(samples: Sequence[Sample], what: str) -> Growth:
    start, end = samples[0][0], samples[-1][0]
    found = [((at - start) / (end - start or 1), at, of[what]) for at, of in samples]
    second = [value for part, _, value in found if 0.1 <= part <= 0.2] or [found[-1][2]]
    last = [value for part, _, value in found if part >= 0.9] or second
    half = [(at, value) for part, at, value in found if part >= 0.5]
    slope = linear_regression(*zip(*half, strict=True)).slope if len(half) > 2 else 0.0
    an_hour, in_all = BOUNDS[what]
    is_endless = slope > an_hour and slope * (end - start) / 2 > in_all
    return Growth(slope, median(second), median(last), is_endless)


def measured(pid: int) -> dict[str, float]:
    """Return what a process has now of everything that has a bound."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return dict(zip(BOUNDS, (int(fields["VmRSS"].split()[0]) / 1000, files, int(fields["Threads"])), strict=True))


def megabytes(*directories: Path) -> int:
    """Return what directories take on the disk together, while files come and go."""
    done = subprocess.run(["du", "-cms", *directories], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return int(done.stdout.split()[-2])


@dataclass
class Outcome:
    """The findings so far. ``broken`` is the law that was broken; samples and bytes of log are by program."""

    seed: int
    version: str
    hours: float = 1e-9
    broken: str = ""
    figures: Counter[str] = field(default_factory=Counter)
    samples: defaultdict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    log_bytes: dict[str, int] = field(default_factory=dict)

    def growths(self) -> Iterator[tuple[str, Growth]]:
        for program, samples in self.samples.items():
            yield from ((f"{program}: {what}", growth(samples, what)) for what in BOUNDS)

    @property
    def exit_code(self) -> int:
        return int(bool(self.broken) or any(each.is_endless for _, each in self.growths()))

    def table(self) -> str:
        """Return it in Markdown."""
        rows: list[tuple[str, object]] = [("hours", f"{self.hours:.2f}"), ("seed", self.seed)]
        rows += [("Kubernetes", self.version), ("laws broken", self.broken or "none")]
        rows += ((name, f"{number:,}") for name, number in sorted(self.figures.items()))
        rows += self.growths()
        rows += ((f"{name}: MB of log an hour", f"{n / 1e6 / self.hours:.1f}") for name, n in self.log_bytes.items())
        return "\n".join(["| | |", "|---|---|", *(f"| {name} | {found} |" for name, found in rows)])
