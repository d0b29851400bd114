"""The page over HTTP: files, documents and a stream of changes. It only reads.

Every response carries a strict content security policy. Requests with the name of another host are refused: otherwise a
site of an attacker could make its own name point to this address and read the page through an administrator's browser.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from hashlib import sha256
from importlib.resources import files
from ipaddress import ip_address

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gas.daemon.early_responses import EarlyResponses
from gas.inspection.cluster import Missing
from gas.inspection.page.board import MOST_IN_PART, MOST_PLAIN_IN_PART, compressed
from gas.inspection.page.documents import as_text
from gas.inspection.page.view import NotRead, View
from gas.values.quoted import quoted

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}

MOST_STREAMS = 64
"""Browsers that follow the changes at the same time."""

INTERVAL = 1.0
"""Seconds between two parts of the changes that one browser gets."""

HEARTBEAT = 15.0
"""Seconds after which a stream without changes shows that it still lives."""

LONGEST_TEXT = 300
"""Characters of a search or a name in a request."""

_BODY_PATIENCE = 5.0
_GZIP = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""The beginning of a stream in the format of gzip."""


def page_app(
    view: View, stopping: asyncio.Event, *, hosts: Collection[str] = (), interval: float = INTERVAL
) -> ASGIApp:
    """Return the application.

    hosts     further names under which the page may be opened, beside localhost and addresses
    stopping  ends the streams
    """
    streams = _Streams(view, stopping, interval)

    async def state(_request: Request) -> object:
        return view.state()

    async def node(request: Request) -> object:
        return view.node(_parameter(request, "name"))

    async def pods(request: Request) -> object:
        return view.pods(_parameter(request, "text"), _parameter(request, "state"))

    async def pod(request: Request) -> object:
        return await view.pod(_parameter(request, "namespace"), _parameter(request, "name"))

    async def why(request: Request) -> object:
        return await view.why(_parameter(request, "namespace"), _parameter(request, "name"))

    async def decisions(_request: Request) -> object:
        return await view.decisions()

    async def cluster(request: Request) -> Response:
        plain, packed = view.whole()
        return _sent(request, "application/json", plain, packed)

    routes = [
        *(Route(path, _file(name, kind)) for path, (name, kind) in FILES.items()),
        Route("/data/cluster", _answered(cluster)),
        Route("/data/changes", streams.respond),
        *(Route(f"/data/{each.__name__}", _document(each)) for each in (state, node, pods, pod, why, decisions)),
    ]
    return EarlyResponses(_Guard(Router(routes, redirect_slashes=False), hosts), patience=_BODY_PATIENCE)


class _BadParameter(Exception):
    """A parameter of a request is too long."""


def _parameter(request: Request, name: str) -> str:
    text = request.query_params.get(name, "")
    if len(text) > LONGEST_TEXT:
        raise _BadParameter(f"parameter {name}: expected at most {LONGEST_TEXT} characters, found {len(text)}")
    return text


