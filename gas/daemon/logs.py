"""Write log lines on stderr: one event per line with named fields, as text for people or as JSON for machines.

klog's ``-v N`` sets the verbosity:

    -v 0, 1   INFO      start, ready, bound pods, refused configuration; and every WARNING and ERROR
    -v 2, 3   VERBOSE   why a pod waits, and the patch that makes kube-scheduler try it again
    -v 4 up   DEBUG     every decision

Fields come from ``extra``: ``logger.info("bound", extra={"pod": "default/x", "node": "n1"})``.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, get_args

from gas.values.quoted import escaped

VERBOSE = 15  # a level between INFO and DEBUG, which ``-v 2`` shows

LIMITED_LINES = 10
LIMITED_SECONDS = 60.0
"""Lines of a kind that `LimitedLog` logs within the seconds."""

LogFormat = Literal["text", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)

_NOT_FIELDS = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
_PLAIN_VALUE = re.compile(r'[^\s"=\\]+')
_QUIET = ("asyncio", "hypercorn", "kubernetes", "aiohttp", "grpc")


def configure_logging(verbosity: int = 0, log_format: LogFormat = "text", stream: TextIO | None = None) -> None:
    """Send everything that is logged from now on to ``stream`` (stderr by default), instead of any earlier place.

    Libraries log from WARNING on, whatever the verbosity: their other messages do not help to explain decisions.
    """
    logging.addLevelName(VERBOSE, "VERBOSE")
    # No line shows these, which take a quarter of its time: see "Optimization" in the documentation of logging.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    level = logging.DEBUG if verbosity >= 4 else VERBOSE if verbosity >= 2 else logging.INFO
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


class LimitedLog:
    """Log lines that clients can cause as often as they like: at most 10 of a kind in a minute.

    Lines are of one kind if they have the same level and the same message before its values are filled in. The first
    line after a minute with more has the field ``left_out``, their number.
    """

    def __init__(self, logger: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._counts: dict[tuple[int, str], tuple[float, int]] = {}

    def log(self, level: int, message: str, *values: object, extra: Mapping[str, object] | None = None) -> None:
        kind, now = (level, message), self._clock()
        begun, count = self._counts.get(kind, (now, 0))
        fields = dict(extra or {})
        if now - begun >= LIMITED_SECONDS:
            if count > LIMITED_LINES:
                fields["left_out"] = count - LIMITED_LINES
            begun, count = now, 0
        self._counts[kind] = begun, count + 1
        if count < LIMITED_LINES:
            self._logger.log(level, message, *values, extra=fields)


class TextFormatter(logging.Formatter):
    """Formatter for lines such as ``2026-05-04T03:02:01.123Z INFO gas.extender.bind bound pod=default/x node=n1``.

    A traceback follows on indented lines. Text from outside is escaped, so that no name of a pod, node or client can
    begin a line or hide one: every line that begins with a time is a log line of this program.
    """

    def format(self, record: logging.LogRecord) -> str:
        words = [_time(record), record.levelname, record.name, escaped(record.getMessage())]
        words += [f"{escaped(name)}={_value(value)}" for name, value in _fields(record).items()]
        lines = [" ".join(words)]
        if (trace := _traceback(self, record)) is not None:
            lines += ["    " + escaped(line) for line in trace.split("\n")]
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """Formatter for one JSON object per line: time, level, logger, message, traceback if any, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (trace := _traceback(self, record)) is not None:
            entry["traceback"] = trace
        for name, value in _fields(record).items():
            entry.setdefault(name, value if isinstance(value, str | int | float) else str(value))
        return json.dumps(entry)


def _value(value: object) -> str:
    text = str(value)
    if _PLAIN_VALUE.fullmatch(text):
        return escaped(text)
    return escaped('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _NOT_FIELDS}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else None
