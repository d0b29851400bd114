"""Scenarios: several faults that make each other worse. The leader is known only when a step is taken."""

from __future__ import annotations

from collections.abc import Callable

from simulation.chance import Chance
from simulation.objects import CARD_NAME, COMPANY
from simulation.plan import REPLICAS, Step

Scenario = Callable[[Chance, float, list[str], int], list[Step]]


def _start(chance: Chance) -> float:
    return round(chance.between(2.0, 12.0), 3)


def isolated(chance: Chance, active: float, names: list[str], _nodes: int) -> list[Step]:
    """Cut the leader off the API server, while the scheduler goes on to ask it."""
    at = _start(chance)
    steps = [
        Step(at, "stale_endpoints", (active - at,)),
        Step(at, "isolate", ("leader", round(chance.between(18.0, min(30.0, active - at)), 3))),
    ]
    again = chance.stream("returned")
    return _returned(again, active, names) if again.happens(0.4) else steps


def _returned(chance: Chance, active: float, names: list[str]) -> list[Step]:
    """Let a replica lead again that has led before, while it does not see yet what the leader in between has bound."""
    at = chance.between(2.0, 5.0)
    back = at + 19.0
    steps = [
        Step(at, "isolate", ("leader", 17.0)),
        Step(back, "delay_watches", ("standby", chance.between(6.0, 15.0), active - back)),
        Step(back + chance.between(3.0, 6.0), "stop_extender", ("leader", 6.0)),
    ]
    steps += [Step(back - 1.5, "delete_pod", (name, True)) for name in dict.fromkeys(names)]
    for index in range(12):
        asks = {"i915": 1, "millicores": chance.one_of((500, 600, 1000))}
        steps.append(Step(back + chance.between(0.5, 9.0), "create_pod", (f"r{index}", [asks], [], None)))
    return steps


