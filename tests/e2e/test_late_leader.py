"""A Binding that another webhook keeps while its sender stands still and another replica takes over."""

from __future__ import annotations

from pathlib import Path

from sandbox.certificates import Authority
from tests.e2e.cluster import Cluster
from tests.e2e.pods import PODS, cards_by_pod, container, node_of, pod
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import slow_webhook


def test_a_binding_that_a_webhook_keeps_is_refused_once_another_replica_decides(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The connection of the leader that sent it stays open."""
    api = cluster.api
    cluster.add_gpu_node("n1", cards=4)
    first, second = (
        cluster.extender(name, "--leader-elect", account=cluster.full_account) for name in ("first", "second")
    )
    first.start_and_wait_until_ready()
    second.start()
    wait_for("the second replica waits to lead", lambda: "is not the leader" in second.program.log_text())
    cluster.scheduler.stop()
    late, other = (api.create(PODS, pod(name, container(i915=4, millicores=4000))) for name in ("late", "other"))
    asked = cluster.verbs(first)
    with slow_webhook(api, Authority(tmp_path, name="slow-ca"), seconds=27, pod="late") as keeps:
        asked.send_bind(late, "n1")
        wait_for("the webhook keeps the Binding", keeps.is_set)
        first.program.pause()
        wait_for("the second replica decides", second.is_ready, seconds=25)
        assert cluster.verbs(second).bind(other, "n1")["Error"] == ""
        first.program.resume()
        assert asked.answer()["Error"]
    assert node_of(api, "late") is None
    assert cards_by_pod(api)["other"] == "card0,card1,card2,card3"
