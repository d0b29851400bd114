"""Prepare a pod's need as requests and slots, once for many nodes.

A pod's life has moments at which its cards must have enough free: one while each init container runs (with the
sidecars that were started before it), and the last one, with all sidecars and app containers. One resource at one
moment is a *slot*. A request takes its amounts in the slots of all moments at which its containers run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gas.placement.need import ContainerNeed, PodNeed, Role
from gas.placement.ratio import Ratio, Wanted, add_ratios
from gas.values.amounts import SortedAmounts, StatedMemory, sorted_amounts

END = 0  # the moment from the end of the init containers until the pod ends
LARGE = 1000  # Amounts of all requests in all slots, about 0.1 kB each. Real plans have a tenth; few larger are cached.


@dataclass(frozen=True, slots=True)
class Request:
    """One container, or all the containers that share a card, or all those that have their cards apart."""

    index: int  # position in ``Plan.requests``
    positions: tuple[int, ...]  # of its containers in the pod's need
    # whether each of its cards is that of one container only; otherwise all its containers have all of them
    apart: bool
    count: int  # how many different cards
    per_card: SortedAmounts  # what it takes of each card
    ratios: tuple[Ratio, ...]  # what it takes of each card as a part of what the card has
    role: Role
    takes: tuple[tuple[int, int], ...]  # ``per_card`` as (slot, amount); a lower bound if the plan has ratios
    parts: tuple[tuple[int, int], ...]  # (slot, part) of ``ratios``
    # at which it holds its cards; the first is the moment whose usage orders the cards for balancing
    moments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The requests of a pod's need. Containers without cards have none."""

    # in the order of the first-fit search: the containers that share a card, app containers, sidecars, init containers
    requests: tuple[Request, ...]
    staying: tuple[Request, ...]  # those that hold their cards to the end: all but the init containers
    names: tuple[str, ...]  # the resources that any request names; slot = moment * len(names) + index of the name
    # for each name, None if the pod asks for it only as amounts, else what parts of it are divided by
    # (`gas.placement.ratio.whole`); empty if the plan has no ratios
    wholes: tuple[str | None, ...]
    moments: int  # how many moments; END is the first
    # (position, request) of every container with cards, in the order in which kubelet starts them
    in_start_order: tuple[tuple[int, Request], ...]
    count_resources: frozenset[str]
    stated_memory: StatedMemory | None

    @property
    def has_init_containers(self) -> bool:
        return self.moments > 1

    def totals(self) -> tuple[Wanted, ...]:
        """Return what all requests together take of all cards, of each resource at the moment that needs most."""
        amounts, parts = ([0] * (self.moments * len(self.names)) for _ in range(2))
        for request in self.requests:
            for slot, amount in request.takes:
                amounts[slot] += amount * request.count
            for slot, part in request.parts:
                parts[slot] += part * request.count
        totals: list[Wanted] = []
        for place, name in enumerate(self.names):
            of = self.wholes[place] if self.wholes else None
            amount, part = (max(each[place :: len(self.names)]) for each in (amounts, parts))
            if amount or of is None:
                totals.append((name, amount))
            if of is not None:
                totals.append(Ratio(name, part, of))
        return tuple(totals)


def plan_of(need: PodNeed) -> Plan:
    """Return the plan of a need. Cached, because a filter places one need on thousands of nodes."""
    return _small_plan(need) if need.most_slots <= LARGE else _large_plan(need)


def _plan_of(need: PodNeed) -> Plan:
    containers = need.containers
    with_cards = [position for position, container in enumerate(containers) if container.count]
    wholes = {ratio.resource: ratio.of for position in with_cards for ratio in containers[position].ratios}
    names = tuple(
        sorted({name for position in with_cards for name, _ in containers[position].per_card} | wholes.keys())
    )
    slot_of = {name: slot for slot, name in enumerate(names)}
    init_moments = {
        position: moment
        for moment, position in enumerate((p for p in with_cards if containers[p].role is Role.INIT), start=END + 1)
    }

    def request(index: int, positions: tuple[int, ...]) -> Request:
        first = containers[positions[0]]
        apart = positions[0] in need.apart
        per_card, ratios = shared_need([containers[position] for position in positions[: 1 if apart else None]])
        moments = _moments(positions[0], first, init_moments)

        def slots(amounts: Iterable[tuple[str, int]]) -> tuple[tuple[int, int], ...]:
            return tuple((moment * len(names) + slot_of[name], n) for moment in moments for name, n in amounts)

        return Request(
            index=index,
            positions=positions,
            apart=apart,
            count=sum(containers[position].count for position in positions) if apart else first.count,
            per_card=per_card,
            ratios=ratios,
            role=first.role,
            takes=slots(per_card),
            parts=slots([(ratio.resource, ratio.part) for ratio in ratios]),
            moments=moments,
        )

    ordered = [tuple(sorted(each)) for each in (need.same_card, need.apart) if each]
    for role in (Role.APP, Role.SIDECAR, Role.INIT):
        ordered += [
            (position,)
            for position in with_cards
            if containers[position].role is role and position not in need.same_card | need.apart
        ]
    requests = tuple(request(index, positions) for index, positions in enumerate(ordered))
    by_position = {position: request for request in requests for position in request.positions}
    return Plan(
        requests=requests,
        staying=tuple(request for request in requests if request.role is not Role.INIT),
        names=names,
        wholes=tuple(wholes.get(name) for name in names) if wholes else (),
        moments=1 + len(init_moments),
        in_start_order=tuple((position, by_position[position]) for position in with_cards),
        count_resources=need.count_resources,
        stated_memory=need.stated_memory,
    )


_small_plan = lru_cache(maxsize=1024)(_plan_of)
_large_plan = lru_cache(maxsize=16)(_plan_of)


def shared_need(containers: Sequence[ContainerNeed]) -> tuple[SortedAmounts, tuple[Ratio, ...]]:
    """Return what one card must have free for containers that share it (contract E7.3), as amounts and as ratios.

    It is the sum of what they take, so the count resource counts once for each container.
    """
    if len(containers) == 1:
        return containers[0].per_card, containers[0].ratios
    total: dict[str, int] = {}
    ratios: dict[str, Ratio] = {}
    for container in containers:
        for name, amount in container.per_card:  # an amount of 0 counts: the card must have the resource
            total[name] = total.get(name, 0) + amount
        add_ratios(ratios, container.ratios)
    return sorted_amounts(total), tuple(ratios.values())


def _moments(position: int, container: ContainerNeed, init_moments: dict[int, int]) -> tuple[int, ...]:
    """Return the moments at which a container runs; ``init_moments`` is keyed by position."""
    if container.role is Role.INIT:
        return (init_moments[position],)
    if container.role is Role.SIDECAR:
        return (END, *(moment for init, moment in init_moments.items() if init > position))
    return (END,)
