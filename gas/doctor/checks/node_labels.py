"""Check that nodes have labels that name their cards, and a program that keeps them up to date."""

from __future__ import annotations

from collections.abc import Iterator

from configurator.scheduler_configuration import CARD_RESOURCES
from gas.doctor.checks.plugins import INSTALL_PLUGIN, feeds_nfd, plugins_on
from gas.doctor.findings import Finding, kubectl, kubectl_daemonset, ok, problem, unknown, warning
from gas.doctor.gpus import LabelWriter, gpu_nodes, is_listed_by_nfd, label_writers
from gas.doctor.probe import Unseen
from gas.doctor.snapshot import Snapshot
from gas.doctor.spoken import spoken_vocabularies
from gas.objects.stored import DetailedNode
from gas.vocabularies.intel import names
from gas.vocabularies.protocol import NodeFacts

CHECK = "node-labels"


def check_node_labels(snapshot: Snapshot) -> Iterator[Finding]:
    """Check the labels of every GPU node."""
    if isinstance(snapshot.nodes, Unseen):
        yield unknown(CHECK, "nodes", snapshot.nodes.why, snapshot.nodes.mend)
        return
    nodes = list(gpu_nodes(snapshot))
    vocabularies = spoken_vocabularies(snapshot)
    for node in nodes:
        yield from _node(snapshot, node, vocabularies.facts(node))
    if snapshot.only_node and snapshot.only_node not in {node.name for node in snapshot.nodes}:
        yield problem(CHECK, f"node {snapshot.only_node}", "the node does not exist", "kubectl get nodes")
    elif not nodes:
        where = f"node {snapshot.only_node}" if snapshot.only_node else "nodes"
        yield problem(
            CHECK,
            where,
            "no label and no resource is about GPUs",
            INSTALL_PLUGIN,
            expected=f"a label {names.GPU_NUMBERS} and a resource {' or '.join(CARD_RESOURCES)}",
            found="neither",
        )


def _node(snapshot: Snapshot, node: DetailedNode, facts: NodeFacts) -> Iterator[Finding]:
    where = f"node {node.name}"
    if not facts.inventory.cards:
        yield problem(
            CHECK,
            where,
            "no label names its cards, so pods cannot get any of them",
            INSTALL_PLUGIN,
            kubectl(
                *("label", "node", node.name, f"{names.GPU_NUMBERS}=0.1"),
                note="its card numbers, if no plugin writes them",
            ),
            expected=f"label {names.GPU_NUMBERS}",
            found="; ".join(facts.problems) or "none",
        )
        return
    for sentence in facts.problems:
        yield warning(
            CHECK,
            where,
            sentence,
            kubectl("get", "node", node.name, "--output=yaml", note="and correct it at its source"),
        )
    yield from _written_by(snapshot, node, facts)


def _written_by(snapshot: Snapshot, node: DetailedNode, facts: NodeFacts) -> Iterator[Finding]:
    where = f"node {node.name}"
    writers = label_writers(node)
    if is_listed_by_nfd(node):
        writers.setdefault(LabelWriter.NFD, "nfd")
    cards = ", ".join(map(str, facts.inventory.cards[:8])) + (" and more" if len(facts.inventory.cards) > 8 else "")
    plugins = plugins_on(snapshot, node.name)
    if LabelWriter.NFD in writers and LabelWriter.PLUGIN in writers and plugins:
        yield warning(
            CHECK,
            where,
            "both the plugin and Node Feature Discovery write its labels; use only one of them",
            kubectl_daemonset(plugins[0].pod, "edit", note="its arguments: --write-node=nfd to use NFD alone"),
            found=", ".join(sorted(writers.values())),
            expected="one writer",
        )
    elif (
        LabelWriter.NFD in writers
        and LabelWriter.PLUGIN not in writers
        and not isinstance(snapshot.pods, Unseen)
        and not any(feeds_nfd(each) for each in plugins)
    ):
        yield warning(
            CHECK,
            where,
            f"its labels name {cards} and come from Node Feature Discovery, but no plugin on the node reports cards to"
            " that any more",
            INSTALL_PLUGIN,
            expected="a plugin that keeps the labels up to date",
            found="outdated labels",
        )
    else:
        names_of_writers = ", ".join(sorted(writers.values())) or "a client that the API server has not recorded"
        note = "; no program keeps them up to date" if writers.keys() == {LabelWriter.HAND} else ""
        yield ok(CHECK, where, f"its labels name {cards}; written by {names_of_writers}{note}")
