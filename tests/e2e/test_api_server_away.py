"""The extender survives an API server that goes away and comes back while pods come and go."""

from __future__ import annotations

import time
from random import Random

from tests.e2e.audit import audit, live_holders, sums
from tests.e2e.cluster import Cluster
from tests.e2e.mixed_pods import add_mixed_nodes, lasting_pod, mixed_pod
from tests.e2e.pod_runner import PodRunner
from tests.e2e.pods import (
    PODS,
    cards_by_pod,
    cards_of,
    container,
    delete_now,
    get_pod,
    is_refused,
    node_of,
    pod,
    unbound,
)
from tests.e2e.waiting import wait_for

AWAY = 30
"""Seconds without an API server."""
BACK = 20
"""Seconds until the ledger is current again: the longest pause of a watch, and a reserve for a loaded machine."""


def test_no_booking_is_lost_or_invented_while_the_api_server_is_away(cluster: Cluster) -> None:
    api, rng = cluster.api, Random(1)
    cluster.restart_scheduler(ignorable=False)
    add_mixed_nodes(cluster)
    extender = cluster.extender("gas")
    extender.start_and_wait_until_ready()
    process = extender.program.pid
    lasting = [f"lasting-{number}" for number in range(30)]
    with PodRunner(api):
        for name in lasting:
            api.create(PODS, lasting_pod(name, rng))
        wait_for("the lasting pods are bound", lambda: len(live_holders(api)) == len(lasting))
        unseen = {get_pod(api, name)["metadata"]["uid"] for name in lasting[:5]}
        for number in range(60):
            api.create(PODS, mixed_pod(f"before-{number}", rng))
        cluster.control_plane.stop_api_server()
        time.sleep(AWAY)
        assert extender.program.is_running
        for name in lasting[:5]:
            cluster.control_plane.delete_behind_the_api(name)
        cluster.control_plane.compact()
        cluster.control_plane.start_api_server()
        wait_for("the books are in step again", lambda: unseen.isdisjoint(extender.books()["pods"]), seconds=BACK)
        for name in lasting[5:10]:
            delete_now(api, name)
        for number in range(40):
            api.create(PODS, mixed_pod(f"after-{number}", rng))
        assert audit(api) == []
        # kube-scheduler itself watches again only after up to a minute.
        wait_for("every pod was bound", lambda: not unbound(api), seconds=150, every=1)
        assert audit(api) == []
        wait_for("the mixed pods are over", lambda: len(live_holders(api)) == len(lasting) - 10, seconds=60)
    wait_for("the books show the last change", lambda: extender.booked() == sums(api))
    assert extender.books()["differences"] == []
    assert extender.books()["trouble"] == {}
    assert extender.is_ready()
    assert extender.program.pid == process
    assert extender.program.is_running
    assert extender.metric('gas_extender_relists_total{kind="pods"}') >= 1


def test_cards_of_a_pod_that_vanished_unseen_go_to_the_pod_that_waits_for_them(cluster: Cluster) -> None:
    api = cluster.api
    cluster.restart_scheduler(ignorable=False)
    resources = {"gpu.intel.com/i915": "20", "gpu.intel.com/millicores": "2000"}
    cluster.add_node("n1", labels={"gpu.intel.com/gpu-numbers": "0.1"}, resources=resources)
    extender = cluster.extender("gas")
    extender.start_and_wait_until_ready()
    for number in (1, 2):
        api.create(PODS, pod(f"holder-{number}", container(i915=1, millicores=700)))
    wait_for("the holders are bound", lambda: len(cards_by_pod(api)) == 2)
    (gone,) = (name for name, cards in cards_by_pod(api).items() if cards == "card1")
    uid = get_pod(api, gone)["metadata"]["uid"]
    # Of the node there is enough left; only the books by card know that it does not fit.
    api.create(PODS, pod("waiter", container(i915=1, millicores=500)))
    wait_for("the waiter is refused", lambda: is_refused(api, "waiter"))
    cluster.control_plane.stop_api_server()
    cluster.control_plane.delete_behind_the_api(gone)
    cluster.control_plane.start_api_server()
    wait_for("its booking is gone", lambda: uid not in extender.books()["pods"], seconds=BACK)
    # kube-scheduler itself watches again only after up to a minute.
    wait_for("the waiter is bound", lambda: node_of(api, "waiter"), seconds=90)
    assert cards_of(get_pod(api, "waiter")) == "card1"


def test_a_bind_without_an_api_server_is_an_error_and_books_nothing(cluster: Cluster) -> None:
    api = cluster.api
    cluster.scheduler.stop()
    add_mixed_nodes(cluster)
    extender = cluster.extender("gas")
    extender.start_and_wait_until_ready()
    asked = cluster.verbs(extender)
    waiting = api.create(PODS, pod("waiting", container(i915=1, millicores=500)))
    wait_for("the pod passes", lambda: asked.filter(waiting, ["pair-1"])["NodeNames"])
    cluster.control_plane.stop_api_server()
    assert "API server" in asked.bind(waiting, "pair-1")["Error"]
    cluster.control_plane.start_api_server()
    wait_for("nothing is booked", lambda: extender.booked() == {})
    assert cards_by_pod(api) == {}
    wait_for("the bind goes through", lambda: asked.bind(waiting, "pair-1")["Error"] == "", every=1)
    assert cards_of(get_pod(api, "waiting")) == "card0"
