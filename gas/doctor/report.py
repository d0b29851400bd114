"""Show findings as text or JSON. Texts from outside are escaped, since they may contain anything."""

import json
import re
import textwrap
from collections import Counter
from collections.abc import Sequence

from gas.doctor.all_parts import TITLES
from gas.doctor.findings import Finding, Level
from gas.doctor.snapshot import Snapshot
from gas.values.quoted import escaped

_LONGEST = 600  # Most characters that are shown of one text. An annotation may have 256 KiB.
_LONGEST_COMMAND = 4000  # the same for a command, which has a text from outside only if that is a name or a flag
_NAMED = 3  # number of objects that are named if a finding is about more
_MOST_BLOCKS = 40  # most blocks of a report that does not show every finding

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


def _shown(text: str, longest: int = _LONGEST) -> str:
    """Escape what could control a terminal, and cut a long text."""
    return escaped(text[:longest]) + ("…" if len(text) > longest else "")


def as_text(snapshot: Snapshot, findings: Sequence[Finding], *, show_all: bool, colours: bool, width: int = 100) -> str:
    """Return one block for all findings that say the same, worst first, and one line for each check without a fault.

    ``show_all``: one block for each finding.
    """
    lines = [_shown(f"{snapshot.api_url}, Kubernetes {snapshot.version}"), ""]
    levels = (Level.PROBLEM, Level.WARNING, Level.UNKNOWN)
    bad = [finding for level in levels for finding in findings if finding.level is level]
    alike = [[each] for each in bad] if show_all else _alike(bad)
    groups = alike if show_all else alike[:_MOST_BLOCKS]
    for group in groups:
        lines += [*_block(group, colours=colours, width=width), ""]
    if len(groups) < len(alike):
        lines += [f"{' ' * _MARGIN}{len(alike) - len(groups)} more kinds of findings are not shown", ""]
    for name, title in TITLES.items():
        well = [finding for finding in findings if finding.check == name and finding.level is Level.OK]
        if show_all:
            for finding in well:
                lines += _block([finding], colours=colours, width=width)
        elif well and all(finding.level is Level.OK for finding in findings if finding.check == name):
            lines.append(_label(Level.OK, colours=colours) + title + (f" ({len(well)})" if len(well) > 1 else ""))
    counts = Counter(finding.level for finding in findings)
    total = ", ".join(f"{counts[level]} {words[counts[level] > 1]}" for level, words in _WORDS.items() if counts[level])
    lines += ["", f"{total}." if total else "There was nothing to look at."]
    if len(groups) < len(bad):
        lines.append("gas doctor --verbose shows each of them with its commands.")
    return "\n".join(lines) + "\n"


def _alike(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Group the findings of a check that differ only in their objects and in numbers."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        sentences = (re.sub(r"[0-9]+", "0", each) for each in (finding.message, finding.expected))
        kind = finding.where.partition(" ")[0]
        groups.setdefault((finding.level, finding.check, kind, *sentences), []).append(finding)
    return list(groups.values())


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
                    "mend": [command[:_LONGEST_COMMAND] for command in finding.fix],
                }
                for finding in findings
            ],
        },
        indent=1,
    )


def _block(alike: Sequence[Finding], *, colours: bool, width: int) -> list[str]:
    """Return the lines about findings that say the same. What was found, and the commands, are those of the first."""
    finding, more = alike[0], len(alike) - _NAMED
    objects = ", ".join(each.where for each in alike[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    differ = len({(each.message, each.expected) for each in alike}) > 1
    lines = _wrapped(f"{objects}: {finding.message}{' (numbers of the first)' if differ else ''}", width)
    lines[0] = _label(finding.level, colours=colours) + lines[0].lstrip()
    for title, text in (("expected", finding.expected), ("found", finding.found)):
        if text:
            lines += _wrapped(f"{title}: {text}", width)
    return lines + [f"{' ' * _MARGIN}$ {_shown(command, _LONGEST_COMMAND)}" for command in finding.fix]


def _wrapped(text: str, width: int) -> list[str]:
    margin = " " * _MARGIN
    return textwrap.wrap(
        _shown(text), width, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
    ) or [margin]


def _label(level: Level, *, colours: bool) -> str:
    label = level.value.ljust(_MARGIN)
    return f"\x1b[{_COLOURS[level]}m{label}\x1b[0m" if colours else label
