"""Two replicas with --leader-elect behind one Service: one leads, and the other takes over."""

from __future__ import annotations

import time

from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.pods import PODS, cards_by_pod, cards_of, container, get_pod, node_of, pod
from tests.e2e.waiting import wait_for

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/gas-extender"
NOT_LEADING = "this replica of the extender is not the leader"

IN_DOUBT = "did not respond in time, so it is not known whether"


def two_replicas(cluster: Cluster, *flags: str) -> tuple[Extender, Extender]:
    """Start two replicas and a node of four cards; return the leader and the other."""
    resources = {"gpu.intel.com/i915": "40", "gpu.intel.com/millicores": "4000"}
    cluster.add_node("n1", labels={"gpu.intel.com/gpu-numbers": "0.1.2.3"}, resources=resources)
    first, second = (
        cluster.extender(name, "--leader-elect", *flags, account=cluster.full_account) for name in ("first", "second")
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


def seconds_until_a_pod_is_bound(api: KubeApi, *, at_most: float) -> float:
    """Create a pod each second, because kube-scheduler delays retries, and return the seconds."""
    start = time.monotonic()
    number = 0
    while time.monotonic() - start < at_most:
        if any(cards_by_pod(api).values()):
            return time.monotonic() - start
        if time.monotonic() - start > number:
            api.create(PODS, gpu_pod(f"next-{number}"))
            number += 1
        time.sleep(0.1)
    raise TimeoutError(f"none of {number} pods was bound within {at_most:g} s")


def test_only_the_leader_is_ready_and_the_other_one_says_so_to_whoever_asks_it(cluster: Cluster) -> None:
    first, second = two_replicas(cluster)
    cluster.scheduler.stop()
    waiting = cluster.api.create(PODS, gpu_pod("waiting"))
    assert not second.is_ready()
    asked = cluster.verbs(second)
    assert NOT_LEADING in asked.filter(waiting, ["n1"])["Error"]
    assert NOT_LEADING in asked.bind(waiting, "n1")["Error"]
    assert node_of(cluster.api, "waiting") is None
    assert cluster.verbs(first).bind(waiting, "n1")["Error"] == ""
    assert cards_of(get_pod(cluster.api, "waiting")) == "card0"


def test_when_the_leader_is_killed_the_other_one_binds_within_20_seconds(cluster: Cluster) -> None:
    first, second = two_replicas(cluster)
    cluster.restart_scheduler(ignorable=False)
    first.program.kill()
    seconds = seconds_until_a_pod_is_bound(cluster.api, at_most=20)
    print(f"\nthe other replica bound a pod {seconds:.1f} s after the leader was killed")
    assert second.is_ready()


def test_a_leader_that_is_terminated_exits_with_0_and_the_other_takes_over_at_once(cluster: Cluster) -> None:
    first, second = two_replicas(cluster)
    cluster.restart_scheduler(ignorable=False)
    before = cluster.api.get(LEASE)["spec"]["holderIdentity"]
    assert first.program.terminate() == 0
    seconds = seconds_until_a_pod_is_bound(cluster.api, at_most=6)
    print(f"\nthe other replica bound a pod {seconds:.1f} s after the leader had stopped")
    assert second.is_ready()
    assert cluster.api.get(LEASE)["spec"]["holderIdentity"] not in ("", before)


def test_a_leader_that_stood_still_while_another_took_over_binds_nothing_more(cluster: Cluster) -> None:
    first, second = two_replicas(cluster)
    cluster.scheduler.stop()
    waiting = cluster.api.create(PODS, gpu_pod("waiting"))
    asked = cluster.verbs(first)
    assert asked.filter(waiting, ["n1"])["NodeNames"] == ["n1"]
    first.program.pause()
    wait_for("the second replica leads", second.is_ready)
    asked.send_bind(waiting, "n1")  # the first thing that it finds when it comes back
    first.program.resume()
    assert NOT_LEADING in asked.answer()["Error"]
    assert node_of(cluster.api, "waiting") is None
    assert NOT_LEADING in says(first)
    assert cluster.verbs(second).bind(waiting, "n1")["Error"] == ""
    assert cards_of(get_pod(cluster.api, "waiting")) == "card0"


def test_binds_that_were_in_progress_when_a_leader_stood_still_are_not_written_later(cluster: Cluster) -> None:
    # One request in two seconds: the second bind waits for the first one's turn to be over.
    first, second = two_replicas(cluster, "--qps=0.5", "--burst=1")
    cluster.scheduler.stop()
    pods = [cluster.api.create(PODS, gpu_pod(f"waiting-{number}")) for number in range(4)]
    connections = [cluster.verbs(first) for _ in pods]
    for connection in connections:
        connection.connect()
    wait_for("the leader has seen the pods", lambda: not connections[0].filter(pods[-1], ["n1"])["FailedNodes"])
    for connection, waiting in zip(connections, pods, strict=True):
        connection.send_bind(waiting, "n1")
    wait_for("one is bound", lambda: cards_by_pod(cluster.api), every=0.02)
    first.program.pause()
    wait_for("the second replica leads", second.is_ready)
    bound_before = cards_by_pod(cluster.api).keys()
    assert len(bound_before) < len(pods)
    first.program.resume()
    for connection, waiting in zip(connections, pods, strict=True):
        error = connection.answer()["Error"]
        if waiting["metadata"]["name"] not in bound_before:
            assert error
        else:  # the leader may have stood still before it read the API server's response
            assert error == "" or IN_DOUBT in error
    assert cards_by_pod(cluster.api).keys() == bound_before
