"""Capacity that is of no use: remainders of cards that no pod can take, and memory that is booked and not used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as with_fields

from gas.amounts import MEMORY_MAX
from gas.cards import Card
from gas.inspection.cluster import Cluster, Holder
from gas.inspection.report import Column, Report, Row, Value
from gas.inspection.rows import resources
from gas.placement.inventory import Inventory, Usage, free_amount
from gas.placement.need import ContainerNeed, PodNeed
from gas.placement.place import place
from gas.placement.refusal import Refusal
from gas.vocabulary import BadNeed


@dataclass(frozen=True, slots=True)
class Waste:
    """The waste of a cluster.

    rows   one for each card with waste
    sums   by resource, the stranded amounts in cards: 0.5 is half of what one card has
    unused booked memory that is not used, in cards; None if use was not measured
    """

    report: Report
    sums: Mapping[str, float]
    unused: float | None


def shapes(cluster: Cluster) -> tuple[PodNeed, ...]:
    """Return what containers of the cluster's GPU pods take of one card, each shape once."""
    options = cluster.settings.options
    found: dict[PodNeed, None] = {}
    for pod in cluster.gpu_pods:
        with suppress(BadNeed):
            need = options.vocabularies.need(pod, options.need)
            for container in need.containers:
                if container.count:
                    alone = ContainerNeed("", 1, container.per_card, ratios=container.ratios)
                    found[PodNeed((alone,), company=need.company)] = None
    return tuple(found)


def waste_of(cluster: Cluster) -> Waste:
    """Return the stranded remainders and the unused bookings of all cards.

    A remainder is stranded if the card is in use and no container of a pod of the cluster would fit on it. Idle cards
    are not stranded, and neither are cards on which nothing new may start.
    """
    names, needs = resources(cluster), shapes(cluster)
    rows: list[Row] = []
    sums = dict.fromkeys(names, 0.0)
    unused: float | None = None
    known: dict[tuple[object, ...], bool] = {}
    for node in cluster.node_names:
        facts = cluster.decider.nodes.facts(node)
        if facts is None:
            continue
        usage, holders = cluster.decider.ledger.usage(node), cluster.holders(node)
        for card, capacity in facts.inventory.capacity.items():
            row: dict[str, Value] = {"node": node, "card": str(card)}
            if not usage.is_idle(card) and card not in facts.inventory.disabled:
                state = (id(facts), card, _state(usage, card))
                if state not in known:
                    known[state] = _is_stranded(
                        needs, facts.inventory, usage, card, cluster.settings.options.step_limit
                    )
                if known[state]:
                    for name, has in capacity.items():
                        if has and (free := max(free_amount(facts.inventory, usage, card, name), 0)):
                            row[name] = free
                            sums[name] += free / has
            used = _used(cluster, card, holders.get(card, ()))
            booked = usage.amounts.get(card, {}).get(MEMORY_MAX, 0)
            if used is not None and (has := capacity.get(MEMORY_MAX, 0)):
                rest = max(booked - used, 0)
                unused = (unused or 0.0) + rest / has
                if rest:
                    row["unused"] = rest
            if len(row) > 2:
                rows.append(row)
    columns = (
        Column("node"),
        Column("card"),
        *(Column(name, number=True, resource=name) for name in names),
        Column("unused", number=True, resource=MEMORY_MAX),
    )
    return Waste(Report(columns, rows), {name: amount for name, amount in sums.items() if amount}, unused)


def _state(usage: Usage, card: Card) -> tuple[object, ...]:
    """Return everything booked on one card that decides what fits on it."""
    return (
        tuple(sorted(usage.amounts.get(card, {}).items())),
        usage.tiles.get(card),
        frozenset(usage.company_on(card)),
        frozenset(usage.names.get(card, ())),
    )


def _is_stranded(needs: Iterable[PodNeed], inventory: Inventory, usage: Usage, card: Card, step_limit: int) -> bool:
    """Return whether no need fits on this card alone."""
    others = frozenset(inventory.capacity) - {card}
    only = with_fields(inventory, disabled=inventory.disabled | others)
    return all(isinstance(place(need, only, usage, step_limit=step_limit), Refusal) for need in needs)


def _used(cluster: Cluster, card: Card, holders: Sequence[Holder]) -> int | None:
    """Return the memory that the pods on a card use; None if it was not measured for all of them."""
    uses = [cluster.use.get((holder.uid, card)) for holder in holders]
    memory = [use.memory if use is not None else None for use in uses]
    known = [each for each in memory if each is not None]
    return sum(known) if uses and len(known) == len(uses) else None


def waste_notes(waste: Waste) -> tuple[str, ...]:
    """Return the sums as sentences."""
    stranded = ", ".join(f"{amount:.1f} cards of {name}" for name, amount in waste.sums.items())
    notes = [f"stranded: {stranded or 'nothing'}"]
    if waste.unused is not None:
        notes.append(f"booked and not used: {waste.unused:.1f} cards of {MEMORY_MAX}")
    return tuple(notes)
