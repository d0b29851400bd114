"""Time of a bind, one at a time and many at once, on the real kube-apiserver."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from benchmarks.clusters import Size, nodes, placed_pods, pod
from benchmarks.drivers import Driver, client_context
from benchmarks.extenders import BareExtender, our_extender
from benchmarks.real_cluster import RealCluster, real_cluster
from benchmarks.results import Figure, Results

SIZE = Size(nodes=500, pods=2000)
AT_ONCE = (1, 32)
ROUNDS = 3
BINDS = 96
"""Binds of each extender in a round; a multiple of each number at once."""

ASKED = {"i915": 1, "millicores": 50, "memory.max": 10**8}


def bind() -> Results:
    with real_cluster(nodes(SIZE), placed_pods(SIZE, seed=1)) as cluster:
        client = cluster.authority.client("kube-scheduler")
        bare = BareExtender(cluster.directory, cluster.authority, cluster.kubeconfig)
        ours = our_extender(cluster.directory, cluster.authority, cluster.kubeconfig)
        try:
            bare.start()
            ours.start_and_wait_until_ready(seconds=120)

            def connect(side: int) -> Driver:
                return Driver(bare.port if side else ours.endpoint.port, client_context(cluster.authority, client))

            figures = []
            for at_once in AT_ONCE:
                times: tuple[list[float], list[float]] = ([], [])
                seconds: tuple[list[float], list[float]] = ([], [])
                sides = [[connect(side) for _ in range(at_once)] for side in (0, 1)]
                for turn in range(ROUNDS):
                    for side in (0, 1):
                        bodies = _waiting(cluster, f"bind-{at_once}-{turn}-{side}")
                        started = time.perf_counter()
                        times[side].extend(_send(sides[side], bodies))
                        seconds[side].append(time.perf_counter() - started)
                for driver in (*sides[0], *sides[1]):
                    driver.close()
                what = f"{at_once} at once"
                figures.append(Figure.medians(f"`bind`, {what}", *times))
                rates = [BINDS / median(taken) for taken in seconds]
                figures.append(Figure(f"binds a second, {what}", rates[0], rates[1], unit="/s"))
        finally:
            for program in (ours.program, bare.program):
                program.kill()
    title = (
        f"`bind` on the real kube-apiserver over kept connections: {SIZE.nodes:,} nodes, {SIZE.pods:,} pods; medians"
    )
    return Results("bind", title, figures)


def _waiting(cluster: RealCluster, name: str) -> list[bytes]:
    """Create new pods and return the bodies that bind each of them to a node of its own."""
    pods = []
    for number in range(BINDS):
        pods.append(pod(f"{name}-{number}", ASKED))
        pods[-1]["metadata"]["uid"] = f"{name}-{number}"
    cluster.fill(pods)
    time.sleep(0.5)
    return [
        json.dumps({"PodName": uid, "PodNamespace": "default", "PodUID": uid, "Node": f"node-{number:05}"}).encode()
        for number, uid in enumerate(each["metadata"]["uid"] for each in pods)
    ]


def _send(drivers: list[Driver], bodies: list[bytes]) -> list[float]:
    def share(at: int) -> list[float]:
        return [drivers[at].ask("bind", body)[0] for body in bodies[at :: len(drivers)]]

    with ThreadPoolExecutor(len(drivers)) as threads:
        return [took for shared in threads.map(share, range(len(drivers))) for took in shared]
