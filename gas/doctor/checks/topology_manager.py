"""Check that no kubelet's Topology Manager replaces the cards that were decided for pods."""

from __future__ import annotations

from collections.abc import Iterator

from gas.doctor.checks.plugins import INSTALL_PLUGIN, NodePlugin, plugins_on
from gas.doctor.findings import Finding, kubectl, kubectl_daemonset, ok, problem, unknown
from gas.doctor.gpus import LabelWriter, gpu_nodes, label_writers
from gas.doctor.probe import Unseen
from gas.doctor.programs import Program, is_on
from gas.doctor.snapshot import Snapshot
from gas.objects.stored import DetailedNode
from gas.plugin.flags import Flags as PluginFlags
from gas.vocabularies.known import DEFAULT

CHECK = "topology-manager"
POLICY_NONE = "none"

_UNSEEN = Unseen("its kubelet was not asked", "gas doctor")


def check_topology_manager(snapshot: Snapshot) -> Iterator[Finding]:
    """Check every GPU node whose device plugin is known."""
    if isinstance(snapshot.pods, Unseen):
        return  # reported with the device plugins
    for node in gpu_nodes(snapshot):
        plugins = plugins_on(snapshot, node.name)
        policy = snapshot.topology_policies.get(node.name, _UNSEEN)
        if hinting := [plugin for plugin in plugins if _sends_hints(plugin)]:
            yield _with_hints(node, hinting[0], policy)
        elif plugins:
            yield _without_hints(node, "gas-plugin sends no NUMA hints", policy)
        elif LabelWriter.PLUGIN in label_writers(node):
            yield _without_hints(node, "gas-plugin sends no NUMA hints unless it has --topology-hints", policy)


def _sends_hints(plugin: NodePlugin) -> bool:
    """Return whether a plugin sends kubelet the NUMA nodes of cards. Intel's always does."""
    if plugin.program is not Program.PLUGIN:
        return True
    return is_on(plugin.container, "topology-hints", default=PluginFlags().topology_hints)


def _without_hints(node: DetailedNode, reason: str, policy: str | Unseen) -> Finding:
    shown = f"could not be read: {policy.why}" if isinstance(policy, Unseen) else f"is {policy}"
    return ok(
        CHECK,
        f"node {node.name}",
        f"{reason}, so kubelet's Topology Manager does not restrict cards under any policy; the policy {shown}",
    )


def _with_hints(node: DetailedNode, plugin: NodePlugin, policy: str | Unseen) -> Finding:
    where = f"node {node.name}"
    if len(DEFAULT.facts(node).inventory.numa_groups or ()) < 2:
        return ok(CHECK, where, f"{plugin.program} sends NUMA hints, but all cards are on the same NUMA node")
    if policy == POLICY_NONE:
        return ok(
            CHECK, where, f"{plugin.program} sends NUMA hints, and the Topology Manager's policy none ignores them"
        )
    if plugin.program is Program.PLUGIN:
        mend = kubectl_daemonset(plugin.pod, "edit", note="remove --topology-hints")
    else:
        mend = INSTALL_PLUGIN
    if isinstance(policy, Unseen):
        return unknown(
            CHECK,
            where,
            f"{plugin.program} sends NUMA hints, so pods may get other cards than are booked for them, unless the"
            f" Topology Manager's policy is none; the policy could not be read: {policy.why}",
            kubectl(
                "get", "--raw", f"/api/v1/nodes/{node.name}/proxy/configz", note="topologyManagerPolicy is the policy"
            ),
            mend,
        )
    return problem(
        CHECK,
        where,
        f"{plugin.program} sends NUMA hints, and with them kubelet gives containers only cards of the NUMA node that it"
        " chooses, so pods get other cards than are booked for them, or are rejected",
        mend,
        expected="no NUMA hints, or the Topology Manager's policy none",
        found=f"NUMA hints, and the policy {policy}",
    )
