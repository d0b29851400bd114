"""The client side of the extender protocol, as kube-scheduler: connections over TLS that are kept alive."""

import http.client
import json
import ssl
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from sandbox.certificates import Authority, PemFiles

LOOPBACK = "127.0.0.1"


class Driver:
    """One connection to an extender, over HTTP/1.1 and TLS."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._connection = http.client.HTTPSConnection(LOOPBACK, port, context=context, timeout=60)

    def ask(self, verb: str, body: bytes) -> tuple[float, bytes]:
        """Send a request; return its seconds, first byte out to last byte in, and the response. Raises RuntimeError."""
        started = time.perf_counter()
        self._connection.request("POST", f"/scheduler/{verb}", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        took = time.perf_counter() - started
        _check(answer.status, text)
        return took, text

    def close(self) -> None:
        self._connection.close()


class Pair(NamedTuple):
    """Connections to the two extenders that are compared."""

    ours: Driver
    bare: Driver

    def close(self) -> None:
        self.ours.close()
        self.bare.close()


def client_context(authority: Authority, client: PemFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    context.load_cert_chain(client.certificate, client.key)
    return context


def ask_filter(driver: Driver, body: bytes) -> float:
    """Return the seconds of a filter. Raises RuntimeError if no node passes."""
    took, text = driver.ask("filter", body)
    if not json.loads(text).get("NodeNames"):
        raise RuntimeError(f"expected nodes to pass, found {text[:300]!r}")
    return took


Seconds = tuple[list[float], list[float]]  # of each filter, ours and the bare one's


def in_turn(pair: Pair, bodies: Iterable[bytes], rounds: int) -> Seconds:
    """Ask both extenders in turn, so that a slow moment affects both."""
    times: Seconds = ([], [])
    for body in islice(bodies, rounds):
        times[0].append(ask_filter(pair.ours, body))
        times[1].append(ask_filter(pair.bare, body))
    return times


def at_once(pairs: Sequence[Pair], body: bytes, rounds: int) -> Seconds:
    """Ask while all connections ask without a pause, one extender after the other."""
    times: Seconds = ([], [])
    with ThreadPoolExecutor(len(pairs)) as threads:
        for _ in range(rounds):
            for side in (0, 1):
                times[side].extend(threads.map(lambda pair, side=side: ask_filter(pair[side], body), pairs))
    return times


def _check(status: int, text: bytes) -> None:
    if status == http.HTTPStatus.OK and text.startswith(b"["):  # a list of scores has no field for an error
        return
    if status != http.HTTPStatus.OK or json.loads(text).get("Error"):
        raise RuntimeError(f"expected success, found {status}: {text[:300]!r}")
