"""The plan of a history: what users do and what fails, moment by moment. It comes from the seed alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulation.chance import Chance
from simulation.objects import ALIYUN, CARD_NAME, COMPANY, KOORDINATOR, MEMORY, MIB, TILES_OF_A_CARD, VENDOR

ACTIVE = 60.0
"""Seconds in which things happen at most; the last fault ends with them."""

REPLICAS = ("extender-a", "extender-b")
LONGEST_LATE = 6.0


@dataclass(frozen=True, slots=True)
class Step:
    """One act of the outside world: the method of `World` that is called, and its arguments."""

    at: float
    act: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.act}({', '.join(map(repr, self.args))})"


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole history.

    nodes     the cards of each node
    webhooks  whether the API server has Bindings and new pods reviewed
    active    seconds in which things happen
    plugins   whether the nodes have device plugins
    mixed     whether pods may ask in the words of other systems than Intel's
    preemption  whether pods have priorities, and more important ones evict others
    page      most objects that the API server puts on a page of a list; 0: as many as clients ask for
    scenario  faults that belong together; empty if there are none
    eager     whether the scheduler tries refused pods again and again, without a reason
    """

    seed: int
    nodes: tuple[tuple[int, ...], ...]
    webhooks: bool
    steps: tuple[Step, ...]
    active: float = ACTIVE
    eager: bool = False
    plugins: bool = False
    mixed: bool = False
    preemption: bool = False
    page: int = 0
    scenario: str = ""

    @property
    def has_faults(self) -> bool:
        """True if anything fails, beside what users do."""
        return any(step.act not in _BY_USERS for step in self.steps)


_BY_USERS = (
    "create_pod",
    "create_share",
    "create_in_words",
    "delete_pod",
    "touch_pod",
    "edit_pod",
    "bind_by_hand",
)


def make_plan(seed: int, *, faults: bool = True) -> Plan:
    """Return the plan of a seed: a crowded cluster more often than not, so that every card given twice shows."""
    chance = Chance(seed, "plan")
    crowded = chance.happens(0.6)
    sizes = (2, 2) if crowded else (3, 4)
    nodes = tuple(tuple(range(chance.whole(1, sizes[1]))) for _ in range(chance.whole(1, sizes[0])))
    scenario = chance.one_of(_SCENARIOS) if faults and chance.happens(0.7) else None
    webhooks = chance.happens(0.4) or scenario is _reviewed
    active = 45.0 if scenario is not None else chance.one_of((15.0, 25.0, 40.0))
    steps: list[Step] = []
    names: list[str] = []
    for index in range(chance.whole(12, 30) if crowded else chance.whole(8, 30)):
        steps += _pod(chance, index, names, len(nodes), active, crowded=crowded)
    if scenario is not None:
        steps += scenario(chance, active, names, len(nodes))
    if faults and chance.happens(0.7):
        # Most histories have few kinds of faults, so that each gets deep.
        kinds = [each for each in _FAULTS if chance.happens(0.2)]
        for _ in range(chance.whole(1, 8) if kinds else 0):
            kind = chance.one_of(kinds)
            at = chance.between(2.0, active - 1.0)
            steps.append(Step(at, *_fault(chance, kind, active - at, len(nodes))))
    steps = [step for step in steps if step.at < active]
    steps.sort(key=lambda step: step.at)
    # A scheduler that asks again without a reason would hide that no replica gives it one.
    eager = crowded and scenario is not _refused_and_forgotten and chance.happens(0.5)
    plugins = scenario is _devices or (scenario is not _company and chance.happens(0.2))
    mixed = scenario is _company or (not plugins and chance.happens(0.3))
    if mixed and scenario is not _company:
        finer = chance.stream("parts").happens(0.5)
        steps += [step for index in range(chance.whole(6, 16)) for step in _share(chance, index, active, finer=finer)]
        steps.sort(key=lambda step: step.at)
    # Scenarios are tuned so that what they are about shows; more kinds of pods would hide it.
    words, fine = chance.stream("words"), chance.stream("fine")
    if scenario is None and not plugins and words.happens(0.6):
        mixed = True
        steps += [step for index in range(words.whole(6, 16)) for step in _in_words(words, index, active)]
        steps.sort(key=lambda step: step.at)
    if scenario is None and fine.happens(0.6):
        _make_finer(fine, steps)
    preemption = chance.stream("preemption").happens(0.2)
    pages = chance.stream("limits")
    return Plan(
        seed,
        nodes,
        webhooks,
        tuple(steps),
        active,
        eager,
        plugins,
        mixed,
        preemption,
        pages.whole(1, 4) if pages.happens(0.15) else 0,
        scenario.__name__.strip("_") if scenario is not None else "",
    )


