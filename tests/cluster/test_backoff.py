from __future__ import annotations

from gas.cluster.backoff import Backoff


def test_waits_grow_to_the_longest_and_start_small_again() -> None:
    backoff = Backoff(first=0.25, longest=10)
    waits = [backoff.wait() for _ in range(10)]
    for wait, full in zip(waits, [0.25, 0.5, 1, 2, 4, 8, 10, 10, 10, 10], strict=True):
        assert full / 2 <= wait <= full
    backoff.reset()
    assert backoff.wait() <= 0.25


def test_two_replicas_do_not_wait_in_step() -> None:
    assert len({Backoff().wait() for _ in range(20)}) > 10
