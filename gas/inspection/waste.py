"""Capacity that is of no use: remainders of cards that no pod can take, and memory that is booked and not used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gas.doctor.checks.rebuilt_ledger import at_once
from gas.inspection.cluster import CardHolder, Cluster
from gas.inspection.report import Column, Report, Row, Value
from gas.inspection.rows import column_of, resources
from gas.placement.stranded import StrandedCapacity
from gas.values.amounts import MEMORY_MAX
from gas.values.cards import Card


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


def waste_of(cluster: Cluster) -> Waste:
    """Return the remainders that are stranded for the cluster's pods, and the unused bookings, of all cards."""
    names = resources(cluster)
    stranded = StrandedCapacity(at_once(cluster.decider.shapes()))
    rows: list[Row] = []
    sums = dict.fromkeys(names, 0.0)
    unused: float | None = None
    for node in cluster.node_names:
        facts, kind = cluster.decider.nodes.facts(node), cluster.decider.nodes.kind(node)
        if facts is None:
            continue
        usage, holders = cluster.decider.ledger.usage(node), cluster.holders(node)
        for card, capacity in facts.inventory.capacity.items():
            row: dict[str, Value] = {"node": node, "card": str(card)}
            for name, free in stranded.of(kind, facts.inventory, usage, card).items():
                row[column_of(name)] = free
                sums[name] += free / capacity[name]
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
        *(Column(column_of(name), number=True, resource=name) for name in names),
        Column("unused", number=True, resource=MEMORY_MAX),
    )
    return Waste(Report(columns, rows), {name: amount for name, amount in sums.items() if amount}, unused)


def _used(cluster: Cluster, card: Card, holders: Sequence[CardHolder]) -> int | None:
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
