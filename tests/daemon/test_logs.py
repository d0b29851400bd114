"""Log lines, as text and as JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from gas.daemon.logs import LIMITED_LINES, VERBOSE, LimitedLog, LogFormat, configure_logging


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(log_format: LogFormat = "text", verbosity: int = 0) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(verbosity, log_format, stream)
    return stream


def test_a_text_line_holds_time_level_logger_message_and_fields() -> None:
    stream = logged()
    logging.getLogger("gas.test").info("bound %s", "it", extra={"pod": "default/x", "cards": "card0,card1"})
    when, rest = stream.getvalue().split(" ", 1)
    assert len(when) == len("2026-05-04T03:02:01.123Z")
    assert when.endswith("Z")
    assert rest == "INFO gas.test bound it pod=default/x cards=card0,card1\n"


def test_a_value_with_spaces_quotes_or_nothing_is_quoted() -> None:
    stream = logged()
    logging.getLogger("gas.test").info("m", extra={"a": "two words", "b": 'say "x"', "c": "", "d": "k=v"})
    assert stream.getvalue().endswith('m a="two words" b="say \\"x\\"" c="" d="k=v"\n')


@pytest.mark.parametrize(
    "hostile", ["a\nINFO forged", "a\r\nb", "a\x1b[2Jb", "a\x85b", "a\u2028b", "a\u202eb", "\udc80", "a\tb\x00"]
)
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_text_from_outside_never_begins_a_line_or_moves_the_cursor(hostile: str, log_format: LogFormat) -> None:
    stream = logged(log_format)
    try:
        raise ValueError(hostile)
    except ValueError:
        logging.getLogger("gas.test").exception(hostile, extra={"pod": hostile})
    lines = stream.getvalue().splitlines()
    assert stream.getvalue().removesuffix("\n").replace("\n", "").isprintable()
    assert all(line.startswith("    ") for line in lines[1:])
    assert lines[0].startswith("2" if log_format == "text" else '{"time"')


def test_json_lines_hold_the_same_and_numbers_stay_numbers() -> None:
    stream = logged("json")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("gas.test").error("m", exc_info=True, extra={"count": 3, "path": ValueError("x")})
    entry = json.loads(stream.getvalue())
    assert entry["level"] == "ERROR"
    assert entry["logger"] == "gas.test"
    assert entry["message"] == "m"
    assert entry["count"] == 3
    assert entry["path"] == "x"
    assert "ValueError: why" in entry["traceback"]


def test_a_field_cannot_replace_the_message_of_a_json_line() -> None:
    stream = logged("json")
    logging.getLogger("gas.test").info("m", extra={"level": "no", "time": "no"})
    entry = json.loads(stream.getvalue())
    assert entry["level"] == "INFO"
    assert entry["time"] != "no"


def test_verbosity_decides_what_is_logged() -> None:
    shown = {range(2): ["info"], range(2, 4): ["info", "verbose"], (4, 10): ["info", "verbose", "debug"]}
    for verbosity, expected in ((each, lines) for some, lines in shown.items() for each in some):
        stream = logged(verbosity=verbosity)
        log = logging.getLogger("gas.test")
        log.info("info")
        log.log(VERBOSE, "verbose")
        log.debug("debug")
        assert [line.split()[1:] for line in stream.getvalue().splitlines()] == [
            [each.upper(), "gas.test", each] for each in expected
        ]


def test_libraries_log_from_warning_on() -> None:
    stream = logged(verbosity=10)
    logging.getLogger("hypercorn").info("chatter")
    logging.getLogger("hypercorn").warning("trouble")
    assert stream.getvalue().count("\n") == 1
    assert "trouble" in stream.getvalue()


def test_configuring_again_replaces_what_was_there() -> None:
    first, second = logged(), logged()
    logging.getLogger("gas.test").info("m")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1


def test_of_lines_that_clients_cause_ten_of_a_kind_are_logged_a_minute_and_the_next_counts_the_rest() -> None:
    stream = logged()
    now = 0.0
    log = LimitedLog(logging.getLogger("gas.test"), clock=lambda: now)
    for number in range(1000):
        log.log(logging.WARNING, "bad %d", number, extra={"pod": "default/x"})
        now += 0.0599
    first = stream.getvalue().splitlines()
    assert [line.partition(" gas.test ")[2] for line in first] == [
        f"bad {number} pod=default/x" for number in range(LIMITED_LINES)
    ]
    now = 60.0
    for _ in range(2):
        log.log(logging.WARNING, "bad %d", 7)
    assert [line.partition(" gas.test ")[2] for line in stream.getvalue().splitlines()[LIMITED_LINES:]] == [
        f"bad 7 left_out={1000 - LIMITED_LINES}",
        "bad 7",
    ]


def test_lines_of_another_kind_are_not_left_out() -> None:
    stream = logged()
    log = LimitedLog(logging.getLogger("gas.test"), clock=lambda: 0.0)
    for _ in range(LIMITED_LINES + 1):
        log.log(logging.WARNING, "bad %d", 1)
    log.log(logging.INFO, "bad %d", 1)
    log.log(logging.WARNING, "worse")
    lines = stream.getvalue().splitlines()
    assert len(lines) == LIMITED_LINES + 2
    assert lines[-2].endswith("INFO gas.test bad 1")
    assert lines[-1].endswith("WARNING gas.test worse")


def test_lines_that_are_not_too_many_are_not_counted() -> None:
    stream = logged()
    now = 0.0
    log = LimitedLog(logging.getLogger("gas.test"), clock=lambda: now)
    for _ in range(3):
        for _ in range(LIMITED_LINES):
            log.log(logging.WARNING, "bad")
        now += 60
    assert len(stream.getvalue().splitlines()) == 3 * LIMITED_LINES
    assert "left_out" not in stream.getvalue()
