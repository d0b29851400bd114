"""Every rule with every other one, against brute force: a pod is placed if and only if it fits, and keeps all rules."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gas.amounts import sorted_amounts
from gas.cards import Card
from gas.placement.company import Company
from gas.placement.inventory import Inventory, Usage
from gas.placement.need import ContainerNeed, PodNeed, Role, Scope
from gas.placement.order import BestFit, FewestContainers, LeastUsed, LeastWaste, UsedFirst
from gas.placement.ratio import Ratio
from tests.placement.strategies import mixes, nodes
from tests.placement.test_laws import agrees_with_brute_force

EXAMPLES = int(os.environ.get("PAIR_EXAMPLES", "6"))
"""Examples of each pair: few, because there are 129 pairs, but other ones in every run. See docs/development.md."""

few = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)

some_cards = st.frozensets(st.integers(0, 14).map(Card), min_size=2, max_size=12)
labels = st.sampled_from(["", "a", "b"])
companies = st.builds(Company, affinity=labels, anti_affinity=labels, exclusion=labels)
FIELDS: Mapping[str, Mapping[str, st.SearchStrategy[Any]]] = {
    "order": {
        "order": st.sampled_from(
            [FewestContainers(), UsedFirst(), LeastUsed("millicores"), LeastUsed("tiles"), BestFit("millicores")]
        )
        | st.builds(LeastWaste, mixes)
    },
    "near": {"near": st.just(True)},
    "affinity": {"company": companies.filter(lambda company: company.affinity)},
    "anti-affinity": {"company": companies.filter(lambda company: company.anti_affinity)},
    "exclusion": {"company": companies.filter(lambda company: company.exclusion)},
    "name": {"scope": st.just(Scope.CARD), "named": st.sampled_from(["a", "b"])},
    "one card": {"scope": st.just(Scope.CARD)},
    "numa": {"scope": st.just(Scope.NUMA)},
    "allow": {"allowed": some_cards},
    "deny": {"denied": some_cards},
    "links": {"linked": st.just(True)},
    "same card": {"same_card": st.just(frozenset({0, 1}))},
}
"""The fields of `PodNeed` that each rule sets."""
OF_CONTAINERS = ("tiles", "ratio", "init containers", "sidecars")
IMPOSSIBLE = [
    {"links", "one card"},
    {"links", "name"},
    {"links", "same card"},
    {"affinity", "anti-affinity"},
    {"affinity", "exclusion"},
    {"anti-affinity", "exclusion"},
    {"tiles", "same card"},
]
"""Pairs that no need can state, and pairs that one field states together."""
PAIRS = [pair for pair in combinations_with_replacement([*FIELDS, *OF_CONTAINERS], 2) if set(pair) not in IMPOSSIBLE]


@st.composite
def needs_with(draw: st.DrawFn, rules: Sequence[str]) -> PodNeed:
    """Draw a need that has these rules."""
    roles = [Role.APP, Role.APP] if "same card" in rules else [Role.APP]
    roles += draw(st.lists(st.just(Role.APP), max_size=2 - len(roles)))
    if "init containers" in rules:
        roles.insert(0, Role.INIT)
    if "sidecars" in rules:
        roles.insert(draw(st.integers(0, roles.count(Role.INIT))), Role.SIDECAR)
    of = draw(st.sampled_from(["", "i915"]))
    containers = tuple(draw(containers_with(rules, role, of)) for role in roles)
    fields = {name: draw(values) for rule in rules for name, values in FIELDS.get(rule, {}).items()}
    if "numa" in rules and {"one card", "name"} & set(rules):
        fields["scope"] = Scope.NUMA_CARD
    if "same card" in rules:
        apps = len(roles) - 2
        fields["same_card"] = frozenset({apps, apps + 1})
    return replace(PodNeed(containers), **fields)


@st.composite
def containers_with(draw: st.DrawFn, rules: Sequence[str], role: Role, of: str) -> ContainerNeed:
    one = {"one card", "name"} & set(rules) or ("same card" in rules and role is Role.APP)
    count = 2 if "links" in rules else 1 if one else draw(st.sampled_from([1, 1, 2]))
    per_card = {"i915": 1}
    ratios: tuple[Ratio, ...] = ()
    if "ratio" in rules:
        ratios = (Ratio("millicores", draw(st.sampled_from([25, 34, 50, 100]) if not of else st.integers(0, 2)), of),)
    else:
        per_card["millicores"] = draw(st.integers(0, 2))
    if "links" in rules or "tiles" in rules:
        per_card["tiles"] = 1 if "links" in rules else draw(st.integers(1, 2))
    return ContainerNeed("c", count, sorted_amounts(per_card), role, ratios)


# contract E6.8
@pytest.mark.parametrize("rules", PAIRS, ids=" and ".join)
@few
@given(data=st.data())
def test_every_pair_of_rules_agrees_with_brute_force(rules: tuple[str, str], data: st.DataObject) -> None:
    node: tuple[Inventory, Usage] = data.draw(nodes(linked="links" in rules))
    agrees_with_brute_force(node, data.draw(needs_with(rules)))
