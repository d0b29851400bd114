"""The cluster's nodes as placement sees them: translated once per change, not once per question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gas.amounts import MalformedQuantity, parse_quantity
from gas.cards import Card
from gas.intel.inventory import read_node
from gas.intel.names import CARD_CAPACITY, COUNT_RESOURCES, PREFIX, TELEMETRY_PREFIX, TILES
from gas.objects import Node, Quantity
from gas.vocabulary import NodeFacts

Source = tuple[object, ...]
"""The parts of a node's object from which its facts are read, by value."""


@dataclass(slots=True)
class _Kind:
    """Nodes that say the same.

    number  never given to another kind, even after this one is gone
    nodes   how many there are
    """

    number: int
    facts: NodeFacts
    deschedules: bool
    nodes: int = 0


class Nodes:
    """What is known of each node, by name. Fed by a watch; ``on_change`` gets the name of a node that changed.

    Most updates of a node are heartbeats: only a change of a label, resource or annotation that counts is one here.
    Nodes of one make say the same, so they share what was read.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._nodes: dict[str, _Kind] = {}
        self._kinds: dict[Source, _Kind] = {}
        self._sources: dict[int, Source] = {}
        self._last_number = 0
        self._on_change = on_change

    def replaced(self, nodes: list[Node]) -> None:
        """The complete set of nodes, after a list."""
        gone = self._nodes.keys() - {node.name for node in nodes}
        for node in nodes:
            self.changed(node)
        for name in gone:
            self._drop(name)

    def changed(self, node: Node) -> None:
        kind = self._kind_of(node)
        before = self._nodes.get(node.name)
        if before is kind:
            return
        kind.nodes += 1
        self._nodes[node.name] = kind
        if before is not None:
            self._leave(before)
        self._on_change(node.name)

    def deleted(self, node: Node) -> None:
        self._drop(node.name)

    def facts(self, name: str) -> NodeFacts | None:
        """What is known of a node, or None when there is no such node."""
        kind = self._nodes.get(name)
        return None if kind is None else kind.facts

    def as_sent(self, nodes: Iterable[Node]) -> dict[str, NodeFacts]:
        """The facts of nodes as somebody describes them, known here or not; nodes described alike share them."""
        read: dict[Source, NodeFacts] = {}
        facts = {}
        for node in nodes:
            source = _what_counts(node)
            if source not in read:
                kind = self._kinds.get(source)
                read[source] = kind.facts if kind is not None else read_node(node)
            facts[node.name] = read[source]
        return facts

    def kind(self, name: str) -> int | None:
        """A number that a node has in common with those that say the same; None when there is no such node."""
        kind = self._nodes.get(name)
        return None if kind is None else kind.number

    def tiles_of_cards(self, name: str) -> Mapping[Card, int] | None:
        """The cards of a node, and how many tiles each has; None when there is no such node."""
        if (facts := self.facts(name)) is None:
            return None
        return {card: amounts.get(TILES, 0) for card, amounts in facts.inventory.capacity.items()}

    def deschedules(self, name: str) -> bool:
        """Whether descheduling labels of the node count: it must have GPUs by its ``status.capacity`` too."""
        kind = self._nodes.get(name)
        return kind is not None and kind.deschedules

    def __iter__(self) -> Iterator[tuple[str, NodeFacts]]:
        return ((name, kind.facts) for name, kind in self._nodes.items())

    def __len__(self) -> int:
        return len(self._nodes)

    def _kind_of(self, node: Node) -> _Kind:
        source = _what_counts(node)
        if (kind := self._kinds.get(source)) is None:
            self._last_number += 1
            kind = self._kinds[source] = _Kind(self._last_number, read_node(node), _has_gpu_capacity(node))
            self._sources[kind.number] = source
        return kind

    def _drop(self, name: str) -> None:
        if (kind := self._nodes.pop(name, None)) is not None:
            self._leave(kind)
            self._on_change(name)

    def _leave(self, kind: _Kind) -> None:
        kind.nodes -= 1
        if not kind.nodes:
            del self._kinds[self._sources.pop(kind.number)]


def _what_counts(node: Node) -> Source:
    status = node.status
    return (
        frozenset((name, value) for name, value in node.labels.items() if name.startswith((PREFIX, TELEMETRY_PREFIX))),
        node.annotations.get(CARD_CAPACITY),
        _prefixed(status.allocatable if status else None),
        _prefixed(status.capacity if status else None),
    )


def _prefixed(resources: Mapping[str, Quantity] | None) -> frozenset[tuple[str, Quantity]]:
    return frozenset(item for item in (resources or {}).items() if item[0].startswith(PREFIX))


def _has_gpu_capacity(node: Node) -> bool:
    capacity = (node.status.capacity if node.status else None) or {}
    return any(_positive(capacity.get(PREFIX + resource)) for resource in COUNT_RESOURCES)


def _positive(quantity: Quantity | None) -> bool:
    try:
        return quantity is not None and parse_quantity(quantity) > 0
    except MalformedQuantity:
        return False


def with_problems(nodes: Iterable[tuple[str, NodeFacts]]) -> dict[str, tuple[str, ...]]:
    """The nodes whose labels, annotation or resources make no sense somewhere, with the sentences."""
    return {name: facts.problems for name, facts in nodes if facts.problems}
