"""The clocks that every part of a process uses."""

from datetime import UTC, datetime

from gas.values.timing import Timing


def test_seconds_and_the_date_come_from_the_same_clock() -> None:
    timing = Timing(nanoseconds=lambda: 1_700_000_000_500_000_000)
    assert timing.seconds() == 1_700_000_000.5
    assert timing.now() == datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC)
