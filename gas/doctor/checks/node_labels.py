"""Whether nodes say which cards they have, and whether somebody keeps that true."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.checks.gpu_nodes import gpu_nodes
from gas.doctor.checks.label_writers import Writer, is_listed_by_nfd, label_writers
from gas.doctor.checks.plugins import feeds_nfd, plugins_on
from gas.doctor.commands import kubectl, of_daemonset
from gas.doctor.findings import Finding, ok, problem, unknown, warning
from gas.doctor.looked import Unseen
from gas.doctor.objects import SeenNode
from gas.doctor.snapshot import Snapshot
from gas.intel import names
from gas.intel.inventory import read_node
from gas.vocabulary import NodeFacts

CHECK = "node-labels"
INSTALL_PLUGIN = "kubectl apply --kustomize deploy/overlays/plugin   # or what you made of it: docs/deploy.md, 3"


def check_node_labels(snapshot: Snapshot) -> Iterator[Finding]:
    if isinstance(snapshot.nodes, Unseen):
        yield unknown(CHECK, "nodes", snapshot.nodes.why, snapshot.nodes.mend)
        return
    looked_at = False
    for seen in gpu_nodes(snapshot):
        looked_at = True
        yield from _node(snapshot, seen, read_node(seen.node))
    if snapshot.only_node and snapshot.only_node not in {seen.node.name for seen in snapshot.nodes}:
        yield problem(CHECK, f"node {snapshot.only_node}", "there is no such node", "kubectl get nodes")
    elif not looked_at:
        where = f"node {snapshot.only_node}" if snapshot.only_node else "nodes"
        yield problem(
            CHECK,
            where,
            "nothing says anything about GPUs: no label, no resource, no device plugin",
            INSTALL_PLUGIN,
            expected=f"a label {names.GPU_NUMBERS} and a resource {names.PREFIX}i915 or {names.PREFIX}xe",
            found="neither",
        )


def _node(snapshot: Snapshot, seen: SeenNode, facts: NodeFacts) -> Iterator[Finding]:
    if not facts.inventory.cards:
        yield problem(
            CHECK,
            seen.where,
            "no label names its cards, so none of them can be given out",
            INSTALL_PLUGIN,
            kubectl(
                *("label", "node", seen.node.name, f"{names.GPU_NUMBERS}=0.1"),
                note="its card numbers, where no plugin writes them",
            ),
            expected=f"label {names.GPU_NUMBERS}",
            found="; ".join(facts.problems) or "none",
        )
        return
    for sentence in facts.problems:
        yield warning(
            CHECK,
            seen.where,
            sentence,
            kubectl("get", "node", seen.node.name, "--output=yaml", note="and correct it where it comes from"),
        )
    yield from _written_by(snapshot, seen, facts)


def _written_by(snapshot: Snapshot, seen: SeenNode, facts: NodeFacts) -> Iterator[Finding]:
    writers = label_writers(seen)
    if is_listed_by_nfd(seen):
        writers.setdefault(Writer.NFD, "nfd")
    cards = ", ".join(map(str, facts.inventory.cards[:8])) + (" and more" if len(facts.inventory.cards) > 8 else "")
    plugins = plugins_on(snapshot, seen.node.name)
    if Writer.NFD in writers and Writer.PLUGIN in writers and len(plugins) > 0:
        yield warning(
            CHECK,
            seen.where,
            "both the plugin and Node Feature Discovery write its labels; one way is enough",
            of_daemonset(plugins[0].pod.pod, "edit", note="its arguments: --write-node=nfd for NFD's way alone"),
            found=", ".join(sorted(writers.values())),
            expected="one writer",
        )
    elif (
        Writer.NFD in writers
        and Writer.PLUGIN not in writers
        and not isinstance(snapshot.pods, Unseen)
        and not any(feeds_nfd(each) for each in plugins)
    ):
        yield warning(
            CHECK,
            seen.where,
            f"its labels name {cards}; Node Feature Discovery wrote them, and no plugin on the node tells it of cards"
            " any more",
            INSTALL_PLUGIN,
            expected="a plugin that keeps the labels true",
            found="labels that are left over",
        )
    else:
        told = ", ".join(sorted(writers.values())) or "somebody whom the API server does not remember"
        note = "; no program keeps them true" if writers.keys() == {Writer.HAND} else ""
        yield ok(CHECK, seen.where, f"its labels name {cards}; written by {told}{note}")
