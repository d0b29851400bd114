"""Every refusal, word for word, as users see it."""

from __future__ import annotations

import pytest

from gas.placement.inventory import Company, Inventory, Usage
from gas.placement.need import ContainerNeed, PodNeed, Scope
from gas.placement.place import place
from gas.placement.reason import card_details
from gas.placement.refusal import NoTimeLeft, PreferredElsewhere, Refusal, SearchLimitHit, UnknownNode, UnreadableNeed
from gas.values.amounts import MemoryUnit, StatedMemory
from gas.values.cards import Card
from tests.placement.builders import GB, amounts, booked, cards, case, container, init, link, node, pod

CARD = amounts(i915=10, millicores=1000, memory=8 * GB)
TILED = amounts(i915=10, millicores=1000, tiles=2)
FULL = amounts(millicores=1000)
GIB = 2**30
GPU_MEM = StatedMemory("gpu-mem", MemoryUnit.GIB)
TWO_GROUPS = ((Card(0), Card(1)), (Card(2), Card(3)))


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "kind", "sentence"),
    [
        case("no-cards", pod(container()), node(), "no-cards", "the node has no known GPU card"),
        case(
            "resource-unknown-there",
            pod(container(xe=1)),
            node(CARD),
            "resource-not-on-node",
            "no card of the node has any xe",
        ),
        case(
            "none-of-the-resource-there",
            pod(container(xe=1)),
            node({**CARD, "xe": 0}),
            "resource-not-on-node",
            "no card of the node has any xe",
        ),
        case(
            "cards-whose-memory-is-unknown",
            pod(container(memory=5 * GB)),
            node(amounts(i915=10)),
            "resource-not-on-node",
            "no card of the node has any memory.max (see the events of the node)",
        ),
        case(
            "more-cards-than-there-are",
            pod(container(4)),
            node(CARD, like=2),
            "fewer-cards-than-wanted",
            "container 'container' asks for 4 cards, but the node has 2",
        ),
        case(
            "a-resource-that-just-enough-cards-have-is-not-named",
            pod(container(memory=4 * GB)),
            node(amounts(i915=1, memory=8 * GB), like=2),
            "no-room",
            "no card has 1 i915 free",
            usage=booked(amounts(i915=1), amounts(i915=1, memory=6 * GB)),
        ),
        case(
            "only-the-resource-that-is-short-on-every-card-is-named",
            pod(container(memory=5 * GB, millicores=1)),
            node(CARD, like=2),
            "no-room",
            "no card has 5.0 GB of memory.max free",
            usage=booked(amounts(memory=4 * GB), amounts(memory=4 * GB)),
        ),
        case(
            "cards-too-small",
            pod(container(memory=9 * GB)),
            node(CARD, numa_groups=((Card(0),),)),
            "no-room",
            "no card has 9.0 GB of memory.max free",
        ),
        case(
            "only-together-short",
            pod(container(memory=5 * GB, millicores=500)),
            node(CARD, like=2),
            "no-room",
            "no card has 500 millicores and 5.0 GB of memory.max free together",
            usage=booked(amounts(memory=5 * GB), amounts(i915=10, millicores=1000)),
        ),
        case(
            "the-count-resource-is-named-if-it-is-part-of-the-shortage",
            pod(container(memory=5 * GB, millicores=500)),
            node(CARD, like=3),
            "no-room",
            "no card has 1 i915, 500 millicores and 5.0 GB of memory.max free together",
            usage=booked(amounts(i915=10), FULL, amounts(memory=4 * GB)),
        ),
        case(
            "the-count-resource-alone-short",
            pod(container(millicores=500)),
            node(CARD, like=2),
            "no-room",
            "no card has 1 i915 free",
            usage=booked(amounts(i915=10), amounts(i915=10)),
        ),
        case(
            "the-count-resource-is-not-named-beside-another",
            pod(container(millicores=500)),
            node(CARD, like=1),
            "no-room",
            "no card has 500 millicores free",
            usage=booked(amounts(i915=10, millicores=1000)),
        ),
        case(
            "one-card-short",
            pod(container(2, millicores=500)),
            node(CARD, like=2),
            "no-room",
            "needs 2 cards with 500 millicores free each, found 1",
            usage=booked(FULL),
        ),
        case(
            "two-cards-short",
            pod(container(2, millicores=500)),
            node(CARD, like=2),
            "no-room",
            "needs 2 cards with 500 millicores free each, found none",
            usage=booked(FULL, FULL),
        ),
        case(
            "three-of-four",
            pod(container(4, millicores=500)),
            node(CARD, like=4),
            "no-room",
            "needs 4 cards with 500 millicores free each, found 3",
            usage=booked(FULL),
        ),
        case(
            "tiles",
            pod(container(tiles=2)),
            node(TILED, like=2, closed_tiles={Card(0): frozenset({0})}),
            "no-room",
            "no card has 2 tiles free",
            usage=booked({}, amounts(tiles=1), tiles={1: {1}}),
        ),
        case(
            "one-tile",
            pod(container(tiles=1)),
            node(TILED),
            "no-room",
            "no card has 1 tile free",
            usage=booked(amounts(tiles=2), tiles={0: {0, 1}}),
        ),
        case(
            "the-only-card-that-fits-is-disabled",
            pod(container(millicores=500)),
            node(CARD, like=2, disabled=cards(0)),
            "cards-disabled",
            "card0 is disabled by a label or annotation of the node",
            usage=booked({}, FULL),
        ),
        case(
            "several-disabled",
            pod(container(millicores=500)),
            node(CARD, like=3, disabled=cards(0, 1)),
            "cards-disabled",
            "2 cards are disabled by labels or annotations of the node",
            usage=booked({}, FULL, FULL),
        ),
        case(
            "only-disabled-cards-that-the-pod-could-use-are-counted",
            pod(container(), denied=cards(1)),
            node(CARD, like=2, disabled=cards(0, 1)),
            "cards-disabled",
            "card0 is disabled by a label or annotation of the node",
        ),
        case(
            "a-disabled-card-that-would-not-help-is-not-named",
            pod(container(millicores=500)),
            node(CARD, like=2, disabled=cards(0)),
            "no-room",
            "no card has 500 millicores free",
            usage=booked(FULL, FULL),
        ),
        case(
            "allow-list",
            pod(container(memory=5 * GB), allowed=cards(1)),
            node(CARD, like=2),
            "allow-list",
            "no card in the allow list has 5.0 GB of memory.max free",
            usage=booked({}, amounts(memory=4 * GB)),
        ),
        case(
            "allow-list-too-short",
            pod(container(2, millicores=1), allowed=cards(1)),
            node(CARD, like=2),
            "allow-list",
            "needs 2 cards with 1 millicores free each, found 1 in the allow list",
        ),
        case(
            "deny-list",
            pod(container(memory=5 * GB), denied=cards(0)),
            node(CARD, like=2),
            "deny-list",
            "no card outside the deny list has 5.0 GB of memory.max free",
            usage=booked({}, amounts(memory=4 * GB)),
        ),
        case(
            "models",
            pod(container(2, memory=GB), models=frozenset({"b580"})),
            node(CARD, like=2, models={Card(1): "xe-arc b580"}),
            "models",
            "needs 2 cards with 1.0 GB of memory.max free each, found 1 of the models that the pod names",
        ),
        case(
            "denied-models",
            pod(container(memory=GB), denied_models=frozenset({"xe", "a770"})),
            node(CARD, like=2, models={Card(0): "xe-arc b580", Card(1): "i915-arc a770"}),
            "models",
            "no card outside the models that the pod avoids has 1.0 GB of memory.max free",
        ),
        case(
            "other-pods",
            pod(container(memory=GB), idle=True, company=Company(exclusion="alone")),
            node(CARD),
            "other-pods",
            "no card without other pods has 1.0 GB of memory.max free",
            usage=Usage(containers={Card(0): 1}),
        ),
        case(
            "filled-cards",
            pod(container(memory=GB), unfilled=frozenset({"millicores", "tiles"})),
            node(CARD, like=2),
            "filled-cards",
            "no card with any millicores or tiles left has 1.0 GB of memory.max free",
            usage=booked(FULL, FULL),
        ),
        case(
            "deny-list-leaves-too-little-for-all",
            pod(container(millicores=600), container(millicores=600), denied=cards(0)),
            node(CARD, like=2),
            "deny-list",
            "each of 2 containers fits alone, but not all together on the cards outside the deny list"
            " (1200 millicores in total)",
        ),
        case(
            "allowed-and-denied",
            pod(container(), allowed=cards(0), denied=cards(0)),
            node(CARD),
            "deny-list",
            "no card outside the deny list has 1 i915 free",
        ),
        case(
            "of-two-obstacles-the-one-that-alone-would-help",
            pod(container(), allowed=cards(1)),
            node(CARD, like=2, disabled=cards(0, 1)),
            "cards-disabled",
            "card1 is disabled by a label or annotation of the node",
            usage=booked({}, {}),
        ),
        case(
            "of-two-obstacles-that-must-both-go-the-last-one",
            pod(container(millicores=500), allowed=cards(1)),
            node(CARD, like=2, disabled=cards(0)),
            "allow-list",
            "no card in the allow list has 500 millicores free",
            usage=booked({}, FULL),
        ),
        case(
            "numa",
            pod(container(2, millicores=500), scope=Scope.NUMA),
            node(CARD, like=4, numa_groups=TWO_GROUPS),
            "numa",
            "no NUMA group has 2 cards with 500 millicores free each",
            usage=booked(FULL, {}, FULL),
        ),
        case(
            "a-card-in-no-group",
            pod(container(), scope=Scope.NUMA),
            node(CARD, numa_groups=()),
            "numa",
            "no NUMA group has a card with 1 i915 free",
        ),
        case(
            "one-card-of-several-numa-groups",
            pod(container(millicores=600), container(millicores=600), scope=Scope.CARD),
            node(CARD, like=2, numa_groups=((Card(0),), (Card(1),))),
            "one-card",
            "no card has room for all 2 containers together (1200 millicores in total)",
        ),
        case(
            "one-card-of-one-of-several-numa-groups",
            pod(container(millicores=600), container(millicores=600), scope=Scope.NUMA_CARD),
            node(CARD, like=2, numa_groups=((Card(0),), (Card(1),))),
            "numa",
            "no NUMA group has room for all containers together",
        ),
        case(
            "numa-together",
            pod(container(2, millicores=600), container(millicores=600), scope=Scope.NUMA),
            node(CARD, like=4, numa_groups=TWO_GROUPS),
            "numa",
            "no NUMA group has room for all containers together",
        ),
        case(
            "links",
            pod(container(2, millicores=500, tiles=1), linked=True),
            node(TILED, like=3, links=(link((0, 0), (1, 0)),)),
            "links",
            "no free linked pair of cards with 500 millicores free each",
            usage=booked(FULL),
        ),
        case(
            "two-links-that-share-a-card",
            pod(container(4, tiles=1), linked=True),
            node(TILED, like=4, links=(link((0, 0), (1, 0)), link((1, 1), (2, 0)))),
            "links",
            "fewer than 2 free linked pairs of cards",
        ),
        case(
            "links-of-an-init-container",
            pod(init(2, tiles=1), init(4, tiles=1), linked=True),
            node(TILED, like=4, links=(link((0, 0), (1, 0)),)),
            "links",
            "fewer than 2 free linked pairs of cards",
        ),
        case(
            "links-together",
            pod(container(2, tiles=1), container(2, tiles=1), linked=True),
            node(TILED, like=2, links=(link((0, 0), (1, 0)),)),
            "links",
            "fewer than 2 free linked pairs of cards for all containers together",
        ),
        case(
            "not-together",
            pod(container(millicores=600), container(millicores=600), container(0)),
            node(CARD),
            "not-together",
            "each of 2 containers fits alone, but not all together (1200 millicores in total)",
        ),
        case(
            "no-room-in-the-pods-own-words",
            pod(container(memory=9 * GIB), stated_memory=GPU_MEM),
            node(amounts(i915=2, memory=8 * GIB)),
            "no-room",
            "no card has 9 GiB of gpu-mem free",
        ),
        *(
            case(
                f"{kind}-in-the-pods-own-words",
                pod(*[container(count, memory=5 * GIB)] * 2, scope=scope, stated_memory=GPU_MEM),
                node(amounts(i915=2, memory=8 * GIB), like=cards, numa_groups=()),
                kind,
                sentence,
            )
            for kind, scope, count, cards, sentence in (
                (
                    "not-together",
                    Scope.ANYWHERE,
                    1,
                    1,
                    "each of 2 containers fits alone, but not all together (10 GiB of gpu-mem in total)",
                ),
                (
                    "one-card",
                    Scope.CARD,
                    1,
                    2,
                    "no card has room for all 2 containers together (10 GiB of gpu-mem in total)",
                ),
                ("numa", Scope.NUMA, 2, 4, "no NUMA group has 2 cards with 5 GiB of gpu-mem free each"),
            )
        ),
        case(
            "not-together-by-count",
            pod(container(6), container(6)),
            node(amounts(i915=1), like=6),
            "not-together",
            "each of 2 containers fits alone, but not all together (12 i915 in total)",
        ),
    ],
)
def test_refusal(need: PodNeed, inventory: Inventory, usage: Usage, kind: str, sentence: str) -> None:
    refusal = place(need, inventory, usage)
    assert isinstance(refusal, Refusal)
    assert (refusal.kind, str(refusal)) == (kind, sentence)


