"""The reports about nodes, cards and pods: what is booked, what is used, who holds it, and what is of no use."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from gas.extender.verdicts import at_once
from gas.inspection.cluster import Cluster, natural
from gas.inspection.objects import InspectedPod
from gas.inspection.reasons import Diagnoses
from gas.inspection.report import Booked, Column, Report, Row, Selector, Value, columns
from gas.placement.inventory import NOTHING
from gas.placement.ratio import Wanted
from gas.placement.refusal import in_words
from gas.placement.stranded import StrandedCapacity
from gas.values.amounts import MEMORY_MAX, MILLICORES, TILES, describe, is_bytes
from gas.values.card_records import ANNOTATION, CardRecord
from gas.values.cards import Card
from gas.vocabularies.protocol import BadNeed, NodeFacts

_OF_CARDS = {"node", "card", "cards", "pods", "used", "busy", "unused", "health", "model", "tileCount", "numa", "pci"}
_OF_PODS = {"namespace", "name", "state", "priority", "note", "holders", "owner", "created", "age", "asks"}
_OF_THE_PAGE = {"booking", "cause", "decisions", "freeTiles", "held", "labels", "uid", "waiting", "written"}
NEGLIGIBLE = 10**6  # bytes of memory, fewer of which are no waste
FIXED_KEYS = frozenset(_OF_CARDS | _OF_PODS | _OF_THE_PAGE)
"""The keys of rows, and of what the page shows of a pod, that are no resource."""


def column_of(resource: str) -> str:
    """Return the name of the column of a resource. Nodes may have a resource with the name of another column."""
    return f"resource.{resource}" if resource in FIXED_KEYS else resource


def resources(cluster: Cluster) -> tuple[str, ...]:
    """Return the resources that cards of the cluster have: bytes first, then millicores, then all others by name."""
    seen: dict[str, None] = {}
    done: set[int] = set()
    for _, facts in cluster.decider.nodes:
        if id(facts) not in done:
            done.add(id(facts))
            for amounts in facts.inventory.capacity.values():
                seen.update(dict.fromkeys(amounts))
    return tuple(sorted(seen, key=lambda name: (not is_bytes(name), name != MILLICORES, name)))


def _resource_columns(names: Sequence[str], *, gauge: bool = True) -> list[Column]:
    """Return a column for each resource. Counts of containers are wide: they say little about a card."""
    important = [name for name in names if is_bytes(name) or name == MILLICORES]
    return [
        Column(
            column_of(name),
            wide=bool(important) and name not in important,
            number=not gauge,
            resource=name,
            gauge=gauge,
        )
        for name in names
    ]


_USE = (Column("used", number=True, resource=MEMORY_MAX), Column("busy", number=True))


def card_report(cluster: Cluster, selector: Selector | None = None, only_node: str = "") -> Report:
    """Return a row for each card: its bookings, its measured use, the pods on it, its health and model."""
    names = resources(cluster)
    rows: list[Row] = []
    for node in _selected(cluster, selector, only_node):
        rows += card_rows(cluster, node, names)
    head = (*columns("node", "card"), *_resource_columns(names), *_USE, *columns("pods", number=True))
    wide = (*columns("tileCount", "numa", wide=True, number=True), *columns("pci", "holders", wide=True))
    return Report((*head, *columns("health", "model"), *wide), rows)


def card_rows(cluster: Cluster, node: str, names: Sequence[str]) -> list[Row]:
    facts = cluster.decider.nodes.facts(node)
    records = cluster.records(node)
    booked = cluster.decider.ledger.usage(node).amounts
    holders = cluster.holders(node)
    capacity = facts.inventory.capacity if facts is not None else {}
    named = [(name, column_of(name)) for name in names]
    rows: list[Row] = []
    for card in cluster.cards(node):
        had, taken = capacity.get(card, NOTHING), booked.get(card, NOTHING)
        on_card = holders.get(card, {})
        used, busy = _use(cluster, [(uid, card) for uid in on_card]) if cluster.use else (None, None)
        record = records.get(card) or NO_RECORD
        rows.append(
            {
                "node": node,
                "card": str(card),
                **{
                    column: Booked(taken.get(name, 0), had.get(name, 0))
                    for name, column in named
                    if name in had or name in taken
                },
                "used": used,
                "busy": busy,
                "pods": len(on_card),
                "health": health(card, facts, record),
                "model": record.model,
                "tileCount": record.tiles if record is not NO_RECORD else None,
                "numa": record.numa_node,
                "pci": record.pci_address,
                "holders": tuple([booking.pod for booking in on_card.values()]),
            }
        )
    return rows


NO_RECORD = CardRecord(card=Card(0))  # stands for the record of a card that has none


def health(card: Card, facts: NodeFacts | None, record: CardRecord) -> str:
    """Return ``ok``, or why nothing new starts on a card: ``unhealthy``, ``gone``, ``disabled``, ``descheduled``."""
    if not record.healthy:
        return "unhealthy"
    if facts is None or card not in facts.inventory.capacity:
        return "gone"
    if card in facts.deschedule_cards:
        return "descheduled"
    return "disabled" if card in facts.inventory.disabled else "ok"


def cause(card: Card, facts: NodeFacts | None, record: CardRecord) -> str:
    """Return which report or labels close a card, or tiles of it; empty if none does."""
    if not record.healthy:
        return f"unhealthy in annotation {ANNOTATION}, which the plugin writes"
    if facts is None or card not in facts.inventory.capacity:
        return f"held by pods or in annotation {ANNOTATION}, but the labels and resources of the node do not have it"
    return "; ".join(f"closed by {label}" for label in facts.closed_by.get(card, ()))


def node_report(cluster: Cluster, selector: Selector | None = None) -> Report:
    """Return a row for each node with cards: the sums over its cards."""
    names = resources(cluster)
    rows: list[Row] = []
    for node in _selected(cluster, selector, ""):
        if not (of_cards := card_rows(cluster, node, names)):
            continue
        on_node = cluster.decider.ledger.on_node(node)
        used, busy = _use(cluster, [(uid, card) for uid in on_node for card in cluster.cards(node)])
        row: dict[str, Value] = {"node": node, "cards": len(of_cards), "pods": len(on_node)}
        for name in map(column_of, names):
            gauges = [gauge for each in of_cards if isinstance(gauge := each.get(name), Booked)]
            if gauges:
                row[name] = Booked(sum(gauge.booked for gauge in gauges), sum(gauge.capacity for gauge in gauges))
        row |= {
            "used": used,
            "busy": busy,
            "health": _counted(str(each["health"]) for each in of_cards),
            "model": _counted(str(each["model"]) for each in of_cards if each["model"]),
        }
        rows.append(row)
    head = (*columns("node"), *columns("cards", number=True), *_resource_columns(names), *_USE)
    return Report((*head, *columns("pods", number=True), *columns("health", "model")), rows)


def pod_report(
    cluster: Cluster, *, namespace: str | None = None, selector: Selector | None = None, explains: bool = True
) -> Report:
    """Return a row for each GPU pod: its cards and what it books, or that it waits, and why.

    namespace  None for all namespaces
    explains   whether to find out why pods wait, which places each on all nodes
    """
    now = time.time()
    diagnoses = Diagnoses(cluster)
    names = resources(cluster)
    rows: list[Row] = []
    pods = [
        pod
        for pod in cluster.gpu_pods
        if (namespace is None or (pod.metadata.namespace or "default") == namespace)
        and (selector is None or selector(pod.metadata.labels or {}))
    ]
    for pod in sorted(pods, key=lambda each: natural(each.key)):
        row = pod_row(cluster, pod)
        with suppress(ValueError):
            row["age"] = int(max(now - datetime.fromisoformat(pod.metadata.creation_timestamp or "").timestamp(), 0))
        if explains and not pod.node_name:
            row["note"] = diagnoses.of(pod).line
        rows.append(row)
    head = (*columns("namespace", "name", "state", "node", "cards"), *_resource_columns(names, gauge=False), *_USE)
    head = (*head, Column("age", number=True, resource="age"), *columns("asks", wide=explains))
    wide = (*columns("owner", wide=True), *columns("priority", wide=True, number=True), *columns("note", wide=True))
    return Report((*head, *wide), rows)


def pod_row(cluster: Cluster, pod: InspectedPod) -> dict[str, Value]:
    """Return the row of one GPU pod, without the reason why it waits."""
    booking = cluster.decider.ledger.booking(pod.uid)
    row: dict[str, Value] = {
        "namespace": pod.metadata.namespace or "default",
        "name": pod.metadata.name,
        "state": _state(pod),
        "node": pod.node_name or None,
        "cards": tuple(map(str, booking.footprint.amounts)) if booking is not None else None,
        "owner": pod.owner or None,
        "created": pod.metadata.creation_timestamp,
    }
    if not pod.node_name:
        row["asks"] = asks(cluster, pod) or None
    if booking is not None:
        sums: Counter[str] = Counter()
        for amounts in booking.footprint.amounts.values():
            sums.update(dict(amounts))
        row |= {column_of(name): amount for name, amount in sums.items()}
        used, busy = _use(cluster, [(pod.uid, card) for card in booking.footprint.amounts])
        row |= {"used": used, "busy": busy}
    row["priority"] = pod.priority
    if pod.node_name:
        row["note"] = cluster.fault(pod) or None
    return row


def asks(cluster: Cluster, pod: InspectedPod) -> str:
    """Return the cards that a pod asks for, ``2 cards with 1 i915 and 8.0 GB of memory.max each``; empty if invalid."""
    try:
        need = cluster.decider.need(pod)
    except BadNeed:
        return ""
    texts = []
    for each in need.containers:
        if each.count:
            cards, of_each = ("1 card", "") if each.count == 1 else (f"{each.count} cards", " each")
            amounts: tuple[Wanted, ...] = (*each.per_card, *each.ratios)
            if need.stated_memory is not None:  # from which the rest follows
                amounts = tuple(amount for amount in each.per_card if is_bytes(amount[0]))
            words = f" with {in_words(amounts, need.stated_memory)}{of_each}" if amounts else ""
            texts.append((each.name, cards + words))
    return texts[0][1] if len(texts) == 1 else "; ".join(f"{name}: {text}" for name, text in texts)


def _state(pod: InspectedPod) -> str:
    if pod.suspended == "Terminating" or not pod.node_name:
        return pod.suspended or "Waiting"
    return (pod.status.phase if pod.status is not None else None) or "Pending"


def _selected(cluster: Cluster, selector: Selector | None, only_node: str) -> list[str]:
    names = [cluster.node(only_node).name] if only_node else cluster.node_names
    return [name for name in names if selector is None or selector(cluster.nodes.records[name].labels)]


def _use(cluster: Cluster, places: Iterable[tuple[str, Card]]) -> tuple[int | None, float | None]:
    """Return the memory used, and the largest busy share, over pods on cards; None where nothing was measured."""
    if not cluster.use:
        return None, None
    found = [use for place in places if (use := cluster.use.get(place)) is not None]
    memory = [use.memory for use in found if use.memory is not None]
    busy = [use.busy for use in found if use.busy is not None]
    return (sum(memory) if memory else None), (max(busy) if busy else None)


def _counted(texts: Iterable[str]) -> str:
    """List different texts, with how often each comes if there are several: ``ok``, ``3 ok, 1 unhealthy``."""
    counts = Counter(texts)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {text}" for text, count in sorted(counts.items()))


@dataclass(frozen=True, slots=True)
class Waste:
    """The waste of a cluster.

    rows   one for each card with waste
    sums   by resource, the stranded amount and what all cards have
    unused booked memory that is not used, and what the cards have on which that was measured
    """

    report: Report
    sums: Mapping[str, Booked]
    unused: Booked


def waste_of(cluster: Cluster) -> Waste:
    """Return the remainders that are stranded for the cluster's pods, and the unused bookings, of all cards.

    Shares of a card, such as ``i915``, are no capacity of their own, so none are counted.
    """
    names = [name for name in resources(cluster) if is_bytes(name) or name in (MILLICORES, TILES)]
    stranded = StrandedCapacity(at_once(cluster.decider.shapes()))
    rows: list[Row] = []
    sums, total = Counter[str](), Counter[str]()
    unused, measured = 0, 0
    for node in cluster.node_names:
        facts, kind = cluster.decider.nodes.facts(node), cluster.decider.nodes.kind(node)
        if facts is None:
            continue
        usage, holders = cluster.decider.ledger.usage(node), cluster.holders(node)
        for card, capacity in facts.inventory.capacity.items():
            total.update(dict(capacity))
            left = {
                name: amount
                for name, amount in stranded.of(kind, facts.inventory, usage, card).items()
                if not is_bytes(name) or amount >= NEGLIGIBLE
            }
            row: dict[str, Value] = {column_of(name): left[name] for name in names if name in left}
            sums.update(dict(left))
            used = _used(cluster, card, holders.get(card, {}))
            if used is not None and (has := capacity.get(MEMORY_MAX, 0)):
                measured += has
                if (rest := usage.amounts.get(card, {}).get(MEMORY_MAX, 0) - used) >= NEGLIGIBLE:
                    unused += rest
                    row["unused"] = rest
            if row:
                rows.append({"node": node, "card": str(card), **row})
    of_resources = (Column(column_of(name), number=True, resource=name) for name in names)
    head = (*columns("node", "card"), *of_resources, Column("unused", number=True, resource=MEMORY_MAX))
    found = {name: Booked(sums[name], total[name]) for name in names if sums[name]}
    return Waste(Report(head, rows), found, Booked(unused, measured))


def _used(cluster: Cluster, card: Card, uids: Iterable[str]) -> int | None:
    """Return the memory that the pods on a card use; None if it was not measured for all of them."""
    uses = [cluster.use.get((uid, card)) for uid in uids]
    known = [use.memory for use in uses if use is not None and use.memory is not None]
    return sum(known) if uses and len(known) == len(uses) else None


def waste_notes(waste: Waste) -> tuple[str, ...]:
    sums = ", ".join(f"{describe(name, part.booked)} ({part.share:.0%})" for name, part in waste.sums.items())
    notes = [f"stranded: {sums or 'nothing'}"]
    if waste.unused.capacity:
        notes.append(f"booked and not used: {describe(MEMORY_MAX, waste.unused.booked)} ({waste.unused.share:.0%})")
    return tuple(notes)
