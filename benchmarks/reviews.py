"""Time that reviews by the extender add to requests of the real kube-apiserver: the set-up of two benchmarks."""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from benchmarks.clusters import Object, Size, nodes, placed_pods
from benchmarks.extenders import our_extender
from benchmarks.processes import cpu_seconds
from benchmarks.real_cluster import RealCluster, real_cluster
from tests.e2e.ports import free_port
from tests.e2e.webhooks import BUSY, register

PODS = "/api/v1/namespaces/default/pods"
REVIEWED = {"reviewed": "yes"}
"""Label of the objects that the API server has reviewed. All else in the registrations is as shipped."""

PLAIN, GPU = "a pod without GPUs", "a GPU pod"

Registrations = Callable[[RealCluster], Sequence[Object]]
"""Cluster -> registrations of webhooks, as shipped."""


class Write(Protocol):
    """Send one request of a kind, and return the seconds that it took."""

    def __call__(self, number: int, kind: str, *, reviewed: bool) -> float: ...


class Client:
    """One connection to the API server, kept alive as a scheduler's or a controller's is."""

    def __init__(self, cluster: RealCluster) -> None:
        context = ssl.create_default_context(cafile=str(cluster.authority.certificate))
        self._connection = http.client.HTTPSConnection("127.0.0.1", cluster.admin.port, context=context, timeout=60)
        self._headers = {"Authorization": f"Bearer {cluster.admin.token}", "Content-Type": "application/json"}

    def create(self, path: str, body: Object) -> float:
        """Create an object and return the seconds that it took. Raises RuntimeError if it is refused."""
        content = json.dumps(body)
        started = time.perf_counter()
        self._connection.request("POST", path, content, self._headers)
        response = self._connection.getresponse()
        text = response.read()
        took = time.perf_counter() - started
        if response.status != http.HTTPStatus.CREATED:
            raise RuntimeError(f"{path} was refused: {response.status} {text[:300]!r}")
        return took


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds by kind and by whether there was a review, and the extender's processor seconds per round."""

    of: Mapping[tuple[str, bool], Sequence[float]]
    processor: float


@dataclass(frozen=True, slots=True)
class Reviewing:
    """A running cluster whose API server has what bears the label reviewed. ``pid`` is the extender's."""

    cluster: RealCluster
    client: Client
    pid: int

    def measure(self, kinds: Sequence[str], write: Write, *, rounds: int, warm_up: int) -> Times:
        """Write each kind with and without the review in turn; neither always comes first."""
        times: dict[tuple[str, bool], list[float]] = {}
        spent = 0.0
        for number in range(warm_up + rounds):
            if number == warm_up:
                times.clear()
                spent = cpu_seconds(self.pid)
            for kind in kinds:
                for reviewed in (number % 2 == 0, number % 2 != 0):
                    times.setdefault((kind, reviewed), []).append(write(number, kind, reviewed=reviewed))
        return Times(times, (cpu_seconds(self.pid) - spent) / rounds)


@contextmanager
def reviewing(size: Size, registrations: Registrations, *flags: str) -> Iterator[Reviewing]:
    """Run a cluster and the extender with its admission port while the block runs.

    flags  more flags of the extender
    """
    with real_cluster(nodes(size), placed_pods(size, seed=1)) as cluster:
        port = free_port()
        flags = (f"--admission-port={port}", *flags)
        extender = our_extender(cluster.directory, cluster.authority, cluster.kubeconfig, *flags)
        try:
            extender.start_and_wait_until_ready(seconds=120)
            shipped = registrations(cluster)
            authority = cluster.authority.certificate
            changes = {"failurePolicy": "Fail", "timeoutSeconds": BUSY, "objectSelector": {"matchLabels": REVIEWED}}
            register(cluster.admin, shipped, port, authority, **changes)
            yield Reviewing(cluster, Client(cluster), extender.program.pid)
        finally:
            extender.program.kill()


def labelled(body: Object, *, reviewed: bool) -> Object:
    """Add the label that has an object reviewed."""
    body["metadata"]["labels"] = {**body["metadata"].get("labels", {}), **(REVIEWED if reviewed else {})}
    return body
