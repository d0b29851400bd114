"""Node Feature Discovery: only needed where a plugin writes the node by it, but then it must be there."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.checks.gpu_nodes import gpu_nodes
from gas.doctor.checks.plugins import feeds_nfd, plugins_on
from gas.doctor.commands import of_daemonset
from gas.doctor.findings import Finding, ok, problem, unknown
from gas.doctor.looked import Unseen
from gas.doctor.programs import Program
from gas.doctor.snapshot import Snapshot

CHECK = "feature-discovery"


def check_feature_discovery(snapshot: Snapshot) -> Iterator[Finding]:
    if isinstance(snapshot.pods, Unseen) or isinstance(snapshot.nodes, Unseen):
        return  # told elsewhere
    fed = {
        seen.node.name: plugin
        for seen in gpu_nodes(snapshot)
        for plugin in plugins_on(snapshot, seen.node.name)
        if feeds_nfd(plugin)
    }
    runs = bool(snapshot.running(Program.NFD))
    if not fed:
        told = "runs, and nothing here needs it" if runs else "is not needed: no plugin writes its node by it"
        yield ok(CHECK, "cluster", f"Node Feature Discovery {told}")
        return
    told = ", ".join([*fed][:5]) + (f" and {len(fed) - 5} more" if len(fed) > 5 else "")
    if not runs:
        yield problem(
            CHECK,
            "cluster",
            f"the plugin on {told} describes its cards to Node Feature Discovery, of which no pod runs, so the node"
            " keeps what it said last",
            of_daemonset(next(iter(fed.values())).pod.pod, "edit", note="leave --write-node=nfd out, or install NFD"),
            expected="a pod of node-feature-discovery",
            found="none",
        )
    elif isinstance(snapshot.feature_objects, Unseen):
        yield unknown(CHECK, "NodeFeature objects", snapshot.feature_objects.why, snapshot.feature_objects.mend)
    elif not snapshot.feature_objects:
        yield problem(
            CHECK,
            "cluster",
            "Node Feature Discovery runs, and its workers have told nothing yet",
            "kubectl get nodefeatures.nfd.k8s-sigs.io --all-namespaces",
            expected="a NodeFeature object for each node",
            found="none",
        )
    else:
        yield ok(CHECK, "cluster", f"Node Feature Discovery runs, and knows of {snapshot.feature_objects} nodes")
