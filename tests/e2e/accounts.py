"""Service accounts with their permissions, and tokens like those that their pods get."""

from __future__ import annotations

from typing import Any

from gas.extender.permissions import CORE
from scripts.roles import permissions_by_flag, rules_of
from tests.e2e.kube_api import KubeApi

Rule = dict[str, Any]

_RBAC = "/apis/rbac.authorization.k8s.io/v1"

ORIGINAL_RULES: tuple[Rule, ...] = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "update", "patch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["bindings", "pods/binding"], "verbs": ["create"]},
)
"""The original's ClusterRole ``gas-handler`` (contract E14.3)."""

FULL_RULES: tuple[Rule, ...] = (
    *ORIGINAL_RULES,
    *rules_of(CORE.union(*permissions_by_flag().values())),
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update", "patch"]},
)
"""All rules of an extender with all its parts, and its Lease in any namespace."""


PLUGIN_RULES: tuple[Rule, ...] = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
)
"""All permissions that the plugin needs."""

DOCTOR_RULES: tuple[Rule, ...] = (
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["configmaps", "serviceaccounts", "services"], "verbs": ["get"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]},
    {"apiGroups": ["nfd.k8s-sigs.io"], "resources": ["nodefeatures"], "verbs": ["list"]},
    {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        "verbs": ["list"],
    },
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
)
"""All permissions that the doctor needs. It changes nothing: access reviews are created only to be answered."""

INSPECTION_RULES: tuple[Rule, ...] = (
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]},
)
"""All permissions that `kubectl gas` needs."""


def add_account(api: KubeApi, name: str, role: str, rules: tuple[Rule, ...]) -> KubeApi:
    """Make a service account in `default` with a ClusterRole of its own, unless they exist.

    Return the API as it sees it.
    """
    api.ensure("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    api.ensure(f"{_RBAC}/clusterroles", {"metadata": {"name": role}, "rules": list(rules)})
    api.ensure(
        f"{_RBAC}/clusterrolebindings",
        {
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": name}],
        },
    )
    answer = api.create(f"/api/v1/namespaces/default/serviceaccounts/{name}/token", {"spec": {}})
    return api.as_user(answer["status"]["token"])
