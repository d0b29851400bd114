"""Company: labels that decide with which other pods a pod shares a card."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import product

import pytest

from gas.placement.choice import footprint
from gas.placement.inventory import NO_COMPANY, UNUSED, Company, Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.order import FewestContainers
from gas.placement.place import place
from gas.placement.reason import card_details
from gas.placement.refusal import Refusal
from gas.values.cards import Card
from tests.placement.builders import amounts, booked, cards, case, container, given, init, link, node, placed, pod

CARD = amounts(i915=10, millicores=1000)
RED, GREEN, BLUE = Company(affinity="red"), Company(anti_affinity="green"), Company(exclusion="blue")


def pods(of: Mapping[int, Collection[Company]], **millicores: int) -> Usage:
    """Return the usage of cards that have one pod for each of these labels; ``card1=500`` books amounts."""
    return Usage(
        amounts={Card(number): {"i915": len(each)} for number, each in of.items()}
        | {Card.parse(card): {"i915": 1, "millicores": amount} for card, amount in millicores.items()},
        containers={Card(number): len(each) for number, each in of.items()},
        company={Card(number): frozenset(each) for number, each in of.items() if set(each) != {NO_COMPANY}},
    )


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "affinity-takes-a-card-with-the-same-value",
            pod(container(), company=RED),
            node(CARD, like=3),
            "1",
            usage=pods({0: [NO_COMPANY], 1: [RED]}),
        ),
        case(
            "affinity-prefers-company-to-an-idle-card",
            pod(container(), company=RED),
            node(CARD, like=3),
            "1",
            usage=pods({1: [RED]}),
        ),
        case(
            "the-order-counts-among-the-cards-with-company",
            pod(container(), company=RED, order=FewestContainers()),
            node(CARD, like=3),
            "2",
            usage=pods({1: [RED, RED, RED], 2: [RED, RED]}),
        ),
        case(
            "affinity-takes-an-idle-card-if-the-company-has-no-room",
            pod(container(millicores=600), company=RED),
            node(CARD, like=3),
            "2",
            usage=pods({0: [Company(affinity="yellow")], 1: [RED]}, card1=500),
        ),
        case(
            "each-of-several-cards-keeps-the-rule",
            pod(container(2), company=RED),
            node(CARD, like=3),
            "0,2",
            usage=pods({0: [RED], 1: [NO_COMPANY]}),
        ),
        case(
            "a-pod-without-labels-may-join-affinity-and-anti-affinity",
            pod(container()),
            node(CARD, like=2),
            "0",
            usage=pods({0: [RED], 1: [GREEN]}),
        ),
        case(
            "anti-affinity-avoids-the-same-value-only",
            pod(container(), company=GREEN),
            node(CARD, like=3),
            "1",
            usage=pods({0: [GREEN], 1: [Company(anti_affinity="yellow"), NO_COMPANY]}),
        ),
        case(
            "exclusion-joins-only-its-own-value",
            pod(container(), company=BLUE),
            node(CARD, like=4),
            "2",
            usage=pods(
                {0: [NO_COMPANY], 1: [Company(exclusion="grey")], 2: [BLUE, Company(affinity="x", exclusion="blue")]}
            ),
        ),
        case("no-exclusion-counts-as-a-value", pod(container()), node(CARD, like=2), "1", usage=pods({0: [BLUE]})),
        case(
            "exclusion-looks-at-all-pods-of-a-card",
            pod(container(), company=BLUE),
            node(CARD, like=3),
            "2",
            usage=pods({0: [BLUE, NO_COMPANY], 1: [NO_COMPANY]}),
        ),
        case(
            "containers-of-one-pod-may-share-a-card-whatever-its-labels",
            pod(init(), container(), container(), company=Company(affinity="a", anti_affinity="b", exclusion="c")),
            node(CARD, like=2),
            "0 | 0 | 0",
        ),
        case(
            "with-nearness-the-first-card-has-company",
            pod(container(2), company=RED, near=True),
            node(CARD, like=4, boards=((Card(0), Card(1)), (Card(2), Card(3)))),
            "3,2",
            usage=pods({3: [RED]}),
        ),
        case(
            "with-linked-pairs",
            pod(container(2, tiles=1), company=BLUE, linked=True),
            node(amounts(i915=2, tiles=1), like=4, links=(link((0, 0), (1, 0)), link((2, 0), (3, 0)))),
            "2:0,3:0",
            usage=pods({0: [NO_COMPANY]}),
        ),
        case(
            "with-a-deny-list",
            pod(container(), company=RED, denied=cards(1)),
            node(CARD, like=3),
            "2",
            usage=pods({0: [NO_COMPANY], 1: [RED]}),
        ),
    ],
)
def test_company(need: PodNeed, inventory: Inventory, usage: Usage, expected: str) -> None:
    assert placed(need, inventory, usage) == expected


VALUES = ("", "one", "two")
EVERY_COMPANY = [
    Company(affinity=affinity, anti_affinity=anti_affinity, exclusion=exclusion)
    for affinity, anti_affinity, exclusion in product(VALUES, VALUES, VALUES)
]


@pytest.mark.parametrize("own", EVERY_COMPANY, ids=lambda own: f"{own.affinity}-{own.anti_affinity}-{own.exclusion}")
def test_every_combination_of_three_labels_beside_every_other(own: Company) -> None:
    """Each card has one pod or two; the oracle is the text of the three rules, card by card."""
    for others in [[other] for other in EVERY_COMPANY] + [list(pair) for pair in product(EVERY_COMPANY, repeat=2)]:
        allowed = True
        if own.affinity:
            allowed = allowed and own.affinity in [other.affinity for other in others]
        if own.anti_affinity:
            allowed = allowed and own.anti_affinity not in [other.anti_affinity for other in others]
        for other in others:
            allowed = allowed and own.exclusion == other.exclusion
        answer = place(pod(container(), company=own), node(CARD), pods({0: others}))
        assert isinstance(answer, Refusal) != allowed, (own, others, given(answer))
        assert placed(pod(container(), company=own), node(CARD, like=2), pods({0: others})) == ("0" if allowed else "1")


@pytest.mark.parametrize(
    ("need", "usage", "kind", "sentence", "details"),
    [
        pytest.param(
            pod(container(millicores=500), company=RED),
            pods({0: [NO_COMPANY], 1: [RED]}, card1=600),
            "affinity",
            "no card open to affinity 'red' has 500 millicores free",
            (
                "card0: no pod with affinity 'red'; 1000 of 1000 millicores free, 500 needed",
                "card1: 400 of 1000 millicores free, 500 needed",
            ),
            id="affinity",
        ),
        pytest.param(
            pod(container(2), company=RED),
            pods({0: [NO_COMPANY], 1: [RED]}),
            "affinity",
            "needs 2 cards with 1 i915 free each, found 1 open to affinity 'red'",
            ("card0: no pod with affinity 'red'", "card1: has room"),
            id="one-card-short",
        ),
        pytest.param(
            pod(container(), company=GREEN),
            pods({0: [GREEN], 1: [GREEN, NO_COMPANY]}),
            "anti-affinity",
            "no card open to anti-affinity 'green' has 1 i915 free",
            ("card0: a pod with anti-affinity 'green'", "card1: a pod with anti-affinity 'green'"),
            id="anti-affinity",
        ),
        pytest.param(
            pod(container(), company=BLUE),
            pods({0: [NO_COMPANY], 1: [Company(exclusion="grey")]}),
            "exclusion",
            "no card open to exclusion 'blue' has 1 i915 free",
            ("card0: a pod without exclusion 'blue'", "card1: a pod without exclusion 'blue'"),
            id="exclusion",
        ),
        pytest.param(
            replace(pod(container(), company=BLUE), idle=True),
            pods({0: [NO_COMPANY], 1: [NO_COMPANY]}),
            "other-pods",
            "no card without other pods has 1 i915 free",
            ("card0: has another pod", "card1: has another pod"),
            id="a-whole-card",
        ),
        pytest.param(
            pod(container(millicores=600), container(millicores=600)),
            pods({0: [NO_COMPANY], 1: [BLUE]}),
            "exclusion",
            "each of 2 containers fits alone, but not all together on the cards open to pods without exclusion"
            " (1200 millicores in total)",
            (
                "card0: 1000 of 1000 millicores free, 600 needed",
                "card1: a pod with an exclusion; 1000 of 1000 millicores free, 600 needed",
            ),
            id="no-exclusion",
        ),
        pytest.param(
            pod(container(), company=Company(affinity="red", exclusion="blue")),
            pods({0: [RED], 1: [RED]}),
            "exclusion",
            "no card open to exclusion 'blue' has 1 i915 free",
            ("card0: a pod without exclusion 'blue'", "card1: a pod without exclusion 'blue'"),
            id="of-two-labels-the-one-in-the-way",
        ),
        pytest.param(
            pod(container(millicores=500), company=RED),
            pods({0: [NO_COMPANY], 1: [NO_COMPANY]}, card0=900, card1=900),
            "no-room",
            "no card has 500 millicores free",
            (
                "card0: no pod with affinity 'red'; 100 of 1000 millicores free, 500 needed",
                "card1: no pod with affinity 'red'; 100 of 1000 millicores free, 500 needed",
            ),
            id="labels-that-are-not-in-the-way",
        ),
    ],
)
def test_the_refusal_names_the_rule(
    need: PodNeed, usage: Usage, kind: str, sentence: str, details: tuple[str, ...]
) -> None:
    refusal = place(need, node(CARD, like=2), usage)
    assert isinstance(refusal, Refusal)
    assert (refusal.kind, str(refusal)) == (kind, sentence)
    assert card_details(need, node(CARD, like=2), usage) == details


def test_a_footprint_has_the_labels_of_its_pod() -> None:
    need = pod(container(2), company=RED)
    choice = place(need, node(CARD, like=2), UNUSED)
    assert not isinstance(choice, Refusal)
    assert footprint(need, choice).company == RED


def test_cards_booked_without_labels_are_closed_to_an_exclusion_only_if_they_have_containers() -> None:
    assert placed(pod(container(), company=BLUE), node(CARD, like=2), booked(amounts(millicores=1))) == "0"
