"""Three pods of 5 GB on two cards of 8 GB, through the real kube-scheduler: the story that the project exists for."""

from __future__ import annotations

from tests.e2e.cluster import Cluster
from tests.e2e.kube_api import Object
from tests.e2e.waiting import wait_for

PODS = "/api/v1/namespaces/default/pods"
CARDS = {"gpu.intel.com/i915": "20", "gpu.intel.com/memory.max": "16G"}


def five_gigabytes(name: str) -> Object:
    limits = {"gpu.intel.com/i915": "1", "gpu.intel.com/memory.max": "5G"}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}]},
    }


def cards_by_pod(cluster: Cluster) -> dict[str, str | None]:
    """Of every bound pod the cards that are written on it."""
    return {
        pod["metadata"]["name"]: pod["metadata"].get("annotations", {}).get("gas-container-cards")
        for pod in cluster.api.items(PODS)
        if pod["spec"].get("nodeName")
    }


def messages(cluster: Cluster, pod: str, reason: str) -> list[str]:
    events = cluster.api.items("/api/v1/namespaces/default/events")
    return [e["message"] for e in events if e["involvedObject"]["name"] == pod and e["reason"] == reason]


def test_two_run_on_different_cards_and_the_third_waits_with_our_sentence_until_one_is_gone(cluster: Cluster) -> None:
    cluster.add_node("n1", labels={"gpu.intel.com/gpu-numbers": "0.1"}, resources=CARDS)
    cluster.extender("gas", "-v=4").start_and_wait_until_ready()
    for name in ("worked-1", "worked-2", "worked-3"):
        cluster.api.create(PODS, five_gigabytes(name))
    wait_for("two pods are bound", lambda: len(cards_by_pod(cluster)) == 2)
    assert sorted(card or "" for card in cards_by_pod(cluster).values()) == ["card0", "card1"]
    (third,) = {"worked-1", "worked-2", "worked-3"} - cards_by_pod(cluster).keys()
    said = wait_for("the third's event", lambda: messages(cluster, third, "FailedScheduling"))
    assert "0/1 nodes are available: 1 no card has 5.0 GB of memory.max free" in said[0]

    gone, freed = next(iter(cards_by_pod(cluster).items()))
    cluster.api.delete(f"{PODS}/{gone}", gracePeriodSeconds="0")
    wait_for("the third is bound", lambda: third in cards_by_pod(cluster), seconds=5)
    assert cards_by_pod(cluster)[third] == freed
