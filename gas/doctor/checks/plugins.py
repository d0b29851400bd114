"""Check which device plugin serves each node's cards, and whether it obeys the pods' annotations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from configurator.scheduler_configuration import CARD_RESOURCES
from gas.doctor.findings import Finding, kubectl_daemonset, kubectl_pod, kubectl_pods_on, ok, problem, unknown
from gas.doctor.gpus import LabelWriter, gpu_nodes, label_writers
from gas.doctor.probe import Unseen
from gas.doctor.programs import LAST_WITH_ANNOTATIONS, Program, flag_value, image_version, is_on
from gas.doctor.snapshot import Snapshot
from gas.objects.stored import DetailedContainer, DetailedNode, DetailedPod

CHECK = "device-plugins"
INSTALL_PLUGIN = "kubectl apply --kustomize deploy/overlays/plugin   # or your own overlay: docs/deploy.md, 3"


@dataclass(frozen=True, slots=True)
class NodePlugin:
    """One device plugin on one node."""

    program: Program
    pod: DetailedPod
    container: DetailedContainer


def plugins_on(snapshot: Snapshot, node: str) -> list[NodePlugin]:
    """Return the device plugins for cards that run as pods of a node."""
    return [
        NodePlugin(program, pod, container)
        for program in (Program.PLUGIN, Program.INTEL_PLUGIN)
        for pod, container in snapshot.running(program)
        if pod.node_name == node
    ]


def feeds_nfd(plugin: NodePlugin) -> bool:
    """Return whether a plugin reports its cards to Node Feature Discovery."""
    if plugin.program is Program.PLUGIN:
        return flag_value(plugin.container, "write-node") == "nfd" and _manages(plugin)
    version = image_version(plugin.container)
    return _manages(plugin) and (version is None or version <= LAST_WITH_ANNOTATIONS)


def check_plugins(snapshot: Snapshot) -> Iterator[Finding]:
    """Check the device plugins of every GPU node."""
    if isinstance(snapshot.pods, Unseen):
        yield unknown(CHECK, "pods", snapshot.pods.why, snapshot.pods.mend)
        return
    for node in gpu_nodes(snapshot):
        plugins = plugins_on(snapshot, node.name)
        if len(plugins) > 1:
            yield _several(node, plugins)
        if not plugins:
            yield from _none(node)
        for plugin in plugins:
            yield _one(node, plugin)


def _manages(plugin: NodePlugin) -> bool:
    return is_on(plugin.container, "resource-manager", default=plugin.program is Program.PLUGIN)


def _several(node: DetailedNode, plugins: list[NodePlugin]) -> Finding:
    return problem(
        CHECK,
        f"node {node.name}",
        f"{len(plugins)} device plugins serve the same cards; kubelet uses the one that registered last, so cards"
        " appear and disappear",
        *(kubectl_daemonset(plugin.pod, "delete") for plugin in plugins[1:]),
        expected=f"one plugin for {' and '.join(CARD_RESOURCES)}",
        found=", ".join(plugin.pod.key for plugin in plugins),
    )


def _none(node: DetailedNode) -> Iterator[Finding]:
    where = f"node {node.name}"
    allocatable = (node.status.allocatable if node.status is not None else None) or {}
    if not any(name in allocatable for name in CARD_RESOURCES):
        return  # reported with the resources
    if LabelWriter.PLUGIN in label_writers(node):
        yield ok(CHECK, where, "gas-plugin wrote its labels and runs outside of a pod")
        return
    yield unknown(
        CHECK,
        where,
        "a device plugin offers its cards, but none is known among the pods of the node, so it is unknown whether it"
        " obeys annotations",
        kubectl_pods_on(node.name),
    )


def _one(node: DetailedNode, plugin: NodePlugin) -> Finding:
    where = f"pod {plugin.pod.key} on node {node.name}"
    if plugin.program is Program.PLUGIN:
        if not _manages(plugin):
            return problem(
                CHECK,
                where,
                "gas-plugin does not obey annotations, so pods get other cards than are booked for them",
                kubectl_daemonset(plugin.pod, "edit", note="remove --resource-manager=false"),
                expected="--resource-manager=true, the default",
                found="--resource-manager=false",
            )
        if not plugin.pod.is_ready:
            return problem(
                CHECK,
                where,
                "gas-plugin runs, but is not ready, so kubelet may not be able to allocate every card",
                kubectl_pod(plugin.pod, "logs"),
            )
        return ok(CHECK, where, "gas-plugin obeys the annotations of pods")
    version = image_version(plugin.container)
    if version is None:
        return unknown(
            CHECK,
            where,
            f"the image {plugin.container.image} does not name the release of Intel's GPU device plugin; releases from"
            " v0.34.0 on ignore annotations",
            INSTALL_PLUGIN,
        )
    release = f"v{version[0]}.{version[1]}"
    if version > LAST_WITH_ANNOTATIONS:
        return problem(
            CHECK,
            where,
            f"Intel's GPU device plugin {release} ignores annotations and writes no labels, so pods get other cards"
            " than are booked for them",
            kubectl_daemonset(plugin.pod, "delete"),
            INSTALL_PLUGIN,
            expected="gas-plugin, or Intel's up to v0.32.1 with -resource-manager",
            found=plugin.container.image or release,
        )
    if not _manages(plugin):
        return problem(
            CHECK,
            where,
            f"Intel's GPU device plugin {release} obeys annotations only with -resource-manager",
            kubectl_daemonset(plugin.pod, "edit", note="add -resource-manager to its arguments"),
            INSTALL_PLUGIN,
            expected="-resource-manager",
            found=" ".join(plugin.container.args or ()) or "no arguments",
        )
    return ok(CHECK, where, f"Intel's GPU device plugin {release} obeys the annotations of pods")
