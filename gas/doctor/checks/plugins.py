"""Which device plugin hands out the cards of each node, and whether it obeys what is written on pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gas.doctor.checks.gpu_nodes import amounts, gpu_nodes
from gas.doctor.checks.label_writers import Writer, label_writers
from gas.doctor.commands import of_daemonset, of_pod, pods_of
from gas.doctor.findings import Finding, ok, problem, unknown
from gas.doctor.looked import Unseen
from gas.doctor.objects import Container, SeenNode, SeenPod
from gas.doctor.programs import LAST_THAT_OBEYS, Program, flag_value, image_version, is_on
from gas.doctor.snapshot import Snapshot
from gas.intel import names

CHECK = "device-plugins"
REPLACE = "kubectl apply --kustomize deploy/overlays/plugin   # or what you made of it: docs/deploy.md, 3"


@dataclass(frozen=True, slots=True)
class NodePlugin:
    """One device plugin on one node."""

    program: Program
    pod: SeenPod
    container: Container


def plugins_on(snapshot: Snapshot, node: str) -> list[NodePlugin]:
    """The device plugins for cards that run as pods of a node."""
    return [
        NodePlugin(program, seen, container)
        for program in (Program.PLUGIN, Program.INTEL_PLUGIN)
        for seen, container in snapshot.running(program)
        if seen.pod.node_name == node
    ]


def feeds_nfd(plugin: NodePlugin) -> bool:
    """Whether a plugin tells Node Feature Discovery about the cards."""
    if plugin.program is Program.PLUGIN:
        return flag_value(plugin.container, "write-node") == "nfd" and _manages(plugin)
    version = image_version(plugin.container)
    return _manages(plugin) and (version is None or version <= LAST_THAT_OBEYS)


def check_plugins(snapshot: Snapshot) -> Iterator[Finding]:
    if isinstance(snapshot.pods, Unseen):
        yield unknown(CHECK, "pods", snapshot.pods.why, snapshot.pods.mend)
        return
    for seen in gpu_nodes(snapshot):
        plugins = plugins_on(snapshot, seen.node.name)
        if len(plugins) > 1:
            yield _two(seen, plugins)
        if not plugins:
            yield from _none(seen)
        for plugin in plugins:
            yield _one(seen, plugin)


def _manages(plugin: NodePlugin) -> bool:
    return is_on(plugin.container, "resource-manager", default=plugin.program is Program.PLUGIN)


def _two(seen: SeenNode, plugins: list[NodePlugin]) -> Finding:
    return problem(
        CHECK,
        seen.where,
        f"{len(plugins)} device plugins for the same cards; kubelet listens to the last one that registered, and cards"
        " come and go",
        *(of_daemonset(plugin.pod.pod, "delete") for plugin in plugins[1:]),
        expected=f"one plugin for {names.PREFIX}i915 and {names.PREFIX}xe",
        found=", ".join(plugin.pod.pod.key for plugin in plugins),
    )


def _none(seen: SeenNode) -> Iterator[Finding]:
    if not any(name in amounts(seen) for name in names.COUNT_RESOURCES):
        return  # told among the resources
    if Writer.PLUGIN in label_writers(seen):
        yield ok(CHECK, seen.where, "gas-plugin wrote its labels; it runs there as something else than a pod")
        return
    yield unknown(
        CHECK,
        seen.where,
        "some device plugin offers its cards, and no pod of the node is known for one; whether it obeys annotations is"
        " not known",
        pods_of(seen.node.name),
    )


def _one(seen: SeenNode, plugin: NodePlugin) -> Finding:
    where = f"{plugin.pod.where} on {seen.where}"
    if plugin.program is Program.PLUGIN:
        if not _manages(plugin):
            return problem(
                CHECK,
                where,
                "gas-plugin is told not to obey annotations, so pods get other cards than are booked for them",
                of_daemonset(plugin.pod.pod, "edit", note="leave --resource-manager=false out"),
                expected="--resource-manager=true, the default",
                found="--resource-manager=false",
            )
        if not plugin.pod.details.is_ready:
            return problem(
                CHECK,
                where,
                "gas-plugin runs and is not ready, so that kubelet cannot give away every card",
                of_pod(plugin.pod.pod, "logs"),
            )
        return ok(CHECK, where, "gas-plugin hands out the cards that are written on pods")
    version = image_version(plugin.container)
    if version is None:
        return unknown(
            CHECK,
            where,
            f"the image {plugin.container.image} does not tell which release of Intel's GPU device plugin it is; those"
            " from v0.34.0 on ignore annotations",
            REPLACE,
        )
    told = f"v{version[0]}.{version[1]}"
    if version > LAST_THAT_OBEYS:
        return problem(
            CHECK,
            where,
            f"Intel's GPU device plugin {told} ignores annotations and writes no labels, so pods get other cards than"
            " are booked for them",
            of_daemonset(plugin.pod.pod, "delete"),
            REPLACE,
            expected="gas-plugin, or Intel's up to v0.32.1 with -resource-manager",
            found=plugin.container.image or told,
        )
    if not _manages(plugin):
        return problem(
            CHECK,
            where,
            f"Intel's GPU device plugin {told} obeys annotations only when it is told to",
            of_daemonset(plugin.pod.pod, "edit", note="add -resource-manager to its arguments"),
            REPLACE,
            expected="-resource-manager",
            found=" ".join(plugin.container.args or ()) or "no arguments",
        )
    return ok(CHECK, where, f"Intel's GPU device plugin {told} hands out the cards that are written on pods")
