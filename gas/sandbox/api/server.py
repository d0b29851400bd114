"""The API server of the sandbox: the API over HTTP on a loopback port, which can go away and come back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Self, cast

from hypercorn.asyncio import serve
from hypercorn.config import Config
from hypercorn.typing import ASGIFramework

from gas.sandbox.api.routes import (
    Authorize,
    Intercept,
    Surroundings,
    api_app,
    everything_allowed,
    no_interception,
)
from gas.sandbox.api.storage import Storage
from gas.sandbox.api.verbs import Api


class ApiServer:
    """A kube-apiserver as far as clients like ours can see, without etcd.

        async with ApiServer() as server:
            server.api.create(NODES, None, {...})     # or anything over HTTP at server.url

    The state lives in ``server.api`` from the first line to the last, whether it is served or not. Everything is on
    the event loop that started it; from other threads use HTTP, or `tests.sandbox.api.api_server_thread`.

    port              0 takes a free one
    history           how many writes watches and pages can look back
    tokens            bearer token -> user; None: no authentication
    authorize         which requests are allowed; the others are 403
    intercept         see `gas.sandbox.api.routes.Intercept`
    bookmark_seconds  how often a watch that asked for bookmarks gets one

    ``server.surroundings.authorize`` and ``.intercept`` may be replaced while it runs.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        history: int = 10_000,
        tokens: Mapping[str, str] | None = None,
        authorize: Authorize = everything_allowed,
        intercept: Intercept = no_interception,
        bookmark_seconds: float = 60,
    ) -> None:
        self.api = Api(Storage(history))
        self.surroundings = Surroundings(
            tokens=tokens, authorize=authorize, intercept=intercept, bookmark_seconds=bookmark_seconds
        )
        self._port = port
        self._serving: asyncio.Task[None] | None = None
        self._app = api_app(self.api, self.surroundings)

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``; the port is known once it has been served."""
        return f"http://127.0.0.1:{self._port}"

    def compact(self) -> None:
        """Forget the history, as etcd does every five minutes: older versions are 410 from now on."""
        self.api.storage.compact()

    async def resume(self) -> None:
        """Serve, on the same port as before. Raises OSError when the port is taken."""
        listening = socket.create_server(("127.0.0.1", self._port), backlog=256)
        self._port = listening.getsockname()[1]
        config = Config()
        config.bind = [f"fd://{listening.detach()}"]
        config.graceful_timeout = 0.2
        config.keep_alive_timeout = 3600
        config.accesslog = config.errorlog = None
        self.surroundings.stopping = asyncio.Event()
        self._serving = asyncio.create_task(
            serve(cast(ASGIFramework, self._app), config, shutdown_trigger=self.surroundings.stopping.wait)
        )

    async def pause(self) -> None:
        """Go away: connections are refused and open watches end; the state stays."""
        if self._serving is not None:
            self.surroundings.stopping.set()
            serving, self._serving = self._serving, None
            await serving

    async def __aenter__(self) -> Self:
        await self.resume()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.pause()
