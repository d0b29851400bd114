"""Short ways to write nodes, pods and results, so that a case shows only what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gas.placement.choice import Choice
from gas.placement.inventory import UNUSED, Inventory, Link, Usage
from gas.placement.need import ContainerNeed, PodNeed, Role
from gas.placement.place import place
from gas.placement.refusal import Refusal
from gas.values.amounts import sorted_amounts
from gas.values.cards import Card, Tile

GB = 10**9


def amounts(**of: int) -> dict[str, int]:
    """Return amounts; ``memory`` stands for ``memory.max``."""
    return {"memory.max" if name == "memory" else name: amount for name, amount in of.items()}


def cards(*numbers: int) -> frozenset[Card]:
    return frozenset(Card(number) for number in numbers)


def node(*each: Mapping[str, int], like: int = 0, **rest: Any) -> Inventory:
    """Return a node with these cards, numbered from 0, or with ``like`` cards that equal the only one given."""
    capacities = list(each) * like if like else list(each)
    return Inventory(capacity={Card(number): dict(has) for number, has in enumerate(capacities)}, **rest)


def booked(*each: Mapping[str, int], tiles: Mapping[int, set[int]] | None = None) -> Usage:
    """Return what is booked on card0, card1 and so on, and the booked tiles by card number."""
    return Usage(
        amounts={Card(number): dict(has) for number, has in enumerate(each)},
        tiles={Card(number): frozenset(held) for number, held in (tiles or {}).items()},
    )


def container(count: int = 1, role: Role = Role.APP, **of: int) -> ContainerNeed:
    """Return a container that wants this many cards with one ``i915`` and these amounts of each."""
    per_card = sorted_amounts(amounts(**{"i915": 1, **of})) if count else ()
    return ContainerNeed("container", count, per_card, role)


def init(count: int = 1, **of: int) -> ContainerNeed:
    return container(count, Role.INIT, **of)


def sidecar(count: int = 1, **of: int) -> ContainerNeed:
    return container(count, Role.SIDECAR, **of)


def pod(*containers: ContainerNeed, **rest: Any) -> PodNeed:
    return PodNeed(tuple(containers), count_resources=frozenset({"i915"}), **rest)


def link(one: tuple[int, int], other: tuple[int, int]) -> Link:
    """Return a link; ``link((0, 1), (2, 0))`` joins tile 1 of card0 and tile 0 of card2."""
    return Link(Tile(Card(one[0]), one[1]), Tile(Card(other[0]), other[1]))


def given(answer: Choice | Refusal) -> str:
    """Format a result: cards ``"0 | 1,2"``, with tiles ``"0:0+1 | 1:0"``, or the sentence of a refusal."""
    if isinstance(answer, Refusal):
        return str(answer)
    return " | ".join(
        ",".join(
            f"{int(card)}:{'+'.join(map(str, one.tiles[place]))}" if one.tiles else str(int(card))
            for place, card in enumerate(one.cards)
        )
        for one in answer.containers
    )


def case(
    name: str, need: PodNeed, inventory: Inventory, *expected: object, usage: Usage = UNUSED
) -> pytest.ParameterSet:
    """Return a row of a table with the columns need, inventory, usage and what is expected."""
    return pytest.param(need, inventory, usage, *expected, id=name)


def placed(need: PodNeed, inventory: Inventory, usage: Usage = UNUSED, **rest: Any) -> str:
    """Return the formatted result. The values are made once more, so that their checks are part of the test."""
    need = replace(need, containers=tuple(replace(container) for container in need.containers))
    return given(place(need, replace(inventory), usage, **rest))
