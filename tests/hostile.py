"""Hostile input: documents near valid ones in which a few parts are broken. HOSTILE_EXAMPLES=1000 tries as many."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st


def hostile(examples: int) -> Callable[[Any], Any]:
    """Return the settings of a test that tries this many examples unless the variable says otherwise."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=int(os.environ.get("HOSTILE_EXAMPLES", examples)), suppress_health_check=checks)


RAW = "raw:"  # begins a text that `written` writes without quotes: what follows is not JSON, or no number of Python's
TEXTS = (
    *("", " ", "0", "-1", "0.5", "5Gi", "NaN", "1e400", "1e-9999", "9" * 30, "9" * 5000, "x" * 300, "\u00e9" * 70_000),
    *(
        "card0,card0",
        "card0|card1",
        "card0:gt0",
        "0.1",
        "Z1",
        "../../etc",
        "a/b",
        "0001-01-01T00:00:00",
        "a\x1b[2J\u202e\r\nINFO forged",
    ),
    *("<script>", "[" * 5000, '{"gpu":' * 500, '{"gpu":[{"minor":1e400}]}', '{"a":[{"minors":[0]}]}'),
    *(RAW + raw for raw in ("1e400", "-0", "NaN", "9" * 5000, '"\\ud800"', '{"a":' * 400, "[" * 3000)),
)
VALUES: tuple[Any, ...] = (None, True, 0, -1, 1.5, 1e308, 2**63, -(2**70), 10**60, [], {}, [[]], {"": None}, ["a"] * 3)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a document: a map or list in it, and a key or position there."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


@st.composite
def broken(draw: st.DrawFn, *documents: Any) -> Any:
    """Return one of the documents after up to four faults: another value, none, 70 of it, or another name."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, 4))):
        holder, key = draw(st.sampled_from(list(_places(document)) or [({"a": 1}, "a")]))
        fault = draw(st.sampled_from(("replace", "replace", "remove", "other")))
        if fault == "replace":
            holder[key] = copy.deepcopy(draw(st.sampled_from(TEXTS + VALUES)))
        elif fault == "remove":
            del holder[key]
        elif isinstance(holder, dict):
            holder[draw(st.sampled_from(TEXTS))] = holder.pop(key)
        else:
            holder += [copy.deepcopy(holder[key]) for _ in range(70)]
    return document


def written(document: Any) -> bytes:
    """Return a document as bytes: JSON, apart from its texts that begin with RAW."""
    pieces = json.JSONEncoder(ensure_ascii=False).iterencode(document)
    begin = f'"{RAW}'
    return "".join(json.loads(each)[len(RAW) :] if each.startswith(begin) else each for each in pieces).encode()


@st.composite
def bodies(draw: st.DrawFn, *documents: Any) -> bytes:
    """Return the bytes of a broken document; some are cut short, or have strange bytes or a name that is not text."""
    body = written(draw(broken(*documents)))
    at = draw(st.integers(0, len(body)))
    others = (body[:at], body[:at] + draw(st.binary(min_size=1, max_size=2)) + body[at:], b'{"\xff":1,' + body[1:])
    return draw(st.sampled_from((body, body, body, body, *others)))


def decoded(document: Any, kind: type[Any]) -> list[Any]:
    """Return a broken object, or its bytes, as a watch shows it; nothing if it leaves it out."""
    try:
        return [msgspec.json.decode(document if isinstance(document, bytes) else written(document), type=kind)]
    except (ValueError, RecursionError):
        return []


def assert_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    """Check that nothing was logged with a traceback, as a bug is, and no line is long."""
    for each in caplog.records:
        assert (each.exc_info, len(each.getMessage()) < 2000) == (None, True), each.getMessage()[:200]
    caplog.clear()
