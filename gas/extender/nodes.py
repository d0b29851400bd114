"""Translate the cluster's nodes into facts for placement, once per change rather than once per request."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gas.objects.handler import MirrorByName
from gas.objects.stored import Node
from gas.values.cards import Card
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.protocol import NodeFacts


@dataclass(slots=True, eq=False)
class _Kind:
    """Nodes that state the same about their cards."""

    number: int  # never given to another kind, even after this one is gone
    # the parts of a node's object that the facts were read from, and UUIDs that are among the names of its cards
    source: tuple[Hashable, tuple[tuple[str, Card], ...]]
    facts: NodeFacts
    nodes: int = 0  # how many there are

    def read(self) -> NodeFacts:
        return self.facts


class Nodes(MirrorByName[Node, _Kind]):
    """Facts of each node, by name. Fed by a watch; ``on_change`` is called with the name of a node that changed.

    Most updates of a node are heartbeats: only a change of a label, resource or annotation that a vocabulary reads is
    a change here. Nodes that state the same share one object of facts.
    """

    def __init__(self, vocabularies: Vocabularies, on_change: Callable[[str], None] = lambda _node: None) -> None:
        super().__init__()
        self._vocabularies = vocabularies
        self._kinds: dict[tuple[Hashable, tuple[tuple[str, Card], ...]], _Kind] = {}
        self._last_number = 0
        self._on_change = on_change
        self._uuids: dict[str, Mapping[str, Card]] = {}
        self._by_uuid: dict[str, str] = {}  # node of each UUID of a card, in lower case
        self._distinguished: set[str] = set()  # nodes whose cards can be named by UUID

    def changed(self, node: Node) -> None:
        kind, before = self.kind(node.name), self._uuids.get(node.name)
        if (uuids := self._vocabularies.uuids(node)) != before:
            self._forget_uuids(node.name)
            self._uuids[node.name] = uuids
            self._by_uuid.update((uuid.lower(), node.name) for uuid in uuids)
        super().changed(node)
        if kind == self.kind(node.name) and uuids != before:
            self._on_change(node.name)

    def record(self, node: Node) -> _Kind:
        return self._kind_of(node.name, self._vocabularies.source(node), lambda: self._vocabularies.facts(node))

    def distinguish(self, names: Iterable[Card | str]) -> None:
        """Let needs name the cards that have these UUIDs, from now on. Only the nodes of these become unlike others."""
        for name in names:
            node = self._by_uuid.get(name) if isinstance(name, str) else None
            if node is not None and node not in self._distinguished and (kind := self.records.get(node)) is not None:
                self._distinguished.add(node)
                self.put(node, self._kind_of(node, kind.source[0], kind.read))

    def _kind_of(self, name: str, of_object: Hashable, read: Callable[[], NodeFacts]) -> _Kind:
        source = of_object, tuple(self._uuids[name].items()) if name in self._distinguished else ()
        if (kind := self._kinds.get(source)) is None:
            facts = read()
            if named := {uuid.lower(): frozenset({card}) & facts.inventory.capacity.keys() for uuid, card in source[1]}:
                names = {**facts.inventory.other_names, **named}
                facts = replace(facts, inventory=replace(facts.inventory, other_names=names))
            self._last_number += 1
            kind = self._kinds[source] = _Kind(self._last_number, source, facts)
        return kind

    def _forget_uuids(self, name: str) -> None:
        for uuid in self._uuids.pop(name, ()):
            if self._by_uuid.get(uuid.lower()) == name:
                del self._by_uuid[uuid.lower()]

    def replaced(self, name: str, old: _Kind | None, new: _Kind | None) -> None:
        if new is not None:
            new.nodes += 1
        else:
            self._forget_uuids(name)
            self._distinguished.discard(name)
        if old is not None:
            old.nodes -= 1
            if not old.nodes:
                del self._kinds[old.source]
        self._on_change(name)

    def facts(self, name: str) -> NodeFacts | None:
        kind = self.records.get(name)
        return None if kind is None else kind.facts

    def identified(self, name: str) -> NodeFacts | None:
        """Return the facts of a node with the UUIDs of its cards, which no other node has."""
        facts, uuids = self.facts(name), self._uuids.get(name)
        return replace(facts, uuids=uuids, name=name) if facts is not None and uuids else facts

    def as_sent(self, nodes: Iterable[Node]) -> dict[str, NodeFacts]:
        """Return the facts of nodes as a request describes them, known here or not; equal descriptions share facts."""
        read: dict[Hashable, NodeFacts] = {}
        facts = {}
        for node in nodes:
            source = self._vocabularies.source(node)
            own = self.records.get(node.name)
            if own is not None and own.source[0] == source:
                facts[node.name] = own.facts
                continue
            if source not in read:
                kind = self._kinds.get((source, ()))
                read[source] = kind.facts if kind is not None else self._vocabularies.facts(node)
            facts[node.name] = read[source]
        return facts

    def kind(self, name: str) -> int | None:
        """Return a number that the node shares with all nodes that state the same; None if the node is not known."""
        kind = self.records.get(name)
        return None if kind is None else kind.number

    def resources(self) -> set[str]:
        capacities = (amounts for kind in self._kinds.values() for amounts in kind.facts.inventory.capacity.values())
        return {name for amounts in capacities for name in amounts}

    def alike(self) -> list[tuple[NodeFacts, int]]:
        """Return the different facts, and how many nodes share each."""
        return [(kind.facts, kind.nodes) for kind in self._kinds.values()]

    def __iter__(self) -> Iterator[tuple[str, NodeFacts]]:
        return ((name, kind.facts) for name, kind in self.records.items())

    def __len__(self) -> int:
        return len(self.records)
