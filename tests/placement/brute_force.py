"""The search compared with brute force, as properties of any pod on any node."""

from __future__ import annotations

import copy

from hypothesis import HealthCheck, settings

from gas.placement.choice import Choice, footprint
from gas.placement.inventory import Inventory, Usage
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.placement.refusal import Refusal, SearchLimitHit
from tests.placement import model

law = settings(
    max_examples=250, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
Node = tuple[Inventory, Usage]


def check(need: PodNeed, inventory: Inventory, usage: Usage, choice: Choice) -> None:
    """Assert every rule that a choice must keep."""
    hands = model.hands_in(need, choice)
    assert len(choice.containers) == len(need.containers)
    for container, one in zip(need.containers, choice.containers, strict=True):
        assert len(set(one.cards)) == len(one.cards) == container.count
        assert all(model.usable(need, inventory, usage, card) for card in one.cards)
        assert len(one.tiles) == (len(one.cards) if container.tiles else 0)
        for card, tiles in zip(one.cards, one.tiles, strict=False):
            assert len(set(tiles)) == len(tiles) == container.tiles
            assert set(tiles) <= model.open_tiles(inventory, usage, card)
    assert model.within_capacity(need, inventory, usage, hands)
    assert model.in_scope(need, inventory, hands)
    assert model.disjoint_while_together(need, choice)
    assert len({choice.containers[at].cards for at in need.same_card}) <= 1
    assert model.are_apart(need, hands)
    if need.linked:
        ends = [[(card, tile) for card, tile in hand] for hand in hands]
        joined = {frozenset(link) for link in inventory.links}
        assert all(frozenset(hand[at : at + 2]) in joined for hand in ends for at in range(0, len(hand), 2))


def check_booking(need: PodNeed, inventory: Inventory, usage: Usage, choice: Choice) -> None:
    """Assert that the footprint of the choice is not larger than what was free."""
    held = footprint(need, choice, inventory.capacity)
    assert held.containers == {
        card: max(sum(card in choice.containers[at].cards for at in together) for together in model.moments(need))
        for card in {card for one in choice.containers for card in one.cards}
    }
    for card, amounts in held.amounts.items():
        booked = usage.amounts.get(card, {})
        assert all(booked.get(name, 0) + amount <= inventory.capacity[card][name] for name, amount in amounts)
    assert all(tiles <= model.open_tiles(inventory, usage, card) for card, tiles in held.tiles.items())


def agrees_with_brute_force(node: Node, need: PodNeed) -> None:
    inventory, usage = node
    before = copy.deepcopy((need, inventory, usage))
    answer = place(need, inventory, usage)
    assert (need, inventory, usage) == before, "only read"
    assert not isinstance(answer, SearchLimitHit)
    if isinstance(answer, Refusal):
        assert str(answer)
        assert model.first(model.every_answer(need, inventory, usage), lambda _: True) is None
        return
    check(need, inventory, usage, answer)
    check_booking(need, inventory, usage, answer)
    hands = model.hands_in(need, answer)
    if not need.apart and not model.as_kubelet_hands_on(need, hands):
        better = model.first(
            model.every_answer(need, inventory, usage), lambda other: model.as_kubelet_hands_on(need, other)
        )
        assert better is None, "what kubelet hands on is obeyed where it can be"
