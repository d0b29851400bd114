"""Whose turn it is."""

from __future__ import annotations

from gas.sandbox.scheduler.queue import SchedulingQueue


def _queue(*pods: str) -> SchedulingQueue:
    queue = SchedulingQueue(first=1, longest=4, forgotten=300)
    for pod in pods:
        queue.add(pod)
    return queue


def test_pods_come_in_their_order() -> None:
    queue = _queue("a", "b")
    assert queue.due(0) == "a"
    queue.remove("a")
    assert queue.due(0) == "b"
    queue.remove("b")
    assert queue.due(0) is None
    assert queue.next_turn() is None


def test_a_refused_pod_waits_for_a_change_and_its_pause() -> None:
    queue = _queue("a")
    queue.refuse("a", 10, queue.wakes)
    assert queue.due(100) is None
    queue.wake()
    assert queue.due(10.9) is None
    assert queue.due(11) == "a"


def test_a_refused_pod_is_not_forgotten() -> None:
    queue = _queue("a")
    queue.refuse("a", 10, queue.wakes)
    assert queue.next_turn() == 310
    assert queue.due(310) == "a"


def test_a_change_during_the_attempt_counts() -> None:
    queue = _queue("a")
    wakes = queue.wakes
    queue.wake()
    queue.refuse("a", 10, wakes)
    assert queue.due(11) == "a"


def test_the_pause_doubles_up_to_the_longest() -> None:
    queue, turns = _queue("a"), []
    for _ in range(4):
        queue.fail("a", 0)
        turns.append(queue.next_turn())
    assert turns == [1, 2, 4, 4]


def test_adding_again_keeps_the_pause() -> None:
    queue = _queue("a")
    queue.fail("a", 0)
    queue.add("a")
    assert queue.due(0) is None


def test_a_pod_that_went_during_its_attempt_does_not_come_back() -> None:
    queue = _queue("a")
    queue.remove("a")
    queue.refuse("a", 0, queue.wakes)
    assert queue.next_turn() is None
