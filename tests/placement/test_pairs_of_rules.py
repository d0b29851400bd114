"""Every rule with every other one, against brute force: a pod is placed if and only if it fits, and keeps all rules."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, combinations_with_replacement
from random import Random
from typing import Any

import pytest

from gas.placement.choice import Choice
from gas.placement.inventory import Company, Inventory, Link, Usage
from gas.placement.need import ContainerNeed, PodNeed, Role, Scope
from gas.placement.order import (
    NATURAL,
    BestFit,
    FewestContainers,
    LeastUsed,
    LeastUsedParts,
    LeastWaste,
    MostUsedParts,
    UsedFirst,
)
from gas.placement.place import place
from gas.placement.ratio import Ratio
from gas.placement.waste import Asked, Mix, Slice
from gas.values.amounts import sorted_amounts
from gas.values.cards import Card, Tile
from tests.placement.brute_force import agrees_with_brute_force

EXAMPLES = int(os.environ.get("PAIR_EXAMPLES", "40"))
"""Nodes and pods for each pair of rules, always the same ones; see docs/development.md."""

MOST_EXAMPLES = 400
"""Among so many, both rules of a pair must matter to some."""

ORDERS = (
    FewestContainers(),
    UsedFirst(),
    LeastUsed("millicores"),
    BestFit("millicores"),
    LeastUsedParts((("i915", 1), ("millicores", 2))),
    MostUsedParts((("i915", 1), ("millicores", 2))),
    LeastWaste(Mix((Asked((Slice(1, (("i915", 1), ("millicores", 2))),), None, 9.0, (("cpu", 36.0),)),))),
)
WITHOUT: Mapping[str, Callable[[PodNeed], PodNeed]] = {
    "order": lambda need: replace(need, order=NATURAL),
    "near": lambda need: replace(need, near=False),
    "affinity": lambda need: replace(need, company=replace(need.company, affinity="")),
    "anti-affinity": lambda need: replace(need, company=replace(need.company, anti_affinity="")),
    "exclusion": lambda need: replace(need, company=replace(need.company, exclusion="")),
    "name": lambda need: replace(need, named=""),
    "one card": lambda need: replace(need, scope=Scope.ANYWHERE, named=""),
    "numa": lambda need: replace(need, scope=Scope.CARD if need.scope is Scope.NUMA_CARD else Scope.ANYWHERE),
    "allow": lambda need: replace(need, allowed=None),
    "deny": lambda need: replace(need, denied=frozenset()),
    "models": lambda need: replace(need, models=frozenset()),
    "other models": lambda need: replace(need, denied_models=frozenset()),
    "idle": lambda need: replace(need, idle=False),
    "unfilled": lambda need: replace(need, unfilled=frozenset()),
    "links": lambda need: replace(need, linked=False),
    "same card": lambda need: replace(need, same_card=frozenset()),
}
"""The need without a rule."""

OF_CONTAINERS = ("tiles", "ratio", "init containers", "sidecars")
IMPOSSIBLE = [
    {"links", "one card"},
    {"links", "name"},
    {"links", "same card"},
    {"tiles", "same card"},
]
"""Pairs that no need can state."""
REDUNDANT = {
    ("one card", "same card"): {"same card"},
    ("name", "same card"): {"same card"},
    ("near", "one card"): {"near"},
    ("near", "name"): {"near"},
    ("name", "one card"): set(),
    ("affinity", "idle"): {"affinity"},
    ("anti-affinity", "idle"): {"anti-affinity"},
    ("exclusion", "idle"): {"exclusion"},
    ("idle", "unfilled"): {"unfilled"},
}
"""By pair, the rules that the other one makes superfluous."""

PAIRS = [pair for pair in combinations_with_replacement([*WITHOUT, *OF_CONTAINERS], 2) if set(pair) not in IMPOSSIBLE]


def some(random: Random, things: Sequence[Any], least: int = 0) -> list[Any]:
    return random.sample(things, random.randint(min(least, len(things)), len(things)))


def node_for(rules: Sequence[str], random: Random) -> tuple[Inventory, Usage]:
    """Return a node of up to 4 cards, on which there is some room and each rule may be in the way."""
    cards = [Card(2 * number) for number in range(random.choice([2, 3, 4, 4]))]
    most = {"i915": 6, "millicores": random.choice([3, 4]), "tiles": 2}
    capacity = {card: most | ({"millicores": 2} if random.random() < 0.2 else {}) for card in cards}
    used = some(random, cards)
    tiles = {card: frozenset([random.randint(0, 1)]) for card in used if random.random() < 0.3}
    labels = ["", "", "a", "b"]
    usage = Usage(
        amounts={
            card: {"i915": 1, "millicores": random.randint(0, 2), "tiles": len(tiles.get(card, ()))} for card in used
        },
        tiles=tiles,
        containers={card: random.randint(1, 2) for card in used},
        company={
            card: frozenset(
                [Company(**{rule: random.choice(labels) for rule in ("affinity", "anti_affinity", "exclusion")})]
            )
            for card in used
            if {"affinity", "anti-affinity", "exclusion"} & set(rules) and random.random() < 0.7
        },
        names={card: frozenset(random.choice("ab")) for card in used if "name" in rules and random.random() < 0.7},
    )
    joined = some(random, list(combinations(cards, 2)), 2 if "links" in rules else 0)
    half = random.randint(1, len(cards) - 1)
    shuffled = random.sample(cards, len(cards))
    inventory = Inventory(
        capacity=capacity,
        disabled=frozenset(random.sample(cards, random.random() < 0.15)),
        closed_tiles={card: frozenset([1]) for card in cards if random.random() < 0.1},
        preferred_card=random.choice([None, None, *cards]),
        numa_groups=random.choice([None, (tuple(shuffled[:half]), tuple(shuffled[half:]))]),
        links=tuple(Link(Tile(one, random.randint(0, 1)), Tile(other, random.randint(0, 1))) for one, other in joined),
        boards=tuple(tuple(cards[at : at + 2]) for at in (0, 2)) if random.random() < 0.5 else (),
        models={card: random.choice(["ab", "bc", "a"]) for card in cards if {"models", "other models"} & set(rules)},
    )
    return inventory, usage


def need_with(rules: Sequence[str], cards: Sequence[Card], random: Random) -> PodNeed:
    """Return a need that has these rules."""
    roles = [Role.APP] * (random.randint(2, 3) if "same card" in rules else random.randint(1, 2))
    if "init containers" in rules:
        roles.insert(0, Role.INIT)
    if "sidecars" in rules:
        roles.insert(random.randint(0, roles.count(Role.INIT)), Role.SIDECAR)
    of = random.choice(["", "i915"])
    one_card = bool({"one card", "name"} & set(rules))
    scope = Scope.CARD if one_card else Scope.ANYWHERE
    if "numa" in rules:
        scope = Scope.NUMA_CARD if one_card else Scope.NUMA
    labels = {
        rule.replace("-", "_"): random.choice("ab")
        for rule in ("affinity", "anti-affinity", "exclusion")
        if rule in rules
    }
    return PodNeed(
        tuple(container_with(rules, role, of, random) for role in roles),
        allowed=frozenset(some(random, cards, 1)) if "allow" in rules else None,
        denied=frozenset(some(random, cards, 1)[:2]) if "deny" in rules else frozenset(),
        same_card=frozenset({len(roles) - 2, len(roles) - 1}) if "same card" in rules else frozenset(),
        linked="links" in rules,
        scope=scope,
        order=random.choice(ORDERS) if "order" in rules else NATURAL,
        near="near" in rules,
        company=Company(**labels),
        named=random.choice("ab") if "name" in rules else "",
        models=frozenset(random.choice("ab")) if "models" in rules else frozenset(),
        denied_models=frozenset(random.choice("ac")) if "other models" in rules else frozenset(),
        idle="idle" in rules,
        unfilled=frozenset({"millicores"}) if "unfilled" in rules else frozenset(),
    )


def container_with(rules: Sequence[str], role: Role, of: str, random: Random) -> ContainerNeed:
    one = {"one card", "name"} & set(rules) or ("same card" in rules and role is Role.APP)
    count = 2 if "links" in rules else 1 if one else random.choice([1, 1, 2])
    per_card = {"i915": 1}
    ratios: tuple[Ratio, ...] = ()
    if "ratio" in rules:
        ratios = (Ratio("millicores", random.choice([25, 34, 50, 100]) if not of else random.randint(0, 2), of),)
    else:
        per_card["millicores"] = random.randint(0, 2)
    if "links" in rules or "tiles" in rules:
        per_card["tiles"] = 1 if "links" in rules else random.randint(1, 2)
    return ContainerNeed("c", count, sorted_amounts(per_card), role, ratios)


def example(rules: Sequence[str], number: int) -> tuple[tuple[Inventory, Usage], PodNeed]:
    random = Random(f"{rules} {number}")
    node = node_for(rules, random)
    return node, need_with(rules, node[0].cards, random)


# contract E6.8
@pytest.mark.parametrize("rules", PAIRS, ids=" and ".join)
def test_every_pair_of_rules_agrees_with_brute_force(rules: tuple[str, str]) -> None:
    for number in range(EXAMPLES):
        node, need = example(rules, number)
        agrees_with_brute_force(node, need)


@pytest.mark.parametrize("rules", PAIRS, ids=" and ".join)
def test_both_rules_of_a_pair_matter_to_some_of_the_examples(rules: tuple[str, str]) -> None:
    """Some pods are placed, some are not, and without either rule some results would be different."""
    expected = {True, False} | (set(rules) & WITHOUT.keys()) - REDUNDANT.get(rules, set())
    seen: Counter[object] = Counter()
    for number in range(MOST_EXAMPLES):
        (inventory, usage), need = example(rules, number)
        result = place(need, inventory, usage)
        seen[isinstance(result, Choice)] += 1
        for rule in set(rules) & WITHOUT.keys():
            other = place(WITHOUT[rule](need), inventory, usage)
            seen[rule] += (isinstance(result, Choice), str(result)) != (isinstance(other, Choice), str(other))
        if all(seen[each] for each in expected):
            return
    pytest.fail(f"never seen: {[each for each in expected if not seen[each]]}")
