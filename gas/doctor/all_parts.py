"""List all checks of the doctor in the order of a diagnosis: from the scheduler to the pods."""

from collections.abc import Iterator
from dataclasses import replace

from gas.doctor.check import Check
from gas.doctor.checks import accounts, card_health, clocks, daemonsets, extender, nodes, plugins, pods, schedulers
from gas.doctor.findings import Finding
from gas.doctor.parts import (
    admission,
    aliyun,
    dra_drivers,
    feature_discovery,
    hami,
    koordinator,
    kubeshare,
    memory_limits,
    node_score,
    preemption,
    usage,
    vendor_plugins,
)
from gas.doctor.snapshot import Snapshot

CHECKS: tuple[Check, ...] = (
    *schedulers.CHECKS,
    *preemption.CHECKS,
    *node_score.CHECKS,
    *extender.CHECKS,
    *admission.CHECKS,
    *accounts.CHECKS,
    *card_health.CHECKS,
    *daemonsets.CHECKS,
    *nodes.CHECKS,
    *plugins.CHECKS,
    *aliyun.CHECKS,
    *koordinator.CHECKS,
    *hami.CHECKS,
    *kubeshare.CHECKS,
    *vendor_plugins.CHECKS,
    *dra_drivers.CHECKS,
    *usage.CHECKS,
    *memory_limits.CHECKS,
    *feature_discovery.CHECKS,
    *clocks.CHECKS,
    *pods.checks(node_score.scores_nodes),
)

TITLES = {check.name: check.title for check in CHECKS if check.title}  # by name of a check, in the order of the report


def all_findings(snapshot: Snapshot) -> list[Finding]:
    return [finding for name in TITLES for finding in findings_of(name, snapshot)]


def findings_of(name: str, snapshot: Snapshot) -> Iterator[Finding]:
    found = [replace(each, check=name) for check in CHECKS if check.name == name for each in check.findings(snapshot)]
    others = {each.where for each in found if not each.summary_of}
    return (
        each
        for each in found
        if not (each.summary_of == "object" and each.where in others) and not (each.summary_of == "check" and others)
    )
