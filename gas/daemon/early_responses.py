"""Respond before the request's body was read, without damage to the connection and to other requests on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LINGER = 1.0  # seconds that a client which is still sending gets to notice its response


class EarlyResponses:
    """ASGI middleware for an application that may respond at any time.

    A connection whose request was not read to its end cannot be used again. Its response gets
    ``Connection: close``, and it is closed a moment later: if it were closed at once, with bytes of the client still
    unread, the kernel would reset it and the response could be lost. Meanwhile the server's queue of body pieces is
    emptied, because Hypercorn waits for space in it before it closes anything.

    on_complete  is called when all of a request has arrived
    """

    def __init__(self, app: ASGIApp, on_complete: Callable[[], None]) -> None:
        self._app = app
        self._on_complete = on_complete

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        exchange = _Exchange(scope, receive, self._on_complete)
        await self._app(scope, exchange.receive, self._send_then_close(exchange, send))

    def _send_then_close(self, exchange: _Exchange, send: Send) -> Send:
        closing = False

        async def respond(message: Message) -> None:
            nonlocal closing
            if message["type"] == "http.response.start" and not exchange.is_read:
                closing = True
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            if not closing or message["type"] != "http.response.body" or message.get("more_body", False):
                await send(message)
                return
            await send({**message, "more_body": True})
            await exchange.drop_rest(LINGER)
            dropping = asyncio.create_task(exchange.drop_rest(LINGER))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            dropping.cancel()

        return respond


class _Exchange:
    def __init__(self, scope: Scope, receive: Receive, on_complete: Callable[[], None]) -> None:
        self._receive = receive
        self._on_complete = on_complete
        self.is_read = not any(
            (name == b"content-length" and value != b"0") or name == b"transfer-encoding"
            for name, value in scope["headers"]
        )

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request":
            self.is_read = True
        elif not message.get("more_body", False):
            self.is_read = True
            self._on_complete()
        return message

    async def drop_rest(self, patience: float) -> None:
        """Read and drop the rest of the body, for at most ``patience`` seconds."""
        try:
            async with asyncio.timeout(patience):
                while not self.is_read:
                    await self.receive()
        except TimeoutError:
            return
