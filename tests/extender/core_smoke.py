"""The core of the extender, from its start to a pod in the ledger: filter and bind over HTTP. Needs no part."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

from gas.cluster.connection import connect
from gas.daemon.listening import listen
from gas.daemon.serving import SCHEDULER_KEEP_ALIVE, Port, serve_with
from gas.extender.assembly import Extender
from gas.extender.command_line import parse_flags
from gas.extender.metrics import Metrics
from gas.extender.server import extender_app
from sandbox.api.server import ApiServer
from sandbox.programs import write_kubeconfig
from tests.background import eventually
from tests.extender.assembled import add_node, add_pod, state


async def smoke() -> None:
    """Start an extender without flags, filter and bind a pod over HTTP, and print what the ledger has of it."""
    async with ApiServer() as server:
        add_node(server)
        pod = add_pod(server, "a")
        kubeconfig = write_kubeconfig(Path(tempfile.mkdtemp()) / "kubeconfig", server.url, token="any")
        api = await connect(str(kubeconfig))
        metrics = Metrics("1")
        extender = Extender(api, parse_flags([]), metrics)
        stopping = asyncio.Event()
        with listen("127.0.0.1", 0, flag="port") as socket:
            app = extender_app(extender.verbs, metrics, max_body=2**20, body_timeout=5.0)
            port = Port(app=app, socket=socket, tls=None, keep_alive=SCHEDULER_KEEP_ALIVE)
            url = f"http://127.0.0.1:{socket.getsockname()[1]}/scheduler"
            serving = asyncio.create_task(
                serve_with([port], stopping, graceful_timeout=1.0, background=[extender.run()])
            )
            await eventually(extender.readiness.may_act)
            metadata = pod["metadata"]
            passing = await _ask(f"{url}/filter", {"Pod": pod, "NodeNames": ["n1"]})
            assert passing["NodeNames"] == ["n1"], passing
            binding = {"PodName": "a", "PodNamespace": "default", "PodUID": metadata["uid"], "Node": "n1"}
            bound = await _ask(f"{url}/bind", binding)
            assert bound["Error"] == "", bound
            await eventually(lambda: extender.decider.pods.bound_pod(metadata["uid"]) is not None)
            booking = extender.decider.ledger.booking(metadata["uid"])
            held = state(extender, pod)
            assert booking is not None
            assert held is not None
            print(f"bound to {', '.join(map(str, booking.footprint.amounts))}, {held.value}")
            stopping.set()
            await serving
        await api.close()


async def _ask(url: str, body: object) -> Any:
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        return await response.json()
