"""One connection of a port: aiohttp does HTTP/1.1, and each request goes to an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import socket
from http import HTTPStatus
from typing import cast
from weakref import ref

from aiohttp import web
from starlette.types import Message, Scope

from gas.daemon.logs import LimitedLog
from gas.daemon.ports import Port

logger = logging.getLogger(__name__)

LONGEST_HEADERS = 16 * 1024
"""Most bytes of the headers of one request. aiohttp limits only each header, and how many there are."""

LINGER = 1.0
"""Seconds that a client which is still sending gets to notice its response before the connection closes.

If it were closed at once, with bytes of the client still unread, the kernel would reset it and the response could be
lost.
"""

READ_SIZE = 256 * 1024
"""Bytes of a body that may wait for the application, as many as asyncio reads at once."""

_END_OF_HEADERS = b"\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_UNLOGGED = logging.Logger("aiohttp", logging.CRITICAL)
"""Where aiohttp reports the faults of clients, with tracebacks. Those of applications are logged here."""


def http_server(keep_alive: float) -> web.Server:
    """Return what does HTTP for the connections of a port.

    keep_alive  seconds, see `Port`
    """
    return web.Server(
        _respond,
        keepalive_timeout=keep_alive,
        lingering_time=LINGER,
        read_bufsize=READ_SIZE,
        auto_decompress=False,
        access_log=None,
        logger=_UNLOGGED,
    )


async def _respond(request: web.BaseRequest) -> web.StreamResponse:
    connection = request.transport.get_protocol() if request.transport is not None else None
    # A response cannot be sent any more otherwise, so nothing may be done for the request.
    return await connection.respond(request) if isinstance(connection, Connection) else web.Response()


class Connection(asyncio.Protocol):
    """A connection, from the end of its TLS handshake if it has one.

    aiohttp closes it if no request begins for the ``keep_alive`` of its port, and starts no request once it is closing.
    A client that has closed its half of a plain connection still gets the response to its request.

    port         that accepted it
    accepted     its socket, which the transport alone owns and closes
    server       does HTTP
    connections  the open ones of the port, this one among them as long as it is open
    log          for connections that break while a request is in progress
    ended        is done when the connection is lost
    is_last      whether the next response, or the one in progress, ends the connection
    """

    def __init__(
        self,
        port: Port,
        accepted: socket.socket,
        server: web.Server,
        connections: set[Connection],
        log: LimitedLog,
    ) -> None:
        self._port = port
        self._server = server
        self._accepted = ref(accepted)
        self._connections = connections
        self._log = log
        self._transport: asyncio.Transport | None = None
        self._http: asyncio.Protocol | None = None
        self._headers_size: int | None = 0
        """Bytes of the next request's headers that have arrived; None when all of them have."""
        self._headers_end = b""
        self._is_refused = False
        self._in_progress = False
        self._is_half_closed = False
        self.is_last = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        tls = self._port.tls
        if tls is not None and not tls.admits(transport.get_extra_info("peercert") or {}):
            transport.abort()  # before one byte of a request is read
            return
        self._http = self._server()
        self._http.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._http is None or self._is_refused:
            return
        self._count_headers(data)
        if self._headers_size is not None and self._headers_size > LONGEST_HEADERS and self._transport is not None:
            self._is_refused = True
            self._transport.write(_TOO_LARGE)
            asyncio.get_running_loop().call_later(LINGER, self.abort)
            return
        self._http.data_received(data)

    def _count_headers(self, data: bytes) -> None:
        if self._headers_size is None:
            return
        text = self._headers_end + data
        end = text.find(_END_OF_HEADERS, 0, LONGEST_HEADERS)
        self._headers_size, self._headers_end = (None, b"") if end >= 0 else (self._headers_size + len(data), text[-3:])

    def eof_received(self) -> bool:
        self._is_half_closed = True
        may_respond = self._in_progress or self._headers_size is None
        return may_respond and self._port.tls is None

    def pause_writing(self) -> None:
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        if self._http is not None:
            self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and self._in_progress and not isinstance(exc, ConnectionError):
            self._log.log(logging.WARNING, "closed a broken connection: %r", exc)
        http, self._http, self._transport = self._http, None, None
        if http is not None:
            http.connection_lost(exc)
        self._connections.discard(self)
        if not self.ended.done():
            self.ended.set_result(None)

    def abort(self) -> None:
        """Close the connection now, whatever is in progress."""
        if self._transport is not None:
            self._transport.abort()

    def request_is_complete(self) -> None:
        """Take in that all of the request in progress has arrived."""
        self._headers_size = 0
        if (accepted := self._accepted()) is not None:
            self._port.socket.request_is_complete(accepted)

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """Pass a request on to the application, and return the response, which has been sent."""
        accepted, transport = self._accepted(), self._transport
        if accepted is None or transport is None or transport.is_closing():
            return web.Response()  # which cannot be sent, so nothing may be done for the request
        self._port.socket.request_begins(accepted)
        exchange = _Exchange(self, request, is_secure=self._port.tls is not None)
        self._in_progress = True
        try:
            await self._port.app(exchange.scope(), exchange.receive, exchange.send)
        except OSError:  # the client has gone
            transport.abort()
        except Exception:
            logger.exception("a request failed, which is a bug")
            if exchange.response is not None:
                transport.abort()
        finally:
            self._in_progress = False
        exchange.notice_end()
        self._port.socket.request_ends(accepted)
        if self._is_half_closed:
            transport.close()
        return exchange.response or web.Response(status=HTTPStatus.INTERNAL_SERVER_ERROR)