def _answered(respond: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Turn what cannot be shown into a status and a sentence."""

    async def answer(request: Request) -> Response:
        try:
            return await respond(request)
        except _BadParameter as bad:
            return PlainTextResponse(f"{bad}\n", 400)
        except Missing as missing:
            return PlainTextResponse(f"{missing}\n", 404)
        except NotRead as not_read:
            return PlainTextResponse(f"{not_read}\n", 503, headers={"retry-after": "2"})

    return answer


def _document(make: Callable[[Request], Awaitable[object]]) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        plain = msgspec.json.encode(as_text(await make(request)))
        return _sent(request, "application/json", plain, compressed(plain) if len(plain) > 1000 else None)

    return _answered(respond)


def _file(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint for a file of the page. Browsers ask each time whether theirs is still current."""
    plain = (files("gas.inspection.page") / "static" / name).read_bytes()
    packed = compressed(plain)
    tag = f'"{sha256(plain).hexdigest()[:16]}"'

    async def respond(request: Request) -> Response:
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return _sent(request, kind, plain, packed, headers)

    return respond


def _sent(
    request: Request, kind: str, plain: bytes, packed: bytes | None, headers: dict[str, str] | None = None
) -> Response:
    """Return a response, compressed if the browser takes that."""
    found = {"content-type": kind, "vary": "accept-encoding", **(headers or {})}
    if packed is None or not _takes_gzip(request):
        return Response(plain, headers=found)
    return Response(packed, headers=found | {"content-encoding": "gzip"})


def _takes_gzip(request: Request) -> bool:
    names = [part.split(";")[0].strip() for part in request.headers.get("accept-encoding", "").split(",")]
    return "gzip" in names


class _Streams:
    """A response for each browser that follows the changes of the map, as server-sent events.

    A part is compressed on its own, so that it is the same for all browsers at the same version, and is made once.
    """

    def __init__(self, view: View, stopping: asyncio.Event, interval: float) -> None:
        self._view = view
        self._stopping = stopping
        self._interval = interval
        self._open = 0
        self._packed: dict[bytes, bytes] = {}

    async def respond(self, request: Request) -> Response:
        if self._open >= MOST_STREAMS:
            return PlainTextResponse(f"{MOST_STREAMS} browsers follow the cluster already\n", 503)
        version = request.headers.get("last-event-id") or _parameter(request, "after")
        board, _, number = version.rpartition("@")
        packs = _takes_gzip(request)
        at = int(number) if number.isascii() and number.isdigit() and len(number) < 20 else 0
        headers = {"content-type": "text/event-stream"} | ({"content-encoding": "gzip"} if packs else {})
        return StreamingResponse(self._counted(board, at, packs=packs), headers=headers)

    async def _counted(self, board: str, version: int, *, packs: bool) -> AsyncIterator[bytes]:
        self._open += 1
        try:
            if packs:
                yield _GZIP
            async for event in self._events(board, version, MOST_IN_PART if packs else MOST_PLAIN_IN_PART):
                yield self._pack(event) if packs else event
        finally:
            self._open -= 1

    async def _events(self, board: str, version: int, most: int) -> AsyncIterator[bytes]:
        silent = 0.0
        state = b""
        yield b"retry: 2000\n\n"
        while not self._stopping.is_set():
            event = b""
            found = self._view.part_after(board, version, most)
            if found is None:
                yield b"event: anew\ndata:\n\n"
                return
            version, part = found
            if part:
                event += b"event: part\nid: " + f"{board}@{version}".encode() + b"\ndata: " + part + b"\n\n"
            if (now := msgspec.json.encode(as_text(self._view.state()))) != state:
                state = now
                event += b"event: state\ndata: " + now + b"\n\n"
            silent = 0.0 if event else silent + self._interval
            if silent >= HEARTBEAT:
                silent, event = 0.0, b":\n\n"
            if event:
                yield event
            try:
                async with asyncio.timeout(self._interval):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    def _pack(self, event: bytes) -> bytes:
        """Compress an event to a piece that may follow any other piece: it refers to nothing before it."""
        if (packed := self._packed.get(event)) is None:
            packer = zlib.compressobj(6, zlib.DEFLATED, -15)
            packed = packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
            if len(self._packed) >= MOST_STREAMS:
                self._packed.clear()
            self._packed[event] = packed
        return packed


class _Guard:
    """ASGI middleware that refuses requests for other hosts and of other sites. Adds `HEADERS` to every response."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if not self._is_known(host):
            return PlainTextResponse(
                f"host {quoted(host)}: expected localhost, an address, or a name from --page-hosts\n", 421
            )
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and request.url.path != "/":
            return PlainTextResponse("expected a request of the page itself, found one of another site\n", 403)
        return None

    def _is_known(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        name = name.lower()
        if name == "localhost" or name in self._hosts:
            return True
        try:
            ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True
