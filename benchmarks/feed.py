"""A made-up API server in its own process: lists of a generated cluster, and watches with the events it is sent.

It stores and checks nothing, so that only the extender is measured. ``python -m benchmarks.feed --port N
--nodes N --pods N`` serves until it is killed. With ``--use`` the cluster is that of `benchmarks.varied`:

    POST /feed/nodes, /feed/pods    lines of JSON, each an event of the watch
    POST /feed/churn?lives=N&rate=R N pods come, are bound, run and go again: four events each, R events a second (0: as
                                    fast as they are taken); responds at the end
    POST …/pods/NAME/binding        the pod is bound at once, and the watch shows it
"""

import argparse
import asyncio
import json
from collections.abc import Sequence

from aiohttp import web

from benchmarks.clusters import Object, Size, nodes, placed_pods, pod
from benchmarks.varied import METRICS_PORT, NAMESPACE, Varied
from gas.decision import names

_TICK = 0.01
"""Seconds between two checks how many events are due."""


class Feed:
    """The objects of one kind, and the watches of them."""

    def __init__(self, objects: Sequence[Object]) -> None:
        self._items = [json.dumps(each).encode() for each in objects]
        self._watches: set[web.StreamResponse] = set()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        return await (self._watch(request) if "watch" in request.query else self._list(request))

    async def send(self, lines: bytes) -> None:
        """Send events, each ended by a line end, to all present watches."""
        for watch in tuple(self._watches):
            try:
                await watch.write(lines)
            except ConnectionError:  # the client has ended it, and watches again
                self._watches.discard(watch)

    async def _list(self, request: web.Request) -> web.Response:
        start = int(request.query.get("continue", 0))
        end = start + int(request.query.get("limit", len(self._items)))
        meta = {"resourceVersion": "1"} | ({"continue": str(end)} if end < len(self._items) else {})
        head = f'{{"metadata":{json.dumps(meta)},"items":['.encode()
        return web.Response(body=head + b",".join(self._items[start:end]) + b"]}", content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self._watches.add(response)
        try:
            await asyncio.Event().wait()
        finally:
            self._watches.discard(response)
        return response


def event(kind: str, body: Object) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def life(number: int, size: Size) -> list[bytes]:
    """Return the events of a pod that comes, is bound, runs and goes."""
    waiting = pod(f"churn-{number:07}", {"i915": 1, "millicores": 100, "memory.max": 10**9})
    waiting["metadata"]["uid"] = f"churn-{number}"
    waiting["status"] = {"phase": "Pending"}
    annotations = {names.TIMESTAMP: str(number), names.CONTAINER_CARDS: f"card{number % 8}"}
    bound = _bound(waiting, f"node-{number % size.nodes:05}", annotations)
    running = bound | {"status": {"phase": "Running"}}
    return [event("ADDED", waiting), event("MODIFIED", bound), event("MODIFIED", running), event("DELETED", running)]


def _bound(waiting: Object, node: str, annotations: dict[str, str]) -> Object:
    return waiting | {
        "metadata": waiting["metadata"] | {"annotations": annotations},
        "spec": waiting["spec"] | {"nodeName": node},
    }


class Server:
    """The server's paths: those that the extender uses, and those of the benchmark."""

    def __init__(self, size: Size, seed: int, *, use: bool = False) -> None:
        self._size = size
        self._varied = Varied(size, seed) if use else None
        if self._varied is not None:
            self._feeds = {"nodes": Feed(self._varied.nodes), "pods": Feed(self._varied.pods)}
        else:
            self._feeds = {"nodes": Feed(nodes(size)), "pods": Feed(_with_uids(placed_pods(size, seed)))}
        self._feeds["poddisruptionbudgets"] = Feed(())
        self._waiting: dict[str, Object] = {}
        self._lives = 0

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/api/v1/{kind:nodes|pods}", self._serve)
        app.router.add_get("/apis/policy/v1/{kind:poddisruptionbudgets}", self._serve)
        app.router.add_patch("/{any:.*}", self._accept)
        app.router.add_get("/api/v1/namespaces/default/pods/{name}", self._get_waiting)
        app.router.add_post("/api/v1/namespaces/default/pods/{name}/binding", self._bind)
        app.router.add_get(f"/api/v1/namespaces/{NAMESPACE}/pods/{{pod}}:{METRICS_PORT}/proxy/usage", self._use)
        app.router.add_post("/feed/churn", self._churn)
        app.router.add_post("/feed/{kind:nodes|pods}", self._send)
        app.router.add_post("/{any:.*}", self._accept)
        return app

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        return await self._feeds[request.match_info["kind"]].serve(request)

    async def _accept(self, _request: web.Request) -> web.Response:
        return web.json_response({})

    async def _get_waiting(self, request: web.Request) -> web.Response:
        return web.json_response(self._waiting[request.match_info["name"]])

    async def _use(self, request: web.Request) -> web.Response:
        if self._varied is None:
            raise web.HTTPNotFound
        return web.json_response(self._varied.use(request.match_info["pod"].removeprefix("gas-plugin-")))

    async def _bind(self, request: web.Request) -> web.Response:
        sent = await request.json()
        waiting = self._waiting.pop(request.match_info["name"])
        bound = _bound(waiting, sent["target"]["name"], sent["metadata"].get("annotations") or {})
        await self._feeds["pods"].send(event("MODIFIED", bound))
        return web.json_response({}, status=201)

    async def _send(self, request: web.Request) -> web.Response:
        lines = await request.read()
        kind = request.match_info["kind"]
        if kind == "pods":
            for line in lines.splitlines():
                sent = json.loads(line)
                if sent["type"] == "ADDED":
                    self._waiting[sent["object"]["metadata"]["name"]] = sent["object"]
        await self._feeds[kind].send(lines)
        return web.json_response({})

    async def _churn(self, request: web.Request) -> web.Response:
        """Send the events of several pods at once, so that each lives for a moment."""
        rate = float(request.query["rate"])
        lives = int(request.query["lives"])
        loop = asyncio.get_running_loop()
        started = loop.time()
        sent = 0
        for first in range(self._lives, self._lives + lives, 100):
            batch = [life(number, self._size) for number in range(first, min(first + 100, self._lives + lives))]
            lines = [line for step in zip(*batch, strict=True) for line in step]
            while lines:
                due = len(lines) if not rate else int((loop.time() - started) * rate) - sent
                if due <= 0:
                    await asyncio.sleep(_TICK)
                    continue
                await self._feeds["pods"].send(b"".join(lines[:due]))
                sent += min(due, len(lines))
                del lines[:due]
        self._lives += lives
        return web.json_response({"events": sent, "seconds": loop.time() - started})


def _with_uids(pods: Sequence[Object]) -> list[Object]:
    return [each | {"metadata": each["metadata"] | {"uid": each["metadata"]["name"]}} for each in pods]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("port", "nodes", "pods"):
        parser.add_argument(f"--{flag}", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--use", action="store_true")
    arguments = parser.parse_args()
    server = Server(Size(arguments.nodes, arguments.pods), arguments.seed, use=arguments.use)
    web.run_app(server.app(), host="127.0.0.1", port=arguments.port, print=lambda *_: None, access_log=None)