class _Exchange:
    """One request and its response, in the terms of ASGI."""

    def __init__(self, connection: Connection, request: web.BaseRequest, *, is_secure: bool) -> None:
        self._connection = connection
        self._request = request
        self._is_secure = is_secure
        self._is_complete = False
        self._is_read = False
        self._start: Message = {}
        self.response: web.StreamResponse | None = None
        self.notice_end()

    def scope(self) -> Scope:
        """Return the request without its body."""
        request = self._request
        url = request.rel_url
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": f"{request.version.major}.{request.version.minor}",
            "method": request.method,
            "scheme": "https" if self._is_secure else "http",
            "path": url.path,
            "query_string": url.raw_query_string.encode(),
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.raw_headers],
        }

    def notice_end(self) -> None:
        """Tell the connection, once, that all of the request has arrived."""
        if not self._is_complete and self._request.content.is_eof():
            self._is_complete = True
            self._connection.request_is_complete()

    async def receive(self) -> Message:
        """Return the next piece of the body; after the last one, wait for the end of the connection."""
        if self._is_read:
            await asyncio.wait([self._connection.ended])
            return {"type": "http.disconnect"}
        content = self._request.content
        if not content.total_bytes and self._request.headers.get("Expect", "").lower() == "100-continue":
            transport = self._request.transport
            if transport is not None:
                transport.write(_CONTINUE)
        try:
            piece = await content.readany()
        except (OSError, web.RequestPayloadError):
            return {"type": "http.disconnect"}
        self.notice_end()
        self._is_read = content.at_eof()
        return {"type": "http.request", "body": piece, "more_body": not self._is_read}

    async def send(self, message: Message) -> None:
        """Send a part of the response; the head leaves with the first piece of the body. Raises OSError."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        body, is_more = message.get("body", b""), message.get("more_body", False)
        if self.response is None:
            self.response = self._begun(None if is_more else body)
            await self.response.prepare(self._request)
            body = body if is_more else b""
        if body:
            await self.response.write(body)
        if not is_more:
            await self.response.write_eof()

    def _begun(self, whole: bytes | None) -> web.StreamResponse:
        """Return the response with its head.

        whole  the body; None if it comes in pieces
        """
        headers = [("Server", "gas")]  # without the names and versions of libraries
        is_last = self._connection.is_last or not self._is_complete
        has_body = self._request.method != "HEAD"
        for raw_name, raw_value in self._start.get("headers", ()):
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            if name == "connection":
                is_last = is_last or value == "close"
            elif name != "content-length" or whole is None or not has_body:
                headers.append((name, value))
        status = self._start["status"]
        if whole is None and has_body:
            response = web.StreamResponse(status=status, headers=headers)
        else:
            response = web.Response(status=status, headers=headers, body=whole if has_body else None)
        if is_last:
            response.force_close()
        return response
