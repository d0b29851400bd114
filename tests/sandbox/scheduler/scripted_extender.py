"""An extender for tests, over TLS with client certificates, which responds with what the test sets."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from sandbox.api.client import ApiClient, RefusedByApi
from sandbox.certificates import Authority
from sandbox.scheduler.extender_client import ExtenderAddress
from tests.sandbox.objects import I915

Refuse = Callable[[str, str], str | None]


@dataclass
class ScriptedExtender:
    """Record its requests.

    refuse  takes the names of pod and node; it returns a reason or None
    scores  of nodes by name; None if the extender does not score any
    """

    client: ApiClient
    refuse: Refuse = lambda _pod, _node: None
    filter_error: str = ""
    bind_error: str = ""
    scores: dict[str, int] | None = None
    scored: list[list[str]] = field(default_factory=list)
    filters: list[dict[str, Any]] = field(default_factory=list)
    binds: list[dict[str, Any]] = field(default_factory=list)

    async def filter(self, request: web.Request) -> web.Response:
        args = await request.json()
        self.filters.append(args)
        name = args["Pod"]["metadata"]["name"]
        reasons = {node: why for node in args["NodeNames"] if (why := self.refuse(name, node))}
        passed = [node for node in args["NodeNames"] if node not in reasons]
        return web.json_response({"NodeNames": passed, "FailedNodes": reasons, "Error": self.filter_error})

    async def prioritize(self, request: web.Request) -> web.Response:
        names = (await request.json())["NodeNames"]
        self.scored.append(names)
        if self.scores is None:
            return web.json_response({"Error": "unknown path"}, status=404)
        return web.json_response([{"Host": name, "Score": self.scores.get(name, 0)} for name in names])

    async def bind(self, request: web.Request) -> web.Response:
        args = await request.json()
        self.binds.append(args)
        if self.bind_error:
            return web.json_response({"Error": self.bind_error})
        path = f"/api/v1/namespaces/{args['PodNamespace']}/pods/{args['PodName']}/binding"
        metadata = {"name": args["PodName"], "uid": args["PodUID"], "annotations": {"by": "extender"}}
        try:
            await self.client.post(path, {"metadata": metadata, "target": {"name": args["Node"]}})
        except RefusedByApi as refusal:
            return web.json_response({"Error": str(refusal)})
        return web.json_response({"Error": ""})


@asynccontextmanager
async def serving(
    extender: ScriptedExtender, directory: Path, *, ignorable: bool, weight: int = 0
) -> AsyncIterator[ExtenderAddress]:
    """Serve the extender as long as the block and yield its address."""
    authority = Authority(directory)
    trusted, client, server = authority.certificate, authority.client(), authority.server()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=trusted)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(server.certificate, server.key)
    app = web.Application()
    app.router.add_post("/scheduler/filter", extender.filter)
    app.router.add_post("/scheduler/bind", extender.bind)
    app.router.add_post("/scheduler/prioritize", extender.prioritize)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    yield ExtenderAddress(
        url=f"https://127.0.0.1:{port}",
        authority=trusted,
        certificate=client.certificate,
        key=client.key,
        managed_resources=(I915,),
        ignorable=ignorable,
        weight=weight,
    )
    await runner.cleanup()
