"""Quiet histories: few pods and one trouble, so that nothing later makes up for what was forgotten.

In a crowded history any event makes the scheduler try again, or the extender look again. Here nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulation.chance import Chance
from simulation.objects import CARDS, MOMENT, RECEIPT
from simulation.plan import Step

WHOLE = {"i915": 1, "millicores": 1000}
HALF = {"i915": 1, "millicores": 600}


@dataclass(frozen=True, slots=True)
class Quiet:
    """A quiet history: the cards of each node, whether there are webhooks, what happens, and in how many seconds."""

    nodes: tuple[tuple[int, ...], ...]
    webhooks: bool
    steps: list[Step]
    active: float


def _pod(at: float, name: str, asks: dict[str, int] = WHOLE) -> Step:
    return Step(at, "create_pod", (name, [dict(asks)], [], None))


def _for_others(at: float, name: str, asks: dict[str, int] = WHOLE, attempts: int = 1) -> Step:
    return Step(at, "create_for_others", (name, [dict(asks)], "n0", attempts))


def replaced(chance: Chance) -> Quiet:
    """Replace a pod by another one, about which the scheduler may ask before the extender's watch shows it."""
    cards = chance.whole(1, 3)
    steps = [_pod(1.0 + index, f"a{index}") for index in range(cards)]
    if chance.happens(0.7):
        steps.append(Step(5.0, "delay_watches", ("leader", chance.between(0.05, 0.5), 8.0)))
    at = chance.between(6.0, 7.0)
    steps += [Step(at, "delete_pod", ("a0", True)), _pod(at + chance.between(0.001, 0.05), "b")]
    return Quiet((tuple(range(cards)),), False, steps, 20.0)


def freed_unnoticed(chance: Chance) -> Quiet:
    """Free a card while the extender cannot tell the scheduler."""
    steps = [
        _pod(1.0, "a"),
        _pod(2.0, "b"),
        Step(5.5, "delay_watches", ("leader", chance.between(0.5, 2.0), 4.0)),
        Step(5.5, "condition", ({"clients": "extender", "method": "PATCH", "path": "/nodes/", "cut": 1.0}, 12.0)),
        Step(6.0, "delete_pod", ("a", True)),
    ]
    return Quiet(((0,),), False, steps, 20.0)


def review_expires(chance: Chance) -> Quiet:
    """Let another client's Binding come too late, while a pod waits for its card."""
    steps = [Step(1.0, "slow_reviews", (15.0, 20.0, 10.0)), _for_others(3.0, "o"), _pod(chance.between(3.2, 4.5), "b")]
    return Quiet(((0,),), True, steps, 25.0)


def reviewed_twice(chance: Chance) -> Quiet:
    """Have a pod's Binding reviewed again after the pod has changed, while the first one is still to come."""
    steps = [
        Step(1.0, "slow_reviews", (4.0, 6.0, 15.0)),
        _for_others(3.0, "o"),
        Step(3.5, "touch_pod", ("o",)),
        Step(chance.between(3.6, 4.2), "bind_by_hand", ("o", "n0", 1)),
        _pod(chance.between(4.0, 4.5), "b"),
    ]
    return Quiet(((0,),), True, steps, 25.0)


def bound_after_replacement(chance: Chance) -> Quiet:
    """Let a Binding that was reviewed for a pod without cards come when its successor has some."""
    steps = [
        Step(1.0, "slow_reviews", (4.0, 6.0, 15.0)),
        _for_others(3.0, "z", {}),
        Step(4.5, "delete_pod", ("z", True)),
        _for_others(4.6, "z"),
        _pod(chance.between(4.62, 5.0), "b"),
    ]
    return Quiet(((0,),), True, steps, 25.0)


def copied(chance: Chance) -> Quiet:
    """Create a pod from the text of one that runs, with its cards and its receipt."""
    written = {CARDS: "card0", RECEIPT: "card0", MOMENT: "5"}
    steps = [
        _pod(1.0, "a"),
        Step(chance.between(3.0, 4.0), "create_copy", ("t", [dict(WHOLE)], written)),
        _pod(5.0, "c"),
    ]
    return Quiet(((0, 1),), False, steps, 10.0)


def answered_too_late(chance: Chance) -> Quiet:
    """Let the API server give Bindings up in its responses, and write them."""
    steps = [
        Step(1.0, "delay_watches", ("leader", 20.0, 10.0)),
        Step(2.0, "condition", ({"clients": "extender", "path": "/binding", "failed": 1.0}, 2.0)),
        _pod(3.0, "a"),
        _pod(chance.between(3.5, 4.5), "b"),
    ]
    return Quiet(((0, 1),), False, steps, 20.0)


def slow_reads(chance: Chance) -> Quiet:
    """Let the reads of a leader last until another one leads."""
    hold = chance.between(16.0, 20.0)
    steps = [
        Step(1.0, "delay_watches", ("leader", 59.0, 20.0)),
        Step(2.0, "condition", ({"clients": "leader", "path": "/leases/", "cut": 1.0}, 30.0)),
        Step(2.0, "condition", ({"clients": "extender", "method": "GET", "path": "/pods/", "hold": hold}, 30.0)),
        _pod(3.0, "a", HALF),
        _pod(3.0, "b", HALF),
    ]
    return Quiet(((0,), (0,)), False, steps, 40.0)


def silent_watch(chance: Chance) -> Quiet:
    """Let watches begin and never send anything."""
    steps = [
        Step(2.0, "condition", ({"clients": "extender", "path": "watch=", "silent": 1.0}, 3.0)),
        Step(2.1, "break_watches"),
        _pod(8.0, "a"),
        _pod(9.0, "b"),
        Step(chance.between(10.0, 13.0), "delete_pod", ("a", True)),
    ]
    return Quiet(((0,),), False, steps, 20.0)


def unlisted(chance: Chance) -> Quiet:
    """Let a new leader fail to list the pods, while a Binding that the earlier one has reviewed is still to come."""
    steps = [
        Step(1.0, "slow_reviews", (24.0, 26.0, 15.0)),
        _for_others(5.0, "o"),
        Step(5.5, "kill_now", ("leader", 40.0)),
        Step(5.6, "condition", ({"clients": "extender", "method": "GET", "path": "/pods?", "cut": 1.0}, 19.5)),
        _pod(chance.between(26.0, 27.5), "b"),
    ]
    return Quiet(((0,),), True, steps, 45.0)


QUIET: tuple[Callable[[Chance], Quiet], ...] = (
    replaced,
    freed_unnoticed,
    review_expires,
    reviewed_twice,
    bound_after_replacement,
    slow_reads,
    silent_watch,
    unlisted,
    copied,
    answered_too_late,
)
