"""Run the sandbox's API server: the API over HTTP on a loopback port, which can be paused and resumed."""

import asyncio
import socket
from typing import Self, cast

from hypercorn.asyncio import serve
from hypercorn.config import Config
from hypercorn.typing import ASGIFramework

from sandbox.api.routes import Settings, api_app
from sandbox.api.storage import Storage
from sandbox.api.verbs import Api


class ApiServer:
    """A kube-apiserver without etcd, as far as the clients of this project can see.

        async with ApiServer() as server:
            server.api.create(NODES, None, {...})     # or anything over HTTP at server.url

    The state is in ``server.api``, also while the server is paused. Everything runs on the event loop that started it;
    other threads use HTTP.

    ``history`` is the number of writes that watches and pages can look back.
    """

    def __init__(self, settings: Settings | None = None, *, history: int = 10_000) -> None:
        self.api = Api(Storage(history))
        self.settings = settings or Settings()
        self._port = 0
        self._serving: asyncio.Task[None] | None = None
        self._app = api_app(self.api, self.settings)

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``. The port is known once the server has run."""
        return f"http://127.0.0.1:{self._port}"

    async def resume(self) -> None:
        """Serve on the same port as before. Raises OSError if it is taken."""
        listening = socket.create_server(("127.0.0.1", self._port), backlog=256)
        self._port = listening.getsockname()[1]
        config = Config()
        config.bind = [f"fd://{listening.detach()}"]
        config.graceful_timeout = 0.2
        config.keep_alive_timeout = 3600
        config.accesslog = config.errorlog = None
        self.settings.stopping = asyncio.Event()
        self._serving = asyncio.create_task(
            serve(cast(ASGIFramework, self._app), config, shutdown_trigger=self.settings.stopping.wait)
        )

    async def pause(self) -> None:
        """Stop serving: connections are refused and open watches end. The state stays."""
        if self._serving is not None:
            self.settings.stopping.set()
            serving, self._serving = self._serving, None
            await serving

    async def __aenter__(self) -> Self:
        await self.resume()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.pause()
