"""Show findings as text or JSON. Texts from outside are escaped, since they may contain anything."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence

from gas.doctor.all_parts import TITLES
from gas.doctor.findings import Finding, Level
from gas.doctor.snapshot import Snapshot
from gas.values.quoted import escaped

_LONGEST = 600
"""Most characters that are shown of one text. An annotation may have 256 KiB."""

_COLOURS = {Level.OK: "32", Level.WARNING: "33", Level.PROBLEM: "31", Level.UNKNOWN: "35"}
_WORDS = {
    Level.PROBLEM: ("problem", "problems"),
    Level.WARNING: ("warning", "warnings"),
    Level.UNKNOWN: ("unknown", "unknown"),
    Level.OK: ("ok", "ok"),
}
_MARGIN = 10


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 if there is a problem or warning, else 2 if something is unknown, else 0."""
    levels = {finding.level for finding in findings}
    if levels & {Level.PROBLEM, Level.WARNING}:
        return 1
    return 2 if Level.UNKNOWN in levels else 0


def _shown(text: str) -> str:
    """Escape what could control a terminal, and cut a long text."""
    return escaped(text[:_LONGEST]) + ("…" if len(text) > _LONGEST else "")


def as_text(snapshot: Snapshot, findings: Sequence[Finding], *, show_all: bool, colours: bool, width: int = 100) -> str:
    """Return one block per finding, worst first. Checks without a fault take one line each unless ``show_all``."""
    lines = [_shown(f"{snapshot.api_url}, Kubernetes {snapshot.version}"), ""]
    for level in (Level.PROBLEM, Level.WARNING, Level.UNKNOWN):
        for finding in findings:
            if finding.level is level:
                lines += [*_block(finding, colours=colours, width=width), ""]
    for name, title in TITLES.items():
        well = [finding for finding in findings if finding.check == name and finding.level is Level.OK]
        if show_all:
            for finding in well:
                lines += _block(finding, colours=colours, width=width)
        elif well and all(finding.level is Level.OK for finding in findings if finding.check == name):
            lines.append(_label(Level.OK, colours=colours) + title + (f" ({len(well)})" if len(well) > 1 else ""))
    counts = Counter(finding.level for finding in findings)
    total = ", ".join(f"{counts[level]} {words[counts[level] > 1]}" for level, words in _WORDS.items() if counts[level])
    lines += ["", f"{total}." if total else "There was nothing to look at."]
    return "\n".join(lines) + "\n"


def as_json(snapshot: Snapshot, findings: Sequence[Finding]) -> str:
    """Return one JSON object in ASCII, so that no text in it can control a terminal."""
    return json.dumps(
        {
            "apiServer": snapshot.api_url,
            "version": snapshot.version,
            "exitCode": exit_code(findings),
            "counts": {level.value: sum(finding.level is level for finding in findings) for level in Level},
            "findings": [
                {
                    "check": finding.check,
                    "level": finding.level.value,
                    "where": finding.where[:_LONGEST],
                    "message": finding.message[:_LONGEST],
                    "expected": finding.expected[:_LONGEST],
                    "found": finding.found[:_LONGEST],
                    "mend": [command[:_LONGEST] for command in finding.fix],
                }
                for finding in findings
            ],
        },
        indent=1,
    )


def _block(finding: Finding, *, colours: bool, width: int) -> list[str]:
    lines = _wrapped(f"{finding.where}: {finding.message}", width)
    lines[0] = _label(finding.level, colours=colours) + lines[0].lstrip()
    for title, text in (("expected", finding.expected), ("found", finding.found)):
        if text:
            lines += _wrapped(f"{title}: {text}", width)
    return lines + [f"{' ' * _MARGIN}$ {_shown(command)}" for command in finding.fix]


def _wrapped(text: str, width: int) -> list[str]:
    margin = " " * _MARGIN
    return textwrap.wrap(
        _shown(text), width, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
    ) or [margin]


def _label(level: Level, *, colours: bool) -> str:
    label = level.value.ljust(_MARGIN)
    return f"\x1b[{_COLOURS[level]}m{label}\x1b[0m" if colours else label
