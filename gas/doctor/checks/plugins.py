"""Check that the device plugins give pods their decided cards, by the same vocabularies as the extender."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from configurator.scheduler_configuration import CARD_RESOURCES
from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiUnavailable, Forbidden
from gas.cluster.objects import decode_object
from gas.doctor import fix
from gas.doctor.check import Check, Sources
from gas.doctor.checks.daemonsets import install_plugin
from gas.doctor.findings import Finding, Unseen, about, not_seen, ok, probe, problem, unknown
from gas.doctor.gpus import gpu_nodes, is_labelled_by_plugin
from gas.doctor.objects import KubeletSettings
from gas.doctor.snapshot import Snapshot
from gas.inspection.objects import InspectedNode
from gas.objects.stored import DetailedContainer, DetailedNode, DetailedPod
from gas.programs import (
    EXTENDER,
    INTEL_PLUGIN,
    LAST_WITH_ANNOTATIONS,
    PLUGIN,
    Program,
    image_version,
    is_on,
    vocabulary_flags,
)
from gas.vocabularies.known import DEFAULT
from gas.vocabularies.node_parts import allocatable_resources

VOCABULARIES = "vocabularies"

POLICIES = "topology_policies"  # name of the gathered policies by node
IN_ALL = 30.0  # Seconds after which no more kubelets are asked. One that does not respond costs a whole timeout.

_AT_ONCE = 20
_UNSEEN = Unseen("its kubelet was not asked", "gas doctor")


@dataclass(frozen=True, slots=True)
class NodePlugin:
    program: Program
    pod: DetailedPod
    container: DetailedContainer

    @property
    def where(self) -> str:
        return f"pod {self.pod.key} on node {self.pod.node_name}"

    @property
    def obeys_annotations(self) -> bool:
        """True if its flags make it give pods the cards that their annotations name."""
        return is_on(self.container, "resource-manager", default=self.program is PLUGIN)


def plugins_on(snapshot: Snapshot, node: str) -> list[NodePlugin]:
    return [
        NodePlugin(program, pod, container)
        for program in (PLUGIN, INTEL_PLUGIN)
        for pod, container in snapshot.running(program)
        if pod.node_name == node
    ]


def own_plugins(snapshot: Snapshot) -> Iterator[tuple[DetailedNode, NodePlugin]]:
    """Yield each GPU node with each gas-plugin on it; none if pods could not be seen."""
    for node in gpu_nodes(snapshot):
        yield from ((node, plugin) for plugin in plugins_on(snapshot, node.name) if plugin.program is PLUGIN)


def check_plugins(snapshot: Snapshot) -> Iterator[Finding]:
    if isinstance(snapshot.pods, Unseen):
        yield not_seen("pods", snapshot.pods)
        return
    for node in gpu_nodes(snapshot):
        plugins = plugins_on(snapshot, node.name)
        yield from about(f"node {node.name}", _several(plugins) if plugins else _none(node))
        for plugin in plugins:
            yield from about(plugin.where, [_one(snapshot, node, plugin)])


def _several(plugins: list[NodePlugin]) -> Iterator[Finding]:
    if len(plugins) > 1:
        yield problem(
            f"{len(plugins)} device plugins serve the same cards; kubelet uses the one that registered last, so cards"
            " appear and disappear",
            *(fix.daemonset(plugin.pod, "delete") for plugin in plugins[1:]),
            expected=f"one plugin for {' and '.join(CARD_RESOURCES)}",
            found=", ".join(plugin.pod.key for plugin in plugins),
        )


def _none(node: DetailedNode) -> Iterator[Finding]:
    if not any(name in allocatable_resources(node) for name in CARD_RESOURCES):
        return  # reported with the resources
    if is_labelled_by_plugin(node):
        yield ok("gas-plugin wrote its labels and runs outside of a pod")
        return
    yield unknown(
        "a device plugin offers its cards, but none is known among the pods of the node, so it is unknown whether it"
        " obeys annotations",
        fix.pods_on(node.name),
    )


def _one(snapshot: Snapshot, node: InspectedNode, plugin: NodePlugin) -> Finding:
    if plugin.program is not PLUGIN:
        return _of_intel(snapshot, node, plugin)
    if not plugin.obeys_annotations:
        return problem(
            "gas-plugin does not obey annotations, so pods get other cards than are booked for them",
            fix.daemonset(plugin.pod, "edit", note="remove --resource-manager=false"),
        )
    if not plugin.pod.is_ready:
        return problem(
            "gas-plugin runs, but is not ready, so kubelet may not be able to allocate every card",
            fix.pod(plugin.pod, "logs"),
        )
    return ok("gas-plugin obeys the annotations of pods")


def _of_intel(snapshot: Snapshot, node: InspectedNode, plugin: NodePlugin) -> Finding:
    version = image_version(plugin.container)
    if version is None:
        return unknown(
            f"the image {plugin.container.image} does not name the release of Intel's GPU device plugin; releases from"
            " v0.34.0 on ignore annotations",
            install_plugin(snapshot, node),
        )
    release = f"v{version[0]}.{version[1]}"
    if version > LAST_WITH_ANNOTATIONS:
        return problem(
            f"Intel's GPU device plugin {release} ignores annotations and writes no labels, so pods get other cards"
            " than are booked for them",
            fix.daemonset(plugin.pod, "delete"),
            install_plugin(snapshot, node),
            expected="gas-plugin, or Intel's up to v0.32.1 with -resource-manager",
            found=plugin.container.image or release,
        )
    if not plugin.obeys_annotations:
        return problem(
            f"Intel's GPU device plugin {release} obeys annotations only with -resource-manager",
            fix.daemonset(plugin.pod, "edit", note="add -resource-manager to its arguments"),
            install_plugin(snapshot, node),
        )
    return ok(f"Intel's GPU device plugin {release} obeys the annotations of pods")


def check_vocabularies(snapshot: Snapshot) -> Iterator[Finding]:
    """Report plugins whose flags differ from the extender's, one of each kind."""
    extenders = snapshot.running(EXTENDER)
    wanted = vocabulary_flags(extenders[0][1]) if extenders else {}
    reported: set[tuple[str, str]] = set()
    for pod, container in [*extenders[1:], *(snapshot.running(PLUGIN) if extenders else ())]:
        for flag, value in vocabulary_flags(container).items():
            if entries_of(value) == entries_of(wanted[flag]) or (flag, value) in reported:
                continue
            reported.add((flag, value))
            yield problem(
                f"--{flag} is not that of the extender, so pods wait for resources that no node has, or get no cards",
                fix.pod(pod, "describe", "pod", note=f"its owner needs --{flag}={wanted[flag]}"),
                where=f"pod {pod.key}",
                expected=wanted[flag],
                found=value,
            )
    names = [each.name for each in snapshot.vocabularies]
    if len(names) > 1:
        yield ok(f"all speak {', '.join(names)}", where="extender and plugins", summary_of="check")


