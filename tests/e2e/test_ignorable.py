"""A GPU pod under the real kube-scheduler while no extender responds, with ``ignorable`` and without."""

from __future__ import annotations

from tests.e2e.cluster import Cluster
from tests.e2e.pods import PODS, container, get_pod, is_refused, node_of, pod
from tests.e2e.waiting import wait_for


def test_a_gpu_pod_waits_for_the_extender_unless_the_extender_is_ignorable(cluster: Cluster) -> None:
    """`ignorable: true` holds for bind as well as for filter, so such a pod runs without cards in any ledger."""
    api = cluster.api
    cluster.add_node("n1", resources={"gpu.intel.com/i915": "2"})
    cluster.restart_scheduler(ignorable=False)
    api.create(PODS, pod("gpu", container(i915=1)))
    wait_for("a failed try", lambda: is_refused(api, "gpu"))
    assert node_of(api, "gpu") is None
    cluster.restart_scheduler(ignorable=True)
    assert wait_for("the pod is bound", lambda: node_of(api, "gpu")) == "n1"
    assert "annotations" not in get_pod(api, "gpu")["metadata"]
