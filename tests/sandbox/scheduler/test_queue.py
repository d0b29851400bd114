"""The order in which pods are tried."""

from __future__ import annotations

from sandbox.scheduler.queue import SchedulingQueue


def _queue(*pods: str) -> SchedulingQueue:
    queue = SchedulingQueue(first=1, longest=4, forgotten=300)
    for pod in pods:
        queue.add(pod)
    return queue


def test_pods_are_due_in_order_of_arrival() -> None:
    queue = _queue("a", "b")
    assert queue.due(0) == "a"
    queue.remove("a")
    assert queue.due(0) == "b"
    queue.remove("b")
    assert queue.due(0) is None
    assert queue.next_turn() is None


def test_a_refused_pod_waits_for_a_change_and_for_its_backoff() -> None:
    queue = _queue("a")
    queue.refuse("a", 10, queue.wakes)
    assert queue.due(100) is None
    queue.wake()
    assert queue.due(10.9) is None
    assert queue.due(11) == "a"


def test_a_refused_pod_is_tried_again_after_a_long_time_without_changes() -> None:
    queue = _queue("a")
    queue.refuse("a", 10, queue.wakes)
    assert queue.next_turn() == 310
    assert queue.due(310) == "a"


def test_a_parked_pod_whose_late_attempt_fails_backs_off() -> None:
    queue = _queue("a")
    queue.refuse("a", 10, queue.wakes)
    queue.fail("a", 310)
    assert queue.due(310) is None
    assert queue.next_turn() == 312


def test_a_change_during_an_attempt_makes_the_pod_due_again() -> None:
    queue = _queue("a")
    wakes = queue.wakes
    queue.wake()
    queue.refuse("a", 10, wakes)
    assert queue.due(11) == "a"


def test_the_backoff_doubles_up_to_the_longest() -> None:
    queue, turns = _queue("a"), []
    for _ in range(4):
        queue.fail("a", 0)
        turns.append(queue.next_turn())
    assert turns == [1, 2, 4, 4]


def test_the_backoff_does_not_overflow() -> None:
    queue = SchedulingQueue(first=0.1, longest=0.4)
    queue.add("a")
    for _ in range(2000):
        queue.fail("a", 0)
    assert queue.next_turn() == 0.4


def test_adding_a_pod_again_keeps_its_backoff() -> None:
    queue = _queue("a")
    queue.fail("a", 0)
    queue.add("a")
    assert queue.due(0) is None


def test_a_pod_that_was_removed_during_its_attempt_stays_removed() -> None:
    queue = _queue("a")
    queue.remove("a")
    queue.refuse("a", 0, queue.wakes)
    assert queue.next_turn() is None
