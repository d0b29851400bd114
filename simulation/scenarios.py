"""Make scenarios: several faults that make each other worse. The leader is known only when a step is taken."""

from collections.abc import Callable
from typing import Any

from simulation.chance import Chance
from simulation.objects import (
    CARD_NAME,
    CARDS,
    COMPANY,
    CPU,
    LINKED,
    NODE_SCORE,
    ONLY_NODE,
    POD_GROUP,
    PRIORITY,
    RECEIPT,
    TIMESTAMP,
    VOLUME_FAILURES,
    VOLUME_SECONDS,
)
from simulation.plan import REPLICAS, Plan, Step

Scenario = Callable[[Chance, float, list[str], int], list[Step]]


def _start(chance: Chance) -> float:
    return round(chance.between(2.0, 12.0), 3)


def isolated(chance: Chance, active: float, names: list[str], _nodes: int) -> list[Step]:
    """Cut the leader off the API server, while the scheduler continues to call it."""
    at = _start(chance)
    steps = [
        Step(at, "stale_endpoints", (active - at,)),
        Step(at, "isolate", ("leader", round(chance.between(18.0, min(30.0, active - at)), 3))),
    ]
    again = chance.stream("returned")
    return _returned(again, active, names) if again.happens(0.4) else steps


def _returned(chance: Chance, active: float, names: list[str]) -> list[Step]:
    """Let a replica lead again that does not see yet what the leader in between has bound."""
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
    """Store Bindings late, while their sender stands still, is killed or loses its connection."""
    at = _start(chance)
    late = chance.one_of((3.0, 12.0, 18.0))
    act, args = chance.one_of(
        (("pause_extender", ("leader", 22.0)), ("kill_now", ("leader", 1.0)), ("api_outage", (1.0,)))
    )
    return [
        Step(at, "late_bindings", (late, late + 6.0, min(active - at, 10.0))),
        Step(at + chance.between(1.0, 5.0), act, args),
    ]


