"""Laws that hold for every pod on every node."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gas.placement.choice import Choice
from gas.placement.need import PodNeed, Scope
from gas.placement.order import NATURAL
from gas.placement.place import place
from gas.placement.refusal import SearchLimitHit
from tests.placement import model
from tests.placement.brute_force import Node, agrees_with_brute_force, check, law
from tests.placement.strategies import needs, nodes


# contract E6.8, E6.9
@law
@given(node=nodes(), need=needs())
def test_a_pod_is_placed_if_and_only_if_it_fits(node: Node, need: PodNeed) -> None:
    agrees_with_brute_force(node, need)


@law
@given(node=nodes(linked=True), need=needs(linked=True))
def test_a_linked_pod_is_placed_if_and_only_if_it_fits(node: Node, need: PodNeed) -> None:
    agrees_with_brute_force(node, need)


# contract E6.7
@law
@given(node=nodes(), need=needs(init_containers=False, ratios=False, grouped=False))
def test_a_pod_that_the_original_places_gets_the_same_cards(node: Node, need: PodNeed) -> None:
    as_the_original(node, need)


# contract E6.7
@law
@given(node=nodes(linked=True), need=needs(init_containers=False, linked=True, ratios=False))
def test_a_linked_pod_that_the_original_places_gets_the_same_cards(node: Node, need: PodNeed) -> None:
    as_the_original(node, need)


def as_the_original(node: Node, need: PodNeed) -> None:
    inventory, usage = node
    expected = model.FirstFit(need, inventory, usage).first_fit()
    if expected is None:
        return
    choice = place(need, inventory, usage)
    assert isinstance(choice, Choice)
    for container, one, hand in zip(need.containers, choice.containers, expected, strict=True):
        assert one.cards == tuple(card for card, _ in hand)
        assert one.tiles == (tuple(tiles for _, tiles in hand) if container.tiles else ())
    got_preferred = any(inventory.preferred_card == card for hand in expected for card, _ in hand)
    assert choice.preferred == (need.order == NATURAL and got_preferred)


@law
@given(
    node=nodes(),
    need=needs(init_containers=False, soft_rules=False, company=False, ratios=False, grouped=False),
)
def test_the_search_finds_the_first_choice_in_the_order_of_candidates(node: Node, need: PodNeed) -> None:
    inventory, usage = node
    if not need.wants_cards or model.FirstFit(need, inventory, usage).first_fit() is not None:
        return
    order = model.original_order(list(inventory.capacity), inventory.preferred_card)
    groups = [order]
    if need.scope in (Scope.CARD, Scope.NUMA_CARD):
        groups = [[card] for card in order]
    if need.scope is Scope.NUMA and inventory.numa_groups is not None:
        groups = [[card for card in order if card in group] for group in inventory.numa_groups]
    expected = next((hands for group in groups for hands in model.every_answer(need, inventory, usage, group)), None)
    answer = place(need, inventory, usage)
    assert expected == (model.hands_in(need, answer) if isinstance(answer, Choice) else None)


# contract E6.8
@law
@given(node=nodes(), need=needs(), step_limit=st.integers(0, 6))
def test_a_search_that_is_cut_short_never_reports_that_a_pod_does_not_fit(
    node: Node, need: PodNeed, step_limit: int
) -> None:
    inventory, usage = node
    answer = place(need, inventory, usage, step_limit=step_limit)
    if isinstance(answer, Choice):
        check(need, inventory, usage, answer)
    elif not isinstance(answer, SearchLimitHit):
        assert next(model.every_answer(need, inventory, usage), None) is None
