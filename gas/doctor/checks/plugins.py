"""Check which device plugin serves each node's cards, and whether it obeys the pods' annotations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from configurator.scheduler_configuration import CARD_RESOURCES
from gas.doctor.check import Check, DoctorPart
from gas.doctor.findings import (
    Finding,
    Unseen,
    about,
    kubectl_daemonset,
    kubectl_pod,
    kubectl_pods_on,
    not_seen,
    ok,
    problem,
    unknown,
)
from gas.doctor.gpus import gpu_nodes, is_labelled_by_plugin
from gas.doctor.programs import INTEL_PLUGIN, LAST_WITH_ANNOTATIONS, PLUGIN, Program, image_version, is_on
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

    @property
    def where(self) -> str:
        """How findings name it."""
        return f"pod {self.pod.key} on node {self.pod.node_name}"

    @property
    def obeys_annotations(self) -> bool:
        """True if its flags make it give pods the cards that their annotations name."""
        return is_on(self.container, "resource-manager", default=self.program is PLUGIN)


def plugins_on(snapshot: Snapshot, node: str) -> list[NodePlugin]:
    """Return the device plugins for cards that run as pods of a node."""
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
    """Check the device plugins of every GPU node."""
    if isinstance(snapshot.pods, Unseen):
        yield not_seen("pods", snapshot.pods)
        return
    for node in gpu_nodes(snapshot):
        plugins = plugins_on(snapshot, node.name)
        yield from about(f"node {node.name}", _several(plugins) if plugins else _none(node))
        for plugin in plugins:
            yield from about(plugin.where, [_one(plugin)])


def _several(plugins: list[NodePlugin]) -> Iterator[Finding]:
    if len(plugins) > 1:
        yield problem(
            f"{len(plugins)} device plugins serve the same cards; kubelet uses the one that registered last, so cards"
            " appear and disappear",
            *(kubectl_daemonset(plugin.pod, "delete") for plugin in plugins[1:]),
            expected=f"one plugin for {' and '.join(CARD_RESOURCES)}",
            found=", ".join(plugin.pod.key for plugin in plugins),
        )


def _none(node: DetailedNode) -> Iterator[Finding]:
    allocatable = (node.status.allocatable if node.status is not None else None) or {}
    if not any(name in allocatable for name in CARD_RESOURCES):
        return  # reported with the resources
    if is_labelled_by_plugin(node):
        yield ok("gas-plugin wrote its labels and runs outside of a pod")
        return
    yield unknown(
        "a device plugin offers its cards, but none is known among the pods of the node, so it is unknown whether it"
        " obeys annotations",
        kubectl_pods_on(node.name),
    )


def _one(plugin: NodePlugin) -> Finding:
    if plugin.program is not PLUGIN:
        return _of_intel(plugin)
    if not plugin.obeys_annotations:
        return problem(
            "gas-plugin does not obey annotations, so pods get other cards than are booked for them",
            kubectl_daemonset(plugin.pod, "edit", note="remove --resource-manager=false"),
            expected="--resource-manager=true, the default",
            found="--resource-manager=false",
        )
    if not plugin.pod.is_ready:
        return problem(
            "gas-plugin runs, but is not ready, so kubelet may not be able to allocate every card",
            kubectl_pod(plugin.pod, "logs"),
        )
    return ok("gas-plugin obeys the annotations of pods")


def _of_intel(plugin: NodePlugin) -> Finding:
    version = image_version(plugin.container)
    if version is None:
        return unknown(
            f"the image {plugin.container.image} does not name the release of Intel's GPU device plugin; releases from"
            " v0.34.0 on ignore annotations",
            INSTALL_PLUGIN,
        )
    release = f"v{version[0]}.{version[1]}"
    if version > LAST_WITH_ANNOTATIONS:
        return problem(
            f"Intel's GPU device plugin {release} ignores annotations and writes no labels, so pods get other cards"
            " than are booked for them",
            kubectl_daemonset(plugin.pod, "delete"),
            INSTALL_PLUGIN,
            expected="gas-plugin, or Intel's up to v0.32.1 with -resource-manager",
            found=plugin.container.image or release,
        )
    if not plugin.obeys_annotations:
        return problem(
            f"Intel's GPU device plugin {release} obeys annotations only with -resource-manager",
            kubectl_daemonset(plugin.pod, "edit", note="add -resource-manager to its arguments"),
            INSTALL_PLUGIN,
            expected="-resource-manager",
            found=" ".join(plugin.container.args or ()) or "no arguments",
        )
    return ok(f"Intel's GPU device plugin {release} obeys the annotations of pods")


PART = DoctorPart(checks=(Check(name=CHECK, title="device plugins", findings=check_plugins),))
