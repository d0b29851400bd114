"""Registrations of the extender's webhooks on the real API server, which calls them on loopback."""

from __future__ import annotations

import base64
from pathlib import Path

from tests.e2e.kube_api import KubeApi, Object

_GROUP = "/apis/admissionregistration.k8s.io/v1"
VALIDATING = f"{_GROUP}/validatingwebhookconfigurations"
MUTATING = f"{_GROUP}/mutatingwebhookconfigurations"

POD_RULES = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE", "UPDATE"]}]
TEMPLATE_RULES = [
    {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "resources": ["deployments", "statefulsets", "daemonsets", "replicasets"],
        "operations": ["CREATE", "UPDATE"],
    },
    {
        "apiGroups": ["batch"],
        "apiVersions": ["v1"],
        "resources": ["jobs", "cronjobs"],
        "operations": ["CREATE", "UPDATE"],
    },
]
NEW_POD_RULES = [{**POD_RULES[0], "operations": ["CREATE"]}]


def webhook(name: str, port: int, path: str, authority: Path, rules: list[Object], *, policy: str) -> Object:
    """Return one entry of a registration.

    policy  ``Fail`` or ``Ignore``: what the API server does if the webhook does not decide
    """
    return {
        "name": name,
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}{path}",
            "caBundle": base64.b64encode(authority.read_bytes()).decode(),
        },
        "rules": rules,
        "failurePolicy": policy,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
    }


def register_checks(api: KubeApi, port: int, authority: Path, *, policy: str = "Fail") -> None:
    """Register ``/validate`` and ``/complete``."""
    rules = [*POD_RULES, *TEMPLATE_RULES]
    validate = webhook("pods.gas.intel.com", port, "/validate", authority, rules, policy=policy)
    complete = webhook("complete.gas.intel.com", port, "/complete", authority, NEW_POD_RULES, policy=policy)
    api.create(VALIDATING, {"metadata": {"name": "gas"}, "webhooks": [validate]})
    api.create(MUTATING, {"metadata": {"name": "gas"}, "webhooks": [{**complete, "reinvocationPolicy": "IfNeeded"}]})


def unregister(api: KubeApi) -> None:
    """Remove all registrations."""
    api.delete(VALIDATING)
    api.delete(MUTATING)
