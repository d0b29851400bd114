"""Serve health, metrics and state of a daemon on a plain HTTP port. It changes nothing."""

from collections.abc import AsyncIterator, Callable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp


def plain_app(
    *,
    why_not_ready: Callable[[], str | None],  # returns a sentence while the daemon is not ready, else None
    why_not_healthy: Callable[[], str | None] = lambda: None,  # the same while only a restart can help
    registry: CollectorRegistry,
    # metrics that are written before those of the registry, piece by piece
    series: Callable[[], AsyncIterator[str]] | None = None,
    # path -> a function that returns JSON, and takes the parts of the path that are in braces by name
    documents: Mapping[str, Callable[..., bytes]] | None = None,
) -> ASGIApp:
    """Return the application: /healthz, /readyz, /metrics (as OpenMetrics on request), and JSON documents."""

    def probe(path: str, why_not: Callable[[], str | None]) -> Route:
        async def respond(_request: Request) -> Response:
            sentence = why_not()
            return PlainTextResponse("ok\n" if sentence is None else f"{sentence}\n", 200 if sentence is None else 503)

        return Route(path, respond)

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))

        async def text() -> AsyncIterator[str | bytes]:
            if series is not None:
                async for piece in series():
                    yield piece
            yield encode(registry)

        return StreamingResponse(text(), headers={"content-type": content_type})

    def document(path: str, content: Callable[..., bytes]) -> Route:
        async def respond(request: Request) -> Response:
            return Response(content(**request.path_params), media_type="application/json")

        return Route(path, respond)

    return Router(
        [
            probe("/healthz", why_not_healthy),
            probe("/readyz", why_not_ready),
            Route("/metrics", metrics),
            *(document(path, content) for path, content in (documents or {}).items()),
        ],
        redirect_slashes=False,
    )
