"""The client side of the extender protocol, as kube-scheduler: connections over TLS that are kept alive."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from statistics import median
from typing import Any, NamedTuple, Protocol

import h2.config
import h2.connection
import h2.events

from tests.e2e.certificates import Authority, KeyPair

LOOPBACK = "127.0.0.1"


class Driver(Protocol):
    """One connection to an extender."""

    def ask(self, verb: str, body: bytes) -> tuple[float, bytes]:
        """Send a request; return its seconds, first byte out to last byte in, and the response. Raises RuntimeError."""
        ...

    def close(self) -> None: ...


class Http1:
    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._connection = http.client.HTTPSConnection(LOOPBACK, port, context=context, timeout=60)

    def ask(self, verb: str, body: bytes) -> tuple[float, bytes]:
        started = time.perf_counter()
        self._connection.request("POST", f"/scheduler/{verb}", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        took = time.perf_counter() - started
        _check(answer.status, text)
        return took, text

    def close(self) -> None:
        self._connection.close()


class Http2:
    """A connection with HTTP/2, with the windows that Go's client opens, so that flow control waits as seldom."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        context.set_alpn_protocols(["h2"])
        self._socket = context.wrap_socket(socket.create_connection((LOOPBACK, port)), server_hostname=LOOPBACK)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(2**30 - 1)
        self._h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 4 * 2**20})
        self._flush()

    def ask(self, verb: str, body: bytes) -> tuple[float, bytes]:
        started = time.perf_counter()
        stream = self._h2.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":path", f"/scheduler/{verb}"),
            (":scheme", "https"),
            (":authority", LOOPBACK),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
        ]
        self._h2.send_headers(stream, headers)
        answer = bytearray()
        status = 0
        while body is not None:
            size = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size, len(body))
            if not size:
                self._receive()
                continue
            self._h2.send_data(stream, body[:size], end_stream=size == len(body))
            body = body[size:]
            if not body:
                break
        self._flush()
        ended = False
        while not ended:
            for event in self._receive():
                if isinstance(event, h2.events.ResponseReceived):
                    status = int(dict(event.headers)[b":status"])
                elif isinstance(event, h2.events.DataReceived):
                    answer += event.data
                    self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    ended = True
            self._flush()
        took = time.perf_counter() - started
        _check(status, bytes(answer))
        return took, bytes(answer)

    def close(self) -> None:
        self._socket.close()

    def _flush(self) -> None:
        self._socket.sendall(self._h2.data_to_send())

    def _receive(self) -> list[Any]:
        self._flush()
        return list(self._h2.receive_data(self._socket.recv(2**20)))


class Pair(NamedTuple):
    """Connections to the two extenders that are compared."""

    ours: Driver
    bare: Driver

    def close(self) -> None:
        self.ours.close()
        self.bare.close()


def client_context(authority: Authority, client: KeyPair) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    context.load_cert_chain(client.certificate, client.key)
    return context


def ask_filter(driver: Driver, body: bytes, *, refused: bool = False) -> float:
    """Return the seconds of a filter. Raises RuntimeError if no node passes, or a node that should not."""
    took, text = driver.ask("filter", body)
    if bool(json.loads(text).get("NodeNames")) == refused:
        raise RuntimeError(f"expected {'no node' if refused else 'nodes'} to pass, found {text[:300]!r}")
    return took


def medians(pair: Pair, bodies: Iterable[bytes], rounds: int, *, refused: bool = False) -> tuple[float, float]:
    """Return milliseconds of a filter, ours and the bare one's, asked in turn so that a slow moment affects both."""
    times: tuple[list[float], list[float]] = ([], [])
    for body in islice(bodies, rounds):
        times[0].append(ask_filter(pair.ours, body, refused=refused))
        times[1].append(ask_filter(pair.bare, body))
    return 1e3 * median(times[0]), 1e3 * median(times[1])


def at_once(pairs: Sequence[Pair], body: bytes, rounds: int) -> tuple[float, float]:
    """Return milliseconds of a filter while all connections ask without a pause, ours and the bare one's in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    with ThreadPoolExecutor(len(pairs)) as threads:
        for _ in range(rounds):
            for side in (0, 1):
                times[side].extend(threads.map(lambda pair, side=side: ask_filter(pair[side], body), pairs))
    return 1e3 * median(times[0]), 1e3 * median(times[1])


def _check(status: int, text: bytes) -> None:
    if status == http.HTTPStatus.OK and text.startswith(b"["):  # a list of scores has no field for an error
        return
    if status != http.HTTPStatus.OK or json.loads(text).get("Error"):
        raise RuntimeError(f"expected success, found {status}: {text[:300]!r}")
