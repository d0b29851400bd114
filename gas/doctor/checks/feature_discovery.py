"""Check Node Feature Discovery, which is needed only where a plugin describes its node through it."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.checks.plugins import feeds_nfd, plugins_on
from gas.doctor.findings import Finding, kubectl_daemonset, ok, problem, unknown
from gas.doctor.gpus import gpu_nodes
from gas.doctor.probe import Unseen
from gas.doctor.programs import Program
from gas.doctor.snapshot import Snapshot

CHECK = "feature-discovery"


def check_feature_discovery(snapshot: Snapshot) -> Iterator[Finding]:
    """Check that NFD runs and has data if a plugin of a GPU node uses it."""
    if isinstance(snapshot.pods, Unseen) or isinstance(snapshot.nodes, Unseen):
        return  # reported by other checks
    fed = {
        node.name: plugin
        for node in gpu_nodes(snapshot)
        for plugin in plugins_on(snapshot, node.name)
        if feeds_nfd(plugin)
    }
    runs = bool(snapshot.running(Program.NFD))
    if not fed:
        state = "runs, but no plugin uses it" if runs else "is not needed: no plugin uses it"
        yield ok(CHECK, "cluster", f"Node Feature Discovery {state}")
        return
    nodes = ", ".join([*fed][:5]) + (f" and {len(fed) - 5} more" if len(fed) > 5 else "")
    if not runs:
        yield problem(
            CHECK,
            "cluster",
            f"the plugin on {nodes} describes its cards through Node Feature Discovery, but no pod of that runs, so the"
            " node's labels are no longer updated",
            kubectl_daemonset(next(iter(fed.values())).pod, "edit", note="remove --write-node=nfd, or install NFD"),
            expected="a pod of node-feature-discovery",
            found="none",
        )
    elif isinstance(snapshot.feature_objects, Unseen):
        yield unknown(CHECK, "NodeFeature objects", snapshot.feature_objects.why, snapshot.feature_objects.mend)
    elif not snapshot.feature_objects:
        yield problem(
            CHECK,
            "cluster",
            "Node Feature Discovery runs, but its workers have not reported any node",
            "kubectl get nodefeatures.nfd.k8s-sigs.io --all-namespaces",
            expected="a NodeFeature object for each node",
            found="none",
        )
    else:
        yield ok(CHECK, "cluster", f"Node Feature Discovery runs and has data of {snapshot.feature_objects} nodes")