def entries_of(value: str) -> frozenset[str]:
    return frozenset(each.strip() for each in value.split(","))


async def _gather_policies(sources: Sources) -> Mapping[str, object]:
    nodes = [node.name for node in gpu_nodes(sources.snapshot)]
    return {POLICIES: await read_topology_policies(sources.api, nodes, sources.timeout)}


async def read_topology_policies(api: ApiServer, nodes: Iterable[str], timeout: float) -> dict[str, str | Unseen]:
    """Return by node the policy of its kubelet's Topology Manager, or why it could not be seen.

    ``timeout`` is in seconds for each kubelet. The API server's proxy needs the verb ``get`` on ``nodes/proxy``. Once
    it refuses that, no further kubelet is asked.
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
    if isinstance(snapshot.pods, Unseen):
        return  # reported with the device plugins
    policies: Mapping[str, str | Unseen] = snapshot.gathered.get(POLICIES, {})
    for node in gpu_nodes(snapshot):
        plugins = plugins_on(snapshot, node.name)
        policy = policies.get(node.name, _UNSEEN)
        if hinting := [plugin for plugin in plugins if _sends_hints(plugin)]:
            found = [_with_hints(snapshot, node, hinting[0], policy)]
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


def _with_hints(snapshot: Snapshot, node: InspectedNode, plugin: NodePlugin, policy: str | Unseen) -> Finding:
    hints = f"{plugin.program} sends NUMA hints"
    if len(DEFAULT.facts(node).inventory.numa_groups or ()) < 2:
        return ok(f"{hints}, but all cards are on the same NUMA node")
    if policy == "none":
        return ok(f"{hints}, and the Topology Manager's policy none ignores them")
    own = plugin.program is PLUGIN
    remove = (
        fix.daemonset(plugin.pod, "edit", note="remove --topology-hints") if own else install_plugin(snapshot, node)
    )
    if isinstance(policy, Unseen):
        path = f"/api/v1/nodes/{node.name}/proxy/configz"
        return unknown(
            f"{hints}, so pods may get other cards than are booked for them, unless the Topology Manager's policy is"
            f" none; the policy could not be read: {policy.why}",
            fix.kubectl("get", "--raw", path, note="topologyManagerPolicy is the policy"),
            remove,
        )
    return problem(
        f"{hints}, and with them kubelet gives containers only cards of the NUMA node that it chooses, so pods get"
        " other cards than are booked for them, or are rejected",
        remove,
        expected="no NUMA hints, or the Topology Manager's policy none",
        found=f"NUMA hints, and the policy {policy}",
    )


CHECKS = (
    Check(name="device-plugins", title="device plugins", findings=check_plugins),
    Check(name=VOCABULARIES, title="vocabularies", findings=check_vocabularies),
    Check(
        name="topology-manager",
        title="kubelets' Topology Managers",
        findings=check_topology_manager,
        gather=_gather_policies,
    ),
)
