"""Nodes with one number get one result: whatever happens, remembered verdicts are those of placement itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gas.extender.hooks import NO_CARDS
from gas.extender.nodes import Nodes
from gas.extender.verdicts import SPARE_STATES, UNKNOWN, NodeStates, Verdicts, as_verdict, at_once
from gas.ledger.ledger import Ledger
from gas.objects.stored import Node
from gas.placement.choice import Footprint
from gas.placement.inventory import NO_COMPANY, Company
from gas.placement.need import ContainerNeed, PodNeed, Scope
from gas.placement.order import NATURAL, FewestContainers, LeastUsed
from gas.placement.place import place
from gas.placement.refusal import UnknownNode
from gas.values.amounts import sorted_amounts
from gas.values.cards import Card
from gas.vocabularies.intel.inventory import read_node
from gas.vocabularies.known import DEFAULT
from tests.builders import node

TELEMETRY = "telemetry.aware.scheduling.p/"
NAMES = ("n1", "n2", "n3", "n4")
LABELS: tuple[dict[str, str], ...] = (
    {},
    {TELEMETRY + "gas-disable-card0": "x"},
    {TELEMETRY + "gas-prefer-gpu": "card1"},
    {TELEMETRY + "gas-tile-disable-card1_gt0": "x"},
)
NEEDS = tuple(
    PodNeed(
        (ContainerNeed("main", count, sorted_amounts({"i915": 1, "millicores": millicores, "tiles": tiles})),),
        order=order,
        near=near,
    )
    for count, millicores, tiles in ((1, 300, 0), (1, 700, 1), (2, 500, 0), (2, 100, 2))
    for order, near in ((NATURAL, False), (FewestContainers(), False), (LeastUsed("millicores"), True))
) + tuple(
    PodNeed(
        (ContainerNeed("main", 1, sorted_amounts({"i915": 1, "millicores": 100})),),
        company=company,
        named=named,
        scope=Scope.CARD,
    )
    for company, named in (
        (Company(affinity="a"), ""),
        (Company(anti_affinity="a"), ""),
        (Company(exclusion="a"), ""),
        (NO_COMPANY, "a"),
    )
)
HELD = st.builds(
    lambda cards, company, named: Footprint(
        amounts={
            card: sorted_amounts({"i915": 1, "millicores": millicores, "tiles": len(tiles)})
            for card, (millicores, tiles) in cards.items()
        },
        tiles={card: tiles for card, (_, tiles) in cards.items() if tiles},
        containers={card: 1 + len(tiles) for card, (_, tiles) in cards.items()},
        company=company,
        named=named,
    ),
    st.dictionaries(
        st.integers(0, 1).map(Card),
        st.tuples(st.sampled_from((0, 300, 700)), st.frozensets(st.integers(0, 1))),
        min_size=1,
    ),
    st.sampled_from((NO_COMPANY, Company(affinity="a"), Company(anti_affinity="a"), Company(exclusion="a"))),
    st.sampled_from(("", "", "a", "b")),
)


KEPT = {"n2": (Footprint(amounts={Card(1): sorted_amounts({"i915": 1, "millicores": 700})}),)}


class RememberedVerdicts(RuleBasedStateMachine):
    """Any history of nodes and bookings, with filters in between."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, Node] = {}
        self.ledger = Ledger(on_change=self.changed)
        self.nodes = Nodes(DEFAULT, on_change=self.changed)
        self.verdicts = Verdicts(self.nodes, self.ledger, step_limit=1000, clock=lambda: 0.0)

    def changed(self, name: str) -> None:
        self.verdicts.forget(name)

    @rule(name=st.sampled_from(NAMES), labels=st.sampled_from(LABELS), millicores=st.sampled_from((1000, 2000)))
    def node_says(self, name: str, labels: dict[str, str], millicores: int) -> None:
        self.objects[name] = node(name, labels=labels, i915=20, millicores=millicores, tiles=4)
        self.nodes.changed(self.objects[name])

    @rule(name=st.sampled_from(NAMES))
    def node_goes(self, name: str) -> None:
        if self.objects.pop(name, None) is not None:
            self.nodes.deleted(node(name))

    @rule(uid=st.sampled_from("abcdef"), name=st.sampled_from(NAMES), held=HELD)
    def pod_holds(self, uid: str, name: str, held: Footprint) -> None:
        self.ledger.hold(uid, uid, name, held)

    @rule(uid=st.sampled_from("abcdef"))
    def pod_goes(self, uid: str) -> None:
        self.ledger.release(uid)

    @rule()
    def others_are_idle(self) -> None:
        if self.verdicts._by_name:
            at_once(self.verdicts.refresh())

    @invariant()
    def verdicts_and_choices_are_those_of_placement(self) -> None:
        inventories = {name: read_node(each).inventory for name, each in self.objects.items()}
        usages = [
            (kept, {name: self.ledger.sums(name, kept.get(name, ())).usage() for name in self.objects})
            for kept in (NO_CARDS, KEPT)
        ]
        for need in NEEDS:
            for kept, usage in usages:
                for name, verdict in zip(NAMES, at_once(self.verdicts.of(need, NAMES, kept)), strict=True):
                    fresh = (
                        place(need, inventories[name], usage[name], step_limit=1000)
                        if name in self.objects
                        else UnknownNode()
                    )
                    assert verdict is as_verdict(fresh)
                    assert self.verdicts.choose(need, name, kept.get(name, ())) == fresh


