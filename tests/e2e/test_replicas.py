"""Two replicas with --leader-elect behind one Service: one leads, and the other takes over."""

from __future__ import annotations

import time

from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.pods import PODS, cards_by_pod, container, node_of, pod
from tests.e2e.waiting import wait_for

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/gas-extender"
NOT_LEADING = "this replica of the extender is not the leader"


def two_replicas(cluster: Cluster) -> tuple[Extender, Extender]:
    """Start two replicas and a node of four cards; return the leader and the other."""
    cluster.add_gpu_node("n1", cards=4)
    first, second = (
        cluster.extender(name, "--leader-elect", account=cluster.full_account) for name in ("first", "second")
    )
    first.start_and_wait_until_ready()
    second.start()
    wait_for("the second replica waits to lead", lambda: NOT_LEADING in says(second))
    return first, second


def says(extender: Extender) -> str:
    """Return the reason why a replica is not ready, or an empty text."""
    try:
        return extender.why_not_ready() or ""
    except OSError:
        return ""


def gpu_pod(name: str) -> Object:
    return pod(name, container(i915=1, millicores=100))


def seconds_until_a_pod_is_bound(api: KubeApi, name: str, *, at_most: float) -> float:
    """Create a pod each second, because kube-scheduler delays retries, and return the seconds until one has cards."""
    start = time.monotonic()
    number = 0
    while time.monotonic() - start < at_most:
        if any(pod.startswith(name) and cards for pod, cards in cards_by_pod(api).items()):
            return time.monotonic() - start
        if time.monotonic() - start > number:
            api.create(PODS, gpu_pod(f"{name}-{number}"))
            number += 1
        time.sleep(0.1)
    raise TimeoutError(f"none of {number} pods was bound within {at_most:g} s")


def test_another_replica_takes_over_from_a_leader_that_is_terminated_and_from_one_that_is_killed(
    cluster: Cluster,
) -> None:
    api = cluster.api
    first, second = two_replicas(cluster)
    cluster.scheduler.stop()
    waiting = api.create(PODS, gpu_pod("waiting"))
    asked = cluster.verbs(second)
    assert NOT_LEADING in asked.filter(waiting, ["n1"])["Error"]
    assert NOT_LEADING in asked.bind(waiting, "n1")["Error"]
    assert node_of(api, "waiting") is None
    assert cluster.verbs(first).bind(waiting, "n1")["Error"] == ""

    cluster.restart_scheduler(ignorable=False)
    before = api.get(LEASE)["spec"]["holderIdentity"]
    assert first.program.terminate() == 0
    seconds = seconds_until_a_pod_is_bound(api, "terminated", at_most=6)
    print(f"\nthe other replica bound a pod {seconds:.1f} s after the leader had stopped")
    assert api.get(LEASE)["spec"]["holderIdentity"] not in ("", before)

    first.start()
    wait_for("the first replica waits to lead", lambda: NOT_LEADING in says(first))
    second.program.kill()
    seconds = seconds_until_a_pod_is_bound(api, "killed", at_most=20)
    print(f"the other replica bound a pod {seconds:.1f} s after the leader was killed")
    assert first.is_ready()
