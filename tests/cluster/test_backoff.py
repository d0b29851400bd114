from __future__ import annotations

from gas.cluster.backoff import Backoff


def test_pauses_double_up_to_the_longest_and_reset() -> None:
    backoff = Backoff(first=0.25, longest=10)
    waits = [backoff.wait() for _ in range(10)]
    for wait, full in zip(waits, [0.25, 0.5, 1, 2, 4, 8, 10, 10, 10, 10], strict=True):
        assert full / 2 <= wait <= full
    backoff.reset()
    assert backoff.wait() <= 0.25


def test_pauses_of_two_replicas_differ() -> None:
    assert len({Backoff().wait() for _ in range(20)}) > 10
