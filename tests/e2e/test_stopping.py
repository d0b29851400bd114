"""SIGTERM while binds are in progress."""

from __future__ import annotations

import http.client
import time

from tests.e2e.cluster import Cluster
from tests.e2e.pods import PODS, cards_of, container, get_pod, pod
from tests.e2e.waiting import wait_for

BINDS = 50


def test_binds_in_progress_at_sigterm_are_finished_and_every_response_is_true(cluster: Cluster) -> None:
    api = cluster.api
    cluster.scheduler.stop()
    resources = {"gpu.intel.com/i915": "100", "gpu.intel.com/millicores": "4000"}
    cluster.add_node("n1", labels={"gpu.intel.com/gpu-numbers": "0.1.2.3"}, resources=resources)
    # At most 25 requests a second, so that SIGTERM comes when most binds wait for their turn.
    extender = cluster.extender("gas", "--qps=25", "--burst=1")
    extender.start_and_wait_until_ready()
    pods = [api.create(PODS, pod(f"pod-{number}", container(i915=1, millicores=50))) for number in range(BINDS)]
    connections = [cluster.verbs(extender) for _ in pods]
    for connection in connections:
        connection.connect()
    wait_for("the extender has seen the pods", lambda: connections[0].filter(pods[-1], ["n1"])["NodeNames"])
    for connection, waiting in zip(connections, pods, strict=True):
        connection.send_bind(waiting, "n1")
    assert connections[0].answer()["Error"] == ""
    start = time.monotonic()
    assert extender.program.terminate() == 0
    assert time.monotonic() - start < 20

    answered = 1
    for connection, waiting in list(zip(connections, pods, strict=True))[1:]:
        shown = get_pod(api, waiting["metadata"]["name"])
        is_bound = shown["spec"].get("nodeName") == "n1"
        assert is_bound == bool(cards_of(shown))
        try:
            error = connection.answer()["Error"]
        except (OSError, http.client.HTTPException):
            continue
        answered += 1
        assert is_bound == (error == "")
    assert answered == BINDS