def test_refusals_that_the_extender_gives() -> None:
    assert (UnknownNode().kind, str(UnknownNode())) == (
        "unknown-node",
        "the extender does not know the node; it may have just been created or deleted",
    )
    unreadable = UnreadableNeed("i915 and xe in one pod")
    assert (unreadable.kind, str(unreadable)) == ("unreadable-need", "i915 and xe in one pod")
    assert str(PreferredElsewhere()) == "another node has the pod's preferred card free"
    assert str(NoTimeLeft()) == "not evaluated: the time limit was reached on earlier nodes; it will be retried"


def all_refusals(kind: type[Refusal] = Refusal) -> list[type[Refusal]]:
    below = [each for direct in kind.__subclasses__() for each in all_refusals(direct)]
    is_of_placement = kind.__module__.startswith("gas.placement.")  # parts of the extender have others
    return [kind, *below] if vars(kind).get("kind") and is_of_placement else below


def test_every_refusal_has_its_own_kind() -> None:
    assert sorted(refusal.kind for refusal in all_refusals()) == [
        "affinity",
        "allow-list",
        "anti-affinity",
        "board",
        "card-name",
        "cards-disabled",
        "deny-list",
        "exclusion",
        "fewer-cards-than-wanted",
        "filled-cards",
        "links",
        "models",
        "no-cards",
        "no-room",
        "no-time-left",
        "not-together",
        "numa",
        "one-card",
        "other-pods",
        "partition",
        "preferred-elsewhere",
        "resource-not-on-node",
        "search-limit-hit",
        "unknown-node",
        "unreadable-need",
    ]


