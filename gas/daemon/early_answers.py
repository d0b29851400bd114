"""Answering before the request's body has been read, without hurting the connection or what else is on it."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LINGER = 1.0
"""Seconds in which a client that is still sending may notice that it has its answer (HTTP/1.1)."""


class EarlyAnswers:
    """Around an application that may answer whenever it likes.

    An HTTP/1.1 connection whose request was not read to its end is of no further use. It gets
    ``Connection: close`` with the answer, and is closed a moment later: closed at once, with bytes of the client
    still unread, the kernel would reset it and the answer could be lost on the way. The server's queue of pieces
    of the body is emptied meanwhile, because Hypercorn waits for room in it before it closes anything.

    On HTTP/2, which Hypercorn also speaks with a client that was not offered it and just begins, other requests
    share the connection, and Hypercorn gives up all of it when a piece of the body arrives for a request that has
    its answer. So the rest of the body is awaited first, and dropped.

    patience  seconds from the start of such an answer, at most, to wait for that rest (HTTP/2)
    """

    def __init__(self, app: ASGIApp, *, patience: float, linger: float = LINGER) -> None:
        self._app = app
        self._patience = patience
        self._linger = linger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["http_version"] == "2":
            exchange = _Exchange(scope, receive)
            await self._app(scope, exchange.receive, self._after_the_body(exchange, send))
        else:
            exchange = _Exchange(scope, receive)
            await self._app(scope, exchange.receive, self._then_close(exchange, send))

    def _after_the_body(self, exchange: _Exchange, send: Send) -> Send:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                await exchange.drop_rest(self._patience)
            await send(message)

        return answer

    def _then_close(self, exchange: _Exchange, send: Send) -> Send:
        closing = False

        async def answer(message: Message) -> None:
            nonlocal closing
            if message["type"] == "http.response.start" and not exchange.is_read:
                closing = True
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            if not closing or message["type"] != "http.response.body" or message.get("more_body", False):
                await send(message)
                return
            await send({**message, "more_body": True})
            await exchange.drop_rest(self._linger)
            dropping = asyncio.create_task(exchange.drop_rest(self._linger))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            dropping.cancel()

        return answer


async def _live(receive: Receive, send: Send) -> None:
    """Nothing is begun or ended with the server: an application here is wired before and outlives it."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


class _Exchange:
    """One request, and whether all of it has been read."""

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive) -> None:
        self._receive = receive
        self.is_read = not any(
            (name == b"content-length" and value != b"0") or name == b"transfer-encoding"
            for name, value in scope["headers"]
        )
        if scope["http_version"] == "2":
            self.is_read = False  # a body needs no header there

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self.is_read = True
        return message

    async def drop_rest(self, patience: float) -> None:
        """Read what there still is, for at most ``patience`` seconds, and forget it."""
        try:
            async with asyncio.timeout(patience):
                while not self.is_read:
                    await self.receive()
        except TimeoutError:
            return
