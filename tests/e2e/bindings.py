"""Bindings as other clients write them, and the registration of the webhook that gives them their cards."""

from __future__ import annotations

import contextlib
import http.client
import threading
from pathlib import Path
from random import Random

from tests.e2e.kube_api import KubeApi, Object, RefusedError
from tests.e2e.pods import PODS
from tests.e2e.webhooks import MUTATING, webhook

BINDINGS = "/api/v1/namespaces/default/bindings"
"""The older resource, which binds as well."""

RULES = [
    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding", "bindings"], "operations": ["CREATE"]}
]

HOOK = "bind.gas.intel.com"
"""Name of the webhook, which messages of the API server contain."""

EXTENDER = "system:serviceaccount:default:gas-extender"
"""The user of `Cluster.full_account`."""


def register_bind(api: KubeApi, port: int, authority: Path, *, policy: str, timeout: int = 2) -> None:
    """Register ``/bind`` for all bindings but the extender's own."""
    hook = webhook(HOOK, port, "/bind", authority, RULES, policy=policy)
    hook |= {
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": timeout,
        "reinvocationPolicy": "IfNeeded",
        "matchConditions": [{"name": "not-the-extender", "expression": f"request.userInfo.username != '{EXTENDER}'"}],
    }
    api.create(MUTATING, {"metadata": {"name": "gas-bind"}, "webhooks": [hook]})


def binding(pod: str, node: str, **metadata: object) -> Object:
    """Return a Binding as a script writes it, without UID unless ``metadata`` has one."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def bind_now(api: KubeApi, pod: str, node: str, *, legacy: bool = False, query: str = "", **metadata: object) -> None:
    """Write a Binding. Raises RefusedError."""
    path = BINDINGS if legacy else f"{PODS}/{pod}/binding"
    api.create(path + query, binding(pod, node, **metadata))


class BindingScript:
    """Bind pods of one ``schedulerName`` to random nodes, on a thread of its own, until each is bound.

    It is a context manager. Each Binding goes to one of the two resources, with the pod's UID or without.

    refused  sentences of refusals
    """

    def __init__(self, api: KubeApi, nodes: list[str], rng: Random, *, scheduler_name: str) -> None:
        self.refused: list[str] = []
        self._api = api
        self._nodes = nodes
        self._rng = rng
        self._selector = f"spec.nodeName=,spec.schedulerName={scheduler_name}"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="binding-script", daemon=True)
        self._failure: Exception | None = None

    def __enter__(self) -> BindingScript:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.wait(0.1):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    for pod in self._api.items(PODS, fieldSelector=self._selector):
                        self._bind(pod)
        except Exception as error:  # noqa: BLE001 -- the thread that made the script raises it
            self._failure = error

    def _bind(self, pod: Object) -> None:
        uid = {"uid": pod["metadata"]["uid"]} if self._rng.random() < 0.5 else {}
        node, legacy = self._rng.choice(self._nodes), self._rng.random() < 0.5
        try:
            bind_now(self._api, pod["metadata"]["name"], node, legacy=legacy, **uid)
        except RefusedError as refused:
            self.refused.append(refused.message)
