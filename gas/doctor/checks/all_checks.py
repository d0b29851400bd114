"""All checks, in the order of a diagnosis: from the scheduler to the pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gas.doctor.checks import (
    accounts,
    admission,
    certificates,
    clocks,
    extender,
    feature_discovery,
    node_labels,
    node_resources,
    other_vocabularies,
    placing,
    plugins,
    pods,
    schedulers,
    topology_manager,
    usage_and_limits,
)
from gas.doctor.findings import Finding
from gas.doctor.snapshot import Snapshot

CHECKS: Mapping[str, tuple[str, Callable[[Snapshot], Iterator[Finding]]]] = {
    schedulers.CHECK: ("kube-scheduler's configuration", schedulers.check_schedulers),
    extender.CHECK: ("the extender", extender.check_extender),
    certificates.CHECK: ("certificates", certificates.check_certificates),
    admission.CHECK: ("admission webhooks", admission.check_admission),
    accounts.CHECK: ("permissions in the cluster", accounts.check_accounts),
    node_labels.CHECK: ("nodes' labels", node_labels.check_node_labels),
    node_resources.CHECK: ("nodes' resources", node_resources.check_node_resources),
    plugins.CHECK: ("device plugins", plugins.check_plugins),
    other_vocabularies.CHECK: ("vocabularies", other_vocabularies.check_vocabularies),
    topology_manager.CHECK: ("kubelets' Topology Managers", topology_manager.check_topology_manager),
    usage_and_limits.CHECK: ("use of the cards and limits of their memory", usage_and_limits.check_usage_and_limits),
    feature_discovery.CHECK: ("Node Feature Discovery", feature_discovery.check_feature_discovery),
    clocks.CHECK: ("clocks", clocks.check_clocks),
    pods.CHECK: ("pods with GPUs", pods.check_pods),
    placing.CHECK: ("a dry pod", placing.check_placing),
}
"""Name of the check -> its title and its function. A check yields nothing if there is nothing to check."""


def all_findings(snapshot: Snapshot) -> list[Finding]:
    """Return the findings of all checks."""
    return [finding for _, check in CHECKS.values() for finding in check(snapshot)]
