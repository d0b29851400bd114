"""The plain port: whether we live, whether we may be asked, what we counted, what is booked. Reads only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from gas.daemon.early_answers import EarlyAnswers
from gas.extender.card_books import CardBooks
from gas.extender.card_series import card_series

BODY_PATIENCE = 5.0
"""Seconds for a body that nobody asked for."""


def plain_app(
    *,
    why_not_ready: Callable[[], str | None],
    registry: CollectorRegistry,
    cards: Callable[[], Iterable[CardBooks]],
    books: Callable[[], bytes],
    refusals: Callable[[], bytes],
) -> ASGIApp:
    """/healthz, /readyz, /metrics (OpenMetrics for who asks for it), /debug/books, /debug/refusals.

    cards            what is known of each card, for its metrics
    why_not_ready    a sentence while filter and bind decide nothing, else None
    books, refusals  JSON
    """

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        if (why_not := why_not_ready()) is not None:
            return PlainTextResponse(f"{why_not}\n", 503)
        return PlainTextResponse("ok\n")

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))

        async def text() -> AsyncIterator[str | bytes]:
            async for piece in card_series(cards):
                yield piece
            yield encode(registry)

        return StreamingResponse(text(), headers={"content-type": content_type})

    async def debug_books(_request: Request) -> Response:
        return Response(books(), media_type="application/json")

    async def debug_refusals(_request: Request) -> Response:
        return Response(refusals(), media_type="application/json")

    return EarlyAnswers(
        Router(
            [
                Route("/healthz", healthz),
                Route("/readyz", readyz),
                Route("/metrics", metrics),
                Route("/debug/books", debug_books),
                Route("/debug/refusals", debug_refusals),
            ],
            redirect_slashes=False,
        ),
        patience=BODY_PATIENCE,
    )
