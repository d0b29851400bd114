"""Serve the page over HTTP: files, documents and a stream of changes. It only reads.

Every response carries a strict content security policy. Requests with the name of another host are refused: otherwise a
site of an attacker could make its own name point to this address and read the page through an administrator's browser.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from inspect import isawaitable
from ipaddress import ip_address

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gas.inspection.cluster import Missing
from gas.inspection.page.view import NotRead, View
from gas.inspection.report import BadExpression
from gas.values.quoted import escaped, quoted

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
}

MOST_STREAMS = 64  # most browsers that follow the changes at the same time
INTERVAL = 1.0  # seconds between two parts of the changes for one browser
HEARTBEAT = 15.0  # seconds after which a stream without changes shows that it still lives

_COMPRESSION = 6


def page_app(
    view: View, stopping: asyncio.Event, *, hosts: Collection[str] = (), interval: float = INTERVAL
) -> ASGIApp:
    """Return the application, with streams that end when ``stopping`` is set.

    ``hosts`` are further names under which the page may be opened, apart from localhost and addresses.
    """

    async def cluster(_request: Request) -> Response:
        return Response(view.whole(), media_type="application/json")

    documents: Mapping[str, tuple[Callable[..., object], tuple[str, ...]]] = {
        "state": (view.state, ()),
        "node": (view.node, ("name",)),
        "pods": (view.pods, ("text", "state", "sort")),
        "pod": (view.pod, ("namespace", "name")),
        "why": (view.why, ("namespace", "name")),
        "decisions": (view.decisions, ()),
        "namespaces": (view.namespaces, ()),
        "history": (view.history, ()),
    }
    return Starlette(
        routes=[
            Route("/data/cluster", cluster),
            *(Route(f"/data/{name}", _document(*of)) for name, of in documents.items()),
            Route("/data/changes", _Streams(view, stopping, interval).respond),
            Mount("/", StaticFiles(packages=[("gas.inspection.page", "static")], html=True)),
        ],
        middleware=[
            Middleware(_Guard, hosts=hosts),
            Middleware(GZipMiddleware, compresslevel=_COMPRESSION, exclude_content_types=()),
        ],
        exception_handlers={BadExpression: _sentence(400), Missing: _sentence(404), NotRead: _sentence(503)},
    )


def _sentence(code: int) -> Callable[[Request, Exception], Response]:
    """Return a handler that responds with an exception's text and this code."""
    headers = {"retry-after": "2"} if code == 503 else None
    return lambda _request, error: PlainTextResponse(f"{error}\n", code, headers=headers)


def _document(make: Callable[..., object], names: Sequence[str]) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that responds with what ``make`` returns for the parameters of these names."""

    async def respond(request: Request) -> Response:
        made = make(*(request.query_params.get(name, "") for name in names))
        return Response(_json(await made if isawaitable(made) else made), media_type="application/json")

    return respond


def _json(document: object) -> bytes:
    return msgspec.json.encode(_escaped(document))


def _escaped(data: object) -> object:
    """Return data with every text escaped as in tables, so that it cannot change how the rest is shown."""
    if isinstance(data, str):
        return escaped(data)
    if isinstance(data, Mapping):
        return {escaped(str(key)): _escaped(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_escaped(each) for each in data]
    return data


class _Streams:
    """Send the changes of the map to each browser that follows them, as server-sent events."""

    def __init__(self, view: View, stopping: asyncio.Event, interval: float) -> None:
        self._view = view
        self._stopping = stopping
        self._interval = interval
        self._open = 0

    async def respond(self, request: Request) -> Response:
        if self._open >= MOST_STREAMS:
            return PlainTextResponse(f"{MOST_STREAMS} browsers follow the cluster already\n", 503)
        version = request.headers.get("last-event-id") or request.query_params.get("after", "")
        board, _, number = version.rpartition("@")
        at = int(number) if number.isascii() and number.isdigit() and len(number) < 20 else 0
        return StreamingResponse(self._events(board, at), headers={"content-type": "text/event-stream"})

    async def _events(self, board: str, version: int) -> AsyncIterator[bytes]:
        self._open += 1
        silent = 0.0
        state = b""
        try:
            yield b"retry: 2000\n\n"
            while not self._stopping.is_set():
                event = b""
                found = self._view.part_after(board, version)
                if found is None:
                    yield b"event: anew\ndata:\n\n"
                    return
                version, part = found
                if part:
                    event += b"event: part\nid: " + f"{board}@{version}".encode() + b"\ndata: " + part + b"\n\n"
                if (now := _json(self._view.state())) != state:
                    state = now
                    event += b"event: state\ndata: " + now + b"\n\n"
                silent = 0.0 if event else silent + self._interval
                if silent >= HEARTBEAT:
                    silent, event = 0.0, b":\n\n"
                if event:
                    yield event
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._interval):
                        await self._stopping.wait()
        finally:
            self._open -= 1


class _Guard:
    """ASGI middleware that refuses requests for other hosts and from other sites. Adds `HEADERS` to every response."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                # Browsers cache files, and revalidate them each time; they do not cache data.
                headers["cache-control"] = "no-store" if scope["path"].startswith("/data/") else "no-cache"
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
