"""Time from start to ready on a large cluster, compared with listing the same objects, and the memory used."""

import http.client
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from urllib.parse import urlencode

import msgspec

from benchmarks.clusters import Size, nodes, other_pods, placed_pods
from benchmarks.extenders import ALL_VERBS_FLAGS, our_extender
from benchmarks.processes import MB, cpu_seconds, resident_bytes
from benchmarks.real_cluster import RealCluster, real_cluster
from benchmarks.results import Figure, Goal, Results, noise
from gas.cluster.listing import PAGE_SIZE
from tests.e2e.extender import Extender
from tests.e2e.kube_api import RefusedError

SIZE = Size(nodes=5000, pods=20_000)
OTHERS = 10_000
OTHERS_IN_FULL = 100_000
ROUNDS = 3
SLOWEST_START = 600.0
START_GOAL = Goal(1.2)


class _Meta(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _Meta


def cold_start(*, full: bool) -> Results:
    """Measure ours and a plain client in turn, both on the same kube-apiserver."""
    others = OTHERS_IN_FULL if full else OTHERS
    with real_cluster(nodes(SIZE), placed_pods(SIZE, seed=1), other_pods(others, SIZE)) as cluster:
        ours = our_extender(cluster.directory, cluster.authority, cluster.kubeconfig)
        shipped = our_extender(cluster.directory, cluster.authority, cluster.kubeconfig, *ALL_VERBS_FLAGS)
        found, with_all = _Found(), _Found()
        listed = []
        try:
            _wait_for_the_cache(cluster, f"other-{others - 1:06}")
            for _ in range(ROUNDS):
                listed.append(_seconds_of_listing(cluster))
                found.start(ours)
                with_all.start(shipped)
        finally:
            for program in (ours.program, shipped.program):
                program.kill()
    title = (
        f"Start to ready: {SIZE.nodes:,} nodes, {SIZE.pods:,} GPU pods among {others:,} others, real kube-apiserver;"
        f" medians of {ROUNDS}"
    )
    figures = [
        Figure("start to ready", median(found.started), median(listed), "s", START_GOAL, noise=noise(listed)),
        Figure("our processor time in it", median(found.used), None, "s"),
        Figure("resident memory when ready", median(found.memory), None, "MB", Goal(100)),
        Figure("most resident memory until then", median(found.peak), None, "MB"),
        Figure("start to ready with scores and preemption", median(with_all.started), median(listed), "s", START_GOAL),
        Figure("our processor time in it, with scores and preemption", median(with_all.used), None, "s"),
        Figure(
            "resident memory when ready, with scores and preemption", median(with_all.memory), None, "MB", Goal(150)
        ),
    ]
    return Results("cold-start", title, figures, other="listing")


@dataclass(slots=True)
class _Found:
    """The measurements of one extender, a value a start.

    started  seconds until it was ready
    used     seconds of its processor time until then
    memory   MB resident then
    peak     most MB until then
    """

    started: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    peak: list[float] = field(default_factory=list)

    def start(self, extender: Extender) -> None:
        """Start an extender, measure it when it is ready, and end it."""
        begin = time.perf_counter()
        extender.start_and_wait_until_ready(seconds=SLOWEST_START)
        self.started.append(time.perf_counter() - begin)
        pid = extender.program.pid
        self.used.append(cpu_seconds(pid))
        self.memory.append(resident_bytes(pid) / MB)
        self.peak.append(resident_bytes(pid, peak=True) / MB)
        extender.program.kill()


def _wait_for_the_cache(cluster: RealCluster, last: str) -> None:
    """Wait until kube-apiserver has seen what was written straight into etcd: its cache has the last pod."""
    deadline = time.monotonic() + SLOWEST_START
    while not _is_cached(cluster, f"/api/v1/namespaces/default/pods/{last}"):
        if time.monotonic() > deadline:
            raise TimeoutError("kube-apiserver does not see the pods that were written into etcd")
        time.sleep(1)


def _is_cached(cluster: RealCluster, path: str) -> bool:
    """Return whether an object is in the cache. Counting would not do: lists from the cache have no pages."""
    try:
        cluster.admin.get(path, resourceVersion="0")
    except RefusedError as refused:
        if refused.status != http.HTTPStatus.NOT_FOUND:
            raise
        return False
    return True


def _seconds_of_listing(cluster: RealCluster) -> float:
    """Measure what curl would take: every page of nodes and pods, of the size that we request, thrown away."""
    started = time.perf_counter()
    for path in ("/api/v1/nodes", "/api/v1/pods"):
        for _ in _pages(cluster, path):
            pass
    return time.perf_counter() - started


def _pages(cluster: RealCluster, path: str) -> Iterator[bytes]:
    context = ssl.create_default_context(cafile=cluster.authority.certificate)
    connection = http.client.HTTPSConnection("127.0.0.1", cluster.admin.port, context=context, timeout=120)
    headers = {"Authorization": f"Bearer {cluster.admin.token}", "Accept-Encoding": "identity"}
    decoder = msgspec.json.Decoder(_Page)
    query = {"limit": str(PAGE_SIZE)}
    try:
        while True:
            connection.request("GET", f"{path}?{urlencode(query)}", headers=headers)
            body = connection.getresponse().read()
            yield body
            query["continue"] = decoder.decode(body).metadata.continue_
            if not query["continue"]:
                return
    finally:
        connection.close()
