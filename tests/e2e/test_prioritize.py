"""The extender's scores decide which node a pod gets from the real kube-scheduler, beside its own plugins."""

from __future__ import annotations

from functools import partial

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.pods import PODS, cards_by_pod, container, delete_now, node_of, pod
from tests.e2e.waiting import wait_for

CARD = {"gpu.intel.com/i915": "20", "gpu.intel.com/millicores": "1000", "cpu": "64", "memory": "256Gi"}
NODES = ("n1", "n2", "n3")
SMALL_PODS = 4


@pytest.fixture
def extender(cluster: Cluster) -> Extender:
    """Provide an extender that scores nodes, three nodes of one card, and a large pod on one of them."""
    cluster.restart_scheduler(ignorable=False, scores=True)
    for name in NODES:
        cluster.add_node(name, labels={"gpu.intel.com/gpu-numbers": "0"}, resources=CARD)
    extender = cluster.extender("gas", "-v=4", "--node-score=balance", account=cluster.full_account)
    extender.start_and_wait_until_ready()
    place(cluster, "large", 810, cpu="32")
    return extender


def place(cluster: Cluster, name: str, millicores: int, *, cpu: str = "1", policy: str | None = None) -> str | None:
    """Create a pod, and return its node once it has a card."""
    written = pod(
        name,
        container(i915=1, millicores=millicores),
        annotations={} if policy is None else {"gas-node-score": policy},
    )
    written["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu}
    cluster.api.create(PODS, written)
    wait_for(f"{name} has a card", partial(has_card, cluster, name))
    return node_of(cluster.api, name)


def has_card(cluster: Cluster, name: str) -> bool:
    return cards_by_pod(cluster.api).get(name) == "card0"


def test_small_pods_complete_the_card_of_a_large_one(cluster: Cluster, extender: Extender) -> None:
    """The plugins of kube-scheduler prefer the two nodes on which no CPU is requested."""
    large = node_of(cluster.api, "large")
    for number in range(SMALL_PODS):
        assert place(cluster, f"small-{number}", 190) == large
        delete_now(cluster.api, f"small-{number}")
        wait_for("its card is free", lambda: extender.booked()[str(large)]["card0"]["millicores"] == 810)
    assert extender.metric('gas_extender_requests_total{result="scored",verb="prioritize"}') >= SMALL_PODS
    assert extender.books()["differences"] == []


def test_a_pod_that_chooses_another_policy_goes_elsewhere(cluster: Cluster, extender: Extender) -> None:
    large = node_of(cluster.api, "large")
    assert place(cluster, "together", 50, policy="best-fit") == large
    assert place(cluster, "apart", 50, policy="spread") != large
    assert place(cluster, "alone", 50, policy="least-loaded") not in (large, node_of(cluster.api, "apart"))
    assert extender.books()["differences"] == []
