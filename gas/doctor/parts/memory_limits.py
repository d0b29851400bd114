"""Check that plugins that limit memory have the rights, the kernel and the driver for it."""

import posixpath
import re
from collections.abc import Iterator

from configurator.scheduler_container import Mounts
from gas.doctor import fix
from gas.doctor.check import Check
from gas.doctor.checks.plugins import NodePlugin, own_plugins
from gas.doctor.findings import Finding, about, ok, problem, warning
from gas.doctor.snapshot import Snapshot
from gas.objects.stored import DetailedNode
from gas.programs import flag_value
from gas.vocabularies.node_parts import recorded_cards

FIRST_KERNEL = (6, 14)  # the first kernel with the cgroup controller dmem
LIMITED_DRIVER = "xe"

_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?![0-9])", re.ASCII)
_CGROUP = "sys/fs/cgroup"


def check_limits(snapshot: Snapshot) -> Iterator[Finding]:
    for node, plugin in own_plugins(snapshot):
        if flag_value(plugin.container, "memory-limits") == "pod":
            yield from about(f"node {node.name}", [_one(node, plugin)])


def _one(node: DetailedNode, plugin: NodePlugin) -> Finding:
    no_limits = "gas-plugin has --memory-limits=pod, but pods of this node run without limits: "
    remove = fix.daemonset(plugin.pod, "edit", note="or remove --memory-limits=pod for these nodes")
    if not _can_write_cgroups(plugin):
        return problem(
            f"{no_limits}it cannot write in the node's /{_CGROUP}",
            fix.daemonset(plugin.pod, "edit", note="or apply the component memory-limits: docs/deploy.md, 3"),
            where=plugin.where,
        )
    kernel = _RELEASE.match(node.kernel_version)
    if kernel is not None and (int(kernel[1]), int(kernel[2])) < FIRST_KERNEL:
        return warning(
            f"{no_limits}its kernel has no cgroup controller dmem",
            remove,
            expected="Linux {}.{} or later".format(*FIRST_KERNEL),
            found=f"Linux {node.kernel_version}",
        )
    drivers = {record.driver for record in recorded_cards(node)} - {""}
    if drivers and LIMITED_DRIVER not in drivers:
        return warning(
            f"{no_limits}the kernel limits memory of cards with the driver {LIMITED_DRIVER} only",
            remove,
            expected=f"cards with the driver {LIMITED_DRIVER}",
            found=", ".join(sorted(drivers)),
        )
    return ok(
        "gas-plugin limits what pods use of shared cards, if the kernel has the controller dmem; otherwise the node has"
        " the event GPUMemoryLimitsMissing",
        where=plugin.where,
    )


def _can_write_cgroups(plugin: NodePlugin) -> bool:
    """Return whether the closest mount above the plugin's path of the cgroups is the node's, and not read-only."""
    mounts = Mounts.of(plugin.pod.spec.volumes or (), plugin.container.volume_mounts or ())
    closest = mounts.innermost(posixpath.join(flag_value(plugin.container, "prefix") or "/", _CGROUP))
    return closest is not None and closest[0].host_path is not None and not closest[0].mount.read_only


CHECKS = (Check(name="usage-and-limits", title="use of the cards and limits of their memory", findings=check_limits),)
