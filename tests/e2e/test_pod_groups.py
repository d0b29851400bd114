"""PodGroups under the real kube-scheduler: each group has its cards together or not at all.

`GAS_POD_GROUPS=100` sets how many groups come; a few by default.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.kube_api import KubeApi
from tests.e2e.pods import PODS, container, node_of, pod
from tests.e2e.release import selected_release
from tests.e2e.waiting import wait_for

GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
GATE = "GenericWorkload=true"
NODES, CARDS = 8, 2  # each card has room for one member of 600 millicores, and the sums of a node for three
AT_ONCE = 8  # groups that come at the same time; about half of them find no room

pytestmark = pytest.mark.skipif(
    selected_release().minor < 37, reason="scheduling.k8s.io/v1beta1 came with Kubernetes 1.37"
)


@contextmanager
def grouping(cluster: Cluster) -> Iterator[KubeApi]:
    """Let API server and scheduler know PodGroups."""
    api_version = "--runtime-config=scheduling.k8s.io/v1beta1=true"
    cluster.control_plane.restart_api_server(f"--feature-gates={GATE}", api_version)
    cluster.restart_scheduler(ignorable=False, feature_gates=GATE)
    try:
        yield cluster.api
    finally:
        cluster.api.delete_all(PODS, gracePeriodSeconds="0")
        cluster.api.delete_all(GROUPS)
        cluster.scheduler.stop()
        cluster.control_plane.restart_api_server()


def started(cluster: Cluster, *flags: str) -> Extender:
    extender = cluster.extender("groups", *flags, account=cluster.full_account)
    extender.start_and_wait_until_ready()
    return extender


def add_group(api: KubeApi, name: str, size: int) -> None:
    policy = {"gang": {"minCount": size}}
    api.create(GROUPS, {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}})
    for number in range(size):
        member = pod(f"{name}-{number}", container(i915=1, millicores=600))
        member["spec"]["schedulingGroup"] = {"podGroupName": name}
        api.create(PODS, member)


def bound(api: KubeApi, sizes: dict[str, int]) -> dict[str, int]:
    """Return how many pods of each group have a node."""
    nodes = {each["metadata"]["name"]: each["spec"].get("nodeName") for each in api.items(PODS)}
    return {name: sum(bool(nodes.get(f"{name}-{at}")) for at in range(size)) for name, size in sizes.items()}


def is_at_rest(api: KubeApi, sizes: dict[str, int]) -> bool:
    """Return whether every group is whole or has nothing, and none that has nothing would fit."""
    counts = bound(api, sizes)
    free = NODES * CARDS - sum(counts.values())
    return all(count == sizes[name] or (count == 0 and sizes[name] > free) for name, count in counts.items())


def test_groups_are_whole_or_have_nothing(cluster: Cluster) -> None:
    chance = random.Random(37)
    with grouping(cluster) as api:
        extender = started(cluster, "--pod-groups")
        for number in range(NODES):
            cluster.add_gpu_node(f"n{number}", cards=CARDS)
        for first in range(0, int(os.environ.get("GAS_POD_GROUPS", "16")), AT_ONCE):
            sizes = {f"g{first + at}": chance.randint(2, 8) for at in range(AT_ONCE)}
            for name, size in sizes.items():
                add_group(api, name, size)
            if chance.random() < 0.5:
                if chance.random() < 0.5:
                    extender.program.kill()
                    extender.start_and_wait_until_ready()
                else:
                    cluster.restart_scheduler(ignorable=False, feature_gates=GATE)
            wait_for(f"groups {sizes} to be whole or empty", lambda: is_at_rest(api, sizes))  # noqa: B023
            books = extender.books()
            assert (books["trouble"], books["differences"]) == ({}, [])
            assert all(
                card["booked"].get("millicores", 0) <= 1000
                for node in books["nodes"].values()
                for card in node.values()
            )
            api.delete_all(PODS, gracePeriodSeconds="0")
            api.delete_all(GROUPS)
            wait_for("the end of all bookings", lambda: not extender.books()["pods"])


def test_a_group_that_fits_the_sums_but_not_the_cards_has_nothing_and_says_why(cluster: Cluster) -> None:
    with grouping(cluster) as api:
        started(cluster, "--pod-groups")
        cluster.add_gpu_node("n0", cards=2)
        add_group(api, "gang", 3)

        def reasons() -> list[str]:
            return [event["message"] for event in api.items("/api/v1/namespaces/default/events")]

        sentence = "only 2 of the 3 pods that its PodGroup needs have room at the same time"
        wait_for("the reason", lambda: any(sentence in each for each in reasons()))
        assert bound(api, {"gang": 3}) == {"gang": 0}
        cluster.add_gpu_node("n1", cards=1)
        wait_for("the group", lambda: all(node_of(api, f"gang-{at}") for at in range(3)))
