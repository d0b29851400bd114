"""The books, made anew from the cluster's objects alone: who holds which cards by what is written on the pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gas.decision.text import MalformedAnnotation
from gas.doctor.looked import Unseen
from gas.doctor.objects import SeenPod
from gas.doctor.snapshot import Snapshot
from gas.extender.written_cards import written_cards
from gas.intel.inventory import read_node
from gas.intel.need import read_booked_need
from gas.ledger import Ledger
from gas.objects import Pod
from gas.vocabularies import DEFAULT
from gas.vocabulary import BadNeed, NodeFacts


@dataclass(frozen=True, slots=True)
class Books:
    """Which cards are held, and what could not be booked.

    nodes    name -> what it has
    ledger   by node what is held
    holders  node -> the pods that hold cards there
    trouble  a sentence about each bound pod that is not as it should be, and whether nothing is booked for it
    """

    nodes: Mapping[str, NodeFacts]
    ledger: Ledger = field(default_factory=Ledger)
    holders: dict[str, list[Pod]] = field(default_factory=dict)
    trouble: list[tuple[SeenPod, str, bool]] = field(default_factory=list)


def make_books(snapshot: Snapshot) -> Books:
    """Books of all bound pods that have not ended. Empty when nodes or pods could not be seen."""
    nodes = () if isinstance(snapshot.nodes, Unseen) else snapshot.nodes
    books = Books({seen.node.name: read_node(seen.node) for seen in nodes})
    for seen in () if isinstance(snapshot.pods, Unseen) else snapshot.pods:
        if seen.pod.node_name and not seen.pod.is_over:
            _book(books, seen)
    return books


def _book(books: Books, seen: SeenPod) -> None:
    pod = seen.pod
    try:
        need = read_booked_need(pod)
        if not need.wants_cards:
            return
        written = written_cards(pod, need, DEFAULT.spoken_by(pod), books.nodes.get(pod.node_name))
    except BadNeed as error:
        books.trouble.append((seen, f"what it asks for makes no sense: {error}", True))
        return
    except MalformedAnnotation as error:
        books.trouble.append((seen, f"what is written on it cannot be read: {error}", True))
        return
    if written.footprint is None:
        sentence = "it is bound without cards written on it, so nobody knows which it uses"
        books.trouble.append((seen, sentence, True))
        return
    if written.doubt:
        books.trouble.append((seen, written.doubt, False))
    books.ledger.hold(pod.uid, pod.key, pod.node_name, written.footprint)
    books.holders.setdefault(pod.node_name, []).append(pod)
