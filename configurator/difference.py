"""Show the changes of a run as a unified diff, in colours for a terminal."""

import difflib
from collections.abc import Iterable, Iterator

from configurator.certificates import describe_certificates
from configurator.files import Change, FileState

_RED, _GREEN, _BOLD, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[1m", "\x1b[0m"


def difference(changes: Iterable[Change], *, coloured: bool) -> str:
    """Return the differences of all files. Private keys are not shown, and certificates are described.

    Control characters are shown as numbers, so that no file can control the terminal.
    """
    lines = [line for change in changes for line in _one(change)]
    if coloured:
        lines = [_coloured(line) for line in lines]
    return "".join(f"{line}\n" for line in lines)


def _one(change: Change) -> Iterator[str]:
    path = _visible(str(change.path))
    before, after = change.before, change.after
    yield f"--- {path if before is not None else '(not there)'}"
    yield f"+++ {path if after is not None else '(not there)'}"
    if before is not None and after is not None and before.mode != after.mode:
        yield f"-mode {before.mode:04o}"
        yield f"+mode {after.mode:04o}"
    if change.secret:
        if before is not None and (after is None or before.content != after.content):
            yield "-(a private key, not shown)"
        if after is not None and (before is None or before.content != after.content):
            yield f"+(a private key, not shown; mode {after.mode:04o})"
        return
    body = difflib.unified_diff(_lines(before), _lines(after), n=3, lineterm="")
    yield from list(body)[2:]


def _lines(state: FileState | None) -> list[str]:
    if state is None:
        return []
    if (certificates := describe_certificates(state.content)) is not None:
        return [_visible(line) for line in certificates]
    text = state.content.decode("utf-8", "backslashreplace")
    lines = [_visible(line) for line in text.split("\n")]
    if lines[-1]:
        lines[-1] += "  (no end of line)"
    else:
        lines.pop()
    return lines


def _visible(text: str) -> str:
    return "".join(each if each.isprintable() or each == "\t" else f"\\x{ord(each):02x}" for each in text)


def _coloured(line: str) -> str:
    if line.startswith(("---", "+++")):
        return f"{_BOLD}{line}{_PLAIN}"
    colour = {"-": _RED, "+": _GREEN}.get(line[:1])
    return f"{colour}{line}{_PLAIN}" if colour else line
