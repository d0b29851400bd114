"""An extender on the API server of a sandbox node, asked as kube-scheduler asks it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from gas.extender.assembly import Extender
from gas.vocabularies.protocol import Vocabulary
from sandbox.api.kinds import PODS
from tests.background import soon
from tests.extender.assembled import extender
from tests.plugin.node_of_sandbox import NODE, SandboxNode


def running_extender(node: SandboxNode, vocabularies: Sequence[Vocabulary]) -> AbstractAsyncContextManager[Extender]:
    """Run an extender that speaks these vocabularies on the API server of this node."""
    return extender(node.server, node.directory, token="plugin", vocabularies=tuple(vocabularies))


async def schedule(node: SandboxNode, running: Extender, pod: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Create a pod, filter and bind it as kube-scheduler does; return it with the reason if no node fits."""
    pod["metadata"].pop("uid")
    created = dict(node.server.api.create(PODS, "default", pod).value)
    uid, name = created["metadata"]["uid"], created["metadata"]["name"]
    await soon(lambda: uid in running.decider.pods.waiting)
    found = json.loads(await running.filter(json.dumps({"Pod": created, "NodeNames": [NODE]}).encode()))
    if reasons := found.get("FailedNodes"):
        return created, str(reasons[NODE])
    args = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": NODE}
    assert json.loads(await running.binder(json.dumps(args).encode())) == {"Error": ""}
    return created, ""
