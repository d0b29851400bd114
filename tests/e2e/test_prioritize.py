"""The extender's scores decide which node a pod gets from the real kube-scheduler, beside its own plugins."""

from __future__ import annotations

from tests.e2e.cluster import Cluster
from tests.e2e.pods import PODS, cards_by_pod, container, delete_now, node_of, pod
from tests.e2e.waiting import wait_for

CARD = {"gpu.intel.com/i915": "20", "gpu.intel.com/millicores": "1000", "cpu": "64", "memory": "256Gi"}
NODES = ("n1", "n2", "n3")
SMALL_PODS = 3


def place(cluster: Cluster, name: str, millicores: int, *, cpu: str = "1", policy: str | None = None) -> str | None:
    """Create a pod, and return its node once it has a card."""
    written = pod(
        name,
        container(i915=1, millicores=millicores),
        annotations={} if policy is None else {"gas-node-score": policy},
    )
    written["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu}
    cluster.api.create(PODS, written)
    wait_for(f"{name} has a card", lambda: cards_by_pod(cluster.api).get(name) == "card0")
    return node_of(cluster.api, name)


def test_the_extenders_scores_and_a_pods_own_policy_choose_the_node(cluster: Cluster) -> None:
    """kube-scheduler's own plugins prefer the two nodes on which no CPU is requested."""
    cluster.restart_scheduler(ignorable=False, scores=True)
    for name in NODES:
        cluster.add_node(name, labels={"gpu.intel.com/gpu-numbers": "0"}, resources=CARD)
    extender = cluster.extender("gas", "-v=4", "--node-score=balance", account=cluster.full_account)
    extender.start_and_wait_until_ready()
    large = place(cluster, "large", 810, cpu="32")
    for number in range(SMALL_PODS):
        assert place(cluster, f"small-{number}", 190) == large
        delete_now(cluster.api, f"small-{number}")
        wait_for("its card is free", lambda: extender.booked()[str(large)]["card0"]["millicores"] == 810)
    assert extender.metric('gas_extender_requests_total{result="scored",verb="prioritize"}') >= SMALL_PODS
    assert place(cluster, "together", 50, policy="best-fit") == large
    apart = place(cluster, "apart", 50, policy="spread")
    assert apart != large
    assert place(cluster, "alone", 50, policy="least-loaded") not in (large, apart)
    assert extender.books()["differences"] == []
