"""Send GET requests to the API server for a command that soon ends, with no more than Python has.

`gas.cluster.connection` is for programs that run for long: importing its library alone takes longer than a command.
"""

import asyncio
import math
import socket
import ssl
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Protocol
from urllib.parse import urlencode, urlsplit

from gas.cluster.credentials import Address, Credentials
from gas.cluster.errors import LARGEST_RESPONSE, ApiUnavailable, response_error

_CONNECT_TIMEOUT = 5.0
_MOST_AT_ONCE = 64
_MOST_TRIES = 5
_LONGEST_PAUSE = 10.0


class Reads(Protocol):
    """A client that reads from the API server: `Reader`, or `gas.cluster.connection.ApiServer`."""

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, timeout: float = 30.0
    ) -> bytes: ...


class Reader:
    """Connections to one API server without a proxy. The server may send nothing for ``patience`` seconds."""

    def __init__(self, credentials: Credentials, *, user_agent: str, patience: float = math.inf) -> None:
        self._credentials = credentials
        self._user_agent = user_agent
        self._patience = patience
        self._threads = ThreadPoolExecutor(_MOST_AT_ONCE)
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()

    def close(self) -> None:
        """End what is still in progress, so that no thread keeps the program from ending."""
        for connection in tuple(self._busy):
            with suppress(OSError, AttributeError):  # it has no socket yet
                connection.sock.shutdown(socket.SHUT_RDWR)
        self._threads.shutdown(cancel_futures=True)
        for connection in self._idle:
            connection.close()

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, timeout: float = math.inf
    ) -> bytes:
        """Return the body of the response. Raises ApiRefused, Forbidden, ApiUnavailable.

        timeout  seconds that the server may send nothing, if less than the reader's patience
        """
        headers = {"Accept": "application/json", "User-Agent": self._user_agent}
        if authorization := await self._credentials.authorization():
            headers["Authorization"] = authorization
        target = path + (f"?{urlencode(query)}" if query else "")
        loop, patience = asyncio.get_running_loop(), min(timeout, self._patience)
        for tries in range(1, _MOST_TRIES + 1):
            status, pause, body = await loop.run_in_executor(
                self._threads, self._exchange, method, target, headers, patience
            )
            if 200 <= status < 300:
                return body
            if status != 429 or tries == _MOST_TRIES:
                break
            await asyncio.sleep(pause)
        raise response_error(status, body, request=f"{method} {path}", is_write=False)

    def _exchange(
        self, method: str, target: str, headers: Mapping[str, str], patience: float
    ) -> tuple[int, float, bytes]:
        """Return the status of a response, the seconds to wait before another request, and the body."""
        url = self._credentials.address.url
        is_new = not self._idle
        connection = _Connection(self._credentials.address) if is_new else self._idle.pop()
        self._busy.add(connection)
        is_whole = False
        try:
            try:
                connection.open()
            except ssl.SSLError as error:
                raise ApiUnavailable(f"cannot talk TLS with the API server at {url}: {error}") from error
            except OSError as error:
                late = f"no connection in {_CONNECT_TIMEOUT:g} s" if isinstance(error, TimeoutError) else ""
                why = late or error.strerror or error
                raise ApiUnavailable(f"cannot connect to the API server at {url}: {why}") from error
            response = connection.ask(method, target, [*headers.items(), *self._credentials.impersonation], patience)
            body = response.read(LARGEST_RESPONSE + 1)
            if response.length or len(body) > LARGEST_RESPONSE:
                raise HTTPException(f"the response ended early, or has more than {LARGEST_RESPONSE} bytes")
            is_whole = True
        except TimeoutError as error:
            sentence = f"no response from the API server at {url} within {patience:g} s to {method} {target}"
            raise ApiUnavailable(sentence) from error
        except (OSError, HTTPException) as error:
            if not is_new:  # the server may have closed it while it was idle
                return self._exchange(method, target, headers, patience)
            raise ApiUnavailable(
                f"the connection to the API server at {url} broke during {method} {target}: {error}"
            ) from error
        finally:
            self._busy.discard(connection)
            if not is_whole:
                connection.close()
        if not response.will_close:
            self._idle.append(connection)
        text = response.headers.get("Retry-After", "")
        return response.status, min(float(text) if text.isdecimal() else 1.0, _LONGEST_PAUSE), body


class _Connection(HTTPConnection):
    def __init__(self, address: Address) -> None:
        server = urlsplit(address.url)
        self._tls = address.tls if server.scheme == "https" else None
        self._name = address.server_hostname or server.hostname
        self._before = server.path
        super().__init__(server.hostname or "", server.port or (443 if self._tls else 80), timeout=_CONNECT_TIMEOUT)

    def open(self) -> None:
        if self.sock is None:
            self.connect()

    def connect(self) -> None:
        super().connect()
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)

    def ask(self, method: str, target: str, headers: Iterable[tuple[str, str]], patience: float) -> HTTPResponse:
        self.sock.settimeout(None if patience == math.inf else patience)
        self.putrequest(method, self._before + target, skip_accept_encoding=True)
        for name, text in headers:
            self.putheader(name, text)
        self.endheaders()
        return self.getresponse()
