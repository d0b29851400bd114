"""Bindings as other clients write them."""

from __future__ import annotations

import re
import time
from random import Random

from tests.e2e.kube_api import KubeApi, Object, RefusedError
from tests.e2e.pods import PODS
from tests.e2e.repeated import Repeated

BINDINGS = "/api/v1/namespaces/default/bindings"
"""The older resource, which binds as well."""

_READ_TOO_LATE = re.compile(r"cannot be read, so it is not bound: no response in \d+ s; try again$")
"""What the extender says, in time, of an API server that does not return a pod in time."""

_SECONDS = 120.0


def binding(pod: str, node: str, **metadata: object) -> Object:
    """Return a Binding as a script writes it, without UID unless ``metadata`` has one."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def bind_now(api: KubeApi, pod: str, node: str, *, legacy: bool = False, query: str = "", **metadata: object) -> None:
    """Write a Binding, again for as long as an API server that is itself too slow is why not. Raises RefusedError."""
    path = BINDINGS if legacy else f"{PODS}/{pod}/binding"
    end = time.monotonic() + _SECONDS
    while True:
        try:
            api.create(path + query, binding(pod, node, **metadata))
            return
        except RefusedError as refused:
            if not _READ_TOO_LATE.search(refused.message) or time.monotonic() > end:
                raise
            print(f"again: {refused.message}")


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
