"""The smallest set of pods that must leave a node, against brute force."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gas.ledger.eviction_cost import Evictable, violating
from gas.ledger.ledger import NodeSums
from gas.ledger.victims import FIRST_STEPS, CandidateNode, Victims, smallest_victims
from gas.placement.choice import Choice, ContainerChoice, Footprint, footprint
from gas.placement.inventory import Inventory, Link
from gas.placement.need import ContainerNeed, PodNeed, Role, Scope
from gas.placement.place import place
from gas.placement.ratio import Ratio
from gas.values.amounts import SortedAmounts, sorted_amounts
from gas.values.cards import Card, Tile
from tests.placement.strategies import needs, nodes

TWO_CARDS = Inventory(capacity={Card(number): {"i915": 20, "millicores": 1000} for number in range(2)})
HIGH = 100


def wants(millicores: int, cards: int = 1) -> PodNeed:
    return PodNeed((ContainerNeed("main", cards, sorted_amounts({"i915": 1, "millicores": millicores})),))


def holds(card: int, millicores: int) -> Footprint:
    return footprint(wants(millicores), Choice((ContainerChoice((Card(card),)),)))


def evictable(uid: str, card: int, millicores: int = 0, *, priority: int = 0, **fields: object) -> Evictable:
    pod = Evictable(uid=uid, priority=priority, footprint=holds(card, millicores))
    return replace(pod, **fields)  # type: ignore[arg-type]


def victims_of(
    need: PodNeed,
    pods: Sequence[Evictable],
    *,
    requests: SortedAmounts = (),
    free: dict[str, int] | None = None,
    allowed: Sequence[int] = (),
    others: Sequence[Footprint] = (),
    inventory: Inventory = TWO_CARDS,
    victim_steps: int = 2000,
    is_late: Callable[[], bool] = lambda: False,
) -> Victims | None:
    """Return the victims, and check that the search leaves the sums as they were."""
    sums = NodeSums()
    for pod in pods:
        sums.put(pod.uid, pod.footprint)
    for number, other in enumerate(others):
        sums.put(f"other-{number}", other)
    before = sums.state()
    node = CandidateNode(inventory=inventory, sums=sums, free=free or {})
    victims = smallest_victims(need, requests, node, pods, allowed, victim_steps=victim_steps, is_late=is_late)
    assert sums.state() == before
    return victims


def names(victims: Victims | None) -> str:
    return "nothing helps" if victims is None else " ".join(pod.uid for pod in victims.pods) or "no pod"


@pytest.mark.parametrize(
    ("need", "pods", "left"),
    [
        pytest.param(wants(500), [evictable("a", 0, 600)], "no pod", id="it-fits-as-it-is"),
        pytest.param(
            wants(1000),
            [evictable("a", 0, 500), evictable("b", 0, 500), evictable("c", 1, 900)],
            "c",
            id="one-pod-rather-than-two",
        ),
        pytest.param(
            wants(1000),
            [evictable("a", 0, 1000, priority=5), evictable("b", 1, 500), evictable("c", 1, 500)],
            "b c",
            id="two-pods-of-low-priority-rather-than-one-of-higher",
        ),
        pytest.param(
            wants(500),
            [
                evictable("a", 0, 300, priority=2),
                evictable("b", 0, 700, priority=1),
                evictable("c", 1, 500, priority=2),
                evictable("d", 1, 500),
            ],
            "d",
            id="the-one-right-pod",
        ),
        pytest.param(
            wants(1000, cards=2), [evictable("a", 0, 1), evictable("b", 1, 1)], "a b", id="a-pod-on-each-of-two-cards"
        ),
        pytest.param(wants(1001), [evictable("a", 0, 900)], "nothing helps", id="no-card-is-large-enough"),
        pytest.param(
            wants(400),
            [evictable("older", 0, 800), evictable("younger", 1, 800)],
            "younger",
            id="of-equal-pods-the-less-important-one",
        ),
        pytest.param(
            wants(400),
            [evictable("older", 0, 800), evictable("high", 1, 100, priority=9), evictable("younger", 1, 800)],
            "younger",
            id="also-if-its-card-has-more-important-pods",
        ),
        pytest.param(
            wants(1000),
            [evictable(uid, card, 500) for uid, card in (("a", 0), ("b", 1), ("c", 1), ("d", 0))],
            "b c",
            id="of-equal-sets-that-whose-most-important-pod-is-less-important",
        ),
        pytest.param(
            wants(900),
            [
                *(evictable(uid, card, size, priority=1) for uid, card, size in (("a", 0, 980), ("b", 1, 500))),
                *(evictable(uid, card, size) for uid, card, size in (("c", 1, 500), ("d", 0, 10), ("e", 0, 10))),
            ],
            "a",
            id="one-of-several-pods-of-a-card",
        ),
        pytest.param(
            wants(400),
            [evictable("a", 0, 800, priority=-5), evictable("b", 1, 800, leaving=True)],
            "b",
            id="a-pod-that-is-leaving-already",
        ),
        pytest.param(
            wants(400),
            [evictable("a", 0, 800, must_go=True), evictable("b", 1, 800)],
            "a",
            id="a-pod-that-leaves-in-any-case-is-enough",
        ),
        pytest.param(
            wants(1000, cards=2),
            [Evictable(uid="plain", priority=3, must_go=True), evictable("a", 0, 1), evictable("b", 1, 1)],
            "plain a b",
            id="beside-a-pod-without-cards-that-leaves-in-any-case",
        ),
    ],
)
def test_the_smallest_set_of_victims(need: PodNeed, pods: Sequence[Evictable], left: str) -> None:
    assert names(victims_of(need, pods)) == left


def test_pods_that_may_not_leave_keep_their_cards() -> None:
    pods = [evictable("a", 1, 600), evictable("b", 1, 400)]
    assert names(victims_of(wants(1000), pods, others=[holds(0, 1)])) == "a b"
    assert names(victims_of(wants(1000), pods, others=[holds(0, 1), holds(1, 1)])) == "nothing helps"


def test_a_disruption_budget_weighs_more_than_priorities() -> None:
    pods = [evictable("high", 0, 1000, priority=50), evictable("guarded", 1, 1000, budgets=(0,))]
    assert names(victims_of(wants(1000), pods, allowed=[0])) == "high"
    assert names(victims_of(wants(1000), pods, allowed=[1])) == "guarded"


def test_pods_that_differ_in_their_budgets_are_not_equal() -> None:
    guarded = [evictable(name, 0, size, budgets=(0,)) for name, size in (("same", 300), ("needed", 400))]
    victims = victims_of(wants(700), [evictable("free", 0, 300), *guarded], allowed=[1], others=[holds(1, 1000)])
    assert names(victims) == "free needed"


def test_violations_are_counted_for_the_victims_and_no_others() -> None:
    pods = [evictable("a", 0, 1000, budgets=(0,)), evictable("b", 1, 1000, budgets=(0,))]
    assert (victims := victims_of(wants(1000), pods, allowed=[1])) is not None
    assert (names(victims), victims.violations) == ("b", 0)
    assert (both := victims_of(wants(1000, cards=2), pods, allowed=[1])) is not None
    assert (names(both), both.violations) == ("a b", 1)


@pytest.mark.parametrize(
    ("budgets", "allowed", "count"),
    [
        ([], [0], 0),
        ([()], [0], 0),
        ([(0,), (0,), (0,)], [2], 1),
        ([(0,), (1,)], [1, 0], 1),
        ([(0, 1)], [0, 0], 1),
        ([(0, 1), (1,)], [0, 1], 2),  # a pod that violates one budget uses up the other, too
    ],
)
def test_violations_as_kube_scheduler_counts_them(
    budgets: list[tuple[int, ...]], allowed: list[int], count: int
) -> None:
    assert violating(budgets, allowed) == count


def test_a_pod_leaves_for_what_the_node_lacks_beside_its_cards() -> None:
    pods = [
        evictable("small", 0, 100, requests=(("cpu", 1),)),
        evictable("large", 1, 100, priority=9, requests=(("cpu", 8),)),
    ]
    lacking = {"free": {"cpu": 0}, "requests": (("cpu", 4), ("unlisted", 7))}
    assert names(victims_of(wants(500), pods, **lacking)) == "large"  # type: ignore[arg-type]
    assert names(victims_of(wants(500), pods, free={"cpu": 3}, requests=(("cpu", 4),))) == "small"
    assert names(victims_of(wants(500), pods, free={"cpu": 3}, requests=(("cpu", 99),))) == "nothing helps"


def test_a_pod_that_takes_only_parts_of_a_card_gets_victims() -> None:
    need = PodNeed((ContainerNeed("main", 1, ratios=(Ratio("millicores", 100),)),))
    pods = [evictable("a", 0, 10), evictable("b", 0, 10), evictable("c", 1, 1000)]
    assert names(victims_of(need, pods)) == "c"


def test_a_card_with_many_equal_pods_is_cleared_where_fewest_are() -> None:
    inventory = Inventory(capacity={Card(number): {"i915": 20, "millicores": 1000} for number in range(8)})
    pods = [evictable(f"c{card}-{at:02}", card, 50) for card in range(8) for at in range(20 if card != 5 else 17)]
    victims = victims_of(wants(1000), pods, inventory=inventory)
    assert victims is not None
    assert {pod.uid for pod in victims.pods} == {f"c5-{at:02}" for at in range(17)}


@pytest.mark.parametrize("older", ["alone", "on-two"])
def test_a_pod_that_holds_several_cards_counts_once(older: str) -> None:
    """One pod on two cards leaves rather than two pods on a card each, whichever of them is older."""
    inventory = Inventory(capacity={Card(number): {"i915": 20, "millicores": 1000} for number in range(4)})
    on_two = footprint(wants(600, cards=2), Choice((ContainerChoice((Card(0), Card(1))),)))
    on_two_cards = [Evictable(uid="on-two", priority=0, footprint=on_two)]
    alone = [evictable("c2", 2, 600), evictable("c3", 3, 600)]
    pods = alone + on_two_cards if older == "alone" else on_two_cards + alone
    assert names(victims_of(wants(600, cards=2), pods, inventory=inventory)) == "on-two"


def test_cards_are_compared_by_the_pods_that_must_leave() -> None:
    """Two cards with one pod too many each are cleared, and not those with fewer pods that must leave all."""
    inventory = Inventory(capacity={Card(number): {"i915": 20, "millicores": 1000} for number in range(4)})
    pods = [evictable(f"{at}-c{card}", card, 450) for card in (0, 1) for at in range(2)]
    pods += [evictable(f"{size}-c{card}", card, size) for card in (2, 3) for size in (500, 100, 101, 102)]
    assert names(victims_of(wants(600, cards=2), pods, inventory=inventory)) == "500-c2 500-c3"


def test_a_card_that_cannot_be_cleared_keeps_no_other_from_being_compared() -> None:
    inventory = Inventory(capacity={Card(number): {"i915": 20, "millicores": 1000} for number in range(3)})
    pods = [evictable(f"{size}-c{card}", card, size) for card in (1, 2) for size in (500, 251, 249)]
    need = wants(500, cards=2)
    assert names(victims_of(need, pods, others=[holds(0, 1000)], inventory=inventory)) == "500-c1 500-c2"


def test_of_equal_groups_of_cards_the_less_important_pods_leave() -> None:
    cards = [Card(number) for number in range(4)]
    inventory = Inventory(
        capacity={card: {"i915": 20, "millicores": 1000} for card in cards},
        numa_groups=((cards[0], cards[1]), (cards[2], cards[3])),
    )
    pods = [evictable(uid, card, 800) for card, uid in enumerate("abcd")]
    need = replace(wants(500, cards=2), scope=Scope.NUMA)
    assert names(victims_of(need, pods, inventory=inventory)) == "c d"


def test_containers_that_may_share_a_card_need_no_second_one() -> None:
    inventory = Inventory(capacity={Card(number): {"i915": 20, "millicores": 1000} for number in range(3)})
    pods = [evictable("c2", 2, 1000), evictable("c0", 0, 500), evictable("c1", 1, 500)]
    victims = victims_of(
        PodNeed(wants(500).containers * 2), pods, others=[holds(0, 500), holds(1, 500)], inventory=inventory
    )
    assert names(victims) == "c2"


@pytest.mark.parametrize(("rule", "left"), [("apart", "c1 c2"), ("same_card", "c2")])
def test_containers_on_different_cards_or_on_one(rule: str, left: str) -> None:
    inventory = Inventory(capacity={Card(number): {"i915": 20, "millicores": 1000} for number in range(3)})
    pods = [evictable(f"c{card}", card, 600) for card in range(3)]
    need = replace(PodNeed(wants(500).containers * 2), **{rule: frozenset({0, 1})})  # type: ignore[arg-type]
    assert names(victims_of(need, pods, inventory=inventory)) == left


def test_of_a_search_cut_short_pods_that_are_leaving_leave_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gas.ledger.victims.FIRST_STEPS", -1000)
    pods = [evictable("leaving", 0, 500, priority=5, leaving=True), evictable("stays", 0, 500)]
    assert names(victims_of(wants(500), pods, others=[holds(1, 1000)], victim_steps=0)) == "leaving"


@pytest.mark.parametrize("first_steps", [FIRST_STEPS, -1000])
def test_a_search_cut_short_gives_a_set_of_which_every_pod_is_needed(
    first_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gas.ledger.victims.FIRST_STEPS", first_steps)
    sizes = [37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101]
    pods = [evictable(f"p{size}-{card}", card, size) for card in range(2) for size in sizes]
    need = wants(607)
    victims = victims_of(need, pods, victim_steps=5)
    assert victims is not None
    assert fits_without(need, TWO_CARDS, pods, victims.pods)
    for pod in victims.pods:
        assert not fits_without(need, TWO_CARDS, pods, [other for other in victims.pods if other is not pod])


def test_a_search_that_is_late_from_the_start_finds_nothing() -> None:
    pods = [evictable("a", 0, 1000), evictable("b", 1, 1000)]
    assert victims_of(wants(1000), pods, is_late=lambda: True) is None


def test_sets_that_are_no_better_are_not_searched() -> None:
    """Of many unlike pods, nine of 20 must go: there are thousands of such sets."""
    looks = count()
    pods = [evictable(f"c{card}-{size}", card, size) for card in range(2) for size in range(40, 60)]
    victims = victims_of(wants(500), pods, is_late=lambda: next(looks) > 1000)
    assert names(victims) == " ".join(f"c1-{size}" for size in range(51, 60))
    assert next(looks) < 100


def fits_without(need: PodNeed, inventory: Inventory, pods: Sequence[Evictable], gone: Sequence[Evictable]) -> bool:
    sums = NodeSums()
    for pod in pods:
        if pod not in gone:
            sums.put(pod.uid, pod.footprint)
    return isinstance(place(need, inventory, sums.usage()), Choice)


@st.composite
def full_nodes(draw: st.DrawFn) -> tuple[Inventory, list[Evictable], list[int], dict[str, int]]:
    """Return a node whose pods were placed one after the other, with budgets and other resources."""
    inventory, _ = draw(nodes())
    inventory = replace(inventory, disabled=frozenset())
    allowed = draw(st.lists(st.integers(0, 2), max_size=2))
    sums = NodeSums()
    pods: list[Evictable] = []
    for number in range(draw(st.integers(1, 6))):
        need = draw(needs(init_containers=False, soft_rules=False))
        choice = place(need, inventory, sums.usage())
        if not isinstance(choice, Choice):
            continue
        pod = Evictable(
            uid=f"u{number}",
            priority=draw(st.integers(-1, 1)),
            footprint=footprint(need, choice, inventory.capacity),
            requests=draw(st.sampled_from([(), (("cpu", 1),), (("cpu", 2), ("pods", 1))])),
            budgets=draw(st.sampled_from([(), *((at,) for at in range(len(allowed))), tuple(range(len(allowed)))])),
            leaving=draw(st.integers(0, 4)) == 0,
            must_go=draw(st.integers(0, 5)) == 0,
        )
        sums.put(pod.uid, pod.footprint)
        pods.append(pod)
    return inventory, pods, allowed, {"cpu": draw(st.integers(-1, 2)), "pods": draw(st.integers(0, 2))}


def subsets(pods: Sequence[Evictable]) -> Iterator[tuple[Evictable, ...]]:
    for size in range(len(pods) + 1):
        yield from combinations(pods, size)


@settings(max_examples=100)
@given(
    full_nodes(),
    needs(soft_rules=False),
    st.sampled_from([(), (("cpu", 1),), (("cpu", 3), ("pods", 1))]),
)
def test_no_set_of_victims_is_smaller(
    node: tuple[Inventory, list[Evictable], list[int], dict[str, int]], need: PodNeed, requests: SortedAmounts
) -> None:
    agrees_with_brute_force(node, need, requests)


def agrees_with_brute_force(
    node: tuple[Inventory, list[Evictable], list[int], dict[str, int]], need: PodNeed, requests: SortedAmounts = ()
) -> None:
    inventory, pods, allowed, free = node
    levels = sorted({pod.priority for pod in pods}, reverse=True)

    def cost(gone: Sequence[Evictable]) -> tuple[object, ...]:
        staying = [pod for pod in pods if pod in gone and not pod.leaving]
        return (
            violating((pod.budgets for pod in staying), allowed),
            tuple(sum(pod.priority == level for pod in staying) for level in levels),
            len(gone),
        )

    def fits(gone: Sequence[Evictable]) -> bool:
        for name, wanted in requests:
            if free[name] + sum(dict(pod.requests).get(name, 0) for pod in gone) < wanted:
                return False
        return fits_without(need, inventory, pods, gone)

    must_go = [pod for pod in pods if pod.must_go]
    possible = sorted((gone for gone in subsets(pods) if all(pod in gone for pod in must_go)), key=cost)
    least = next((cost(gone) for gone in possible if fits(gone)), None)
    victims = victims_of(need, pods, requests=requests, free=free, allowed=allowed, inventory=inventory)
    assert (victims is None) == (least is None)
    if victims is not None:
        assert cost(victims.pods) == least
        assert fits(victims.pods)
        assert victims.violations == violating((pod.budgets for pod in pods if pod in victims.pods), allowed)


EIGHT = tuple(Card(number) for number in range(8))


@st.composite
def large_nodes(
    draw: st.DrawFn,
) -> tuple[tuple[Inventory, list[Evictable], list[int], dict[str, int]], PodNeed]:
    """Return a full node of up to 8 cards, some of whose pods hold several, and a pod that wants up to 6 of them."""
    cards = EIGHT[: draw(st.integers(3, 8))]
    linked = draw(st.integers(0, 3)) == 0
    pairs = draw(st.lists(st.sampled_from(list(combinations(cards, 2))), max_size=9, unique=True)) if linked else []
    inventory = Inventory(
        capacity={card: {"i915": 4, "millicores": 6, "tiles": 2} for card in cards},
        numa_groups=draw(st.sampled_from([None, (cards[::2], cards[1::2]), (cards[:3], cards[3:])])),
        links=tuple(
            Link(Tile(one, draw(st.integers(0, 1))), Tile(other, draw(st.integers(0, 1)))) for one, other in pairs
        ),
    )
    sums = NodeSums()
    pods: list[Evictable] = []
    allowed = draw(st.sampled_from([[], [0], [1], [1, 0], [2, 1]]))
    budgets = [(), (), *((at,) for at in range(len(allowed))), tuple(range(len(allowed)))]
    for number in range(draw(st.integers(3, 9))):
        holder = draw(one_container_needs(4, linked=False))
        allowlist = frozenset(draw(st.permutations(cards))[:4])
        choice = place(replace(holder, allowed=allowlist), inventory, sums.usage())
        if isinstance(choice, Choice):
            pod = Evictable(
                uid=f"u{number}",
                priority=draw(st.integers(0, 1)),
                footprint=footprint(holder, choice, inventory.capacity),
                budgets=draw(st.sampled_from(budgets)),
                leaving=draw(st.integers(0, 5)) == 0,
                must_go=draw(st.integers(0, 7)) == 0,
            )
            sums.put(pod.uid, pod.footprint)
            pods.append(pod)
    need = draw(one_container_needs(6, linked=linked))
    need = replace(need, scope=draw(st.sampled_from([Scope.ANYWHERE, Scope.ANYWHERE, Scope.NUMA])))
    return (inventory, sorted(pods, key=lambda pod: -pod.priority), allowed, {}), need


@st.composite
def one_container_needs(draw: st.DrawFn, most: int, *, linked: bool) -> PodNeed:
    """Return a need of several cards for one container, now and then with another one that needs a card of its own."""
    count = draw(st.sampled_from([2, 4])) if linked else draw(st.integers(1, most))
    per_card = {"i915": 1, "millicores": draw(st.integers(1, 6)), "tiles": 1 if linked else draw(st.integers(0, 2))}
    main = ContainerNeed("main", count, sorted_amounts(per_card))
    first = ContainerNeed("first", 1, sorted_amounts({"i915": 1, "millicores": 6}), role=Role.INIT)
    containers = (first, main) if not linked and draw(st.integers(0, 4)) == 0 else (main,)
    return PodNeed(containers, linked=linked)


@settings(max_examples=80)
@given(large_nodes())
def test_no_set_is_smaller_on_nodes_of_up_to_eight_cards(
    node_and_need: tuple[tuple[Inventory, list[Evictable], list[int], dict[str, int]], PodNeed],
) -> None:
    agrees_with_brute_force(*node_and_need)


shares = st.tuples(
    st.sampled_from([20, 30, 50, 70, 100]),
    st.integers(0, 2),
    st.sampled_from([(), (), (0,), (1,)]),
    st.integers(0, 7).map(lambda number: number == 0),
)


@settings(max_examples=40)
@given(
    st.lists(st.lists(shares, max_size=20), min_size=8, max_size=8),
    st.integers(1, 8),
    st.sampled_from([300, 500, 800, 1000]),
)
def test_the_cheapest_cards_of_many_full_ones(
    cards: list[list[tuple[int, int, tuple[int, ...], bool]]], wanted: int, millicores: int
) -> None:
    """With 20 unlike pods on each of 8 cards, against tables of what every amount costs on a card."""
    inventory = Inventory(capacity={card: {"i915": 40, "millicores": 1000} for card in EIGHT})
    allowed = [0, 200]
    pods: list[Evictable] = []
    of_cards: list[tuple[int, ...]] = []
    for number, of_card in enumerate(cards):
        left = 1000
        cheapest: dict[int, tuple[int, ...]] = {0: (0,) * 5}  # by amount
        for at, (size, priority, budgets, leaving) in enumerate(of_card):
            if size > left:
                continue
            left -= size
            pods.append(
                evictable(f"{number}-{at:02}", number, size, priority=priority, budgets=budgets, leaving=leaving)
            )
            counts = 0 if leaving else 1
            cost = (counts * (budgets == (0,)), *(counts * (priority == level) for level in (2, 1, 0)), 1)
            for amount, before in list(cheapest.items()):
                more = tuple(map(sum, zip(before, cost, strict=True)))
                cheapest[amount + size] = min(cheapest.get(amount + size, more), more)
        of_cards.append(min(cost for amount, cost in cheapest.items() if left + amount >= millicores))
    pods.sort(key=lambda pod: -pod.priority)
    least = tuple(map(sum, zip(*sorted(of_cards)[:wanted], strict=True)))
    victims = victims_of(wants(millicores, cards=wanted), pods, allowed=allowed, inventory=inventory)
    assert victims is not None
    found = [pod for pod in victims.pods if not pod.leaving]
    assert least == (
        sum(pod.budgets == (0,) for pod in found),
        *(sum(pod.priority == level for pod in found) for level in (2, 1, 0)),
        len(victims.pods),
    )
