from __future__ import annotations

import asyncio

import pytest

from gas.cluster.connection import RateLimit, rate_limit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


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


# contract E12.2
@pytest.mark.parametrize(
    ("qps", "burst", "in_the_first_second"),
    [
        pytest.param(None, None, None, id="without-flags-there-is-no-limit"),
        pytest.param(-1.0, 10, None, id="no-limit-for-a-negative-qps"),
        pytest.param(20.0, None, 10 + 20, id="qps-alone-has-the-default-burst-of-10"),
        pytest.param(None, 2, 2 + 5, id="burst-alone-has-the-default-qps-of-5"),
        pytest.param(0.0, 0, 10 + 5, id="zeros-are-the-defaults"),
        pytest.param(1e9, 10**9, 1000 + 1000, id="both-are-capped-at-1000"),
    ],
)
def test_the_limit_of_both_flags(qps: float | None, burst: int | None, in_the_first_second: int | None) -> None:
    limit = rate_limit(qps, burst)
    if in_the_first_second is None:
        assert limit is None
        return
    assert limit is not None
    first = 0
    while limit.reserve() <= 1.0:
        first += 1
    # The clock runs on while the test takes its places.
    assert in_the_first_second - 1 <= first <= in_the_first_second * 1.5


async def test_waiting_takes_as_long_as_the_place_in_the_queue() -> None:
    limit = RateLimit(20, 1)
    started = asyncio.get_running_loop().time()
    for _ in range(3):
        await limit.wait()
    assert asyncio.get_running_loop().time() - started >= 0.09
