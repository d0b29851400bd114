"""Check that plugins which measure use, or limit memory, have the rights and the kernel for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from gas.doctor.checks.plugins import NodePlugin, plugins_on
from gas.doctor.findings import Finding, kubectl_daemonset, ok, problem, warning
from gas.doctor.gpus import gpu_nodes
from gas.doctor.probe import Unseen
from gas.doctor.programs import Program, flag_value, is_on
from gas.doctor.snapshot import Snapshot
from gas.objects.stored import DetailedNode
from gas.plugin.flags import Flags as PluginFlags
from gas.plugin.limits.memory_limits import MemoryLimitsOf
from gas.values.card_records import ANNOTATION, parse_card_records

CHECK = "usage-and-limits"
FIRST_KERNEL = (6, 14)
"""The first kernel with the cgroup controller dmem."""
LIMITED_DRIVER = "xe"

_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?![0-9])", re.ASCII)
_CGROUP = "sys/fs/cgroup"


def check_usage_and_limits(snapshot: Snapshot) -> Iterator[Finding]:
    """Check every plugin that has ``--usage`` or ``--memory-limits``."""
    if isinstance(snapshot.pods, Unseen):
        return  # reported with the device plugins
    for node in gpu_nodes(snapshot):
        for plugin in plugins_on(snapshot, node.name):
            if plugin.program is not Program.PLUGIN:
                continue
            if is_on(plugin.container, "usage", default=PluginFlags().usage):
                yield _usage(node, plugin)
            if flag_value(plugin.container, "memory-limits") == MemoryLimitsOf.POD:
                yield _limits(node, plugin)


def _usage(node: DetailedNode, plugin: NodePlugin) -> Finding:
    lacking = [] if plugin.pod.spec.host_pid else ["hostPID: true"]
    if not _is_privileged(plugin) and not {"SYS_PTRACE", "CAP_SYS_PTRACE", "ALL"} & _capabilities(plugin):
        lacking.append("the capability SYS_PTRACE")
    if not lacking:
        return ok(CHECK, _where(node, plugin), "gas-plugin measures what pods use of the cards")
    return problem(
        CHECK,
        _where(node, plugin),
        "gas-plugin has --usage, but cannot read the processes of other pods, so it shows no use of the cards",
        kubectl_daemonset(plugin.pod, "edit", note="or apply the component usage: docs/deploy.md, 3"),
        expected="hostPID: true and the capability SYS_PTRACE",
        found=f"without {' and '.join(lacking)}",
    )


def _limits(node: DetailedNode, plugin: NodePlugin) -> Finding:
    no_limits = "gas-plugin has --memory-limits=pod, but pods of this node run without limits: "
    remove = kubectl_daemonset(plugin.pod, "edit", note="or remove --memory-limits=pod for these nodes")
    if not _can_write_cgroups(plugin):
        return problem(
            CHECK,
            _where(node, plugin),
            f"{no_limits}it cannot write in the node's /{_CGROUP}",
            kubectl_daemonset(plugin.pod, "edit", note="or apply the component memory-limits: docs/deploy.md, 3"),
            expected=f"a mount of the node's /{_CGROUP} that is not read-only",
            found="none",
        )
    kernel = _RELEASE.match(node.kernel_version)
    if kernel is not None and (int(kernel[1]), int(kernel[2])) < FIRST_KERNEL:
        return warning(
            CHECK,
            f"node {node.name}",
            f"{no_limits}its kernel has no cgroup controller dmem",
            remove,
            expected="Linux {}.{} or later".format(*FIRST_KERNEL),
            found=f"Linux {node.kernel_version}",
        )
    drivers = {record.driver for record in parse_card_records(node.annotations.get(ANNOTATION, "[]"))[0]} - {""}
    if drivers and LIMITED_DRIVER not in drivers:
        return warning(
            CHECK,
            f"node {node.name}",
            f"{no_limits}the kernel limits memory of cards with the driver {LIMITED_DRIVER} only",
            remove,
            expected=f"cards with the driver {LIMITED_DRIVER}",
            found=", ".join(sorted(drivers)),
        )
    return ok(
        CHECK,
        _where(node, plugin),
        "gas-plugin limits what pods use of shared cards, if the kernel has the controller dmem; otherwise the node has"
        " the event GPUMemoryLimitsMissing",
    )


def _where(node: DetailedNode, plugin: NodePlugin) -> str:
    return f"pod {plugin.pod.key} on node {node.name}"


def _is_privileged(plugin: NodePlugin) -> bool:
    context = plugin.container.security_context
    return context is not None and bool(context.privileged)


def _capabilities(plugin: NodePlugin) -> set[str]:
    context = plugin.container.security_context
    capabilities = context.capabilities if context is not None else None
    return set((capabilities.add if capabilities is not None else None) or ())


def _can_write_cgroups(plugin: NodePlugin) -> bool:
    """Return whether the closest mount above the plugin's path of the cgroups is the node's, and not read-only."""
    path = PurePosixPath(flag_value(plugin.container, "prefix") or "/") / _CGROUP
    above = [mount for mount in plugin.container.volume_mounts or () if path.is_relative_to(mount.mount_path)]
    closest = max(above, key=lambda mount: len(PurePosixPath(mount.mount_path).parts), default=None)
    if closest is None or closest.read_only:
        return False
    volumes = {volume.name: volume for volume in plugin.pod.spec.volumes or ()}
    volume = volumes.get(closest.name)
    return volume is not None and volume.host_path is not None
