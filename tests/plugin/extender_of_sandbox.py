"""An extender on the API server of a sandbox node, asked as kube-scheduler asks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from gas.cluster.connection import connect
from gas.extender.assembly import Extender
from gas.extender.command_line import parse_flags
from gas.extender.metrics import Metrics
from gas.vocabularies.protocol import Vocabulary
from sandbox.api.kinds import PODS
from tests.cluster.scripted_server import write_kubeconfig
from tests.plugin.node_of_sandbox import NODE, SandboxNode, soon


@asynccontextmanager
async def running_extender(node: SandboxNode, vocabularies: Sequence[Vocabulary]) -> AsyncIterator[Extender]:
    """Run an extender that speaks these vocabularies on the API server of this node."""
    kubeconfig = write_kubeconfig(node.directory / "extender.conf", node.server.url, token="plugin")
    api = await connect(str(kubeconfig), explicit=True)
    flags = replace(parse_flags([]), vocabularies=tuple(vocabularies))
    extender = Extender(api, flags, Metrics("1"))
    task = asyncio.create_task(extender.run())
    try:
        await soon(extender.readiness.may_act)
        yield extender
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await api.close()


async def schedule(node: SandboxNode, extender: Extender, pod: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Create a pod, filter and bind it as kube-scheduler does; return it with the reason if no node fits."""
    pod["metadata"].pop("uid")
    created = dict(node.server.api.create(PODS, "default", pod).value)
    uid, name = created["metadata"]["uid"], created["metadata"]["name"]
    await soon(lambda: uid in extender.decider.pods.waiting)
    found = json.loads(await extender.filter(json.dumps({"Pod": created, "NodeNames": [NODE]}).encode()))
    if reasons := found.get("FailedNodes"):
        return created, str(reasons[NODE])
    args = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": NODE}
    assert json.loads(await extender.binder(json.dumps(args).encode())) == {"Error": ""}
    return created, ""
