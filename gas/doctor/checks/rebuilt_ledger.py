"""Rebuild the ledger from the cluster's objects alone: which pods hold which cards by their annotations."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gas.decision.annotations import MalformedAnnotation
from gas.doctor.findings import Unseen
from gas.doctor.snapshot import Snapshot
from gas.extender.nodes import Nodes
from gas.extender.pods import written_cards
from gas.ledger.ledger import Ledger
from gas.objects.stored import DetailedPod
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.pod_parts import need_facts
from gas.vocabularies.protocol import BadNeed, NodeFacts


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with the annotations or requests of a bound pod."""

    pod: DetailedPod
    sentence: str
    is_unbooked: bool  # no card is booked for it because of this


@dataclass(frozen=True, slots=True)
class RebuiltLedger:
    """A ledger, with the nodes and pods that it was made from."""

    nodes: Mapping[str, NodeFacts]  # by name; nodes that say the same share one object
    ledger: Ledger = field(default_factory=Ledger)
    holders: dict[str, list[DetailedPod]] = field(default_factory=dict)  # by node, the pods that hold cards there
    faults: list[Fault] = field(default_factory=list)


def rebuild_ledger(snapshot: Snapshot) -> RebuiltLedger:
    """Return the ledger of all bound pods that are not over. It is empty if nodes or pods could not be seen."""
    nodes = () if isinstance(snapshot.nodes, Unseen) else snapshot.nodes
    vocabularies = snapshot.vocabularies
    rebuilt = RebuiltLedger(Nodes(vocabularies).as_sent(nodes))
    for pod in () if isinstance(snapshot.pods, Unseen) else snapshot.pods:
        if pod.node_name and not pod.is_over:
            _book(rebuilt, pod, vocabularies)
    return rebuilt


def _book(rebuilt: RebuiltLedger, pod: DetailedPod, vocabularies: Vocabularies) -> None:
    if (vocabulary := vocabularies.vocabulary_of(pod)) is None:
        return
    try:
        need = vocabulary.booked_need(need_facts(pod))
        if not need.wants_cards:
            rebuilt.faults.extend(Fault(pod, each, is_unbooked=False) for each in vocabulary.faults(pod))
            return
        written = written_cards(pod, need, vocabulary, rebuilt.nodes.get(pod.node_name))
    except BadNeed as error:
        rebuilt.faults.append(Fault(pod, f"its request is invalid: {error}", is_unbooked=True))
        return
    except MalformedAnnotation as error:
        rebuilt.faults.append(Fault(pod, f"its annotations cannot be read: {error}", is_unbooked=True))
        return
    if written.footprint is None:
        sentence = "it is bound without an annotation that names its cards, so the cards it uses are unknown"
        rebuilt.faults.append(Fault(pod, sentence, is_unbooked=True))
        return
    if written.doubt:
        rebuilt.faults.append(Fault(pod, written.doubt, is_unbooked=False))
    rebuilt.ledger.hold(pod.uid, pod.key, pod.node_name, written.footprint)
    rebuilt.holders.setdefault(pod.node_name, []).append(pod)
