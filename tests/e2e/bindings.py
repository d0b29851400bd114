"""Bindings as other clients write them."""

from __future__ import annotations

from random import Random

from tests.e2e.kube_api import KubeApi, Object, RefusedError
from tests.e2e.pods import PODS
from tests.e2e.repeated import Repeated

BINDINGS = "/api/v1/namespaces/default/bindings"
"""The older resource, which binds as well."""


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


class BindingScript(Repeated):
    """Bind pods of one ``schedulerName`` to random nodes, on a thread of its own, until each is bound.

    It is a context manager. Each Binding goes to one of the two resources, with the pod's UID or without.

    refused  sentences of refusals
    """

    def __init__(self, api: KubeApi, nodes: list[str], rng: Random, *, scheduler_name: str) -> None:
        super().__init__("binding-script", every=0.1)
        self.refused: list[str] = []
        self._api = api
        self._nodes = nodes
        self._rng = rng
        self._selector = f"spec.nodeName=,spec.schedulerName={scheduler_name}"

    def step(self) -> None:
        for pod in self._api.items(PODS, fieldSelector=self._selector):
            self._bind(pod)

    def _bind(self, pod: Object) -> None:
        uid = {"uid": pod["metadata"]["uid"]} if self._rng.random() < 0.5 else {}
        node, legacy = self._rng.choice(self._nodes), self._rng.random() < 0.5
        try:
            bind_now(self._api, pod["metadata"]["name"], node, legacy=legacy, **uid)
        except RefusedError as refused:
            self.refused.append(refused.message)