def test_some_refusals_are_found_only_by_accounting_per_card() -> None:
    assert {refusal.kind for refusal in all_refusals() if not refusal.only_per_card} == {
        "unknown-node",
        "unreadable-need",
        "no-cards",
        "no-time-left",
        "preferred-elsewhere",
        "resource-not-on-node",
    }
    assert SearchLimitHit.only_per_card


@pytest.mark.parametrize(
    ("count_resources", "sentence"),
    [
        pytest.param({"gpu"}, "no card has 500 millicores free", id="a-count-resource-is-named-last"),
        pytest.param({"i915"}, "no card has 1 gpu free", id="any-other-resource-is-named-first"),
    ],
)
def test_the_need_says_which_resources_only_count_cards(count_resources: set[str], sentence: str) -> None:
    wanted = ContainerNeed("main", 1, (("gpu", 1), ("millicores", 500)))
    need = PodNeed((wanted,), count_resources=frozenset(count_resources))
    usage = booked({"gpu": 1, "millicores": 1000})
    assert str(place(need, node({"gpu": 1, "millicores": 1000}), usage)) == sentence


SMALL = amounts(i915=2, memory=8 * GB)


@pytest.mark.parametrize(
    ("need", "inventory", "usage", "expected"),
    [
        case(
            "one-sentence-for-each-card",
            pod(container(memory=5 * GB)),
            node(SMALL, like=2),
            (
                "card0: 3.0 of 8.0 GB of memory.max free, 5.0 needed",
                "card1: 8.0 of 8.0 GB of memory.max free, 5.0 needed",
            ),
            usage=booked(amounts(memory=5 * GB)),
        ),
        case(
            "memory-as-the-pod-states-it-rounded-down",
            pod(container(memory=8 * GIB), stated_memory=GPU_MEM),
            node(amounts(i915=2, memory=16 * GIB)),
            ("card0: 7 of 16 GiB of gpu-mem free, 8 needed",),
            usage=booked(amounts(memory=17 * GIB // 2)),
        ),
        case(
            "exact-bytes-where-rounding-would-hide-the-difference",
            pod(container(memory=5 * GB)),
            node(SMALL),
            ("card0: 4999999999 of 8000000000 bytes of memory.max free, 5000000000 needed",),
            usage=booked(amounts(memory=3 * GB + 1)),
        ),
        case(
            "the-count-resource-only-where-it-is-short",
            pod(container(), container(2)),
            node(amounts(i915=1), amounts(i915=1)),
            ("card0: 0 of 1 i915 free, 1 needed", "card1: has room"),
            usage=booked(amounts(i915=1)),
        ),
        case(
            "the-largest-need-and-never-a-negative-amount-free",
            pod(container(millicores=5), container(millicores=7), container(millicores=6)),
            node(amounts(i915=9, millicores=9), amounts(i915=9)),
            ("card0: 0 of 9 millicores free, 7 needed", "card1: has no millicores"),
            usage=booked(amounts(millicores=12)),
        ),
        case(
            "a-need-of-0",
            pod(container(millicores=0)),
            node(amounts(i915=9, millicores=9)),
            ("card0: 0 of 9 millicores free, 0 needed",),
            usage=booked(amounts(millicores=12)),
        ),
        case(
            "why-a-card-may-not-be-used",
            pod(container(memory=GB), allowed=cards(0, 1), denied=cards(1)),
            node(SMALL, like=3, disabled=cards(0)),
            (
                "card0: disabled by a label or annotation of the node; 8.0 of 8.0 GB of memory.max free, 1.0 needed",
                "card1: in the deny list; 8.0 of 8.0 GB of memory.max free, 1.0 needed",
                "card2: not in the allow list; 8.0 of 8.0 GB of memory.max free, 1.0 needed",
            ),
        ),
        case(
            "links",
            pod(container(2, tiles=1), linked=True),
            node(amounts(i915=9, tiles=2), like=3, links=(link((0, 0), (1, 0)),)),
            (
                "card0: 2 of 2 tiles free, 1 needed",
                "card1: 2 of 2 tiles free, 1 needed",
                "card2: no free link to a card with room; 2 of 2 tiles free, 1 needed",
            ),
        ),
        case("a-pod-that-wants-no-card", pod(container(0)), node(SMALL), ()),
    ],
)
def test_card_details(need: PodNeed, inventory: Inventory, usage: Usage, expected: tuple[str, ...]) -> None:
    assert card_details(need, inventory, usage) == expected
