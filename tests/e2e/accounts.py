"""Service accounts with their permissions, and tokens like those that their pods get."""

from __future__ import annotations

import re
from typing import Any

import yaml

from gas.extender.command_line import parse_flags
from gas.extender.parts import permissions_of
from scripts.roles import permissions_by_flag, rules_of
from tests.deploy.manifests import BASE, ROOT, one
from tests.e2e.kube_api import KubeApi

Rule = dict[str, Any]

WEEK = 7 * 24 * 3600  # seconds; by default a token is valid for an hour, which long runs exceed

_RBAC = "/apis/rbac.authorization.k8s.io/v1"

ORIGINAL_RULES: tuple[Rule, ...] = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "update", "patch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["bindings", "pods/binding"], "verbs": ["create"]},
)
"""The original's ClusterRole ``gas-handler`` (contract E14.3)."""

FULL_RULES: tuple[Rule, ...] = (
    *ORIGINAL_RULES,
    *rules_of(permissions_of(parse_flags([]), "default").union(*permissions_by_flag().values())),
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update", "patch"]},
)
"""All rules of an extender with all its parts, and its Lease in any namespace."""


def _rules_on(page: str) -> tuple[Rule, ...]:
    """Return the rules of the role on a page of docs/."""
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
    return tuple(yaml.safe_load(block)["rules"])


PLUGIN_RULES: tuple[Rule, ...] = tuple(one(BASE / "plugin", "ClusterRole")["rules"])
DOCTOR_RULES = _rules_on("doctor.md")
INSPECTION_RULES = _rules_on("kubectl.md")


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
    answer = api.create(
        f"/api/v1/namespaces/default/serviceaccounts/{name}/token", {"spec": {"expirationSeconds": WEEK}}
    )
    return api.as_user(answer["status"]["token"])
