"""Reading the body of a request: not more than is allowed, and not for longer."""

from __future__ import annotations

import asyncio

from starlette.types import Receive

from gas.errors import GasError


class BodyTooLarge(GasError):
    """Answered with status 413; the rest of the body is not read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the request's body is over the limit of {limit} bytes; see --max-request-bytes")


class BodyTooSlow(GasError):
    """Answered with status 408."""

    def __init__(self, patience: float) -> None:
        super().__init__(f"the request's body was not complete after {patience:g} s")


class ClientGone(Exception):
    """Nobody waits for an answer any more."""


async def read_body(receive: Receive, *, declared: int | None, limit: int, patience: float) -> bytes:
    """The whole body.

    declared  Content-Length, where there is one: an announced excess is not read at all
    limit     bytes
    patience  seconds from now until the body's end

    Raises BodyTooLarge, BodyTooSlow, ClientGone.
    """
    if declared is not None and declared > limit:
        raise BodyTooLarge(limit)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(patience):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientGone
                piece = message.get("body", b"")
                size += len(piece)
                if size > limit:
                    raise BodyTooLarge(limit)
                pieces.append(piece)
                if not message.get("more_body", False):
                    return b"".join(pieces)
    except TimeoutError:
        raise BodyTooSlow(patience) from None
