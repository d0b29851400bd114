"""Time that the webhooks add to the creation of a pod on the real kube-apiserver."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.clusters import Object, Size, nodes, ordinary_pod, pod
from benchmarks.extenders import our_extender
from benchmarks.processes import cpu_seconds
from benchmarks.real_cluster import RealCluster, binaries
from benchmarks.results import Figure, Results
from tests.e2e.ports import free_port
from tests.e2e.release import pinned_version
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import MUTATING, NEW_POD_RULES, VALIDATING, webhook

SIZE = Size(nodes=5000, pods=0)
PODS = 300
"""Pods of each kind, with the webhooks and without."""

WARM_UP = 100
CHECKED = {"checked": "yes"}
"""Label of the pods for which the API server calls the webhooks."""

KINDS: Mapping[str, Callable[[str], Object]] = {
    "a pod without GPUs": ordinary_pod,
    "a GPU pod": lambda name: pod(name, {"i915": 1, "millicores": 100, "memory.max": 10**9}),
    "a GPU pod that no node could hold": lambda name: pod(name, {"i915": 1, "memory.max": 10**12}),
}


class Creator:
    """One connection to the API server, kept alive as a controller's is."""

    def __init__(self, cluster: RealCluster) -> None:
        context = ssl.create_default_context(cafile=str(cluster.authority.certificate))
        self._connection = http.client.HTTPSConnection("127.0.0.1", cluster.admin.port, context=context, timeout=60)
        self._headers = {"Authorization": f"Bearer {cluster.admin.token}", "Content-Type": "application/json"}

    def create(self, body: Object) -> float:
        """Create a pod and return the seconds that it took. Raises RuntimeError if it is refused."""
        content = json.dumps(body)
        started = time.perf_counter()
        self._connection.request("POST", "/api/v1/namespaces/default/pods", content, self._headers)
        response = self._connection.getresponse()
        text = response.read()
        took = time.perf_counter() - started
        if response.status != http.HTTPStatus.CREATED:
            raise RuntimeError(f"a pod was not created: {response.status} {text[:300]!r}")
        return took


def admission() -> Results:
    """Create pods of each kind one after the other, in turn with the webhooks and without."""
    with TemporaryDirectory(prefix="gas-bench-") as name:
        directory = Path(name)
        cluster = RealCluster(directory, binaries())
        try:
            cluster.start()
            cluster.fill(nodes(SIZE))
            port = free_port()
            flags = (f"--admission-port={port}", "--admission-scheduler-name=gas-scheduler")
            extender = our_extender(directory, cluster.authority, cluster.kubeconfig, *flags)
            extender.start_and_wait_until_ready(seconds=120)
            try:
                _register(cluster, port)
                return _results(*_measure(cluster, extender.program.pid))
            finally:
                extender.program.kill()
        finally:
            cluster.stop()


def _register(cluster: RealCluster, port: int) -> None:
    selector = {"objectSelector": {"matchLabels": CHECKED}}
    authority = cluster.authority.certificate
    for path, kind in (("/validate", VALIDATING), ("/complete", MUTATING)):
        hook = webhook("pods.gas.intel.com", port, path, authority, NEW_POD_RULES, policy="Fail")
        cluster.admin.create(kind, {"metadata": {"name": "gas"}, "webhooks": [{**hook, **selector}]})
    numbers = iter(range(1000))

    def is_called() -> bool:
        probe = _named(KINDS["a GPU pod"], f"probe-{next(numbers)}", CHECKED)
        created = cluster.admin.create("/api/v1/namespaces/default/pods", probe)
        return bool(created["spec"]["schedulerName"] == "gas-scheduler")

    wait_for("the webhooks are called", is_called)


def _measure(cluster: RealCluster, pid: int) -> tuple[dict[tuple[str, bool], float], float]:
    """Return the median seconds by kind and by whether the webhooks were called, and processor seconds per review."""
    creator = Creator(cluster)
    times: dict[tuple[str, bool], list[float]] = {}
    spent = 0.0
    for number in range(WARM_UP + PODS):
        if number == WARM_UP:
            times.clear()
            spent = cpu_seconds(pid)
        for kind, make in KINDS.items():
            for checked in (number % 2 == 0, number % 2 != 0):  # neither always comes first
                labels = CHECKED if checked else {}
                body = _named(make, f"pod-{number}-{len(kind)}-{int(checked)}", labels)
                times.setdefault((kind, checked), []).append(creator.create(body))
    reviews = PODS * len(KINDS) * 2
    return {key: median(of) for key, of in times.items()}, (cpu_seconds(pid) - spent) / reviews


def _named(make: Callable[[str], Object], name: str, labels: Mapping[str, str]) -> Object:
    body = make(name)
    body["metadata"]["labels"] = {**body["metadata"]["labels"], **labels}
    return body


def _results(times: Mapping[tuple[str, bool], float], processor: float) -> Results:
    figures = [Figure(f"create {kind}", 1e3 * times[kind, True], 1e3 * times[kind, False]) for kind in KINDS]
    figures.append(Figure("extender's processor time per review, with its watch of these pods", 1e3 * processor))
    title = f"Creating pods one after the other on kube-apiserver {pinned_version()}, {SIZE.nodes:,} nodes; medians"
    notes = ["Two webhooks are called for each pod, /complete and /validate, over two kept connections."]
    return Results("admission", title, figures, ours="with webhooks", other="without", notes=notes)
