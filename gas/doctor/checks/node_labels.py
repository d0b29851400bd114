"""Check that nodes have labels that name their cards, and a program that keeps them up to date."""

from __future__ import annotations

from collections.abc import Iterator

from configurator.scheduler_configuration import CARD_RESOURCES
from gas.doctor.check import Check, DoctorPart
from gas.doctor.checks.plugins import INSTALL_PLUGIN
from gas.doctor.findings import Finding, Unseen, about, kubectl, not_seen, problem, summary, warning
from gas.doctor.gpus import gpu_nodes, label_writers
from gas.doctor.snapshot import Snapshot
from gas.objects.stored import DetailedNode
from gas.placement.inventory import Inventory
from gas.vocabularies.intel import names
from gas.vocabularies.protocol import NodeFacts

CHECK = "node-labels"


def check_node_labels(snapshot: Snapshot) -> Iterator[Finding]:
    """Check the labels of every GPU node."""
    if isinstance(snapshot.nodes, Unseen):
        yield not_seen("nodes", snapshot.nodes)
        return
    nodes = list(gpu_nodes(snapshot))
    vocabularies = snapshot.vocabularies
    for node in nodes:
        yield from about(f"node {node.name}", _node(node, vocabularies.facts(node)))
    if snapshot.only_node and not any(snapshot.checked_nodes):
        yield problem("the node does not exist", "kubectl get nodes", where=f"node {snapshot.only_node}")
    elif not nodes:
        yield problem(
            "no label and no resource is about GPUs",
            INSTALL_PLUGIN,
            where=f"node {snapshot.only_node}" if snapshot.only_node else "nodes",
            expected=f"a label {names.GPU_NUMBERS} and a resource {' or '.join(CARD_RESOURCES)}",
            found="neither",
        )


def _node(node: DetailedNode, facts: NodeFacts) -> Iterator[Finding]:
    if not facts.inventory.cards:
        label = ("label", "node", node.name, f"{names.GPU_NUMBERS}=0.1")
        yield problem(
            "no label names its cards, so pods cannot get any of them",
            INSTALL_PLUGIN,
            kubectl(*label, note="its card numbers, if no plugin writes them"),
            expected=f"label {names.GPU_NUMBERS}",
            found="; ".join(facts.problems) or "none",
        )
        return
    for sentence in facts.problems:
        show = kubectl("get", "node", node.name, "--output=yaml", note="and correct it at its source")
        yield warning(sentence, show)
    writers = label_writers(node)
    by = ", ".join(sorted(writers)) or "a client that the API server has not recorded"
    by_hand = writers and all(writer.startswith("kubectl") for writer in writers)
    note = "; no program keeps them up to date" if by_hand else ""
    yield summary(f"its labels name {first_cards(facts.inventory)}; written by {by}{note}")


def first_cards(inventory: Inventory) -> str:
    """Return the names of the first cards of a node, for a sentence."""
    return ", ".join(map(str, inventory.cards[:8])) + (" and more" if len(inventory.cards) > 8 else "")


PART = DoctorPart(checks=(Check(name=CHECK, title="nodes' labels", findings=check_node_labels),))
