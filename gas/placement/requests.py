"""What is placed in one go, and when it is held: a pod's need made ready for asking many nodes.

A pod's life has moments at which capacity must hold: one while each init container runs (with the sidecars
that were started before it), and the long one at the end (all sidecars and all app containers). Each resource
at each moment is a *slot*; whoever takes some of a card takes it in the slots of all the moments at which it
is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gas.amounts import SortedAmounts
from gas.placement.need import ContainerNeed, PodNeed, Role
from gas.placement.same_card import shared_need

END = 0
"""The moment from the end of the init containers until the pod ends."""


@dataclass(frozen=True, slots=True)
class Request:
    """One container, or all the containers that share a card.

    index      its place in ``Plan.requests``
    positions  of its containers in the pod's need
    count      how many different cards
    per_card   what it takes of each
    takes      the same as (slot, amount)
    moments    at which it holds its cards; the first is the one by which cards are balanced
    """

    index: int
    positions: tuple[int, ...]
    count: int
    per_card: SortedAmounts
    role: Role
    takes: tuple[tuple[int, int], ...]
    moments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A pod's need as requests; those without a card are left out.

    requests        in the order of the greedy answer: the group that shares a card, app containers, sidecars,
                    init containers
    staying         those that hold their cards to the end: all but the init containers
    names           the resources that any of them names; slot = moment * len(names) + place of the name
    moments         how many; END is the first
    in_start_order  (position, request) of every container with cards, as kubelet starts them
    count_resources those of the need
    """

    requests: tuple[Request, ...]
    staying: tuple[Request, ...]
    names: tuple[str, ...]
    moments: int
    in_start_order: tuple[tuple[int, Request], ...]
    count_resources: frozenset[str]

    @property
    def has_init_containers(self) -> bool:
        return self.moments > 1

    def totals(self) -> list[int]:
        """By slot: what all requests together take of all cards."""
        totals = [0] * (self.moments * len(self.names))
        for request in self.requests:
            for slot, amount in request.takes:
                totals[slot] += amount * request.count
        return totals


@lru_cache(maxsize=1024)
def plan_of(need: PodNeed) -> Plan:
    """The plan of a need; kept, because a filter asks thousands of nodes the same."""
    containers = need.containers
    holding = [position for position, container in enumerate(containers) if container.count]
    names = tuple(sorted({name for position in holding for name, _ in containers[position].per_card}))
    init_moments = {
        position: moment
        for moment, position in enumerate((p for p in holding if containers[p].role is Role.INIT), start=END + 1)
    }

    def request(index: int, positions: tuple[int, ...], per_card: SortedAmounts) -> Request:
        first = containers[positions[0]]
        moments = _moments(positions[0], first, init_moments)
        takes = tuple(
            (moment * len(names) + names.index(name), amount) for moment in moments for name, amount in per_card
        )
        return Request(index, positions, first.count, per_card, first.role, takes, moments)

    asked: list[tuple[tuple[int, ...], SortedAmounts]] = []
    if need.same_card:
        together = tuple(sorted(need.same_card))
        asked.append((together, shared_need(containers[position] for position in together)))
    for role in (Role.APP, Role.SIDECAR, Role.INIT):
        asked += [
            ((position,), containers[position].per_card)
            for position in holding
            if containers[position].role is role and position not in need.same_card
        ]
    requests = tuple(request(index, *what) for index, what in enumerate(asked))
    by_position = {position: request for request in requests for position in request.positions}
    return Plan(
        requests=requests,
        staying=tuple(request for request in requests if request.role is not Role.INIT),
        names=names,
        moments=1 + len(init_moments),
        in_start_order=tuple((position, by_position[position]) for position in holding),
        count_resources=need.count_resources,
    )


def _moments(position: int, container: ContainerNeed, init_moments: dict[int, int]) -> tuple[int, ...]:
    if container.role is Role.INIT:
        return (init_moments[position],)
    if container.role is Role.SIDECAR:
        return (END, *(moment for init, moment in init_moments.items() if init > position))
    return (END,)
