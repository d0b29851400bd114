"""The result of placement: the cards and tiles of each container, and what they take of each card."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from gas.placement.inventory import NO_COMPANY, Company
from gas.placement.need import ContainerNeed, PodNeed, Role
from gas.placement.ratio import Ratio, add_ratios, amounts_on
from gas.values.amounts import Amounts, SortedAmounts, check_sorted, is_whole, sorted_amounts
from gas.values.cards import Card, check_tiles
from gas.values.errors import InvalidValue

MOST_REMEMBERED = 4096  # footprints that are remembered, so that pods which take the same of the same cards share one

_UNKNOWN: Mapping[Card, Amounts] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ContainerChoice:
    """The cards and tiles of one container.

    Raises InvalidValue for a repeated card or tile, a negative or fractional tile, and for tiles without a card.
    """

    cards: tuple[Card, ...] = ()  # in the order in which they were chosen
    # of each of ``cards``, in the same order; empty if the container gets no tiles
    tiles: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.cards)) < len(self.cards):
            raise InvalidValue(f"expected different cards, found {', '.join(map(str, self.cards))}")
        if self.tiles and len(self.tiles) != len(self.cards):
            raise InvalidValue(f"expected tiles for each of {len(self.cards)} cards, found {len(self.tiles)}")
        for card, indexes in zip(self.cards, self.tiles, strict=False):
            check_tiles(card, indexes)


@dataclass(frozen=True, slots=True)
class Choice:
    """The cards and tiles of a pod."""

    containers: tuple[ContainerChoice, ...]  # in the order of the need's containers
    preferred: bool = False  # whether the pod got the card that the node prefers


@dataclass(frozen=True, slots=True)
class Footprint:
    """The most that a pod takes of each card at any moment of its life. Raises InvalidValue for an invalid number.

    Init containers run one after the other before the app containers, with the sidecars that started before them.
    """

    amounts: Mapping[Card, SortedAmounts] = field(default_factory=dict)
    tiles: Mapping[Card, frozenset[int]] = field(default_factory=dict)
    # by card, how many containers have it at the same time
    containers: Mapping[Card, int] = field(default_factory=dict)
    company: Company = NO_COMPANY  # the labels of the pod, which count on all its cards
    named: str = ""  # the name that the pod has given its card; empty if it has given none

    def __hash__(self) -> int:
        return hash((frozenset(self.amounts.items()), frozenset(self.tiles.items()), self.company))

    def __post_init__(self) -> None:
        for card, amounts in self.amounts.items():
            check_sorted(amounts, card)
        for card, indexes in self.tiles.items():
            check_tiles(card, indexes)
        for card, count in self.containers.items():
            if not is_whole(count):
                raise InvalidValue(f"{card}: expected a whole number of containers, 0 or more, found {count}")


def footprint(need: PodNeed, choice: Choice, capacity: Mapping[Card, Amounts] = _UNKNOWN) -> Footprint:
    """Return what a pod with this need takes if it gets this choice. Raises InvalidValue if it is for other containers.

    A container may have more or fewer cards than it needs, as a receipt may state: it takes its amounts of each.

    capacity  what each card has; matters only to a need with ratios, which take nothing of a card that is missing in it
    """
    has: tuple[tuple[Card, SortedAmounts], ...] = ()
    if need.has_ratios:
        cards = dict.fromkeys(card for chosen in choice.containers for card in chosen.cards if card in capacity)
        has = tuple((card, sorted_amounts(capacity[card])) for card in cards)
    return _footprint(need, choice, has)


@lru_cache(maxsize=MOST_REMEMBERED)
def _footprint(need: PodNeed, choice: Choice, has: tuple[tuple[Card, SortedAmounts], ...]) -> Footprint:
    if len(choice.containers) != len(need.containers):
        raise InvalidValue(
            f"choice: expected cards for each of the need's {len(need.containers)} containers, found"
            f" {len(choice.containers)}; pass the need that the choice was made for"
        )
    capacity = {card: dict(amounts) for card, amounts in has}
    staying: dict[Card, dict[str, int]] = {}
    peak: dict[Card, dict[str, int]] = {}
    tiles: dict[Card, set[int]] = {}
    staying_ratios: dict[Card, dict[str, Ratio]] = {}
    staying_containers: dict[Card, int] = {}
    containers: dict[Card, int] = {}
    for container, chosen in zip(need.containers, choice.containers, strict=False):
        for card in chosen.cards:
            now = _plus(staying.get(card, {}), container)
            count = staying_containers.get(card, 0) + 1
            ratios = dict(staying_ratios.get(card, {}))
            add_ratios(ratios, container.ratios)
            if container.role is not Role.INIT:
                staying[card], staying_containers[card], staying_ratios[card] = now, count, ratios
            containers[card] = max(containers.get(card, 0), count)
            at_most = peak.setdefault(card, {})
            for name, amount in amounts_on(capacity.get(card, {}), now, ratios.values()).items():
                at_most[name] = max(at_most.get(name, 0), amount)
        for card, indexes in zip(chosen.cards, chosen.tiles, strict=False):
            tiles.setdefault(card, set()).update(indexes)
    return Footprint(
        amounts={card: sorted_amounts(amounts) for card, amounts in sorted(peak.items())},
        tiles={card: frozenset(indexes) for card, indexes in sorted(tiles.items()) if indexes},
        containers=dict(sorted(containers.items())),
        company=need.company,
        named=need.named,
    )


def _plus(base: Mapping[str, int], container: ContainerNeed) -> dict[str, int]:
    total = dict(base)
    for name, amount in container.per_card:
        total[name] = total.get(name, 0) + amount
    return total
