"""The cluster's nodes as placement sees them: translated once per change, not once per question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from gas.amounts import MalformedQuantity, parse_quantity
from gas.cards import Card
from gas.intel.inventory import NodeFacts, read_node
from gas.intel.names import CARD_CAPACITY, COUNT_RESOURCES, PREFIX, TELEMETRY_PREFIX, TILES
from gas.objects import Node, Quantity


class Nodes:
    """What is known of each node, by name. Fed by a watch; ``on_change`` gets the name of a node that changed.

    Most updates of a node are heartbeats: only a change of a label, resource or annotation that counts is one here.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._facts: dict[str, NodeFacts] = {}
        self._read_from: dict[str, tuple[object, ...]] = {}
        self._deschedules: dict[str, bool] = {}
        self._on_change = on_change

    def replaced(self, nodes: list[Node]) -> None:
        """The complete set of nodes, after a list."""
        gone = self._facts.keys() - {node.name for node in nodes}
        for node in nodes:
            self.changed(node)
        for name in gone:
            self._drop(name)

    def changed(self, node: Node) -> None:
        source = _what_counts(node)
        if self._read_from.get(node.name) == source:
            return
        self._facts[node.name] = read_node(node)
        self._read_from[node.name] = source
        self._deschedules[node.name] = _has_gpu_capacity(node)
        self._on_change(node.name)

    def deleted(self, node: Node) -> None:
        self._drop(node.name)

    def facts(self, name: str) -> NodeFacts | None:
        """What is known of a node, or None when there is no such node."""
        return self._facts.get(name)

    def tiles_of_cards(self, name: str) -> Mapping[Card, int] | None:
        """The cards of a node, and how many tiles each has; None when there is no such node."""
        if (facts := self._facts.get(name)) is None:
            return None
        return {card: amounts.get(TILES, 0) for card, amounts in facts.inventory.capacity.items()}

    def deschedules(self, name: str) -> bool:
        """Whether descheduling labels of the node count: it must have GPUs by its ``status.capacity`` too."""
        return self._deschedules.get(name, False)

    def __iter__(self) -> Iterator[tuple[str, NodeFacts]]:
        return iter(self._facts.items())

    def __len__(self) -> int:
        return len(self._facts)

    def _drop(self, name: str) -> None:
        if self._facts.pop(name, None) is not None:
            del self._read_from[name], self._deschedules[name]
            self._on_change(name)


def _what_counts(node: Node) -> tuple[object, ...]:
    """The parts of a node from which its facts are read."""
    status = node.status
    return (
        {
            name: value
            for name, value in node.labels.items()
            if name.startswith(PREFIX) or name.startswith(TELEMETRY_PREFIX)
        },
        node.annotations.get(CARD_CAPACITY),
        _prefixed(status.allocatable if status else None),
        _prefixed(status.capacity if status else None),
    )


def _prefixed(resources: Mapping[str, Quantity] | None) -> dict[str, Quantity]:
    return {name: amount for name, amount in (resources or {}).items() if name.startswith(PREFIX)}


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
