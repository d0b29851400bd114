"""The cluster's nodes as placement sees them: translated once per change, not once per question."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass

from gas.objects.handler import MirrorByName
from gas.objects.stored import Node
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.protocol import NodeFacts


@dataclass(slots=True)
class _Kind:
    """Nodes that say the same about their cards.

    number  never given to another kind, even after this one is gone
    source  the parts of a node's object that the facts were read from
    nodes   how many there are
    """

    number: int
    source: Hashable
    facts: NodeFacts
    nodes: int = 0


class Nodes(MirrorByName[Node]):
    """Facts of each node, by name. Fed by a watch; ``on_change`` is called with the name of a node that changed.

    Most updates of a node are heartbeats: only a change of a label, resource or annotation that a vocabulary reads is
    a change here. Nodes that say the same share one object of facts.
    """

    def __init__(self, vocabularies: Vocabularies, on_change: Callable[[str], None] = lambda _node: None) -> None:
        self._vocabularies = vocabularies
        self._nodes: dict[str, _Kind] = {}
        self._kinds: dict[Hashable, _Kind] = {}
        self._last_number = 0
        self._on_change = on_change

    def changed(self, node: Node) -> None:
        """Take in a node that is new or was updated."""
        kind = self._kind_of(node)
        before = self._nodes.get(node.name)
        if before is kind:
            return
        kind.nodes += 1
        self._nodes[node.name] = kind
        if before is not None:
            self._leave(before)
        self._on_change(node.name)

    def facts(self, name: str) -> NodeFacts | None:
        """Return the facts of a node, None if the node is not known."""
        kind = self._nodes.get(name)
        return None if kind is None else kind.facts

    def as_sent(self, nodes: Iterable[Node]) -> dict[str, NodeFacts]:
        """Return the facts of nodes as a request describes them, known here or not; equal descriptions share facts."""
        read: dict[Hashable, NodeFacts] = {}
        facts = {}
        for node in nodes:
            source = self._vocabularies.source(node)
            if source not in read:
                kind = self._kinds.get(source)
                read[source] = kind.facts if kind is not None else self._vocabularies.facts(node)
            facts[node.name] = read[source]
        return facts

    def kind(self, name: str) -> int | None:
        """Return a number that the node shares with all nodes that say the same; None if the node is not known."""
        kind = self._nodes.get(name)
        return None if kind is None else kind.number

    def resources(self) -> set[str]:
        """Return the resources that the cards of any node have."""
        capacities = (amounts for kind in self._kinds.values() for amounts in kind.facts.inventory.capacity.values())
        return {name for amounts in capacities for name in amounts}

    def __iter__(self) -> Iterator[tuple[str, NodeFacts]]:
        return ((name, kind.facts) for name, kind in self._nodes.items())

    def __len__(self) -> int:
        return len(self._nodes)

    def _kind_of(self, node: Node) -> _Kind:
        source = self._vocabularies.source(node)
        if (kind := self._kinds.get(source)) is None:
            self._last_number += 1
            kind = self._kinds[source] = _Kind(self._last_number, source, self._vocabularies.facts(node))
        return kind

    def forget(self, name: str) -> None:
        if (kind := self._nodes.pop(name, None)) is not None:
            self._leave(kind)
            self._on_change(name)

    def _leave(self, kind: _Kind) -> None:
        kind.nodes -= 1
        if not kind.nodes:
            del self._kinds[kind.source]

    def known(self) -> Collection[str]:
        return self._nodes.keys()
