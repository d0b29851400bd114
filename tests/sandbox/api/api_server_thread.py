"""The sandbox's API server on its own thread, for callers without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sandbox.api.server import ApiServer

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ApiServerThread:
    """A running server and its event loop. ``server.url`` may be read from any thread."""

    server: ApiServer
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return self.server.url

    def call(self, function: Callable[[ApiServer], Result]) -> Result:
        """Call a function with the server on the server's thread, and return its result."""

        async def called() -> Result:
            return function(self.server)

        return self._wait(called())

    def pause(self) -> None:
        self._wait(self.server.pause())

    def resume(self) -> None:
        self._wait(self.server.resume())

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


@contextmanager
def api_server_thread(make: Callable[[], ApiServer] = ApiServer) -> Iterator[ApiServerThread]:
    """Run a server as long as the block. ``make`` is called on its thread."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, name="sandbox-api-server")
        thread.start()
        try:
            server = asyncio.run_coroutine_threadsafe(_started(make), loop).result()
            running = ApiServerThread(server, loop)
            try:
                yield running
            finally:
                running.pause()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


async def _started(make: Callable[[], ApiServer]) -> ApiServer:
    server = make()
    await server.resume()
    return server