TestRememberedVerdicts = RememberedVerdicts.TestCase
TestRememberedVerdicts.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


def nothing_known() -> tuple[Ledger, Nodes, NodeStates]:
    ledger, nodes = Ledger(), Nodes(DEFAULT)
    return ledger, nodes, NodeStates(nodes, ledger)


def test_a_state_that_no_node_is_in_any_more_is_dropped_in_time() -> None:
    ledger, nodes, states = nothing_known()
    nodes.changed(node("n1"))
    numbers = set()
    for millicores in range(3 * SPARE_STATES):
        ledger.hold("a", "default/a", "n1", Footprint(amounts={Card(0): sorted_amounts({"millicores": millicores})}))
        states.forget("n1")
        numbers.add(states.of("n1"))
    assert len(numbers) == 3 * SPARE_STATES
    assert len(states._numbers) <= states.most == SPARE_STATES + 2
    assert states.in_use() == {states.of("n1")}
    assert states.of("absent") == UNKNOWN


def test_nodes_that_differ_in_the_containers_of_a_card_alone_are_in_different_states() -> None:
    ledger, nodes, states = nothing_known()
    for name, containers in (("n1", 1), ("n2", 2), ("n3", 2)):
        nodes.changed(node(name))
        booked = Footprint(amounts={Card(0): sorted_amounts({"millicores": 100})}, containers={Card(0): containers})
        ledger.hold(name, f"default/{name}", name, booked)
    assert states.of("n1") != states.of("n2")
    assert states.of("n2") == states.of("n3")


@pytest.mark.parametrize(
    "different",
    [
        {"company": Company(affinity="a")},
        {"company": Company(anti_affinity="a")},
        {"company": Company(exclusion="a")},
        {"company": Company(exclusion="b")},
        {"named": "a"},
        {"named": "b"},
        {"company": Company(affinity="a"), "named": "a"},
    ],
    ids=str,
)
def test_nodes_whose_pods_differ_in_their_company_or_names_are_in_different_states(different: dict[str, Any]) -> None:
    ledger, nodes, states = nothing_known()
    booked = Footprint(amounts={Card(0): sorted_amounts({"millicores": 100})}, containers={Card(0): 1})
    unlike = [booked, replace(booked, company=Company(affinity="b")), replace(booked, named="c")]
    for number, each in enumerate([*unlike, replace(booked, **different), replace(booked, **different)]):
        nodes.changed(node(f"n{number}"))
        ledger.hold(f"u{number}", f"default/u{number}", f"n{number}", each)
    numbers = [states.of(f"n{number}") for number in range(5)]
    assert len(set(numbers)) == 4
    assert numbers[3] == numbers[4]


def test_a_card_with_a_pod_without_labels_is_in_another_state_than_one_without_such_a_pod() -> None:
    ledger, nodes, states = nothing_known()
    plain = Footprint(amounts={Card(0): sorted_amounts({"millicores": 100})}, containers={Card(0): 1})
    labelled = replace(plain, company=Company(exclusion="a"))
    for name, other in (("n1", plain), ("n2", labelled)):
        nodes.changed(node(name))
        ledger.hold(f"{name}-1", f"default/{name}-1", name, labelled)
        ledger.hold(f"{name}-2", f"default/{name}-2", name, other)
    assert ledger.usage("n1").amounts == ledger.usage("n2").amounts
    assert states.of("n1") != states.of("n2")


def test_verdicts_of_states_that_no_node_is_in_any_more_are_dropped_in_time() -> None:
    ledger = Ledger()
    nodes = Nodes(DEFAULT)
    verdicts = Verdicts(nodes, ledger, step_limit=1000, clock=lambda: 0.0)
    nodes.changed(node("n1"))
    for millicores in range(2 * SPARE_STATES):
        ledger.hold("a", "default/a", "n1", Footprint(amounts={Card(0): sorted_amounts({"millicores": millicores})}))
        verdicts.forget("n1")
        at_once(verdicts.of(NEEDS[0], ["n1"]))
    (remembered,) = verdicts._remembered.values()
    assert len(remembered) <= SPARE_STATES + 3
