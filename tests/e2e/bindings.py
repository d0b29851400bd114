"""Bindings as other clients write them."""

from __future__ import annotations

import re
import time

from tests.e2e.kube_api import KubeApi, Object, RefusedError
from tests.e2e.pods import PODS

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
