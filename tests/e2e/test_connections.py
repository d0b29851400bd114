"""The real kube-scheduler loses no request while replicas start, lead and stop leading."""

from __future__ import annotations

import re
import threading

from tests.e2e.cluster import Cluster
from tests.e2e.pods import PODS, cards_by_pod, container, pod, unbound
from tests.e2e.waiting import wait_for

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/gas-extender"
EVENTS = "/api/v1/namespaces/default/events"
SLOW_BINDS = ("--qps=15", "--burst=1")
WAITING_PODS = 30
"""Each bind waits for its turn, so that some are in progress whenever the leader changes."""

MOST_CHANGES = 12
"""Of the leader. Which replica takes a free Lease is chance, so it may need several until both have led."""

CUT_OFF = re.compile(r'Post \\*"https://127\.0\.0\.1:\d+/scheduler/(?:filter|bind)\\*": .*')
"""The error of Go's HTTP client for a request without a response. Refusals and not-ready responses do not match."""


def lost_requests(cluster: Cluster) -> list[str]:
    """Every error of kube-scheduler's HTTP client, from its log and from the events it wrote."""
    texts = [cluster.scheduler.program.log_text(), *(event.get("message", "") for event in cluster.api.items(EVENTS))]
    return [found.group() for text in texts for found in CUT_OFF.finditer(text)]


def keep_pods_waiting(cluster: Cluster, stop: threading.Event) -> None:
    number = 0
    while not stop.wait(0.05):
        for _ in range(WAITING_PODS - len(unbound(cluster.api))):
            cluster.api.create(PODS, pod(f"load-{number}", container(i915=1, millicores=10)))
            number += 1


def all_have_cards(cluster: Cluster) -> bool:
    written = cards_by_pod(cluster.api)
    return len(written) == len(cluster.api.items(PODS)) and all(written.values())


def test_no_request_is_lost_while_the_leader_changes_under_load(cluster: Cluster) -> None:
    cluster.service.is_patient = True  # a connection that it closes would look like a request that was cut off
    cluster.add_gpu_node("n1", cards=16, places=600)
    replicas = [
        cluster.extender(name, "--leader-elect", *SLOW_BINDS, account=cluster.full_account)
        for name in ("first", "second")
    ]
    cluster.restart_scheduler(ignorable=False)
    for replica in replicas:
        replica.start()
    wait_for("a replica leads", lambda: any(replica.is_ready() for replica in replicas))
    stop = threading.Event()
    load = threading.Thread(target=keep_pods_waiting, args=(cluster, stop), daemon=True)
    load.start()
    leaders = []
    try:
        for _ in range(MOST_CHANGES):
            before = cluster.api.get(LEASE)["spec"]["holderIdentity"]
            cluster.api.merge(LEASE, {"spec": {"holderIdentity": "no replica", "leaseDurationSeconds": 1}})
            wait_for("the leader stops", lambda: not any(replica.is_ready() for replica in replicas), every=0.02)
            wait_for("a replica leads", lambda: any(replica.is_ready() for replica in replicas), every=0.02)
            leaders += [before, cluster.api.get(LEASE)["spec"]["holderIdentity"]]
            if len(leaders) >= 6 and len(set(leaders)) == 2:
                break
    finally:
        stop.set()
        load.join()
    wait_for("every pod has its cards", lambda: all_have_cards(cluster), seconds=120)
    print(f"\n{len(cards_by_pod(cluster.api))} pods bound during {len(leaders) // 2} changes of the leader")
    assert len(set(leaders)) == 2
    assert lost_requests(cluster) == []
