"""Make the plan of a seed: nodes, pods, and faults one by one or as scenarios."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from simulation import objects
from simulation.chance import Chance
from simulation.plan import REPLICAS, Plan, Step
from simulation.scenarios import (
    QUIET,
    SCENARIOS,
    VOLUMES,
    company,
    devices,
    pod_groups,
    refused_and_forgotten,
    reviewed,
    volume,
)

LONGEST_LATE = 6.0  # most seconds by which a write is late


def make_plan(seed: int) -> Plan:
    """Return the plan of a seed: a crowded cluster more often than not, so that every card given twice shows."""
    chance = Chance(seed, "plan")
    if (volumes := chance.stream("volumes")).happens(0.12):
        make = volumes.stream("burst").weighted(VOLUMES)
        return replace(make(volumes), seed=seed, scenario=make.__name__)
    if chance.stream("quiet").happens(0.15):
        quiet = chance.stream("quiet kind")
        make = quiet.one_of(QUIET)
        return replace(make(quiet), seed=seed, scenario=make.__name__)
    if (groups := chance.stream("PodGroups")).happens(0.1):
        return replace(pod_groups(groups), seed=seed, scenario=pod_groups.__name__)
    crowded = chance.happens(0.6)
    sizes = (2, 2) if crowded else (3, 4)
    nodes = tuple(tuple(range(chance.whole(1, sizes[1]))) for _ in range(chance.whole(1, sizes[0])))
    scenario = chance.one_of(SCENARIOS) if chance.happens(0.7) else None
    webhooks = chance.happens(0.4) or scenario is reviewed
    active = 45.0 if scenario is not None else chance.one_of((15.0, 25.0, 40.0))
    steps: list[Step] = []
    names: list[str] = []
    for index in range(chance.whole(12, 30) if crowded else chance.whole(8, 30)):
        steps += _pod(chance, index, names, len(nodes), active, crowded=crowded)
    if scenario is not None:
        steps += scenario(chance, active, names, len(nodes))
    if chance.happens(0.7):
        # Most histories have few kinds of faults, so that each kind occurs often.
        kinds = [each for each in _FAULTS if chance.happens(0.2)]
        for _ in range(chance.whole(1, 8) if kinds else 0):
            kind = chance.one_of(kinds)
            at = chance.between(2.0, active - 1.0)
            act, arguments = _FAULTS[kind]
            replica, node = chance.one_of(REPLICAS), f"n{chance.whole(0, len(nodes) - 1)}"
            steps.append(Step(at, act, arguments(_Draw(chance, active - at, replica, node))))
    steps = [step for step in steps if step.at < active]
    steps.sort(key=lambda step: step.at)
    # A scheduler that retries without a reason would hide that no replica gives it one.
    eager = crowded and scenario is not refused_and_forgotten and chance.happens(0.5)
    plugins = scenario is devices or (scenario is not company and chance.happens(0.2))
    mixed = scenario is company or (not plugins and chance.happens(0.3))
    if mixed and scenario is not company:
        finer = chance.stream("parts").happens(0.5)
        steps += [step for index in range(chance.whole(6, 16)) for step in _share(chance, index, active, finer=finer)]
        steps.sort(key=lambda step: step.at)
    # Scenarios are tuned to show one problem; more kinds of pods would hide it.
    words, fine = chance.stream("words"), chance.stream("fine")
    if scenario is None and not plugins and words.happens(0.6):
        mixed = True
        steps += [step for index in range(words.whole(6, 16)) for step in _in_words(words, index, active)]
        steps.sort(key=lambda step: step.at)
    if scenario is None and fine.happens(0.6):
        _make_finer(fine, steps)
    preemption = chance.stream("preemption").happens(0.2)
    pages = chance.stream("limits")
    plan = Plan(
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
        scenario.__name__ if scenario is not None else "",
    )
    return _with_more_kinds(plan, chance)


def _with_more_kinds(plan: Plan, chance: Chance) -> Plan:
    """Return a plan with what was added later, by chances of its own: other plans stay as they were."""
    if not plan.scenario:
        plan = _with_features(plan, chance.stream("features"))
    writes = chance.stream("written nodes")
    if plan.plugins and "NUMA nodes" not in plan.features and writes.happens(0.6):
        plan = _with_written_nodes(plan, writes)
    lists = chance.stream("lists")
    if plan.has_faults and lists.happens(0.3):
        plan = _with_slow_lists(plan, lists)
    late = chance.stream("late volumes")
    if late.happens(0.15):
        plan = _with_late_volumes(plan, late)
    sharepods = chance.stream("SharePods")
    has_sharepods = plan.mixed and plan.scenario != company.__name__ and sharepods.happens(0.3)
    return _with_sharepods(plan, sharepods) if has_sharepods else plan


def make_large_plan(seed: int, nodes: int = 15_000) -> Plan:
    """Return a plan of a large cluster without kubelets. Most nodes are full of pods at first, of which some end."""
    chance, active = Chance(seed, "large"), 30.0
    names = [f"n{chance.whole(0, nodes - 1)}-{chance.whole(0, 3)}" for _ in range(300)]
    steps = [Step(chance.between(0.0, active), "delete_pod", (name, True)) for name in names]
    for index in range(300):
        steps += _pod(chance, index, names, nodes, active, crowded=True)
    make = chance.one_of([each for each in SCENARIOS if each not in (company, devices, reviewed)])
    steps = sorted(steps + make(chance, active, names[:1], nodes), key=lambda step: step.at)
    cards = (tuple(range(8)),) * nodes
    return Plan(seed, cards, False, tuple(steps), active, placed=4, scenario=make.__name__)


FEATURES = (
    *("namespaces", "one replica", "ignorable", "lists", "host resources"),
    *("budgets", "NUMA nodes", "disabled cards", "plugins", "pods bound by others", "calm", "scores"),
)
"""What few histories have. With budgets and NUMA nodes nothing fails, as in calm ones."""


def _with_features(plan: Plan, chance: Chance) -> Plan:
    features = frozenset(name for name in FEATURES if chance.happens(0.25))
    steps = list(plan.steps)
    if not features.isdisjoint(("budgets", "NUMA nodes", "calm")):
        steps = [step for step in steps if step.is_by_users]
    if "ignorable" in features and "budgets" not in features:
        # Pods come in bursts, so that a bind fails if filters do not wait for those before.
        steps = [replace(step, at=step.at // 5 * 5) if step.act == "create_pod" else step for step in steps]
    active = plan.active
    if "budgets" in features:  # pods that need others to leave, while nothing else happens
        for index in range(10):
            asks = {"i915": 1, "millicores": chance.one_of((500, 500, 1000))}
            steps.append(Step(active + 1.5 * index, "create_pod", (f"b{index}", [asks], [], None)))
        active += 15.0
    plugins = plan.plugins or ("plugins" in features and not plan.mixed)
    if plugins:
        _make_finer(chance, steps)
    steps = [_with_more(step, features, chance) if step.act == "create_pod" else step for step in steps]
    if "pods bound by others" in features:
        by_others = [step for step in steps if step.act == "create_pod" and chance.happens(0.25)]
        node = f"n{chance.whole(0, len(plan.nodes) - 1)}"
        steps += [Step(step.at + 0.001, "bind_by_hand", (step.args[0], node)) for step in by_others]
    for index, cards in enumerate(plan.nodes):
        node = f"n{index}"
        if "NUMA nodes" in features:
            steps.append(Step(-1.0, "label_node", (node, objects.numa_label(cards))))
        if "disabled cards" in features:
            at = chance.between(0.0, plan.active)
            label = f"{objects.DISABLED}card{chance.one_of(cards)}"
            steps += [Step(at, "label_node", (node, {label: "true"}))]
            steps += [Step(chance.between(at, plan.active), "label_node", (node, {label: None}))]
    steps.sort(key=lambda step: step.at)
    preemption = plan.preemption or "budgets" in features
    changed = replace(plan, steps=tuple(steps), plugins=plugins, preemption=preemption)
    return replace(changed, active=active, features=features)


def _with_more(step: Step, features: Collection[str], chance: Chance) -> Step:
    """Return the creation of a pod, with what features add to it."""
    name, containers, init, run = step.args
    cards = [f"card{number}" for number in range(4) if chance.happens(0.6)]
    rules = {objects.ALLOW: ",".join(cards) or "card0", objects.DENY: ",".join(cards[:2])}
    if "lists" not in features:
        rules = {}
    if "NUMA nodes" in features:
        rules[objects.SINGLE_NUMA] = "true"
    if "host resources" in features:
        containers = [each | {objects.CPU: chance.one_of((100, 250, 400))} for each in containers]
    if "plugins" in features and chance.happens(0.4):
        init, run = [{"i915": 1, "millicores": chance.one_of((100, 600))} for _ in range(2)], None
    elif "plugins" in features and chance.happens(0.4):
        containers = [{"i915": 2, "tiles": chance.whole(2, 2 * objects.TILES_OF_A_CARD)}]
    return replace(
        step, args=(name, containers, init, run, {rule: rules[rule] for rule in rules if chance.happens(0.5)})
    )


def _with_written_nodes(plan: Plan, chance: Chance) -> Plan:
    """Return a plan in which device plugins write what nodes have, and users spoil it if anything fails."""
    # A plugin remembers a missing card for longer than most histories last.
    steps = [step for step in plan.steps if step.act != "change_cards"]
    times = [chance.between(0.0, plan.active) for _ in range(chance.whole(0, 4))]
    for at in (*times, plan.active - 1.0) if plan.has_faults else ():
        node = f"n{chance.whole(0, len(plan.nodes) - 1)}"
        what, again = (chance.one_of(("labels", "annotations", "amounts", "all")) for _ in range(2))
        steps.append(Step(at, "spoil_node", (node, what, again if chance.happens(0.5) else "")))
        if chance.happens(0.5):
            steps.append(Step(at, "forbid", ("plugin", chance.delay(2.0))))
    steps.sort(key=lambda step: step.at)
    return replace(plan, steps=tuple(steps), features=plan.features | {"written nodes"})


def _with_slow_lists(plan: Plan, chance: Chance) -> Plan:
    """Return a plan in which lists arrive after responses about pods that they do not have yet."""
    steps = list(plan.steps)
    for number in range(chance.whole(1, 3)):
        at, pause = chance.between(2.0, plan.active - 8.0), chance.between(2.0, 4.0)
        steps.append(Step(at, "slow_lists", (pause, 1.0)))
        steps.append(Step(at, "lose_history", ("extender", 0.2)))
        steps.append(Step(at + 0.6, "condition", ({"clients": "extender", "lost": 0.4}, pause)))
        for index in range(4):
            asks = {"i915": 1, "millicores": 1000}
            born = at + chance.between(0.5, pause)
            steps.append(Step(born, "create_pod", (f"l{number}{index}", [asks], [], None)))
    steps.sort(key=lambda step: step.at)
    return replace(plan, steps=tuple(steps))


def _with_late_volumes(plan: Plan, chance: Chance) -> Plan:
    """Return a plan in which some pods have volumes that are made once their nodes are chosen."""
    steps = list(plan.steps)
    for at, step in enumerate(steps):
        if step.act == "create_pod" and chance.happens(0.4):
            name, containers, init, run, *annotations = step.args
            rules = (annotations[0] if annotations else None) or {}
            steps[at] = replace(step, args=(name, containers, init, run, rules | volume(chance)))
    return replace(plan, steps=tuple(steps), features=plan.features | {"late volumes"})


def _with_sharepods(plan: Plan, chance: Chance) -> Plan:
    """Return a plan with SharePods, of which some cannot be made, lose their pods, or come when theirs is not gone."""
    steps = list(plan.steps)
    for index in range(100, 100 + chance.whole(4, 10)):
        share, *lost = _share(chance, index, plan.active, finer=False)
        name, part, memory, labels, run = share.args
        part = 1500 if chance.happens(0.1) else part
        run = round(chance.between(0.5, 5.0), 3) if chance.happens(0.5) else run
        policy = chance.one_of(("Always", "OnFailure", "Never"))
        created = Step(share.at, "create_sharepod", (name, part, memory, labels, run, policy))
        more = [created, *lost]
        if chance.happens(0.1):
            more.append(Step(created.at - 0.5, "create_pod", (name, [{"i915": 1}], [], None)))
        if chance.happens(0.3):
            more.append(Step(created.at + chance.delay(8.0), "evict_pod", (name,)))
        if chance.happens(0.4):
            more.append(Step(plan.active - chance.between(0.0, 5.0), "delete_pod", (name, True)))
        if chance.happens(0.4):
            gone = created.at + chance.delay(plan.active / 3)
            more.append(Step(gone, "delete_sharepod", (name,)))
            if chance.happens(0.6):
                more.append(replace(created, at=gone + chance.delay(1.0)))
        steps += [step for step in more if step.at < plan.active]
    steps.sort(key=lambda step: step.at)
    return replace(plan, steps=tuple(steps), features=plan.features | {"SharePods"})


def _shape(chance: Chance) -> dict[str, int]:
    cards = chance.weighted(((8, 1), (2, 2), (1, 3), (0.5, 0)))
    if not cards:
        return {}
    asks = {"i915": cards}
    if chance.happens(0.8):
        asks["millicores"] = cards * chance.one_of((100, 250, 334, 500, 600, 1000))
    if chance.happens(0.6):
        asks["memory.max"] = cards * chance.one_of(
            (objects.MEMORY // 8, objects.MEMORY // 4, objects.MEMORY // 2, objects.MEMORY // 3, objects.MEMORY)
        )
    return asks


def _pod(chance: Chance, index: int, names: list[str], nodes: int, active: float, *, crowded: bool) -> list[Step]:
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
    """Return the life of one pod of KubeShare's, which asks for a part of a thousandth if it is ``finer``."""
    at = chance.between(0.0, active - 5.0)
    labels = {name: chance.one_of(("a", "b")) for name in objects.COMPANY if chance.happens(0.3)}
    if chance.happens(0.3):
        labels[objects.CARD_NAME] = chance.one_of(("x", "y"))
    part = chance.one_of((250, 250, 333, 500, 1000)) - (0.4 if finer else 0)
    memory = chance.one_of((0, 0, objects.MEMORY // 4))
    run = round(chance.between(1.0, active), 3) if chance.happens(0.5) else None
    return _ended(chance, active, Step(at, "create_share", (f"s{index}", part, memory, labels, run)))


def _in_words(chance: Chance, index: int, active: float) -> list[Step]:
    """Return the life of one pod of Aliyun's, Koordinator's or a vendor's vocabulary."""
    at = chance.between(0.0, active - 5.0)
    containers = [_other_shape(chance, chance.one_of(("aliyun", "koordinator", "koordinator", "vendor")))]
    if chance.happens(0.2):
        containers.append(dict(containers[0]))
    run = round(chance.between(1.0, active), 3) if chance.happens(0.6) else None
    return _ended(chance, active, Step(at, "create_in_words", (f"w{index}", containers, run)))


def _ended(chance: Chance, active: float, created: Step) -> list[Step]:
    """Return the creation of a pod and, for some, its deletion."""
    steps = [created]
    if chance.happens(0.4):
        deleted = created.at + chance.delay(active / 4)
        steps.append(Step(deleted, "delete_pod", (created.args[0], chance.happens(0.3))))
    return [step for step in steps if step.at < active]


def _other_shape(chance: Chance, words: str) -> dict[str, int]:
    """Return the amounts of one container in another vocabulary than Intel's, by full names."""
    cards = chance.one_of((1, 1, 2))
    if words == "vendor":
        return {objects.VENDOR: cards}
    if words == "aliyun":
        return {objects.ALIYUN + "gpu-mem": objects.MEMORY // objects.MIB // chance.one_of((1, 2, 3, 5, 8))}
    asks = {"gpu.shared": cards}
    if chance.happens(0.5):
        asks["gpu-memory-ratio"] = cards * chance.one_of((10, 33, 50, 100))
    else:
        asks["gpu-memory"] = cards * objects.MEMORY // chance.one_of((2, 3, 8)) - chance.whole(0, 1)
    if chance.happens(0.7):
        asks["gpu-core"] = cards * chance.one_of((7, 25, 50, 60, 100))
    return {objects.KOORDINATOR + name: amount for name, amount in asks.items()}


def _make_finer(chance: Chance, steps: list[Step]) -> None:
    """Let containers also ask for tiles, and for amounts of which their cards cannot have equal parts."""
    for containers in (each for step in steps if step.act == "create_pod" for each in step.args[1:3]):
        for asks in containers:
            if (cards := asks.get("i915", 0)) and chance.happens(0.4):
                asks["tiles"] = chance.whole(1, objects.TILES_OF_A_CARD * cards)
            if "memory.max" in asks and chance.happens(0.4):
                asks["memory.max"] -= 1
    # These containers share a card, and must not share a tile.
    for step in steps:
        if step.act == "create_pod" and len(step.args[1]) > 1 and chance.happens(0.4):
            step.args[1][:] = [{"i915": 1, "tiles": 1} for _ in step.args[1]]


@dataclass(frozen=True, slots=True)
class _Draw:
    """Draw the arguments of a fault that ends within ``left`` seconds."""

    chance: Chance
    left: float
    replica: str
    node: str

    def lasting(self, mean: float) -> float:
        return round(min(0.2 + self.chance.delay(mean), self.left), 3)

    def number(self, low: float, high: float) -> float:
        return round(self.chance.between(low, high), 3)

    def condition(self, kind: str, client: str, low: float, high: float, mean: float) -> tuple[Any, ...]:
        return {"clients": client, kind: self.number(low, high)}, self.lasting(mean)


_FAULTS: Mapping[str, tuple[str, Callable[[_Draw], tuple[Any, ...]]]] = {
    "kill": ("kill_extender", lambda d: (d.replica, d.chance.whole(0, 6), d.chance.happens(0.5), d.lasting(4.0))),
    "pause": ("pause_extender", lambda d: (d.replica, d.lasting(12.0))),
    "outage": ("api_outage", lambda d: (d.lasting(6.0),)),
    "forbid": ("forbid", lambda d: (d.chance.one_of((*REPLICAS, "extender", "scheduler")), d.lasting(8.0))),
    "throttle": ("throttle", lambda d: (d.lasting(6.0),)),
    "compact": ("compact", lambda _: ()),
    "history": ("lose_history", lambda d: (d.chance.one_of((*REPLICAS, "extender", "plugin")), d.lasting(4.0))),
    "slow": (
        "condition",
        lambda d: d.condition("delay", d.chance.one_of((*REPLICAS, "", "scheduler")), 0.05, 2.0, 8.0),
    ),
    "lost": (
        "condition",
        lambda d: d.condition(
            d.chance.one_of(("lost", "silent", "failed")), d.chance.one_of((*REPLICAS, "extender", "")), 0.1, 0.9, 8.0
        ),
    ),
    "cut": (
        "condition",
        lambda d: d.condition("cut", d.chance.one_of((*REPLICAS, "scheduler", "api", "")), 0.2, 1.0, 10.0),
    ),
    "late": ("late_writes", lambda d: (d.number(0.5, LONGEST_LATE), d.lasting(8.0))),
    "clock": ("jump_clock", lambda d: (d.replica, d.number(-90.0, 90.0))),
    "break_watches": ("break_watches", lambda _: ()),
    "quiet_watches": ("delay_watches", lambda d: (d.replica, d.number(0.5, 10.0), d.lasting(10.0))),
    "repeated_events": ("repeat_events", lambda d: (d.replica, d.number(0.2, 1.0), d.lasting(10.0))),
    "no_bookmarks": ("omit_bookmarks", lambda d: (d.replica, d.left)),
    "kubelet": ("restart_kubelet", lambda d: (d.node, d.lasting(4.0))),
    "plugin": ("restart_plugin", lambda d: (d.node, d.lasting(4.0))),
    "scheduler": ("restart_scheduler", lambda d: (d.lasting(4.0),)),
    "cards": ("change_cards", lambda d: (d.node, d.chance.whole(0, 4), d.lasting(15.0))),
    "node_gone": ("remove_node", lambda d: (d.node, d.lasting(8.0))),
    "relabel": ("relabel_node", lambda d: (d.node,)),
}
"""By kind of fault, its act, and how its arguments are drawn."""
