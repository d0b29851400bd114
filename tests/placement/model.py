"""Two independent models to check placement against: every possible choice, and the original's algorithm.

They are obviously right for few cards, not fast. They use nothing of the code under test but its values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations, permutations

from gas.placement.choice import Choice
from gas.placement.inventory import Company, Inventory, Usage
from gas.placement.need import PodNeed, Role, Scope
from gas.placement.order import LeastUsedParts, LeastWaste, MostUsedParts
from gas.values.cards import Card

# What one container gets: (card, tile) pairs; the tile is None unless cards are linked.
Hand = tuple[tuple[Card, int | None], ...]


def open_tiles(inventory: Inventory, usage: Usage, card: Card) -> set[int]:
    everything = set(range(inventory.capacity[card].get("tiles", 0)))
    return everything - inventory.closed_tiles.get(card, frozenset()) - usage.tiles.get(card, frozenset())


def usable(need: PodNeed, inventory: Inventory, usage: Usage, card: Card) -> bool:
    return (
        card not in inventory.disabled
        and (need.allowed is None or card in inventory.resolve(need.allowed))
        and card not in inventory.resolve(need.denied)
        and may_join(need.company, others_on(usage, card))
        and (not need.named or card in cards_named(need.named, usage, inventory))
        and (not need.models or any(part in inventory.models.get(card, "") for part in need.models))
        and not any(part in inventory.models.get(card, "") for part in need.denied_models)
        and (not need.idle or not usage.containers.get(card, 0))
        and all(is_left(inventory, usage, card, name) for name in need.unfilled)
    )


def cards_named(name: str, usage: Usage, inventory: Inventory) -> list[Card]:
    """Return the cards that a pod with this name may use."""
    bound = [card for card, names in usage.names.items() if name in names]
    return bound or [card for card in inventory.capacity if not usage.containers.get(card, 0)]


def is_left(inventory: Inventory, usage: Usage, card: Card, name: str) -> bool:
    """Return whether a card has something left of a resource, or never had any."""
    has = inventory.capacity[card].get(name, 0)
    closed = inventory.closed_tiles.get(card, frozenset()) - usage.tiles.get(card, frozenset())
    used = usage.amounts.get(card, {}).get(name, 0) + (len(closed) if name == "tiles" else 0)
    return not has or used < has


def others_on(usage: Usage, card: Card) -> list[Company]:
    """Return the labels of the pods on a card."""
    if not usage.containers.get(card, 0):
        return []
    return list(usage.company[card]) if card in usage.company else [Company()]


def may_join(own: Company, others: list[Company]) -> bool:
    if own.affinity and others and own.affinity not in [other.affinity for other in others]:
        return False
    if own.anti_affinity and own.anti_affinity in [other.anti_affinity for other in others]:
        return False
    return {other.exclusion for other in others} <= {own.exclusion}


def moments(need: PodNeed) -> list[list[int]]:
    """Return the containers that run at the same time, for every moment that matters."""
    roles = [container.role for container in need.containers]
    running = [
        [at for at in range(position) if roles[at] is Role.SIDECAR] + [position]
        for position, role in enumerate(roles)
        if role is Role.INIT
    ]
    return [*running, [at for at, role in enumerate(roles) if role is not Role.INIT]]


def within_capacity(need: PodNeed, inventory: Inventory, usage: Usage, hands: Sequence[Hand]) -> bool:
    for together in moments(need):
        for card in {card for at in together for card, _ in hands[at]}:
            total = dict(usage.amounts.get(card, {}))
            total["tiles"] = total.get("tiles", 0) + len(
                inventory.closed_tiles.get(card, frozenset()) - usage.tiles.get(card, frozenset())
            )
            touched: set[str] = set()
            parts: dict[tuple[str, str], int] = {}
            new_tiles = 0
            for position in together:
                if card in [held for held, _ in hands[position]]:
                    for name, amount in need.containers[position].per_card:
                        total[name] = total.get(name, 0) + amount
                        touched.add(name)
                    for ratio in need.containers[position].ratios:
                        of_card = ratio.resource, ratio.of
                        parts[of_card] = parts.get(of_card, 0) + ratio.part
                        touched.add(ratio.resource)
                    new_tiles += need.containers[position].tiles
            has_of = inventory.capacity[card]
            for (name, of), part in parts.items():
                whole = has_of.get(of, 0) if of else 100
                total[name] = total.get(name, 0) + (int(Fraction(has_of.get(name, 0) * part, whole)) if whole else 0)
            for name in touched:
                has = inventory.capacity[card].get(name, 0)
                if has <= 0 or total[name] > has:
                    return False
            if new_tiles > len(open_tiles(inventory, usage, card)):
                return False
            named = [tile for at in together for held, tile in hands[at] if held == card and tile is not None]
            if len(named) != len(set(named)) or not set(named) <= open_tiles(inventory, usage, card):
                return False
    return True


def in_scope(need: PodNeed, inventory: Inventory, hands: Sequence[Hand]) -> bool:
    used = {card for hand in hands for card, _ in hand}
    if need.scope in (Scope.CARD, Scope.NUMA_CARD) and len(used) > 1:
        return False
    if need.scope is Scope.CARD:
        return True
    if need.scope is Scope.BOARD:
        return len(used) <= 1 or any(used <= set(board) for board in inventory.boards)
    if need.scope is Scope.ANYWHERE or inventory.numa_groups is None:
        return True
    return not used or any(used <= set(group) for group in inventory.numa_groups)


def are_apart(need: PodNeed, hands: Sequence[Hand]) -> bool:
    of_each = [card for at in need.apart for card, _ in hands[at]]
    return len(of_each) == len(set(of_each))


def as_kubelet_hands_on(need: PodNeed, hands: Sequence[Hand]) -> bool:
    pool: set[Card] = set()
    for container, hand in zip(need.containers, hands, strict=True):
        got = {card for card, _ in hand}
        if not container.count:
            continue
        if len(pool) <= container.count:
            if not pool <= got:
                return False
        elif not got <= pool:
            return False
        pool = pool | got if container.role is Role.INIT else pool - got
    return True


def hands_of(need: PodNeed, inventory: Inventory, cards: Sequence[Card], position: int) -> Iterator[Hand]:
    count = need.containers[position].count
    if not need.linked:
        for chosen in combinations(cards, count):
            yield tuple((card, None) for card in chosen)
        return
    for chosen_links in combinations(inventory.links, count // 2):
        ends = [end for link in chosen_links for end in link]
        if len({end.card for end in ends}) == count and all(end.card in cards for end in ends):
            yield tuple((end.card, end.index) for end in ends)


def every_answer(
    need: PodNeed, inventory: Inventory, usage: Usage, order: Sequence[Card] | None = None
) -> Iterator[list[Hand]]:
    """Yield everything that fits; the containers that share a card vary slowest, then the others in their order."""
    cards = [card for card in (inventory.capacity if order is None else order) if usable(need, inventory, usage, card)]
    positions = sorted(range(len(need.containers)), key=lambda at: (at not in need.same_card, at))

    def extend(done: int, hands: dict[int, Hand]) -> Iterator[list[Hand]]:
        now = [hands.get(at, ()) for at in range(len(need.containers))]
        if not within_capacity(need, inventory, usage, now) or not in_scope(need, inventory, now):
            return
        if done == len(positions):
            yield now
            return
        position = positions[done]
        for hand in hands_of(need, inventory, cards, position):
            if position in need.same_card and any(hands[at] != hand for at in need.same_card & hands.keys()):
                continue
            if are_apart(need, [*({**hands, position: hand}.get(at, ()) for at in range(len(need.containers)))]):
                yield from extend(done + 1, {**hands, position: hand})

    return extend(0, {})


def first(answers: Iterator[list[Hand]], wanted: Callable[[list[Hand]], bool]) -> list[Hand] | None:
    return next((hands for hands in answers if wanted(hands)), None)


def hands_in(need: PodNeed, choice: Choice) -> list[Hand]:
    return [
        tuple((card, one.tiles[place][0] if need.linked else None) for place, card in enumerate(one.cards))
        for one in choice.containers
    ]


def original_order(cards: Sequence[Card], preferred: Card | None) -> list[Card]:
    """Swap the preferred card with the first one."""
    listed = list(cards)
    if preferred in listed:
        at = listed.index(preferred)
        listed[0], listed[at] = listed[at], listed[0]
    return listed


def closeness(inventory: Inventory, one: Card, other: Card) -> int:
    if links := [{link.one.card, link.other.card} for link in inventory.links].count({one, other}):
        return 2 + links
    if any({one, other} <= set(board) for board in inventory.boards):
        return 2
    return 1 if any({one, other} <= set(group) for group in inventory.numa_groups or ()) else 0


class FirstFit:
    """The original's first fit for pods of app containers; it makes the list of candidates anew for every card.

    It also knows the orders of cards and nearness, which the original has not.
    """

    def __init__(self, need: PodNeed, inventory: Inventory, usage: Usage) -> None:
        self.need, self.inventory, self.usage = need, inventory, usage

    def first_fit(self) -> list[list[tuple[Card, tuple[int, ...]]]] | None:
        """Return the cards with their tiles, container by container. None if first fit fails."""
        groups: Sequence[Sequence[Card]] = [list(self.inventory.capacity)]
        if self.need.scope is Scope.NUMA and self.inventory.numa_groups is not None:
            groups = self.inventory.numa_groups
        if self.need.scope in (Scope.CARD, Scope.NUMA_CARD):
            self.start(groups[0])
            cards = [[card] for card in self.in_order(self.first_wants())]
            groups = [[card] for (card,) in cards if in_scope(self.need, self.inventory, [((card, None),)])]
        for group in groups:
            if (found := self.in_group(group)) is not None:
                return found
        return None

    def first_wants(self) -> dict[str, int]:
        """Return what the pod's first container with a card takes of it, or all that share one card."""
        total: dict[str, int] = {}
        with_cards = [at for at, one in enumerate(self.need.containers) if one.count]
        for at in sorted(self.need.same_card) or with_cards[:1]:
            for name, amount in self.need.containers[at].per_card:
                total[name] = total.get(name, 0) + amount
        return total

    def start(self, group: Sequence[Card]) -> None:
        """Forget what the pod has taken, and go on with the cards of one group."""
        self.group = group
        self.used = {card: dict(self.usage.amounts.get(card, {})) for card in self.inventory.capacity}
        for card, closed in self.inventory.closed_tiles.items():
            unheld = len(closed - self.usage.tiles.get(card, frozenset()))
            self.used[card]["tiles"] = self.used[card].get("tiles", 0) + unheld
        self.taken: dict[Card, set[int]] = {card: set() for card in self.inventory.capacity}
        self.containers = {card: self.usage.containers.get(card, 0) for card in self.inventory.capacity}
        self.has: list[Card] = []

    def in_group(self, group: Sequence[Card]) -> list[list[tuple[Card, tuple[int, ...]]]] | None:
        self.start(group)
        containers = self.need.containers
        result: list[list[tuple[Card, int | None]]] = [[] for _ in containers]
        if self.need.same_card:
            sharing = sorted(self.need.same_card)
            total: dict[str, int] = {}
            for at in sharing:
                for name, amount in containers[at].per_card:
                    total[name] = total.get(name, 0) + amount
            chosen = self.next_card(total, [], containers=len(sharing))
            if chosen is None:
                return None
            for at in sharing:
                result[at] = [(chosen, None)]
        for at, one in enumerate(containers):
            if at in self.need.same_card:
                continue
            wants = dict(one.per_card)
            while len(result[at]) < one.count:
                held = [card for card, _ in result[at]]
                if self.need.linked:
                    pair = self.next_pair(wants, held)
                    if pair is None:
                        return None
                    result[at] += pair
                else:
                    chosen = self.next_card(wants, held)
                    if chosen is None:
                        return None
                    result[at].append((chosen, None))
        return self.with_tiles(result)

    def in_order(self, wants: dict[str, int]) -> list[Card]:
        cards = list(self.inventory.capacity)
        if str(self.need.order) == "natural":
            cards = original_order(cards, self.inventory.preferred_card)
        return sorted(cards, key=lambda card: (not self.is_affine(card), self.load(card, wants)))

    def candidates(self, wants: dict[str, int], held: list[Card]) -> list[Card]:
        cards = [card for card in self.in_order(wants) if self.has_room(card, wants, held)]
        if not self.need.near:
            return cards
        first = self.has[0] if self.has else None
        shared = len(self.need.same_card) - 1 if self.need.same_card else 0
        wanted = sum(one.count for one in self.need.containers) - shared - len(self.has)

        def own_key(card: Card) -> tuple[bool, bool, tuple[int | Fraction, ...]]:
            return not self.is_affine(card), not self.is_preferred(card), self.load(card, wants)

        def close(one: Card, other: Card) -> int:
            return closeness(self.inventory, one, other)

        def cost(card: Card) -> tuple[object, ...]:
            others = [other for other in cards if other not in (card, *self.has)]
            sets = combinations(others, min(max(wanted - 1, 0), len(others)))
            return min(
                (
                    -sum(close(one, other) for one, other in combinations((*self.has, card, *more), 2)),
                    -sum(close(first or card, other) for other in (card, *more) if other != (first or card)),
                    sorted(map(own_key, (card, *more))),
                )
                for more in sets
            )

        if first is None:
            return sorted(cards, key=lambda card: (own_key(card), cost(card)))
        costs = {card: cost(card) for card in cards if card not in self.has}
        least = min(costs.values(), default=())
        near = {card: close(first, card) for card in cards}
        near[first] = max((near[card] for card in costs), default=0)
        return sorted(cards, key=lambda card: (costs.get(card, least), -near[card], own_key(card)))

    def is_affine(self, card: Card) -> bool:
        affinity = self.need.company.affinity
        return bool(affinity) and affinity in [other.affinity for other in others_on(self.usage, card)]

    def is_preferred(self, card: Card) -> bool:
        return str(self.need.order) == "natural" and card == self.inventory.preferred_card

    def load(self, card: Card, wants: dict[str, int]) -> tuple[int | Fraction, ...]:
        """Return the numbers by which the need's order puts cards: smaller ones first."""
        if isinstance(self.need.order, LeastWaste):
            before, after = (self.share(card, more) for more in ({}, wants))
            waste = self.need.order.mix.on(self.inventory.capacity[card]).waste
            return waste[after // 10] - waste[before // 10], before
        if isinstance(self.need.order, LeastUsedParts | MostUsedParts):
            parts = [
                weight * Fraction(self.used[card].get(name, 0), has)
                for name, weight in self.need.order.weights
                if (has := self.inventory.capacity[card].get(name, 0))
            ]
            return (sum(parts) * (1 if isinstance(self.need.order, LeastUsedParts) else -1),)
        kind, _, resource = str(self.need.order).partition("=")
        used = self.used[card].get(resource, 0)
        number = {
            "natural": 0,
            "least-used": used,
            "best-fit": self.inventory.capacity[card].get(resource, 0) - used,
            "fewest-containers": self.containers[card],
            "used-first": 0 if self.containers[card] else 1,
        }[kind]
        return (number,)

    def share(self, card: Card, more: dict[str, int]) -> int:
        """Return how many thousandths of a card are left of its scarcest resource."""
        left = [
            (has - self.used[card].get(name, 0) - more.get(name, 0)) * 1000 // has
            for name, has in self.inventory.capacity[card].items()
            if has
        ]
        return max(min([1000, *left]), 0)

    def has_room(self, card: Card, wants: dict[str, int], held: list[Card]) -> bool:
        has = self.inventory.capacity[card]
        return (
            card in self.group
            and card not in held
            and usable(self.need, self.inventory, self.usage, card)
            and all(
                has.get(name, 0) > 0 and self.used[card].get(name, 0) + amount <= has[name]
                for name, amount in wants.items()
            )
        )

    def book(self, card: Card, wants: dict[str, int], containers: int = 1) -> None:
        self.has += [card] if card not in self.has else []
        self.containers[card] += containers
        for name, amount in wants.items():
            self.used[card][name] = self.used[card].get(name, 0) + amount

    def next_card(self, wants: dict[str, int], held: list[Card], containers: int = 1) -> Card | None:
        for card in self.candidates(wants, held):
            self.book(card, wants, containers)
            return card
        return None

    def next_pair(self, wants: dict[str, int], held: list[Card]) -> list[tuple[Card, int | None]] | None:
        for card in self.candidates(wants, held):
            for tile in sorted(open_tiles(self.inventory, self.usage, card) - self.taken[card]):
                joined = [link.other for link in self.inventory.links if link.one == (card, tile)]
                if not joined or joined[0].card not in self.inventory.capacity:
                    continue
                other = joined[0]
                free = open_tiles(self.inventory, self.usage, other.card) - self.taken[other.card]
                if other.card != card and other.index in free and self.has_room(other.card, wants, held):
                    for end, index in ((card, tile), other):
                        self.book(end, wants)
                        self.taken[end].add(index)
                    return [(card, tile), (other.card, other.index)]
        return None

    def with_tiles(
        self, result: list[list[tuple[Card, int | None]]]
    ) -> list[list[tuple[Card, tuple[int, ...]]]] | None:
        full: list[list[tuple[Card, tuple[int, ...]]]] = []
        for at, hand in enumerate(result):
            full.append([])
            for card, linked_tile in hand:
                wanted = self.need.containers[at].tiles
                if linked_tile is not None:
                    full[-1].append((card, (linked_tile,)))
                    continue
                free = open_tiles(self.inventory, self.usage, card) - self.taken[card]
                if len(free) < wanted:
                    return None
                preferred = [t for t in self.inventory.preferred_tiles.get(card, ()) if t in free]
                ranked = preferred + sorted(free - set(preferred))
                self.taken[card] |= set(ranked[:wanted])
                full[-1].append((card, tuple(ranked[:wanted])))
        return full


def disjoint_while_together(need: PodNeed, choice: Choice) -> bool:
    """Return whether no two containers that run at the same time hold the same tile."""
    for together in moments(need):
        for one, other in permutations(together, 2):
            tiles = [
                {
                    (card, tile)
                    for card, tiles in zip(choice.containers[at].cards, choice.containers[at].tiles, strict=False)
                    for tile in tiles
                }
                for at in (one, other)
            ]
            if tiles[0] & tiles[1]:
                return False
    return True
