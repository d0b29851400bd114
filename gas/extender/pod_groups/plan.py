"""Plan a node and cards for every member of a group, so that all fit at the same time. No I/O."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gas.extender.nodes import Nodes
from gas.extender.verdicts import Turns, Verdicts
from gas.placement.choice import Choice, Footprint, footprint
from gas.placement.need import PodNeed

MOST_STEPS = 3000
"""Placements that one search tries. Pods that are alike need one each, if they fit. Beyond it, the best plan found so
far counts, which leaves members out."""

STEPS_A_TURN = 50  # before other work gets its turn


class Member(NamedTuple):
    uid: str
    need: PodNeed
    offered: frozenset[str] | None  # the nodes that kube-scheduler offers; None if it has not asked about the pod yet


class Place(NamedTuple):
    """The node that a member is planned for, and the cards that it would get there."""

    node: str
    cards: Footprint


class Kind(NamedTuple):
    """A value that interchangeable nodes share."""

    state: int  # see `gas.extender.verdicts.NodeStates`
    offered: tuple[bool, ...]  # whether the node is in each of the different offers


@dataclass(frozen=True, slots=True)
class Planner:
    """Find places for the members of a group. ``promised`` is, by node, what other pods are promised there."""

    nodes: Nodes
    verdicts: Verdicts
    promised: Mapping[str, Sequence[Footprint]]

    def plan(
        self, members: Collection[Member], names: Sequence[str], needed: int | None = None, *, steps: int | None = None
    ) -> Turns[dict[str, Place]]:
        """Return the places of all members by UID, or of as many as were found, of ``needed`` ones if there is a way.

        The largest members are placed first; if fewer than all are needed, by default all, some may be left out. Of
        nodes in the same state that the same members are offered, only the first of ``names`` is tried. A member gets
        the cards that placement chooses; if that leads nowhere, and it has one card, each other one is tried.
        """
        spare = 0 if needed is None else max(len(members) - max(needed, 1), 0)
        search = _Search(self, sorted(members, key=_size, reverse=True), names, spare)
        yield from search.run(MOST_STEPS if steps is None else steps)
        return search.best


def _size(member: Member) -> tuple[int, int, int]:
    amounts = [amount for each in member.need.containers for _, amount in each.per_card]
    return member.need.cards, max(amounts, default=0), sum(amounts)


class _Search:
    """A search through the places of all members, with exact undo. ``best`` has the most places found.

    ``spare`` members may be left out.
    """

    def __init__(self, planner: Planner, members: Sequence[Member], names: Sequence[str], spare: int) -> None:
        self.best: dict[str, Place] = {}
        self._planner = planner
        self._members = members
        self._spare = spare
        self._decided: list[tuple[str, Place | None]] = []  # UIDs of the first members; None if one is left out
        self._placed = 0
        self._on_node: dict[str, list[Footprint]] = {}
        self._kind: dict[str, Kind] = {}
        self._of_kind: dict[Kind, dict[str, None]] = {}  # interchangeable nodes
        self._situations: set[object] = set()  # from which a search has begun
        self._offers = tuple(dict.fromkeys(each.offered for each in members))
        self._steps = 0
        for name in names:
            self._sort_in(name)

    def run(self, most_steps: int) -> Turns[None]:
        open_places = [self._places(self._members[0])]
        while open_places and self._steps < most_steps:
            try:
                place = next(open_places[-1])
            except StopIteration:
                open_places.pop()
                self._give_back()
                continue
            self._take(self._members[len(self._decided)].uid, place)
            if self._placed > len(self.best):
                self.best = {uid: place for uid, place in self._decided if place is not None}
            if self._placed == len(self._members):
                return
            if len(self._decided) == len(self._members) or self._was_here():
                self._give_back()
            else:
                open_places.append(self._places(self._members[len(self._decided)]))
            if self._steps % STEPS_A_TURN == 0:
                yield

    def _was_here(self) -> bool:
        """Return whether the same members were decided about before, with as many nodes of each kind."""
        situation = (
            len(self._decided),
            self._placed,
            frozenset((kind, len(nodes)) for kind, nodes in self._of_kind.items()),
        )
        was_here = situation in self._situations
        self._situations.add(situation)
        return was_here

    def _places(self, member: Member) -> Iterator[Place | None]:
        offer = self._offers.index(member.offered)
        for kind in list(self._of_kind):
            if kind.offered[offer] and (name := next(iter(self._of_kind.get(kind, ())), None)) is not None:
                yield from (Place(name, cards) for cards in self._choices(member.need, name))
        if len(self._decided) - self._placed < self._spare:
            yield None

    def _choices(self, need: PodNeed, node: str) -> Iterator[Footprint]:
        if (first := self._choose(need, node)) is None:
            return
        yield first
        facts = self._planner.nodes.facts(node)
        if need.cards == 1 and need.allowed is None and facts is not None:
            for card in facts.inventory.capacity.keys() - first.amounts.keys():
                if (other := self._choose(replace(need, allowed=frozenset({card})), node)) is not None:
                    yield other

    def _choose(self, need: PodNeed, node: str) -> Footprint | None:
        self._steps += 1
        facts = self._planner.nodes.facts(node)
        chosen = self._planner.verdicts.choose(need, node, self._taken(node))
        if facts is None or not isinstance(chosen, Choice):
            return None
        return footprint(need, chosen, facts.inventory.capacity)

    def _taken(self, node: str) -> tuple[Footprint, ...]:
        return (*self._planner.promised.get(node, ()), *self._on_node.get(node, ()))

    def _take(self, uid: str, place: Place | None) -> None:
        self._decided.append((uid, place))
        if place is not None:
            self._placed += 1
            self._on_node.setdefault(place.node, []).append(place.cards)
            self._sort_in(place.node)

    def _give_back(self) -> None:
        if self._decided and (place := self._decided.pop()[1]) is not None:
            self._placed -= 1
            self._on_node[place.node].pop()
            self._sort_in(place.node)

    def _sort_in(self, node: str) -> None:
        """Put a node among those of its present kind."""
        if (before := self._kind.get(node)) is not None:
            del self._of_kind[before][node]
            if not self._of_kind[before]:
                del self._of_kind[before]
        if number := self._planner.verdicts.states.of(node, self._taken(node)):
            offered = tuple(each is None or node in each for each in self._offers)
            self._kind[node] = kind = Kind(number, offered)
            self._of_kind.setdefault(kind, {})[node] = None