def _shape(chance: Chance) -> dict[str, int]:
    """Return what one container asks for."""
    cards = chance.weighted(((8, 1), (2, 2), (1, 3), (0.5, 0)))
    if not cards:
        return {}
    asks = {"i915": cards}
    if chance.happens(0.8):
        asks["millicores"] = cards * chance.one_of((100, 250, 334, 500, 600, 1000))
    if chance.happens(0.6):
        asks["memory.max"] = cards * chance.one_of((MEMORY // 8, MEMORY // 4, MEMORY // 2, MEMORY // 3, MEMORY))
    return asks


def _pod(chance: Chance, index: int, names: list[str], nodes: int, active: float, *, crowded: bool) -> list[Step]:
    """Return the life of one pod."""
    at = chance.between(0.0, active - 5.0)
    again = bool(names) and chance.happens(0.1)
    name = chance.one_of(names) if again else f"p{index}"
    names.append(name)
    containers = [_shape(chance) for _ in range(chance.weighted(((7, 1), (2, 2), (1, 3))))]
    if crowded and chance.happens(0.6):
        containers = [{"i915": 1, "millicores": chance.one_of((500, 600, 1000))}]
    if not any(containers):
        containers[0] = {"i915": 1}
    init = [_shape(chance)] if chance.happens(0.08) else []
    run = round(chance.between(1.0, active), 3) if chance.happens(0.4) else None
    found = [Step(at, "create_pod", (name, containers, init, run))]
    if chance.happens(0.5):
        after = at + chance.delay(active / 4)
        if after < active:
            found.append(Step(after, "delete_pod", (name, chance.happens(0.3))))
    if chance.happens(0.1):
        found.append(Step(at + chance.delay(6.0), "touch_pod", (name,)))
    if chance.happens(0.05):
        found.append(Step(at + chance.delay(8.0), "edit_pod", (name,)))
    if chance.happens(0.08):
        node = f"n{chance.whole(0, nodes - 1)}"
        found.append(Step(at + chance.delay(1.0), "bind_by_hand", (name, node)))
    return found


def _share(chance: Chance, index: int, active: float, *, finer: bool) -> list[Step]:
    """Return the life of one pod in KubeShare's words, which asks for a part of a thousandth if it is ``finer``."""
    at = chance.between(0.0, active - 5.0)
    labels = {name: chance.one_of(("a", "b")) for name in COMPANY if chance.happens(0.3)}
    if chance.happens(0.3):
        labels[CARD_NAME] = chance.one_of(("x", "y"))
    part = chance.one_of((250, 250, 333, 500, 1000)) - (0.4 if finer else 0)
    memory = chance.one_of((0, 0, MEMORY // 4))
    run = round(chance.between(1.0, active), 3) if chance.happens(0.5) else None
    steps = [Step(at, "create_share", (f"s{index}", part, memory, labels, run))]
    if chance.happens(0.4):
        steps.append(Step(at + chance.delay(active / 4), "delete_pod", (f"s{index}", chance.happens(0.3))))
    return [step for step in steps if step.at < active]


def _in_words(chance: Chance, index: int, active: float) -> list[Step]:
    """Return the life of one pod in the words of Aliyun, Koordinator or a vendor."""
    at = chance.between(0.0, active - 5.0)
    containers = [_other_shape(chance, chance.one_of(("aliyun", "koordinator", "koordinator", "vendor")))]
    if chance.happens(0.2):
        containers.append(dict(containers[0]))
    run = round(chance.between(1.0, active), 3) if chance.happens(0.6) else None
    steps = [Step(at, "create_in_words", (f"w{index}", containers, run))]
    if chance.happens(0.4):
        steps.append(Step(at + chance.delay(active / 4), "delete_pod", (f"w{index}", chance.happens(0.3))))
    return [step for step in steps if step.at < active]


def _other_shape(chance: Chance, words: str) -> dict[str, int]:
    """Return what one container asks for in other words than Intel's, by full names."""
    cards = chance.one_of((1, 1, 2))
    if words == "vendor":
        return {VENDOR: cards}
    if words == "aliyun":
        return {ALIYUN + "gpu-mem": MEMORY // MIB // chance.one_of((1, 2, 3, 5, 8))}
    asks = {"gpu.shared": cards}
    if chance.happens(0.5):
        asks["gpu-memory-ratio"] = cards * chance.one_of((10, 33, 50, 100))
    else:
        asks["gpu-memory"] = cards * MEMORY // chance.one_of((2, 3, 8)) - chance.whole(0, 1)
    if chance.happens(0.7):
        asks["gpu-core"] = cards * chance.one_of((7, 25, 50, 60, 100))
    return {KOORDINATOR + name: amount for name, amount in asks.items()}


def _make_finer(chance: Chance, steps: list[Step]) -> None:
    """Let containers also ask for tiles, and for amounts of which their cards cannot have equal parts."""
    for containers in (each for step in steps if step.act == "create_pod" for each in step.args[1:3]):
        for asks in containers:
            if (cards := asks.get("i915", 0)) and chance.happens(0.4):
                asks["tiles"] = chance.whole(1, TILES_OF_A_CARD * cards)
            if "memory.max" in asks and chance.happens(0.4):
                asks["memory.max"] -= 1
    # Containers that share a card, and must not share a tile.
    for step in steps:
        if step.act == "create_pod" and len(step.args[1]) > 1 and chance.happens(0.4):
            step.args[1][:] = [{"i915": 1, "tiles": 1} for _ in step.args[1]]


# Scenarios: several faults that make each other worse. The leader is known only when a step is taken.

Scenario = Callable[[Chance, float, list[str], int], list[Step]]


def _start(chance: Chance) -> float:
    return round(chance.between(2.0, 12.0), 3)


def _isolated(chance: Chance, active: float, names: list[str], _nodes: int) -> list[Step]:
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


def _no_renewals(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Let the leader bind, late, while it cannot renew its Lease."""
    at = _start(chance)
    left = active - at
    late = chance.between(5.0, 8.0)
    return [
        Step(at, "late_bindings", (late, late + 2.0, left)),
        Step(at, "condition", ({"clients": "leader", "path": "/leases/", "cut": 1.0}, min(30.0, left))),
    ]


def _slow_renewals(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Let the responses to the leader's last renewals come late, and no later renewal succeed."""
    at = _start(chance)
    cut = at + chance.between(4.0, 8.0)
    return [
        Step(at, "condition", ({"clients": "leader", "path": "/leases/", "hold": chance.between(2.0, 4.8)}, cut - at)),
        Step(cut, "condition", ({"clients": "leader", "path": "/leases/", "cut": 1.0}, active - cut)),
    ]


def _blind_binds(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Lose responses to Bindings while watches are late."""
    at = _start(chance)
    left = min(active - at, 20.0)
    kind = chance.one_of(("lost", "silent"))
    return [
        *(Step(at, "delay_watches", (name, chance.between(4.0, 12.0), left)) for name in REPLICAS),
        Step(at, "condition", ({"clients": "extender", "path": "/binding", kind: chance.between(0.3, 1.0)}, left)),
    ]


def _late_bindings(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Write Bindings at about the moment at which the extender gives them up."""
    at = _start(chance)
    return [Step(at, "late_bindings", (3.8, 4.5, min(active - at, 25.0)))]


def _handed_over(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Stop the leader again and again, while watches are late."""
    at = _start(chance)
    left = active - at
    steps = [Step(at, "delay_watches", (name, chance.between(2.0, 12.0), left)) for name in REPLICAS]
    while at < active - 5.0:
        steps.append(Step(at, "stop_extender", ("leader", 1.0)))
        at += chance.between(3.0, 8.0)
    return steps


def _reviewed(chance: Chance, active: float, names: list[str], nodes: int) -> list[Step]:
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


def _at_bindings(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
    """Let users act on pods right before their Bindings are written, and lose responses to those."""
    steps = [Step(chance.between(0.0, 20.0), "act_at_binding", (act, 4)) for act in ("swap", "bind", "delete")]
    at = chance.between(0.0, 20.0)
    if chance.happens(0.7):
        fields = {"clients": "extender", "path": "/binding", chance.one_of(("lost", "silent")): 0.7}
        steps.append(Step(at, "condition", (fields, active - at - 5.0)))
    return steps


def _old_reads(chance: Chance, active: float, names: list[str], _nodes: int) -> list[Step]:
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


def _refused_and_forgotten(chance: Chance, active: float, names: list[str], _nodes: int) -> list[Step]:
    """Have pods refused because the leader does not see yet that others are gone; then end the leader."""
    at = active - chance.between(4.0, 8.0)
    steps = [Step(at - 0.5, "delay_watches", ("leader", 20.0, 6.0))]
    steps += [Step(at + chance.between(0.0, 0.4), "delete_pod", (name, True)) for name in dict.fromkeys(names)]
    return [*steps, Step(at + 1.5, chance.one_of(("kill_now", "stop_extender")), ("leader", 1.0))]


def _devices(chance: Chance, active: float, names: list[str], nodes: int) -> list[Step]:
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


def _company(chance: Chance, active: float, _names: list[str], _nodes: int) -> list[Step]:
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


_SCENARIOS: tuple[Scenario, ...] = (
    _isolated,
    _no_renewals,
    _slow_renewals,
    _blind_binds,
    _late_bindings,
    _handed_over,
    _reviewed,
    _at_bindings,
    _old_reads,
    _refused_and_forgotten,
    _devices,
    _company,
)

_FAULTS = (
    "kill",
    "pause",
    "outage",
    "forbid",
    "throttle",
    "compact",
    "history",
    "slow",
    "lost",
    "cut",
    "late",
    "clock",
    "break_watches",
    "quiet_watches",
    "repeated_events",
    "no_bookmarks",
    "kubelet",
    "plugin",
    "scheduler",
    "cards",
    "node_gone",
    "relabel",
)


def _fault(chance: Chance, kind: str, left: float, nodes: int) -> tuple[str, tuple[Any, ...]]:
    """Return the name and the arguments of a fault that ends within ``left`` seconds."""

    def lasting(mean: float) -> float:
        return round(min(0.2 + chance.delay(mean), left), 3)

    replica = chance.one_of(REPLICAS)
    node = f"n{chance.whole(0, nodes - 1)}"
    match kind:
        case "kill":
            return "kill_extender", (replica, chance.whole(0, 6), chance.happens(0.5), lasting(4.0))
        case "pause":
            return "pause_extender", (replica, lasting(12.0))
        case "outage":
            return "api_outage", (lasting(6.0),)
        case "forbid":
            return "forbid", (chance.one_of((*REPLICAS, "extender", "scheduler")), lasting(8.0))
        case "throttle":
            return "throttle", (lasting(6.0),)
        case "slow":
            client = chance.one_of((*REPLICAS, "", "scheduler"))
            return "condition", ({"clients": client, "delay": round(chance.between(0.05, 2.0), 3)}, lasting(8.0))
        case "lost":
            kind = chance.one_of(("lost", "silent"))
            client = chance.one_of((*REPLICAS, "extender", ""))
            return "condition", ({"clients": client, kind: round(chance.between(0.1, 0.9), 3)}, lasting(8.0))
        case "cut":
            client = chance.one_of((*REPLICAS, "scheduler", "api", ""))
            return "condition", ({"clients": client, "cut": round(chance.between(0.2, 1.0), 3)}, lasting(10.0))
        case "late":
            return "late_writes", (round(chance.between(0.5, LONGEST_LATE), 3), lasting(8.0))
        case "clock":
            return "jump_clock", (replica, round(chance.between(-90.0, 90.0), 3))
        case "history":
            return "lose_history", (chance.one_of((*REPLICAS, "extender")), lasting(4.0))
        case "kubelet":
            return "restart_kubelet", (node, lasting(4.0))
        case "plugin":
            return "restart_plugin", (node, lasting(4.0))
        case "scheduler":
            return "restart_scheduler", (lasting(4.0),)
        case "cards":
            return "change_cards", (node, chance.whole(0, 4), lasting(15.0))
        case "node_gone":
            return "remove_node", (node, lasting(8.0))
        case "relabel":
            return "relabel_node", (node,)
        case "repeated_events":
            return "repeat_events", (replica, round(chance.between(0.2, 1.0), 3), lasting(10.0))
        case "no_bookmarks":
            return "omit_bookmarks", (replica, left)
        case "quiet_watches":
            return "delay_watches", (replica, round(chance.between(0.5, 10.0), 3), lasting(10.0))
    return kind, ()