def no_renewals(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Let the leader bind, late, while it cannot renew its Lease."""
    at = _start(chance)
    left = active - at
    late = chance.between(5.0, 8.0)
    return [
        Step(at, "late_bindings", (late, late + 2.0, left)),
        Step(at, "condition", ({"clients": "leader", "path": "/leases/", "cut": 1.0}, min(30.0, left))),
    ]


def slow_renewals(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Let the responses to the leader's last renewals come late, and no later renewal succeed."""
    at = _start(chance)
    cut = at + chance.between(4.0, 8.0)
    return [
        Step(at, "condition", ({"clients": "leader", "path": "/leases/", "hold": chance.between(2.0, 4.8)}, cut - at)),
        Step(cut, "condition", ({"clients": "leader", "path": "/leases/", "cut": 1.0}, active - cut)),
    ]


def blind_binds(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Lose responses to Bindings while watches are late."""
    at = _start(chance)
    left = min(active - at, 20.0)
    kind = chance.one_of(("lost", "silent", "failed"))
    return [
        *(Step(at, "delay_watches", (name, chance.between(4.0, 12.0), left)) for name in REPLICAS),
        Step(at, "condition", ({"clients": "extender", "path": "/binding", kind: chance.between(0.3, 1.0)}, left)),
    ]


def late_bindings(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Write Bindings at about the moment at which the extender gives them up."""
    at = _start(chance)
    return [Step(at, "late_bindings", (3.8, 4.5, min(active - at, 25.0)))]


def handed_over(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Stop the leader again and again, while watches are late."""
    at = _start(chance)
    left = active - at
    steps = [Step(at, "delay_watches", (name, chance.between(2.0, 12.0), left)) for name in REPLICAS]
    while at < active - 5.0:
        steps.append(Step(at, "stop_extender", ("leader", 1.0)))
        at += chance.between(3.0, 8.0)
    return steps


def reviewed(chance: Chance, active: float, names: list[str], nodes: int) -> list[Step]:
    """Let other clients bind pods whose writes come long after the reviews. Meanwhile the leader may stop."""
    at = _start(chance)
    least = chance.one_of((0.5, 3.0, 14.0))
    steps = [Step(0.0, "slow_reviews", (least, min(least * 3, 26.0), active - 20.0))]
    for index in range(12):
        moment = chance.between(0.5, active - 22.0)
        node = f"n{chance.whole(0, nodes - 1)}"
        asks = {"i915": 1, "millicores": chance.one_of((300, 500, 1000))}
        steps.append(Step(moment, "create_for_others", (f"o{index}", [asks], node, 6)))
        names.append(f"o{index}")
    if chance.happens(0.7):
        act = chance.one_of(("stop_extender", "kill_now", "kill_now", "pause_extender"))
        steps.append(Step(at, act, ("leader", 16.0 if act == "pause_extender" else 1.0)))
    again = chance.stream("left open")
    if again.happens(0.4):
        return _left_open(again, active, names, nodes)
    again = chance.stream("bound twice")
    if again.happens(0.3):
        # A second client binds the same pods, some of them elsewhere, while the first Bindings are still to come.
        for index in range(12):
            moment = again.between(1.0, active - 20.0)
            steps.append(Step(moment, "bind_by_hand", (f"o{index}", f"n{again.whole(0, nodes - 1)}", 2)))
    return steps


def _left_open(chance: Chance, active: float, names: list[str], nodes: int) -> list[Step]:
    """Kill a leader whose reviewed Bindings come when another one leads, which may have trouble to prevent that."""
    at = chance.between(6.0, 12.0)
    steps = [
        Step(0.0, "slow_reviews", (16.0, 26.0, active)),
        *(Step(at - 2.5, "delete_pod", (name, True)) for name in dict.fromkeys(names)),
        Step(at, "kill_now", ("leader", 1.0)),
    ]
    for index in range(8):
        asks = {"i915": 1, "millicores": chance.one_of((500, 600, 1000))}
        moment = chance.between(at - 1.8, at - 0.2)
        steps.append(Step(moment, "create_for_others", (f"o{index}", [asks], f"n{chance.whole(0, nodes - 1)}", 2)))
        steps.append(Step(chance.between(at, at + 15.0), "create_pod", (f"q{index}", [asks], [], None)))
    if chance.happens(0.5):
        fields = {"clients": "extender", "method": "PATCH", "path": "/pods/", "cut": 1.0}
        steps.append(Step(at, "condition", (fields, chance.between(14.0, 25.0))))
    return steps


def at_bindings(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Let users act on pods right before their Bindings are written, and lose responses to those."""
    steps = [Step(chance.between(0.0, 20.0), "act_at_binding", (act, 4)) for act in ("swap", "bind", "delete")]
    at = chance.between(0.0, 20.0)
    if chance.happens(0.7):
        fields = {"clients": "extender", "path": "/binding", chance.one_of(("lost", "silent", "failed")): 0.7}
        steps.append(Step(at, "condition", (fields, active - at - 5.0)))
    return steps


def old_reads(chance: Chance, active: float, names: list[str], _nodes: int) -> list[Step]:
    """Let single reads and lists be slow, while pods are bound and deleted."""
    at = _start(chance)
    left = min(active - at, 25.0)
    hold = chance.between(0.5, 3.0)
    steps = [
        Step(at, "condition", ({"clients": "extender", "path": "/pods", "hold": hold}, left)),
        Step(at, "condition", ({"clients": "extender", "path": "/binding", "lost": 0.7}, left)),
        Step(at + chance.between(0.0, 10.0), "stop_extender", ("leader", 1.0)),
    ]
    for _ in range(15):
        steps.append(Step(at + chance.between(0.0, left), "delete_pod", (chance.one_of(names), True)))
    return steps


def refused_and_forgotten(chance: Chance, active: float, names: list[str], _nodes: int) -> list[Step]:
    """Have pods refused because the leader does not see yet that others are gone; then end the leader."""
    at = active - chance.between(4.0, 8.0)
    steps = [Step(at - 0.5, "delay_watches", ("leader", 20.0, 6.0))]
    steps += [Step(at + chance.between(0.0, 0.4), "delete_pod", (name, True)) for name in dict.fromkeys(names)]
    return [*steps, Step(at + 1.5, chance.one_of(("kill_now", "stop_extender")), ("leader", 1.0))]


def devices(chance: Chance, active: float, names: list[str], nodes: int) -> list[Step]:
    """Give many pods of several containers their devices at once, while kubelet and the plugin restart."""
    steps = []
    for burst in range(3):
        at = round(chance.between(1.0, active - 8.0), 3)
        for index in range(chance.whole(2, 5)):
            name = f"d{burst}-{index}"
            containers = [{"i915": chance.whole(1, 2), "millicores": 40} for _ in range(chance.whole(1, 3))]
            init = [{"i915": chance.whole(1, 2)}] if chance.happens(0.3) else []
            steps.append(Step(at + chance.between(0.0, 0.3), "create_pod", (name, containers, init, None)))
            names.append(name)
        node = f"n{chance.whole(0, nodes - 1)}"
        if chance.happens(0.6):
            act = chance.one_of(("restart_kubelet", "restart_plugin"))
            steps.append(Step(at + chance.between(0.0, 1.0), act, (node, chance.between(0.1, 2.0))))
        if chance.happens(0.5):
            steps.append(Step(at, "delay_watches", (f"plugin-{node}", chance.between(0.2, 2.0), 6.0)))
    at_receipt = chance.stream("at receipts")
    if at_receipt.happens(0.4):
        steps.append(Step(at_receipt.between(0.0, active / 2), "swap_at_receipt", (3,)))
    return steps


def company(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Let pods that take the same, but like different company, follow each other on the same cards."""
    steps = []
    label = chance.stream("company").one_of(COMPANY[1:])
    names = "xy" if chance.stream("card names").happens(0.4) else "x"
    staying = chance.stream("staying")
    for index in range(24):
        labels = {CARD_NAME: names[index % len(names)]} | ({label: "b"} if chance.happens(0.5) else {})
        run = round(chance.between(1.0, 6.0), 3)
        at = chance.between(0.0, active - 8.0)
        # Those that stay show whether the last ones fit that should.
        stays = at > active / 2 and staying.happens(0.3)
        steps.append(Step(at, "create_share", (f"c{index}", 500, 0, labels, None if stays else run)))
    return steps


SCENARIOS: tuple[Scenario, ...] = (
    isolated,
    no_renewals,
    slow_renewals,
    blind_binds,
    late_bindings,
    handed_over,
    reviewed,
    at_bindings,
    old_reads,
    refused_and_forgotten,
    devices,
    company,
)
