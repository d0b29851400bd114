"""Small nodes and pods of every kind, for property tests."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from hypothesis import strategies as st

from gas.placement.inventory import NO_COMPANY, Company, Inventory, Link, Usage
from gas.placement.need import ContainerNeed, PodNeed, Role, Scope
from gas.placement.order import (
    NATURAL,
    BestFit,
    FewestContainers,
    LeastUsed,
    LeastUsedParts,
    LeastWaste,
    MostUsedParts,
    UsedFirst,
)
from gas.placement.ratio import Ratio
from gas.placement.waste import Asked, Mix, Slice
from gas.values.amounts import sorted_amounts
from gas.values.cards import Card, Tile

MOST_CARDS = 4
MOST_CONTAINERS = 3
NAMES = ("i915", "millicores", "tiles")

EVEN, UNEVEN = (("i915", 1), ("millicores", 1)), (("i915", 1), ("millicores", 3), ("unknown-resource", 1))

resources = st.sampled_from([*NAMES, "unknown-resource"])
mixes = st.sampled_from(
    [
        Mix(),
        Mix((Asked((Slice(1, (("i915", 1), ("millicores", 1))),), None, 9.0, (("cpu", 36.0),)),)),
        Mix(
            (
                Asked(
                    (Slice(1, (("i915", 1), ("millicores", 2))), Slice(2, (("i915", 1),))), None, 0.5, (("cpu", 3.0),)
                ),
                Asked((Slice(1, (("i915", 1), ("tiles", 1))),), None, 30.0, (("cpu", 90.0), ("memory", 60.0))),
            )
        ),
    ]
)
orders = st.one_of(
    st.just(NATURAL),
    st.just(FewestContainers()),
    st.just(UsedFirst()),
    st.builds(LeastUsed, resources),
    st.builds(BestFit, resources),
    st.builds(LeastWaste, mixes),
    st.sampled_from([kind(weights) for kind in (LeastUsedParts, MostUsedParts) for weights in (EVEN, UNEVEN)]),
)

labels = st.sampled_from(["", "", "a", "b"])
companies = st.builds(Company, affinity=labels, anti_affinity=labels, exclusion=labels)

# Strategies that are drawn from again and again, made once: to make one takes as long as to draw from it.
sampled_from = cache(st.sampled_from)
subsets = cache(st.frozensets)
orders_of = cache(st.permutations)
yes_or_no = st.booleans()
up_to = [st.integers(0, most) for most in range(5)]
amounts = st.integers(1, 4)
tiles_of = [st.frozensets(st.integers(0, max(count - 1, 0)), max_size=2) for count in range(5)]
some_companies = st.frozensets(companies, min_size=1, max_size=2)
some_names = st.frozensets(st.sampled_from("ab"), min_size=1)
some_models = st.sampled_from(["ab", "bc"])
parts_of_models = st.just(frozenset[str]()) | st.just(frozenset[str]()) | st.frozensets(st.sampled_from("abc"))
unfilled = st.just(frozenset[str]()) | st.frozensets(st.sampled_from([*NAMES, "unknown-resource"]))
named_cards = st.integers(0, 14).map(Card) | st.sampled_from(["x", "y", "no card"])
allowed_cards = st.none() | st.none() | st.frozensets(named_cards, max_size=15)
denied_cards = st.just(frozenset[Card | str]()) | st.frozensets(named_cards, max_size=3)
app_roles, all_roles = (
    st.lists(each, min_size=1, max_size=MOST_CONTAINERS) for each in (st.just(Role.APP), st.sampled_from(Role))
)


@cache
def links_of(cards: tuple[Card, ...], *, linked: bool) -> st.SearchStrategy[list[Link]]:
    link = st.builds(
        lambda ends, one, other: Link(Tile(ends[0], one), Tile(ends[1], other)),
        st.permutations(cards).map(lambda order: order[:2]),
        up_to[3],
        up_to[3],
    )
    return st.lists(link, min_size=2 if linked else 0, max_size=6, unique=True)


@cache
def other_names_of(cards: tuple[Card, ...], most: int) -> st.SearchStrategy[dict[str, frozenset[Card]]]:
    return st.dictionaries(st.sampled_from(["x", "y"]), subsets(sampled_from(cards), max_size=most))


@cache
def none_or_groups(cards: tuple[Card, ...]) -> st.SearchStrategy[tuple[tuple[Card, ...], ...] | None]:
    return st.none() | groups(cards)


@cache
def preferred_of(cards: tuple[Card, ...]) -> st.SearchStrategy[Card | None]:
    return st.none() | st.sampled_from([*cards, Card(99)])


@st.composite
def nodes(draw: st.DrawFn, *, linked: bool = False) -> tuple[Inventory, Usage]:
    count = draw(st.integers(2 if linked else 1, MOST_CARDS))
    all_cards = tuple(map(Card, draw(sampled_from((range(count), range(8, 8 + 2 * count, 2))))))
    alike = {name: draw(amounts) for name in NAMES}
    capacity = {card: alike if draw(up_to[3]) else {name: draw(up_to[4]) for name in NAMES} for card in all_cards}
    most = 1 if draw(yes_or_no) else 2
    tiles = {card: tiles_of[has["tiles"]] for card, has in capacity.items()}
    held = {card: draw(tiles[card]) if capacity[card]["tiles"] else frozenset() for card in all_cards}
    usage = Usage(
        amounts={
            card: {"i915": draw(up_to[2]), "millicores": draw(up_to[2]), "tiles": len(held[card])}
            for card in all_cards
            if draw(yes_or_no)
        },
        tiles={card: indexes for card, indexes in held.items() if indexes},
        containers={card: draw(up_to[2]) for card in all_cards if draw(yes_or_no)},
        company={card: draw(some_companies) for card in all_cards if draw(yes_or_no)} if draw(yes_or_no) else {},
        names={card: draw(some_names) for card in all_cards if draw(yes_or_no)},
    )
    has_links = linked or (count > 1 and draw(yes_or_no))
    inventory = Inventory(
        capacity=capacity,
        disabled=draw(subsets(sampled_from(all_cards), max_size=most)),
        closed_tiles={card: draw(tiles[card]) for card in all_cards if capacity[card]["tiles"] and not draw(up_to[3])},
        preferred_card=draw(preferred_of(all_cards)),
        preferred_tiles={
            card: tuple(draw(orders_of(range(has["tiles"]))))[:2]
            for card, has in capacity.items()
            if not draw(up_to[2])
        },
        numa_groups=draw(none_or_groups(all_cards)),
        links=tuple(draw(links_of(all_cards, linked=linked))) if has_links else (),
        boards=draw(groups(all_cards)),
        other_names=draw(other_names_of(all_cards, most)),
        models={card: draw(some_models) for card in all_cards if draw(yes_or_no)},
    )
    return inventory, usage


@cache
@st.composite
def groups(draw: st.DrawFn, cards: tuple[Card, ...]) -> tuple[tuple[Card, ...], ...]:
    """Divide some of the cards into up to three groups, of which some may be empty."""
    count = draw(up_to[3])
    group_of = {card: draw(up_to[3]) for card in draw(orders_of(cards))}
    return tuple(tuple(card for card, group in group_of.items() if group == number) for number in range(count))


@st.composite
def needs(
    draw: st.DrawFn,
    *,
    init_containers: bool = True,
    linked: bool = False,
    same_card: bool = True,
    soft_rules: bool = True,
    company: bool = True,
    ratios: bool = True,
    grouped: bool = True,
) -> PodNeed:
    roles = sorted(
        draw(all_roles if init_containers else app_roles),
        key=lambda role: role is Role.APP,
    )
    every = tuple(each for each in Scope if grouped or each is not Scope.BOARD)
    scope = draw(sampled_from((Scope.ANYWHERE, Scope.NUMA) if linked else every))
    counts = (0, 2, 2, 4) if linked else (0, 1, 1, 1) if scope.is_one_card else (0, 1, 1, 1, 2, 2, 3)
    of = draw(sampled_from(("", "i915"))) if ratios and draw(yes_or_no) else None
    containers = tuple(draw(_containers(role, counts, linked=linked, of=of)) for role in roles)
    single = [at for at, one in enumerate(containers) if one.role is Role.APP and one.count == 1 and not one.tiles]
    share = same_card and not linked and len(single) > 1 and draw(yes_or_no)
    apart = frozenset[int]()
    if grouped and single and not (share or linked or scope.is_one_card) and draw(yes_or_no):
        like = containers[single[0]]
        containers = tuple(
            replace(each, per_card=like.per_card, ratios=like.ratios) if at in single else each
            for at, each in enumerate(containers)
        )
        apart = frozenset(single)
    return PodNeed(
        containers,
        allowed=draw(allowed_cards),
        denied=draw(denied_cards),
        same_card=frozenset(single[:2]) if share else frozenset(),
        apart=apart,
        linked=linked,
        scope=scope,
        order=draw(orders) if soft_rules else NATURAL,
        near=soft_rules and draw(yes_or_no),
        company=draw(companies) if company else NO_COMPANY,
        named=draw(labels) if company and scope.is_one_card else "",
        models=draw(parts_of_models),
        denied_models=draw(parts_of_models) if not draw(up_to[2]) else frozenset(),
        idle=not draw(up_to[3]),
        unfilled=draw(unfilled),
    )


@cache
@st.composite
def _containers(draw: st.DrawFn, role: Role, counts: tuple[int, ...], *, linked: bool, of: str | None) -> ContainerNeed:
    """Return a container; ``of`` is what parts of millicores are divided by, None if amounts are absolute."""
    count = draw(sampled_from(counts))
    if not count:
        return ContainerNeed("c", 0, (), role)
    per_card = {"i915": 1}
    parts: tuple[Ratio, ...] = ()
    if of is not None and draw(yes_or_no):
        part = draw(sampled_from((0, 25, 34, 50, 75, 100))) if not of else draw(up_to[2])
        parts = (Ratio("millicores", part, of),)
    elif draw(yes_or_no):
        per_card["millicores"] = draw(up_to[3])
    if linked or draw(yes_or_no):
        per_card["tiles"] = 1 if linked else draw(up_to[2])
    return ContainerNeed("c", count, sorted_amounts(per_card), role, parts)
