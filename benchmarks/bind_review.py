"""Time that the review of a Binding adds on the real kube-apiserver, for pods without GPUs and for GPU pods."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.clusters import Object, Size, nodes, ordinary_pod, placed_pods, pod
from benchmarks.extenders import our_extender
from benchmarks.processes import cpu_seconds
from benchmarks.real_cluster import RealCluster, binaries
from benchmarks.results import Figure, Goal, Results
from tests.e2e.ports import free_port
from tests.e2e.waiting import wait_for

SIZE = Size(nodes=500, pods=2000)
BINDS = 300
"""Bindings of each kind, with the review and without."""

WARM_UP = 50
MOST_ADDED = 1.0
"""Milliseconds that the review of a pod without GPUs may add."""

REVIEWED = {"reviewed": "yes"}
"""Label of the Bindings that the API server has reviewed."""

PLAIN, GPU = "a pod without GPUs", "a GPU pod"
KINDS: Mapping[str, Callable[[str], Object]] = {
    PLAIN: ordinary_pod,
    GPU: lambda name: pod(name, {"i915": 1, "millicores": 100, "memory.max": 10**8}),
}


class Client:
    """One connection to the API server, kept alive as a scheduler's is."""

    def __init__(self, cluster: RealCluster) -> None:
        context = ssl.create_default_context(cafile=str(cluster.authority.certificate))
        self._connection = http.client.HTTPSConnection("127.0.0.1", cluster.admin.port, context=context, timeout=60)
        self._headers = {"Authorization": f"Bearer {cluster.admin.token}", "Content-Type": "application/json"}

    def bind(self, name: str, node: str, *, reviewed: bool) -> float:
        """Write a Binding and return the seconds that it took. Raises RuntimeError if it is refused."""
        metadata = {"name": name, "uid": name, "labels": REVIEWED if reviewed else {}}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": node}}
        content = json.dumps(body)
        started = time.perf_counter()
        self._connection.request("POST", f"/api/v1/namespaces/default/pods/{name}/binding", content, self._headers)
        response = self._connection.getresponse()
        text = response.read()
        took = time.perf_counter() - started
        if response.status != http.HTTPStatus.CREATED:
            raise RuntimeError(f"a Binding was not written: {response.status} {text[:300]!r}")
        return took


def bind_review() -> Results:
    """Bind pods of each kind one after the other, in turn with the review and without."""
    with TemporaryDirectory(prefix="gas-bench-") as name:
        directory = Path(name)
        cluster = RealCluster(directory, binaries())
        port = free_port()
        extender = our_extender(directory, cluster.authority, cluster.kubeconfig, f"--admission-port={port}")
        try:
            cluster.start()
            cluster.fill(nodes(SIZE))
            cluster.fill(placed_pods(SIZE, seed=1))
            extender.start_and_wait_until_ready(seconds=120)
            _register(cluster, port)
            return _results(*_measure(cluster, extender.program.pid))
        finally:
            for program in (extender.program, *cluster.programs):
                program.kill()


def _register(cluster: RealCluster, port: int) -> None:
    authority = base64.b64encode(cluster.authority.certificate.read_bytes()).decode()
    hook = {
        "name": "bind.gas.intel.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/bind", "caBundle": authority},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"], "operations": ["CREATE"]}],
        "objectSelector": {"matchLabels": REVIEWED},
        "failurePolicy": "Fail",
        "sideEffects": "NoneOnDryRun",
        "admissionReviewVersions": ["v1"],
    }
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    cluster.admin.create(path, {"metadata": {"name": "gas-bind"}, "webhooks": [hook]})
    client, probes = Client(cluster), iter(range(1000))

    def is_called() -> bool:
        name = f"probe-{next(probes)}"
        _fill(cluster, [(GPU, name)])
        client.bind(name, "node-00000", reviewed=True)
        return "gas-ts" in cluster.admin.get(f"/api/v1/namespaces/default/pods/{name}")["metadata"]["annotations"]

    wait_for("the webhook is called", is_called, every=0.5)


def _measure(cluster: RealCluster, pid: int) -> tuple[dict[tuple[str, bool], float], float]:
    """Return the median seconds by kind and by whether there was a review, and processor seconds per review."""
    rounds = [
        [(kind, reviewed) for kind in KINDS for reviewed in ((True, False) if number % 2 else (False, True))]
        for number in range(WARM_UP + BINDS)
    ]
    _fill(
        cluster,
        [
            (kind, _name(number, kind, reviewed=reviewed))
            for number, each in enumerate(rounds)
            for kind, reviewed in each
        ],
    )
    time.sleep(3)  # until the watch has shown them
    client = Client(cluster)
    times: dict[tuple[str, bool], list[float]] = {}
    spent = 0.0
    for number, each in enumerate(rounds):
        if number == WARM_UP:
            times.clear()
            spent = cpu_seconds(pid)
        for kind, reviewed in each:
            name = _name(number, kind, reviewed=reviewed)
            took = client.bind(name, f"node-{number % SIZE.nodes:05}", reviewed=reviewed)
            times.setdefault((kind, reviewed), []).append(took)
    reviews = BINDS * len(KINDS)
    return {key: median(of) for key, of in times.items()}, (cpu_seconds(pid) - spent) / reviews


def _name(number: int, kind: str, *, reviewed: bool) -> str:
    return f"bind-{number}-{'gpu' if kind == GPU else 'plain'}-{int(reviewed)}"


def _fill(cluster: RealCluster, pods: list[tuple[str, str]]) -> None:
    """Create pods whose UIDs are their names."""
    created = []
    for kind, name in pods:
        created.append(KINDS[kind](name))
        created[-1]["metadata"] |= {"uid": name, "annotations": {"made": "up"}}
    cluster.fill(created)


def _results(times: Mapping[tuple[str, bool], float], processor: float) -> Results:
    figures = [Figure(f"bind {kind}", 1e3 * times[kind, True], 1e3 * times[kind, False]) for kind in KINDS]
    added = {kind: 1e3 * (times[kind, True] - times[kind, False]) for kind in KINDS}
    figures.append(Figure(f"added to {PLAIN}", added[PLAIN], goal=Goal(MOST_ADDED)))
    figures.append(Figure(f"added to {GPU}", added[GPU]))
    figures.append(Figure("extender's processor time per Binding", 1e3 * processor))
    cluster = f"{SIZE.nodes:,} nodes, {SIZE.pods:,} pods"
    title = f"Bindings written one after the other on the real kube-apiserver: {cluster}; medians"
    notes = ["Without the review, a Binding of a GPU pod has no cards. The processor time includes the watch."]
    return Results("bind-review", title, figures, ours="with review", other="without", notes=notes)
