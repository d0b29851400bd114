"""The cost of a node's state, compared with brute force, and the policies of scoring nodes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.placement.choice import Choice, ContainerChoice, footprint
from gas.placement.inventory import UNUSED, Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.node_cost import (
    MEMORY,
    MOST_BETWEEN,
    MOST_PRESSURE,
    PRICE,
    RESERVE,
    Arrivals,
    Effect,
    effect,
    placement_cost,
    pressures,
    stranded,
)
from gas.placement.order import LeastWaste, NodeScore, parse_node_score
from gas.placement.place import place
from gas.placement.ratio import Ratio
from gas.placement.waste import LEFT_UNUSED, PRIOR, WHOLE, Asked, Mix, Slice, share_left, share_taken, waste_table
from gas.values.amounts import sorted_amounts
from gas.values.cards import Card
from gas.values.errors import InvalidValue
from tests.placement.brute_force import law
from tests.placement.builders import GB, amounts, booked, container, init, node, pod
from tests.placement.strategies import mixes, needs, nodes

CARD = amounts(i915=20, millicores=1000, memory=16 * GB)


def asked(*each: PodNeed, times: int = 100, cpu: int = 10_000) -> Mix:
    """Return the mix after so many arrivals of each pod."""
    demand = Arrivals()
    for one in each * times:
        demand.learn(one, {"cpu": cpu})
    return demand.mix()


def share(millicores: int, memory: int = 0) -> PodNeed:
    both = container(millicores=millicores, memory=memory)
    return pod(both if memory else container(millicores=millicores))


# The waste of one card.


def mean_left(sizes: Mapping[int, float], left: int, draws: int) -> float:
    """Return the mean of what is left after every sequence of pods, each weighted with its chance."""
    total = sum(sizes.values())
    mean = 0.0
    for sequence in itertools.product(sizes, repeat=draws):
        rest = left
        for size in sequence:
            rest -= size if size <= rest else 0
        mean += rest * math.prod(sizes[size] / total for size in sequence)
    return mean


@law
@given(
    st.dictionaries(
        st.integers(1, 99).map(lambda step: step * 10), st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=3
    ),
    st.integers(0, 100).map(lambda step: step * 10),
)
def test_waste_is_the_mean_over_every_sequence_of_pods(sizes: dict[int, float], left: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gas.placement.waste.MOST_DRAWS", 4)
        patch.setattr("gas.placement.waste.LEFT_UNUSED", 0.0)
        patch.setattr("gas.placement.waste.PRIOR", 0.0)
        table = waste_table(sizes)
    assert abs(table[left // 10] - mean_left(sizes, left, 4)) <= 0.5 + 1e-6


@pytest.mark.parametrize("left", [0, 10, 370, 990, 1000])
def test_imagined_pods_of_all_sizes_are_added(left: int) -> None:
    sizes = {500: 3.0, 70: 1.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gas.placement.waste.MOST_DRAWS", 2)
        patch.setattr("gas.placement.waste.LEFT_UNUSED", 0.0)
        table = waste_table(sizes)
    imagined = {step * 10: PRIOR / 99 for step in range(1, 100)}
    all_sizes = {size: imagined[size] + sizes.get(size, 0.0) for size in imagined}
    assert abs(table[left // 10] - mean_left(all_sizes, left, 2)) <= 0.5 + 1e-6


def test_what_only_a_rare_pod_fits_into_is_mostly_wasted() -> None:
    table = waste_table({810: 900.0, 190: 1.0})
    assert table[19] > 150, "a pod of 190 hardly ever comes"
    assert table[81] < 20, "a pod of 810 comes all the time"
    assert table[0] == 0


@pytest.mark.parametrize("sizes", [{50: 1.0}, {300: 5.0, 110: 5.0, 650: 3.0}])
def test_pods_come_until_little_of_all_remainders_is_left(sizes: dict[int, float]) -> None:
    table = waste_table({size: 100 * weight for size, weight in sizes.items()})
    all_of_it = sum(range(0, WHOLE + 1, 10))
    assert LEFT_UNUSED * all_of_it / 2 < sum(table) <= LEFT_UNUSED * all_of_it + len(table)


def test_pods_that_fill_no_small_remainder_come_only_so_often() -> None:
    assert waste_table({810: 10.0**9})[80] > 790


def test_imagined_pods_decide_while_none_was_seen() -> None:
    assert waste_table({})[99] < 100


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        pytest.param({"i915": 20, "millicores": 1000, "memory.max": 16 * GB}, 1000, id="all"),
        pytest.param({"i915": 19, "millicores": 190, "memory.max": 12 * GB}, 190, id="the-scarcest-resource"),
        pytest.param({"i915": 5, "millicores": 900, "memory.max": 16 * GB}, 250, id="the-number-of-containers"),
        pytest.param({"i915": 5, "millicores": -10, "memory.max": 16 * GB}, 0, id="over-booked"),
    ],
)
def test_a_card_has_left_what_its_scarcest_resource_has(free: dict[str, int], expected: int) -> None:
    assert share_left(CARD, free) == expected


@pytest.mark.parametrize(
    ("takes", "expected"),
    [
        pytest.param({"i915": 1, "millicores": 300}, 300, id="the-largest-share"),
        pytest.param({"i915": 1, "memory.max": 16 * GB}, 1000, id="a-whole-card"),
        pytest.param({"i915": 1, "memory.max": 1}, 50, id="one-of-20-containers"),
        pytest.param({"i915": 1, "millicores": 301, "memory.max": 5 * GB}, 313, id="rounded-up"),
        pytest.param({"i915": 1, "tiles": 1}, 1001, id="a-resource-that-the-card-does-not-have"),
        pytest.param({"i915": 1, "memory.max": 32 * GB}, 2000, id="too-much"),
    ],
)
def test_a_pod_takes_the_share_of_what_it_takes_most(takes: dict[str, int], expected: int) -> None:
    assert share_taken(CARD, Slice(1, sorted_amounts(takes))) == expected


def test_the_share_taken_as_a_part_of_a_card_is_that_of_its_capacity() -> None:
    assert share_taken({"memory.max": 80}, Slice(1, (), (Ratio("memory.max", 25),))) == WHOLE // 4


SOME_AMOUNTS = st.dictionaries(st.sampled_from(("i915", "millicores", "memory.max", "tiles")), st.integers(0, 40))


@law
@given(SOME_AMOUNTS, SOME_AMOUNTS)
def test_the_share_taken_is_the_smallest_that_has_enough_of_every_resource(
    capacity: dict[str, int], takes: dict[str, int]
) -> None:
    def has_enough(share: int) -> bool:
        return all(amount * WHOLE <= share * capacity[name] for name, amount in takes.items())

    taken = share_taken(capacity, Slice(1, sorted_amounts(takes)))
    if all(capacity.get(name) for name in takes):
        assert has_enough(taken)
        assert taken == 0 or not has_enough(taken - 1)
    else:
        assert taken > WHOLE, "it does not fit on such a card"


def test_one_pod_is_a_small_share_of_a_large_card_and_a_whole_small_one() -> None:
    mix = asked(share(100, memory=8 * GB))
    small = mix.on(CARD | {"memory.max": 8 * GB})
    large = mix.on(CARD | {"memory.max": 32 * GB})
    assert large.per_card["cpu"] == 4 * small.per_card["cpu"]
    assert large.wasted(250) < 30 < large.wasted(240)


def test_pods_that_fit_on_no_card_of_a_kind_do_not_count_there() -> None:
    mix = asked(share(500), share(500, memory=32 * GB))
    assert mix.on(CARD) == asked(share(500)).on(CARD)


# What the host cannot serve.


@law
@given(
    st.integers(0, 8000),
    st.fixed_dictionaries({"cpu": st.integers(-5, 100), "memory": st.integers(0, 100)}),
    st.dictionaries(st.sampled_from(("cpu", "memory")), st.floats(0.5, 20)),
)
def test_stranded_is_what_the_scarcest_resource_cannot_serve(
    left: int, host: dict[str, int], per_card: dict[str, float]
) -> None:
    lost = stranded(left, host, per_card)
    assert 0 <= lost <= left
    served = left - lost
    for name, amount in per_card.items():
        assert served * amount * RESERVE <= max(host[name], 0) * WHOLE + 1e-6, "no more than there is"
    scarce = [name for name, amount in per_card.items() if (served + 2) * amount * RESERVE > max(host[name], 0) * WHOLE]
    assert lost == 0 or scarce, "not less than possible"


def test_a_pod_that_takes_the_last_cpu_strands_the_cards() -> None:
    per_card = {"cpu": 10_000.0}
    assert stranded(8000, {"cpu": 96_000}, per_card) == 0
    assert stranded(8000, {"cpu": 96_000}, per_card, {"cpu": 96_000}) == 8000
    assert stranded(8000, {"cpu": 96_000}, per_card, {"cpu": 54_000}) == 4000
    assert stranded(8000, {}, {}) == 0, "nothing is known of what pods request"
    assert stranded(500, {}, {"cpu": 0.001}) == 500, "the host has none of it"


# The effect of a pod on a node.


@law
@given(mixes, nodes(), needs())
def test_the_effect_is_the_difference_of_two_states(mix: Mix, known: tuple[Inventory, Usage], need: PodNeed) -> None:
    inventory, usage = known
    choice = place(need, inventory, usage)
    if not isinstance(choice, Choice):
        return
    taken = footprint(need, choice, inventory.capacity)
    later = Usage(
        amounts={
            card: {
                name: usage.amounts.get(card, {}).get(name, 0) + dict(taken.amounts.get(card, ())).get(name, 0)
                for name in {*usage.amounts.get(card, {}), *dict(taken.amounts.get(card, ()))}
            }
            for card in inventory.capacity
        },
        tiles={
            card: usage.tiles.get(card, frozenset()) | taken.tiles.get(card, frozenset()) for card in inventory.capacity
        },
        containers={card: usage.containers.get(card, 0) + taken.containers.get(card, 0) for card in inventory.capacity},
    )
    nothing = footprint(PodNeed(()), Choice(()))
    found = effect(mix, inventory, usage, taken)
    before, after = (effect(mix, inventory, each, nothing) for each in (usage, later))
    assert (found.before, found.after) == (before.before, after.before)
    assert found.containers == after.containers
    assert before.waste == after.waste == 0
    wasted_before, wasted_after = (
        sum(
            mix.on(inventory.capacity[card]).wasted(state_share(inventory, each, card))
            for card in inventory.capacity
            if card not in inventory.disabled
        )
        for each in (usage, later)
    )
    assert found.waste == wasted_after - wasted_before
    enabled = {card: has for card, has in inventory.capacity.items() if card not in inventory.disabled}
    assert found.left == sum(state_share(inventory, later, card) for card in taken.amounts if card in enabled)
    assert found.per_card == next(filter(None, (mix.on(has).per_card for has in enabled.values())), {})


def state_share(inventory: Inventory, usage: Usage, card: Card) -> int:
    """Return the share of a card that is left, worked out from the definition."""
    shares = [WHOLE]
    for name, has in inventory.capacity[card].items():
        left = has - usage.amounts.get(card, {}).get(name, 0)
        if name == "tiles":
            left -= len(inventory.closed_tiles.get(card, frozenset()) - usage.tiles.get(card, frozenset()))
        if has:
            shares.append(left * WHOLE // has)
    return max(min(shares), 0)


# The card.


@law
@given(mixes, st.lists(st.integers(0, 20).map(lambda step: step * 50), min_size=1, max_size=4), st.integers(1, 20))
def test_least_waste_gives_the_card_on_which_least_more_is_wasted(mix: Mix, used: list[int], steps: int) -> None:
    need = replace(share(steps * 50), order=LeastWaste(mix))
    inventory = node(CARD, like=len(used))
    usage = booked(*(amounts(i915=1 if each else 0, millicores=each) for each in used))
    choice = place(need, inventory, usage)
    fitting = [number for number, each in enumerate(used) if each + steps * 50 <= 1000]
    if not fitting:
        assert not isinstance(choice, Choice)
        return
    assert isinstance(choice, Choice)

    def waste(number: int) -> int:
        on_card = Choice((ContainerChoice((Card(number),)),))
        return effect(mix, inventory, usage, footprint(need, on_card)).waste

    (card,) = choice.containers[0].cards
    assert waste(int(card)) == min(map(waste, fitting))


@law
@given(mixes, nodes(), needs(init_containers=False, same_card=False, company=False, grouped=False))
def test_least_waste_gives_the_best_of_the_cards_on_which_the_pod_fits(
    mix: Mix, known: tuple[Inventory, Usage], drawn: PodNeed
) -> None:
    """Whatever resources, tiles and rules there are: the result is that of asking for each card alone."""
    inventory, usage = known
    need = replace(drawn, containers=drawn.containers[:1], apart=frozenset(), order=LeastWaste(mix), near=False)
    if need.containers[0].count != 1:
        return

    def waste(choice: Choice) -> int:
        return effect(mix, inventory, usage, footprint(need, choice, inventory.capacity)).waste

    wastes = []
    for card in inventory.cards:
        others = frozenset(inventory.cards) - {card}
        alone = place(need, replace(inventory, disabled=inventory.disabled | others), usage)
        if isinstance(alone, Choice):
            wastes.append(waste(alone))
    choice = place(need, inventory, usage)
    assert isinstance(choice, Choice) == bool(wastes)
    if isinstance(choice, Choice):
        assert waste(choice) == min(wastes)


def test_a_pod_completes_a_card_rather_than_breaking_another_remainder() -> None:
    mix = asked(share(810), share(190), share(470))
    need = replace(share(190), order=LeastWaste(mix))
    usage = booked(amounts(millicores=530), amounts(millicores=810), amounts())
    choice = place(need, node(CARD, like=3), usage)
    assert isinstance(choice, Choice)
    assert choice.containers[0].cards == (Card(1),)


def test_the_second_container_sees_what_the_first_one_took() -> None:
    mix = asked(share(810), share(190))
    need = replace(pod(container(millicores=810), container(millicores=190)), order=LeastWaste(mix))
    choice = place(need, node(CARD, like=2), UNUSED)
    assert isinstance(choice, Choice)
    assert [each.cards for each in choice.containers] == [(Card(0),), (Card(0),)]


# The policies.

SOME = Effect(cards=4, before=3000, after=2500, waste=70, containers=6, per_card={"cpu": 10_000.0}, left=300)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(NodeScore.BALANCE, 70, id="balance-what-becomes-unusable"),
        pytest.param(NodeScore.BEST_FIT, 2500, id="best-fit-what-is-left"),
        pytest.param(NodeScore.BEST_FIT_CARD, 300, id="best-fit-card-what-is-left-on-the-cards-of-the-pod"),
        pytest.param(NodeScore.SPREAD, 375, id="spread-the-share-that-is-used"),
        pytest.param(NodeScore.LEAST_LOADED, 1500, id="least-loaded-containers-for-each-card"),
        pytest.param(NodeScore.NONE, 0, id="none"),
    ],
)
def test_each_policy_has_its_cost(policy: NodeScore, expected: int) -> None:
    assert placement_cost(policy, SOME, host={"cpu": 10**6}, requests={"cpu": 5000}) == expected
    no_cards = Effect(0, 0, 0, 0, 0, {})
    assert placement_cost(policy, no_cards) == (WHOLE if policy is NodeScore.SPREAD else 0)


def test_balance_adds_what_is_stranded_and_the_price_of_cards_that_others_need() -> None:
    poor = {"cpu": 31_500}
    cost = placement_cost(NodeScore.BALANCE, SOME, host=poor, requests={"cpu": 10_500})
    assert cost == 70 + 500, "before: 3000 of 3000 served; afterwards 2000 of 2500"
    dear = placement_cost(NodeScore.BALANCE, SOME, host=poor, requests={"cpu": 10_500}, pressure=1.0)
    assert dear - cost == PRICE * 500


@pytest.mark.parametrize("policy", list(NodeScore))
def test_the_text_of_a_policy_is_read_back(policy: NodeScore) -> None:
    assert parse_node_score(str(policy)) is policy


def test_another_text_is_refused_with_what_is_expected() -> None:
    with pytest.raises(
        InvalidValue, match=r"^expected balance\|best-fit\|best-fit-card\|spread\|least-loaded\|none, found 'fast'$"
    ):
        parse_node_score("fast")


# What is learned.


def test_the_mix_is_made_anew_now_and_then() -> None:
    demand = Arrivals()
    seen = []
    for _ in range(4000):
        demand.learn(share(500), {"cpu": 1})
        if (mix := demand.mix()) not in seen:
            seen.append(mix)
    after = [0, 20, 30, 45, 67, 100, 150, 225, 337, 505, 757, 1135, 1702, 2553, 3553]
    assert [sum(each.weight for each in mix.asked) for mix in seen] == after
    assert demand.arrivals == 4000
    assert after[-1] - after[-2] == MOST_BETWEEN


def test_a_pod_without_cards_teaches_nothing() -> None:
    demand = Arrivals()
    demand.learn(pod(container(0)), {"cpu": 1000})
    demand.learn(pod(init(millicores=500), container(0)), {"cpu": 1000})
    assert demand.arrivals == 0


def test_old_pods_count_less_and_are_forgotten_in_the_end() -> None:
    demand = Arrivals()
    for _ in range(1000):
        demand.learn(share(300), {"cpu": 1000})
    weights = []
    for _ in range(12):
        for _ in range(int(MEMORY)):
            demand.learn(share(700), {"cpu": 5000})
        weights.append({dict(each.shape[0].per_card)["millicores"]: each.weight for each in demand.mix().asked})
    first, last = weights[0], weights[-1]
    assert 0 < first[300] < first[700]
    assert set(last) == {700}
    assert demand.mix().on(CARD).per_card["cpu"] == pytest.approx(5000 / 0.7)


@law
@given(st.lists(st.tuples(st.sampled_from([200, 500, 1000]), st.integers(1, 9)), min_size=20, max_size=20))
def test_cpu_for_each_card_is_what_pods_request_divided_by_the_cards_that_they_take(
    pods: list[tuple[int, int]],
) -> None:
    demand = Arrivals()
    for millicores, cpu in pods:
        demand.learn(share(millicores), {"cpu": cpu})
    expected = sum(cpu for _, cpu in pods) / (sum(millicores for millicores, _ in pods) / 1000)
    assert demand.mix().on(CARD).per_card["cpu"] == pytest.approx(expected)


def test_pressure_is_the_demand_of_restricted_pods_on_the_cards_that_they_may_use() -> None:
    demand = Arrivals()
    for _ in range(75):
        demand.learn(share(1000), {})
    for _ in range(25):
        demand.learn(share(1000), {}, "only-a")
    mix = demand.mix()
    cards = {"a": 20, "b": 60, "c": 20}
    admitted: dict[Hashable, set[str]] = {"only-a": {"a"}}
    found = pressures(mix, CARD, {"a": 50, "b": 50}, admitted)
    assert found == {"a": pytest.approx(0.5)}
    assert pressures(mix, CARD, cards, admitted) == {"a": pytest.approx(1.25)}
    assert pressures(mix, CARD, {"a": 1, "b": 99}, admitted) == {"a": MOST_PRESSURE}
    assert pressures(mix, CARD, {"a": 50, "b": 50}, admitted | {"only-a": {"a", "b"}}) == {}, "not restricted after all"
    assert pressures(mix, CARD, {"b": 50}, admitted) == {}, "no such nodes any more"
    assert pressures(Mix(), CARD, cards, admitted) == {}


POOLS = st.dictionaries(st.sampled_from("abc"), st.integers(1, 5), min_size=1)
RESTRICTED = st.tuples(
    st.frozensets(st.sampled_from("abcd")), st.integers(1, 9), st.integers(1, 4), st.sampled_from([100, 500, 1000])
)


@law
@given(POOLS, st.lists(RESTRICTED, max_size=4), st.integers(0, 9))
def test_pressure_is_what_restricted_pods_ask_of_each_card(
    pools: dict[str, int], restricted: list[tuple[frozenset[str], int, int, int]], others: int
) -> None:
    """All pods together ask for all cards, and those of one restriction ask for equal parts of their cards."""

    def asked(weight: int, cards: int, millicores: int, restriction: int | None) -> Asked:
        return Asked((Slice(cards, sorted_amounts(amounts(millicores=millicores))),), restriction, float(weight), ())

    pods = [asked(weight, cards, size, rule) for rule, (_, weight, cards, size) in enumerate(restricted)]
    pods += [asked(others, 1, 1000, None)] if others else []
    demand = [weight * cards * size for _, weight, cards, size in restricted]
    everything = sum(demand) + others * 1000
    of_cards = {(pool, number): 0.0 for pool, count in pools.items() for number in range(count)}
    for (admitted, *_), of_rule in zip(restricted, demand, strict=True):
        usable = [card for card in of_cards if card[0] in admitted]
        if 0 < len(usable) < len(of_cards):
            for card in usable:
                of_cards[card] += of_rule / everything * len(of_cards) / len(usable)
    expected = {pool: pytest.approx(min(MOST_PRESSURE, of_cards[pool, 0])) for pool in pools if of_cards[pool, 0]}
    admitted_pools: dict[Hashable, frozenset[str]] = {rule: each[0] for rule, each in enumerate(restricted)}
    assert pressures(Mix(tuple(pods)), CARD, pools, admitted_pools) == expected


def test_equal_mixes_are_equal_keys() -> None:
    one, other = (Mix((Asked((Slice(1, (("i915", 1),)),), None, 1.0, ()),)) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Mix()
