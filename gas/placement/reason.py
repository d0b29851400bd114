"""Find out why a pod does not fit a node, and for a pod that waits, what each card has free."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gas.placement.candidates import card_groups, pairs, usable_cards
from gas.placement.card_rules import CARD_RULES, CardRule, closed_cards
from gas.placement.free_capacity import FreeCapacity
from gas.placement.inventory import Inventory, Usage
from gas.placement.need import ContainerNeed, PodNeed, Scope
from gas.placement.plan import Plan, Request, plan_of
from gas.placement.ratio import Wanted, name_of
from gas.placement.refusal import (
    FewerCardsThanWanted,
    NoBoard,
    NoCardForAll,
    NoCards,
    NoLinkedPairs,
    NoNumaGroup,
    NoPartition,
    NoRoom,
    NotTogether,
    Refusal,
    ResourceNotOnNode,
    Shortage,
)
from gas.placement.solve import Unsolved, solve
from gas.values.amounts import MEMORY_MAX, TILES, StatedMemory, gigabytes, is_bytes
from gas.values.cards import Card

_STEP_FRACTION = 10  # each search for a reason may take this fraction of the steps of a search for a placement


@dataclass(frozen=True)
class _Question:
    need: PodNeed
    inventory: Inventory
    usage: Usage
    step_limit: int

    def fits(self) -> bool:
        return not isinstance(solve(self.need, self.inventory, self.usage, self.step_limit), Unsolved)


@dataclass(frozen=True)
class _Obstacle:
    """A rule that narrows the choice of cards."""

    # returns the question without the rule, or None if the rule has no effect there
    leave_out: Callable[[_Question], _Question | None]
    refusal: Callable[[_Question], Refusal]  # returns the refusal to give if the pod would fit without the rule


def reason(need: PodNeed, inventory: Inventory, usage: Usage, step_limit: int) -> Refusal:
    """Return the refusal for a pod that does not fit: leave out one obstacle after the other, and see what helps.

    A mistake here gives a less helpful sentence, never a wrong placement. ``step_limit`` is that of the failed search.
    """
    question = _Question(need, inventory, usage, step_limit // _STEP_FRACTION)
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
    """Return the refusal of a pod that would not fit even if all cards were free."""
    if not inventory.capacity:
        return NoCards()
    plan = plan_of(need)
    for name in plan.names:
        if not any(amounts.get(name, 0) > 0 for amounts in inventory.capacity.values()):
            return ResourceNotOnNode(name)
    largest = max(plan.requests, key=lambda request: request.count)
    if largest.count > len(inventory.capacity):
        names = ", ".join(need.containers[position].name for position in largest.positions)
        return FewerCardsThanWanted(names, largest.count, len(inventory.capacity))
    return None


def _what_is_short(question: _Question, cards: tuple[Card, ...]) -> Shortage | NotTogether:
    plan = plan_of(question.need)
    free = FreeCapacity(plan, question.inventory, question.usage, cards)
    for request in plan.requests:
        if (short := _shortage(plan, request, (cards,), free)) is not None:
            return short
    return _not_together(plan)


def _shortage(plan: Plan, request: Request, groups: Sequence[Sequence[Card]], free: FreeCapacity) -> Shortage | None:
    """Find what one request lacks in every group of cards, in as few resources as explain it.

    Returns None if the request fits, alone, in one of the groups. This pod must not have taken anything from ``free``.
    """
    wanted: tuple[Wanted, ...] = (*request.per_card, *request.ratios)

    def fitting(amounts: Sequence[Wanted]) -> int:
        """Return how many cards of the best group have all these amounts free."""
        names = [name_of(amount) for amount in amounts]
        return max(
            (sum(all(free.has_of(name, request, card) for name in names) for card in cards) for cards in groups),
            default=0,
        )

    def is_short_somewhere(amount: Wanted) -> bool:
        return any(not free.has_of(name_of(amount), request, card) for cards in groups for card in cards)

    if fitting(wanted) >= request.count:
        return None
    alone = {amount: fitting((amount,)) for amount in wanted}
    short = min(
        wanted,
        key=lambda amount: (alone[amount] >= request.count, name_of(amount) in plan.count_resources, alone[amount]),
    )
    amounts: tuple[Wanted, ...] = (short,)
    if alone[short] >= request.count:
        somewhere_short = tuple(amount for amount in wanted if is_short_somewhere(amount))
        telling = tuple(amount for amount in somewhere_short if name_of(amount) not in plan.count_resources)
        amounts = telling if fitting(telling) < request.count else somewhere_short
    return Shortage(request.count, fitting(amounts), amounts, len(request.positions), plan.stated_memory)


def _not_together(plan: Plan) -> NotTogether:
    """Return the refusal for requests that all fit alone, with their sums at the moment that needs most."""
    amounts = plan.totals()
    telling = tuple(amount for amount in amounts if name_of(amount) not in plan.count_resources)
    return NotTogether(len(plan.in_start_order), telling or amounts, plan.stated_memory)


def _short_on_usable(question: _Question) -> Shortage | NotTogether:
    usable = usable_cards(question.need, question.inventory, question.usage)
    groups = card_groups(question.need, question.inventory, usable, question.usage)
    return _what_is_short(question, tuple(card for card in usable if any(card in group for group in groups)))


def _card_rule_obstacle(rule: CardRule) -> _Obstacle:
    def leave_out(question: _Question) -> _Question | None:
        case = question.need, question.inventory, question.usage
        return replace(question, **rule.lifted(*case)) if rule.closed(*case) else None

    def refusal(question: _Question) -> Refusal:
        closed = rule.closed(question.need, question.inventory, question.usage)
        lifted = replace(question, **rule.lifted(question.need, question.inventory, question.usage))
        by_others = closed_cards(lifted.need, lifted.inventory, lifted.usage)
        cards = tuple(card for card in question.inventory.cards if card in closed)
        by_this_alone = tuple(card for card in cards if card not in by_others)
        return rule.refusal(question.need, question.usage, by_this_alone or cards, _short_on_usable(question))

    return _Obstacle(leave_out, refusal)


def _on_several_cards(question: _Question) -> _Question | None:
    need = question.need
    if not need.scope.is_one_card or len(plan_of(need).requests) == 1:
        return None
    scope = Scope.NUMA if need.scope is Scope.NUMA_CARD else Scope.ANYWHERE
    return replace(question, need=replace(need, scope=scope, named=""))


def _no_card_for_all(question: _Question) -> Refusal:
    together = _not_together(plan_of(question.need))
    return NoCardForAll(together.containers, together.amounts, together.stated)


def _on_any_groups(question: _Question) -> _Question | None:
    eased = {Scope.NUMA: Scope.ANYWHERE, Scope.NUMA_CARD: Scope.CARD, Scope.BOARD: Scope.ANYWHERE}
    scope = question.need.scope
    if scope not in eased or (scope is not Scope.BOARD and question.inventory.numa_groups is None):
        return None
    return replace(question, need=replace(question.need, scope=eased[scope]))


def _no_group(question: _Question) -> Refusal:
    plan = plan_of(question.need)
    usable = usable_cards(question.need, question.inventory, question.usage)
    free = FreeCapacity(plan, question.inventory, question.usage, usable)
    groups = card_groups(question.need, question.inventory, usable, question.usage)
    found = (_shortage(plan, request, groups, free) for request in plan.requests)
    refusal = NoBoard if question.need.scope is Scope.BOARD else NoNumaGroup
    return refusal(next((short for short in found if short is not None), None))


def _without_partitions(question: _Question) -> _Question | None:
    rule = question.need.partition
    is_bound = rule is not None and (rule.required or question.inventory.partitioned)
    return replace(question, need=replace(question.need, partition=None)) if is_bound else None


def _without_links(question: _Question) -> _Question | None:
    return replace(question, need=replace(question.need, linked=False)) if question.need.linked else None


def _no_linked_pairs(question: _Question) -> Refusal:
    need, plan = question.need, plan_of(question.need)
    for position, container in enumerate(need.containers):
        if container.count and not replace(question, need=_only(need, position)).fits():
            left_out = need.count_resources | {TILES}
            amounts = tuple(amount for amount in container.per_card if amount[0] not in left_out)
            return NoLinkedPairs(container.count // 2, (*amounts, *container.ratios))
    at_once = [
        sum(request.count for request in plan.requests if moment in request.moments) for moment in range(plan.moments)
    ]
    return NoLinkedPairs(max(at_once) // 2, (), together=True)


def _only(need: PodNeed, position: int) -> PodNeed:
    """Return the need with the cards of one container only; every container keeps its position."""
    return replace(
        need,
        containers=tuple(
            container if at == position else ContainerNeed(container.name, role=container.role)
            for at, container in enumerate(need.containers)
        ),
    )


_OBSTACLES = (
    *map(_card_rule_obstacle, CARD_RULES),
    _Obstacle(_on_several_cards, _no_card_for_all),
    _Obstacle(_on_any_groups, _no_group),
    _Obstacle(_without_partitions, lambda question: NoPartition(question.need.cards)),
    _Obstacle(_without_links, _no_linked_pairs),
)


def card_details(need: PodNeed, inventory: Inventory, usage: Usage) -> tuple[str, ...]:
    """Describe the node's cards in their order: ``"card0: 3.0 of 8.0 GB of memory.max free, 5.0 needed"``.

    The needed amount is the most that one container, or the containers that share a card, want of one card. Count
    resources are left out unless they are short, or count memory, which has its own sentence. The result is empty for a
    pod that wants no card.
    """
    if not need.wants_cards:
        return ()
    plan = plan_of(need)
    free = FreeCapacity(plan, inventory, usage, inventory.cards, by_tile=need.linked)
    linked: set[Card] = set()
    if need.linked:
        found = (pairs(request, inventory.cards, inventory.links, free) for request in plan.requests)
        linked = {card for picks in found for pick in picks for card in pick.cards}

    closed = [(rule, rule.closed(need, inventory, usage)) for rule in CARD_RULES]

    def detail(card: Card) -> str:
        parts = [text for rule, cards in closed if card in cards and (text := rule.detail(need, usage))]
        if need.linked and card not in linked:
            parts.append("no free link to a card with room")
        most: dict[str, int] = {}
        for request in plan.requests:
            for name, amount in free.takes(request, card).items():
                most[name] = max(most.get(name, 0), amount)
        for place, name in enumerate(plan.names):
            left = free.free(card, place)
            counts_memory = need.stated_memory is not None and need.stated_memory.counted_as == name
            if name not in need.count_resources or (left < most[name] and not counts_memory):
                capacity = inventory.capacity[card].get(name, 0)
                parts.append(_numbers(name, max(left, 0), capacity, most[name], need.stated_memory))
        if not parts:
            parts.append("has room")
        return f"{card}: {'; '.join(parts)}"

    return tuple(detail(card) for card in inventory.cards)


def _numbers(name: str, free: int, capacity: int, needed: int, stated: StatedMemory | None) -> str:
    """Compare free and needed, in bytes where rounding to gigabytes would hide the difference."""
    if capacity <= 0:
        return f"has no {name}"
    if stated is not None and name == MEMORY_MAX:
        unit = stated.unit.bytes
        return f"{free // unit} of {capacity // unit} {stated} free, {-(-needed // unit)} needed"
    if not is_bytes(name):
        return f"{free} of {capacity} {name} free, {needed} needed"
    if gigabytes(free) == gigabytes(needed) and free != needed:
        return f"{free} of {capacity} bytes of {name} free, {needed} needed"
    return f"{gigabytes(free)} of {gigabytes(capacity)} GB of {name} free, {gigabytes(needed)} needed"
