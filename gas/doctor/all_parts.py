"""All parts of the doctor, in the order of a diagnosis: from the scheduler to the pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gas.doctor.check import Check
from gas.doctor.checks import (
    accounts,
    certificates,
    clocks,
    extender,
    node_labels,
    node_resources,
    placing,
    plugins,
    pods,
    schedulers,
    topology_manager,
    vocabularies,
)
from gas.doctor.findings import Finding
from gas.doctor.parts import (
    admission,
    feature_discovery,
    koordinator,
    memory_limits,
    node_score,
    preemption,
    usage,
    vendor_plugins,
)
from gas.doctor.snapshot import Snapshot

PARTS = (
    schedulers.PART,
    preemption.PART,
    node_score.PART,
    extender.PART,
    certificates.PART,
    admission.PART,
    accounts.PART,
    node_labels.PART,
    node_resources.PART,
    plugins.PART,
    vocabularies.PART,
    koordinator.PART,
    vendor_plugins.PART,
    topology_manager.PART,
    usage.PART,
    memory_limits.PART,
    feature_discovery.PART,
    clocks.PART,
    pods.part(node_score.scores_nodes),
    placing.PART,
)

CHECKS: tuple[Check, ...] = tuple(check for part in PARTS for check in part.checks)

TITLES = {check.name: check.title for check in CHECKS if check.title}
"""Name of the check -> its title, in the order of the report."""


def all_findings(snapshot: Snapshot) -> list[Finding]:
    """Return the findings of all checks."""
    return [finding for name in TITLES for finding in findings_of(name, snapshot)]


def findings_of(name: str, snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the findings of all checks of one name."""
    found = [replace(each, check=name) for check in CHECKS if check.name == name for each in check.findings(snapshot)]
    others = {each.where for each in found if not each.summary_of}
    return (
        each
        for each in found
        if not (each.summary_of == "object" and each.where in others) and not (each.summary_of == "check" and others)
    )
