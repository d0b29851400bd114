"""Check that no kubelet's Topology Manager replaces the cards that were decided for pods."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiUnavailable, Forbidden
from gas.cluster.objects import decode_object
from gas.doctor.check import Check, DoctorPart, Sources
from gas.doctor.checks.plugins import INSTALL_PLUGIN, NodePlugin, plugins_on
from gas.doctor.findings import Finding, Unseen, about, kubectl, kubectl_daemonset, ok, probe, problem, unknown
from gas.doctor.gpus import gpu_nodes, is_labelled_by_plugin
from gas.doctor.objects import KubeletSettings
from gas.doctor.programs import PLUGIN, is_on
from gas.doctor.snapshot import Snapshot
from gas.objects.stored import DetailedNode
from gas.vocabularies.known import DEFAULT

CHECK = "topology-manager"
POLICIES = "topology_policies"
"""Name of the gathered policies, by the nodes with GPUs."""

POLICY_NONE = "none"

IN_ALL = 30.0
"""Seconds after which no more kubelets are asked. Kubelets that do not respond cost a whole timeout each."""

_AT_ONCE = 20
_UNSEEN = Unseen("its kubelet was not asked", "gas doctor")


async def _gather(sources: Sources) -> Mapping[str, object]:
    nodes = [node.name for node in gpu_nodes(sources.snapshot)]
    return {POLICIES: await read_topology_policies(sources.api, nodes, sources.timeout)}


async def read_topology_policies(api: ApiServer, nodes: Iterable[str], timeout: float) -> dict[str, str | Unseen]:
    """Return node -> the policy of its kubelet's Topology Manager, or why it could not be seen.

    timeout  seconds for each kubelet

    The API server's proxy needs the verb ``get`` on ``nodes/proxy``. Once it refuses that, no further kubelet is asked.
    """
    gate = asyncio.Semaphore(_AT_ONCE)
    deadline = time.monotonic() + IN_ALL
    refused: list[Forbidden] = []

    async def policy_of(node: str) -> str:
        path = f"{paths.node(node)}/proxy/configz"
        async with gate:
            if refused:
                raise refused[0]
            if (left := deadline - time.monotonic()) <= 0:
                raise ApiUnavailable(f"not asked: other kubelets took more than {IN_ALL:g} s")
            try:
                response = await api.request("GET", path, timeout=min(timeout, left))
            except Forbidden as error:
                refused.append(error)
                raise
        return decode_object(response, KubeletSettings, request=f"GET {path}").kubeletconfig.topology_manager_policy

    names = list(nodes)
    policies = await asyncio.gather(*(probe(policy_of(name)) for name in names))
    return dict(zip(names, policies, strict=True))


def check_topology_manager(snapshot: Snapshot) -> Iterator[Finding]:
    """Check every GPU node whose device plugin is known."""
    if isinstance(snapshot.pods, Unseen):
        return  # reported with the device plugins
    policies: Mapping[str, str | Unseen] = snapshot.gathered.get(POLICIES, {})
    for node in gpu_nodes(snapshot):
        plugins = plugins_on(snapshot, node.name)
        policy = policies.get(node.name, _UNSEEN)
        if hinting := [plugin for plugin in plugins if _sends_hints(plugin)]:
            found = [_with_hints(node, hinting[0], policy)]
        elif plugins:
            found = [_without_hints("gas-plugin sends no NUMA hints", policy)]
        elif is_labelled_by_plugin(node):
            found = [_without_hints("gas-plugin sends no NUMA hints unless it has --topology-hints", policy)]
        else:
            continue
        yield from about(f"node {node.name}", found)


def _sends_hints(plugin: NodePlugin) -> bool:
    """Return whether a plugin sends kubelet the NUMA nodes of cards. Intel's always does."""
    return plugin.program is not PLUGIN or is_on(plugin.container, "topology-hints")


def _without_hints(reason: str, policy: str | Unseen) -> Finding:
    shown = f"could not be read: {policy.why}" if isinstance(policy, Unseen) else f"is {policy}"
    return ok(f"{reason}, so kubelet's Topology Manager does not restrict cards under any policy; the policy {shown}")


def _with_hints(node: DetailedNode, plugin: NodePlugin, policy: str | Unseen) -> Finding:
    hints = f"{plugin.program} sends NUMA hints"
    if len(DEFAULT.facts(node).inventory.numa_groups or ()) < 2:
        return ok(f"{hints}, but all cards are on the same NUMA node")
    if policy == POLICY_NONE:
        return ok(f"{hints}, and the Topology Manager's policy none ignores them")
    if plugin.program is PLUGIN:
        fix = kubectl_daemonset(plugin.pod, "edit", note="remove --topology-hints")
    else:
        fix = INSTALL_PLUGIN
    if isinstance(policy, Unseen):
        path = f"/api/v1/nodes/{node.name}/proxy/configz"
        return unknown(
            f"{hints}, so pods may get other cards than are booked for them, unless the Topology Manager's policy is"
            f" none; the policy could not be read: {policy.why}",
            kubectl("get", "--raw", path, note="topologyManagerPolicy is the policy"),
            fix,
        )
    return problem(
        f"{hints}, and with them kubelet gives containers only cards of the NUMA node that it chooses, so pods get"
        " other cards than are booked for them, or are rejected",
        fix,
        expected="no NUMA hints, or the Topology Manager's policy none",
        found=f"NUMA hints, and the policy {policy}",
    )


PART = DoctorPart(
    checks=(Check(name=CHECK, title="kubelets' Topology Managers", findings=check_topology_manager, gather=_gather),)
)
