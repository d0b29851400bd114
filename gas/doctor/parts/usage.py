"""Check that plugins that measure the use of cards have the rights for it."""

from collections.abc import Iterator

from gas.doctor import fix
from gas.doctor.check import Check
from gas.doctor.checks.plugins import NodePlugin, own_plugins
from gas.doctor.findings import Finding, about, ok, problem
from gas.doctor.snapshot import Snapshot
from gas.programs import is_on


def check_usage(snapshot: Snapshot) -> Iterator[Finding]:
    for _, plugin in own_plugins(snapshot):
        if is_on(plugin.container, "usage"):
            yield from about(plugin.where, [_one(plugin)])


def _one(plugin: NodePlugin) -> Finding:
    context = plugin.container.security_context
    added = context.capabilities.add if context is not None and context.capabilities is not None else None
    lacking = [] if plugin.pod.spec.host_pid else ["hostPID: true"]
    if not (context is not None and context.privileged) and {"SYS_PTRACE", "CAP_SYS_PTRACE", "ALL"}.isdisjoint(
        added or ()
    ):
        lacking.append("the capability SYS_PTRACE")
    if not lacking:
        return ok("gas-plugin measures what pods use of the cards")
    return problem(
        "gas-plugin has --usage, but cannot read the processes of other pods, so it shows no use of the cards",
        fix.daemonset(plugin.pod, "edit", note="or apply the component usage: docs/deploy.md, 3"),
        found=f"without {' and '.join(lacking)}",
    )


CHECKS = (Check(name="usage-and-limits", title="use of the cards and limits of their memory", findings=check_usage),)
