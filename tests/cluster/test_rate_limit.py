from __future__ import annotations

from gas.cluster.connection import RateLimit
from tests.cluster.moved_clock import Clock


def test_a_burst_is_sent_at_once_and_the_rest_at_the_rate() -> None:
    limit = RateLimit(5, 3, Clock())
    assert [round(limit.reserve(), 3) for _ in range(6)] == [0, 0, 0, 0.2, 0.4, 0.6]


def test_places_come_back_with_time_but_never_more_than_the_burst() -> None:
    clock = Clock()
    limit = RateLimit(5, 3, clock)
    for _ in range(3):
        limit.reserve()
    clock.now += 0.4
    assert [round(limit.reserve(), 3) for _ in range(3)] == [0, 0, 0.2]
    clock.now += 3600
    assert [round(limit.reserve(), 3) for _ in range(4)] == [0, 0, 0, 0.2]
