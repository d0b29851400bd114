"""The plain port: whether we live, whether kubelet can give our cards away, what we counted. Reads only."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from gas.daemon.early_answers import EarlyAnswers

BODY_PATIENCE = 5.0
"""Seconds for a body that nobody asked for."""


def plain_app(*, why_not_ready: Callable[[], str | None], registry: CollectorRegistry) -> ASGIApp:
    """/healthz, /readyz, /metrics (OpenMetrics for who asks for it).

    why_not_ready  a sentence while kubelet cannot give away every card, else None
    """

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        if (why_not := why_not_ready()) is not None:
            return PlainTextResponse(f"{why_not}\n", 503)
        return PlainTextResponse("ok\n")

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type})

    return EarlyAnswers(
        Router(
            [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)],
            redirect_slashes=False,
        ),
        patience=BODY_PATIENCE,
    )
