"""Why nothing fits: found by leaving out, one after the other, what may stand in the way.

Only asked once it is certain that the pod does not fit: what is wrong here is a less apt sentence, never a
pod.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gas.amounts import TILES
from gas.cards import Card
from gas.placement.candidates import usable_cards
from gas.placement.free_capacity import FreeCapacity
from gas.placement.inventory import Inventory, Usage
from gas.placement.need import ContainerNeed, PodNeed
from gas.placement.refusal import (
    AllowListInTheWay,
    CardsDisabled,
    DenyListInTheWay,
    FewerCardsThanWanted,
    NoCards,
    NoLinkedPairs,
    NoNumaGroup,
    NoRoom,
    NotTogether,
    Refusal,
    ResourceNotOnNode,
    Shortage,
)
from gas.placement.requests import plan_of
from gas.placement.shortage import not_together, shortage
from gas.placement.single_numa import card_groups
from gas.placement.solve import Unsolved, solve

_EFFORT = 10
"""Each search for a reason may try this part of what the search for an answer may."""


@dataclass(frozen=True)
class _Question:
    """One pod, one node, and how to ask again; the balanced resource only orders cards and is left out."""

    need: PodNeed
    inventory: Inventory
    usage: Usage
    step_limit: int

    def fits(self) -> bool:
        return not isinstance(solve(self.need, self.inventory, self.usage, None, self.step_limit), Unsolved)


@dataclass(frozen=True)
class _Obstacle:
    """Something that narrows the choice.

    leave_out  the question without it; None if it has no effect there
    refusal    what to say when it is what stands in the way
    """

    leave_out: Callable[[_Question], _Question | None]
    refusal: Callable[[_Question], Refusal]


def reason(need: PodNeed, inventory: Inventory, usage: Usage, step_limit: int) -> Refusal:
    """The refusal for a pod that does not fit; ``step_limit`` is that of the search that found so."""
    question = _Question(need, inventory, usage, step_limit // _EFFORT)
    if (refusal := _impossible(need, inventory)) is not None:
        return refusal
    without = [(obstacle, obstacle.leave_out(question)) for obstacle in _OBSTACLES]
    effective = [(obstacle, eased) for obstacle, eased in without if eased is not None]
    for obstacle, eased in effective:
        if eased.fits():
            return obstacle.refusal(question)
    so_far = question
    for obstacle, _ in effective:
        so_far = obstacle.leave_out(so_far) or so_far
        if so_far.fits():
            return obstacle.refusal(question)
    short = _what_is_short(question, inventory.cards)
    return NoRoom(short) if isinstance(short, Shortage) else short


def _impossible(need: PodNeed, inventory: Inventory) -> Refusal | None:
    """What no free card could change."""
    if not inventory.capacity:
        return NoCards()
    plan = plan_of(need)
    for name in plan.names:
        if not any(amounts.get(name, 0) > 0 for amounts in inventory.capacity.values()):
            return ResourceNotOnNode(name)
    most = max(request.count for request in plan.requests)
    if most > len(inventory.capacity):
        return FewerCardsThanWanted(most, len(inventory.capacity))
    return None


def _what_is_short(question: _Question, cards: tuple[Card, ...]) -> Shortage | NotTogether:
    plan = plan_of(question.need)
    room = FreeCapacity(plan, question.inventory, question.usage, cards)
    for request in plan.requests:
        if (short := shortage(plan, request, (cards,), room)) is not None:
            return short
    return not_together(plan)


def _short_on_usable(question: _Question) -> Shortage | NotTogether:
    return _what_is_short(question, usable_cards(question.need, question.inventory, balanced=True))


def _open_cards(question: _Question) -> _Question | None:
    if not question.inventory.disabled:
        return None
    return replace(question, inventory=replace(question.inventory, disabled=frozenset()))


def _cards_disabled(question: _Question) -> Refusal:
    disabled = [card for card in question.inventory.cards if card in question.inventory.disabled]
    listed = [card for card in disabled if _is_listed(question.need, card)]
    return CardsDisabled(tuple(listed or disabled))


def _is_listed(need: PodNeed, card: Card) -> bool:
    return card not in need.denied and (need.allowed is None or card in need.allowed)


def _without_allow_list(question: _Question) -> _Question | None:
    if question.need.allowed is None:
        return None
    return replace(question, need=replace(question.need, allowed=None))


def _without_deny_list(question: _Question) -> _Question | None:
    if not question.need.denied:
        return None
    return replace(question, need=replace(question.need, denied=frozenset()))


def _across_numa_groups(question: _Question) -> _Question | None:
    if not question.need.single_numa or question.inventory.numa_groups is None:
        return None
    return replace(question, inventory=replace(question.inventory, numa_groups=None))


def _no_numa_group(question: _Question) -> Refusal:
    plan = plan_of(question.need)
    usable = usable_cards(question.need, question.inventory, balanced=True)
    room = FreeCapacity(plan, question.inventory, question.usage, usable)
    groups = card_groups(question.need, question.inventory, usable)
    found = (shortage(plan, request, groups, room) for request in plan.requests)
    return NoNumaGroup(next((short for short in found if short is not None), None))


def _without_links(question: _Question) -> _Question | None:
    return replace(question, need=replace(question.need, linked=False)) if question.need.linked else None


def _no_linked_pairs(question: _Question) -> Refusal:
    need, plan = question.need, plan_of(question.need)
    for position, container in enumerate(need.containers):
        if container.count and not replace(question, need=_only(need, position)).fits():
            left_out = need.count_resources | {TILES}
            amounts = tuple(named for named in container.per_card if named[0] not in left_out)
            return NoLinkedPairs(container.count // 2, amounts)
    at_once = [
        sum(request.count for request in plan.requests if moment in request.moments) for moment in range(plan.moments)
    ]
    return NoLinkedPairs(max(at_once) // 2, (), together=True)


def _only(need: PodNeed, position: int) -> PodNeed:
    """The need with one container's cards alone; every container keeps its place."""
    return replace(
        need,
        containers=tuple(
            container if at == position else ContainerNeed(container.name, role=container.role)
            for at, container in enumerate(need.containers)
        ),
    )


_OBSTACLES = (
    _Obstacle(_open_cards, _cards_disabled),
    _Obstacle(_without_allow_list, lambda question: AllowListInTheWay(_short_on_usable(question))),
    _Obstacle(_without_deny_list, lambda question: DenyListInTheWay(_short_on_usable(question))),
    _Obstacle(_across_numa_groups, _no_numa_group),
    _Obstacle(_without_links, _no_linked_pairs),
)