def handed_over(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Stop the leader repeatedly, while watches are late."""
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
        time = chance.between(0.5, active - 22.0)
        node = f"n{chance.whole(0, nodes - 1)}"
        asks = {"i915": 1, "millicores": chance.one_of((300, 500, 1000))}
        steps.append(Step(time, "create_for_others", (f"o{index}", [asks], node, 6)))
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
            time = again.between(1.0, active - 20.0)
            steps.append(Step(time, "bind_by_hand", (f"o{index}", f"n{again.whole(0, nodes - 1)}", 2)))
    return steps


def _left_open(chance: Chance, active: float, names: list[str], nodes: int) -> list[Step]:
    """Kill a leader whose reviewed Bindings come when another one leads, which may be unable to prevent that."""
    at = chance.between(6.0, 12.0)
    steps = [
        Step(0.0, "slow_reviews", (16.0, 26.0, active)),
        *(Step(at - 2.5, "delete_pod", (name, True)) for name in dict.fromkeys(names)),
        Step(at, "kill_now", ("leader", 1.0)),
    ]
    for index in range(8):
        asks = {"i915": 1, "millicores": chance.one_of((500, 600, 1000))}
        time = chance.between(at - 1.8, at - 0.2)
        steps.append(Step(time, "create_for_others", (f"o{index}", [asks], f"n{chance.whole(0, nodes - 1)}", 2)))
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
    """Let pods of equal amounts but different affinities follow each other on the same cards."""
    steps = []
    label = chance.stream("company").one_of(COMPANY[1:])
    names = "xy" if chance.stream("card names").happens(0.4) else "x"
    staying = chance.stream("staying")
    for index in range(24):
        labels = {CARD_NAME: names[index % len(names)]} | ({label: "b"} if chance.happens(0.5) else {})
        run = round(chance.between(1.0, 6.0), 3)
        at = chance.between(0.0, active - 8.0)
        # The pods that stay show whether the last pods, which should fit, do.
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


WHOLE = {"i915": 1, "millicores": 1000}
HALF = {"i915": 1, "millicores": 600}


def _pod(at: float, name: str, asks: dict[str, int] = WHOLE) -> Step:
    return Step(at, "create_pod", (name, [dict(asks)], [], None))


def _for_others(at: float, name: str, asks: dict[str, int] = WHOLE) -> Step:
    return Step(at, "create_for_others", (name, [dict(asks)], "n0", 1))


def replaced(chance: Chance) -> Plan:
    """Replace a pod by another one, for which the scheduler may call before the extender's watch shows it."""
    cards = chance.whole(1, 3)
    steps = [_pod(1.0 + index, f"a{index}") for index in range(cards)]
    if chance.happens(0.7):
        steps.append(Step(5.0, "delay_watches", ("leader", chance.between(0.05, 0.5), 8.0)))
    at = chance.between(6.0, 7.0)
    steps += [Step(at, "delete_pod", ("a0", True)), _pod(at + chance.between(0.001, 0.05), "b")]
    return Plan(0, (tuple(range(cards)),), False, tuple(steps), 20.0)


def freed_unnoticed(chance: Chance) -> Plan:
    """Free a card while the extender cannot tell the scheduler."""
    steps = [
        _pod(1.0, "a"),
        _pod(2.0, "b"),
        Step(5.5, "delay_watches", ("leader", chance.between(0.5, 2.0), 4.0)),
        Step(5.5, "condition", ({"clients": "extender", "method": "PATCH", "path": "/nodes/", "cut": 1.0}, 12.0)),
        Step(6.0, "delete_pod", ("a", True)),
    ]
    return Plan(0, ((0,),), False, tuple(steps), 20.0)


def review_expires(chance: Chance) -> Plan:
    """Let another client's Binding come too late, or be refused each time, while a pod waits for its card."""
    if chance.stream("others refuse").happens(0.5):
        steps = [Step(1.0, "refuse_reviewed"), Step(3.0, "create_for_others", ("o", [WHOLE], "n0", 9)), _pod(22.0, "b")]
        return Plan(0, ((0,),), True, tuple(steps), 25.0)
    steps = [Step(1.0, "slow_reviews", (15.0, 20.0, 10.0)), _for_others(3.0, "o"), _pod(chance.between(3.2, 4.5), "b")]
    return Plan(0, ((0,),), True, tuple(steps), 25.0)


def reviewed_twice(chance: Chance) -> Plan:
    """Have a pod's Binding reviewed again after the pod has changed, while the first one is still to come."""
    steps = [
        Step(1.0, "slow_reviews", (4.0, 6.0, 15.0)),
        _for_others(3.0, "o"),
        Step(3.5, "touch_pod", ("o",)),
        Step(chance.between(3.6, 4.2), "bind_by_hand", ("o", "n0", 1)),
        _pod(chance.between(4.0, 4.5), "b"),
    ]
    return Plan(0, ((0,),), True, tuple(steps), 25.0)


def bound_after_replacement(chance: Chance) -> Plan:
    """Let a Binding that was reviewed for a pod without cards come when its successor has some."""
    steps = [
        Step(1.0, "slow_reviews", (4.0, 6.0, 15.0)),
        _for_others(3.0, "z", {}),
        Step(4.5, "delete_pod", ("z", True)),
        _for_others(4.6, "z"),
        _pod(chance.between(4.62, 5.0), "b"),
    ]
    return Plan(0, ((0,),), True, tuple(steps), 25.0)


def copied(chance: Chance) -> Plan:
    """Create a pod from the text of one that runs, with its cards and its receipt."""
    written = {CARDS: "card0", RECEIPT: "card0", TIMESTAMP: "5"}
    steps = [
        _pod(1.0, "a"),
        Step(chance.between(3.0, 4.0), "create_copy", ("t", [dict(WHOLE)], written)),
        _pod(5.0, "c"),
    ]
    return Plan(0, ((0, 1),), False, tuple(steps), 10.0)


def answered_too_late(chance: Chance) -> Plan:
    """Let the API server's responses give Bindings up that it then writes."""
    steps = [
        Step(1.0, "delay_watches", ("leader", 20.0, 10.0)),
        Step(2.0, "condition", ({"clients": "extender", "path": "/binding", "failed": 1.0}, 2.0)),
        _pod(3.0, "a"),
        _pod(chance.between(3.5, 4.5), "b"),
    ]
    return Plan(0, ((0, 1),), False, tuple(steps), 20.0)


def slow_reads(chance: Chance) -> Plan:
    """Let the reads of a leader last until another one leads."""
    hold = chance.between(16.0, 20.0)
    steps = [
        Step(1.0, "delay_watches", ("leader", 59.0, 20.0)),
        Step(2.0, "condition", ({"clients": "leader", "path": "/leases/", "cut": 1.0}, 30.0)),
        Step(2.0, "condition", ({"clients": "extender", "method": "GET", "path": "/pods/", "hold": hold}, 30.0)),
        _pod(3.0, "a", HALF),
        _pod(3.0, "b", HALF),
    ]
    return Plan(0, ((0,), (0,)), False, tuple(steps), 40.0)


def silent_watch(chance: Chance) -> Plan:
    """Let watches begin and never send anything."""
    steps = [
        Step(2.0, "condition", ({"clients": "extender", "path": "watch=", "silent": 1.0}, 3.0)),
        Step(2.1, "break_watches"),
        _pod(8.0, "a"),
        _pod(9.0, "b"),
        Step(chance.between(10.0, 13.0), "delete_pod", ("a", True)),
    ]
    return Plan(0, ((0,),), False, tuple(steps), 20.0)


def unlisted(chance: Chance) -> Plan:
    """Let a new leader fail to list the pods, while a Binding that the earlier one has reviewed is still to come."""
    steps = [
        Step(1.0, "slow_reviews", (24.0, 26.0, 15.0)),
        _for_others(5.0, "o"),
        Step(5.5, "kill_now", ("leader", 40.0)),
        Step(5.6, "condition", ({"clients": "extender", "method": "GET", "path": "/pods?", "cut": 1.0}, 19.5)),
        _pod(chance.between(26.0, 27.5), "b"),
    ]
    return Plan(0, ((0,),), True, tuple(steps), 45.0)


def restarted_alone(chance: Chance) -> Plan:
    """Kill a single replica whose Binding is still to come, its own or one that it has reviewed."""
    is_own = chance.happens(0.5)
    late = Step(1.0, *(("late_bindings", (3.0, 6.0, 3.0)) if is_own else ("slow_reviews", (3.0, 6.0, 3.0))))
    steps = (late, (_pod if is_own else _for_others)(2.0, "a"), Step(2.6, "kill_now", ("extender-a", 0.5)))
    b = _pod(chance.between(3.0, 4.0), "b")
    return Plan(0, ((0,),), not is_own, (*steps, b), 25.0, features=frozenset({"one replica"}))


def linked(chance: Chance) -> Plan:
    """Let pods with linked cards come and go, for which the scheduler asks for scores."""
    steps = []
    for index in range(20):
        asks = {"i915": 2, "tiles": 2, "millicores": chance.one_of((200, 1000))}
        rules = {LINKED: "", NODE_SCORE: chance.one_of(("best-fit", "spread"))}
        run, at = round(chance.between(1.0, 6.0), 3), chance.between(1.0, 15.0)
        steps.append(Step(at, "create_pod", (f"l{index}", [asks], [], run, rules)))
    return Plan(0, ((0, 1, 2, 3),) * 2, False, tuple(steps), 16.0, features=frozenset({"scores"}))


def volume(chance: Chance) -> dict[str, str]:
    """Return the annotations of a pod whose volumes are made once its node is chosen."""
    found = {VOLUME_SECONDS: str(round(chance.between(0.3, 8.0), 3))}
    return found | ({VOLUME_FAILURES: str(chance.whole(1, 3))} if chance.happens(0.3) else {})


def late_volumes(chance: Chance) -> Plan:
    """Let volumes be made for seconds once a node is chosen, while other pods want the same cards."""
    # The sums of a node have room for one more pod than its cards, so that the scheduler's own sums do not help.
    nodes = tuple(tuple(range(chance.whole(2, 4))) for _ in range(chance.weighted(((1, 1), (3, 2)))))
    shapes = chance.one_of(([HALF], [HALF, HALF, _of_each(1, 350), _of_each(2, 600), WHOLE]))
    priorities = chance.one_of(((0,), (0, 100), (0, 0, 100, 1000)))
    late, first = chance.one_of((0.5, 0.7, 1.0)), chance.between(0.0, 4.0)
    second = first + chance.between(1.5, 6.0)  # while the volumes of the first pods are made
    steps = []
    for index in range(chance.whole(3, 5) * sum(map(len, nodes))):
        at = chance.weighted(((5, first), (4, second), (2, chance.between(0.0, 14.0)))) + chance.between(0.0, 0.4)
        rules = volume(chance) if chance.happens(late) else {}
        if priority := chance.one_of(priorities):
            rules[PRIORITY] = str(priority)
        run = round(chance.between(1.0, 5.0), 3) if chance.happens(0.6) else None
        steps.append(Step(at, "create_pod", (f"v{index}", [dict(chance.one_of(shapes))], [], run, rules)))
        if chance.happens(0.25):
            steps.append(Step(at + chance.delay(4.0), "delete_pod", (f"v{index}", chance.happens(0.5))))
    for _ in range(chance.weighted(((3, 0), (4, 1), (3, 3)))):
        node = f"n{chance.whole(0, len(nodes) - 1)}"
        faults: tuple[tuple[float, tuple[str, tuple[Any, ...]]], ...] = (
            (2, ("kill_now", ("leader", 0.3))),
            (1, ("stop_extender", ("leader", 0.3))),
            (1, ("lose_history", ("extender", 1.0))),
            (1, ("restart_scheduler", (chance.between(0.1, 2.0),))),
            (2, ("remove_node", (node, chance.between(0.5, 4.0)))),
            (2, ("change_cards", (node, chance.whole(0, 2), chance.between(0.5, 6.0)))),
        )
        act, args = chance.weighted(faults)
        steps.append(Step(chance.between(first + 0.3, second + 1.0), act, args))
    steps = sorted((step for step in steps if step.at < 20.0), key=lambda step: step.at)
    features = frozenset({"late volumes", *(("one replica",) if chance.happens(0.5) else ())})
    return Plan(0, nodes, False, tuple(steps), 20.0, eager=chance.happens(0.5), features=features)


def burst_of_volumes(chance: Chance) -> Plan:
    """Let more pods come at once than there are cards for, all with volumes that are made for a while."""
    nodes = tuple(tuple(range(chance.whole(2, 3))) for _ in range(chance.whole(1, 3)))
    steps = []
    for index in range(sum(map(len, nodes)) + chance.whole(2, 4)):
        rules = {VOLUME_SECONDS: str(round(chance.between(2.0, 6.0), 3))}
        steps.append(Step(chance.between(1.0, 1.3), "create_pod", (f"v{index}", [dict(HALF)], [], None, rules)))
    if chance.happens(0.5):
        act = chance.one_of((("kill_now", ("leader", 0.3)), ("restart_scheduler", (0.5,))))
        steps.append(Step(chance.between(1.5, 4.0), *act))
    steps.sort(key=lambda step: step.at)
    features = frozenset({"late volumes", *(("one replica",) if chance.happens(0.5) else ())})
    return Plan(0, nodes, False, tuple(steps), 10.0, eager=True, features=features)


def volumes_while_cards_change(chance: Chance) -> Plan:
    """Let a node lose the card that was promised to a pod, and another one of its cards become free."""
    late, soon = {VOLUME_SECONDS: "11.0"}, round(chance.between(1.5, 2.5), 3)
    steps = (
        Step(1.0, "create_pod", ("a", [dict(HALF)], [], soon)),
        Step(1.5, "create_pod", ("b", [dict(HALF)], [], None)),
        Step(2.0, "create_pod", ("p", [dict(HALF)], [], None, late)),
        Step(2.5, "create_pod", ("c", [_of_each(1, 100)], [], None)),  # the extender must look at what it promised
        Step(chance.between(3.0, 4.0), "change_cards", ("n0", 2, 10.0)),
        Step(chance.between(9.0, 10.0), "create_pod", ("q", [dict(HALF)], [], None)),
    )
    return Plan(0, ((0, 1, 2),), False, steps, 15.0, features=frozenset({"late volumes"}))


def pod_groups(chance: Chance) -> Plan:
    """Let PodGroups and other pods come for the same cards, while binds are slow."""
    nodes = tuple(tuple(range(chance.whole(1, 3))) for _ in range(chance.whole(1, 3)))
    cards = sum(map(len, nodes))
    shapes = chance.one_of(([HALF], [HALF, WHOLE], [HALF, _of_each(1, 350), WHOLE]))
    first = chance.between(2.0, 4.0)
    times = (first, first + chance.between(0.0, 0.6), first + chance.between(3.0, 12.0))
    steps = []

    def add(name: str, at: float, rules: dict[str, str], cpu: int = 0) -> None:
        asks = dict(chance.one_of(shapes)) | ({CPU: cpu} if cpu else {})
        run = round(chance.between(1.0, 6.0), 3) if chance.happens(0.5) else None
        steps.append(Step(at, "create_pod", (name, [asks], [], run, rules)))
        if chance.happens(0.2):
            gone = at + chance.one_of((0.1, 3.0)) * chance.between(0.1, 1.0)
            steps.append(Step(gone, "delete_pod", (name, chance.happens(0.5))))
            if chance.happens(0.5):
                again = gone + chance.between(0.1, 2.0)
                steps.append(Step(again, "create_pod", (name, [dict(asks)], [], run, rules)))

    for number in range(chance.whole(3, 6)):
        size, at = chance.whole(2, min(max(cards, 2), 4)), chance.one_of(times) + chance.between(0.0, 0.2)
        late = int(chance.happens(0.4))
        steps.append(
            Step(at - chance.one_of((1.5, 1.5, -0.2)), "create_pod_group", (f"g{number}", max(size - late, 2)))
        )
        tied = chance.one_of((0.0, 0.0, 0.5))
        cpu = 400 if chance.happens(0.4) else 0  # of which a node has room for two pods, which no extender knows
        for member in range(size + late):
            born = at + (chance.between(0.5, 8.0) if late and member == size else chance.between(0.0, 0.1))
            rules = {POD_GROUP: f"g{number}"}
            if chance.happens(tied):
                rules[ONLY_NODE] = f"n{chance.whole(0, len(nodes) - 1)}"
            add(f"g{number}-{member}", born, rules, cpu)
    for number in range(chance.whole(0, 2 * cards)):
        add(f"p{number}", chance.one_of(times) + chance.between(0.0, 0.6), {})
    slow = chance.one_of((0.0, 0.3, 0.7))
    if slow:
        steps.append(Step(0.0, "condition", ({"clients": "scheduler", "path": "/bind", "delay": slow}, 25.0)))
    if chance.happens(0.3):
        act = chance.one_of(("kill_now", "stop_extender", "restart_scheduler"))
        args = (chance.between(0.6, 1.5),) if act == "restart_scheduler" else ("leader", 0.3)
        steps.append(Step(chance.one_of(times) + chance.between(0.0, 1.0), act, args))
    steps = sorted((step for step in steps if step.at < 25.0), key=lambda step: step.at)
    features = frozenset({"PodGroups", *(("one replica",) if chance.happens(0.5) else ())})
    return Plan(0, nodes, False, tuple(steps), 25.0, eager=chance.happens(0.5), features=features)


def _of_each(cards: int, millicores: int) -> dict[str, int]:
    return {"i915": cards, "millicores": cards * millicores}


def volumes_while_a_node_goes(chance: Chance) -> Plan:
    """Let a pod be nominated for another node, because the first one goes and its volumes fail there."""
    late = {VOLUME_SECONDS: "4.0", VOLUME_FAILURES: "1"}
    steps = [
        Step(1.0, "create_pod", ("a", [dict(HALF)], [], None)),
        Step(1.5, "create_pod", ("p", [dict(HALF)], [], None, late)),
        Step(chance.between(2.0, 4.0), "remove_node", ("n0", 12.0)),
        *(Step(chance.between(8.0, 9.0), "create_pod", (f"q{index}", [dict(HALF)], [], None)) for index in range(3)),
    ]
    steps.sort(key=lambda step: step.at)
    return Plan(0, ((0, 1),) * 2, False, tuple(steps), 15.0, features=frozenset({"late volumes"}))


VOLUMES: tuple[tuple[float, Callable[[Chance], Plan]], ...] = (
    (0.25, burst_of_volumes),
    (0.07, volumes_while_cards_change),
    (0.07, volumes_while_a_node_goes),
    (0.61, late_volumes),
)
"""Make histories of late volumes, and how often each is made."""

QUIET: tuple[Callable[[Chance], Plan], ...] = (
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
    restarted_alone,
    linked,
)
"""Make histories without random faults, of one cause each."""
