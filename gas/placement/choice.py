"""The answer of placement: which container gets which cards and tiles, and what that takes of each card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gas.amounts import SortedAmounts, sorted_amounts
from gas.cards import Card
from gas.placement.need import ContainerNeed, PodNeed, Role


@dataclass(frozen=True, slots=True)
class ContainerChoice:
    """What one container gets.

    cards  in the order in which they were chosen
    tiles  for each of ``cards``, in the same order, the tiles of it; empty when the container asks for none
    """

    cards: tuple[Card, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """What every container of a pod gets: ``containers`` has one place for each of the need's containers, in its order.

    preferred  whether the pod got the card that the node prefers
    """

    containers: tuple[ContainerChoice, ...]
    preferred: bool = False


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a pod takes of each card for as long as it lives: the largest sum of any moment of its life.

    Init containers run one after the other before the app containers, beside the sidecars that started before them.
    """

    amounts: Mapping[Card, SortedAmounts] = field(default_factory=dict)
    tiles: Mapping[Card, frozenset[int]] = field(default_factory=dict)


def footprint(need: PodNeed, choice: Choice) -> Footprint:
    """What a pod with this need takes when it is given this choice."""
    staying: dict[Card, dict[str, int]] = {}
    peak: dict[Card, dict[str, int]] = {}
    tiles: dict[Card, set[int]] = {}
    for container, given in zip(need.containers, choice.containers, strict=True):
        for card in given.cards:
            base = staying.setdefault(card, {})
            now = _plus(base, container)
            if container.role is not Role.INIT:
                staying[card] = now
            at_most = peak.setdefault(card, {})
            for name, amount in now.items():
                at_most[name] = max(at_most.get(name, 0), amount)
        for card, indexes in zip(given.cards, given.tiles, strict=False):
            tiles.setdefault(card, set()).update(indexes)
    return Footprint(
        amounts={card: sorted_amounts(amounts) for card, amounts in sorted(peak.items())},
        tiles={card: frozenset(indexes) for card, indexes in sorted(tiles.items()) if indexes},
    )


def _plus(base: Mapping[str, int], container: ContainerNeed) -> dict[str, int]:
    total = dict(base)
    for name, amount in container.per_card:
        total[name] = total.get(name, 0) + amount
    return total
