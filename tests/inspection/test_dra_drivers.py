"""Pods and nodes that DRA serves, in the words of the commands."""

from __future__ import annotations

from typing import Any

import msgspec

from gas.inspection.cluster import Cluster
from gas.inspection.objects import InspectedNode, InspectedPod
from gas.inspection.reasons import diagnose
from gas.inspection.rows import pod_report
from gas.inspection.why import explain
from gas.objects.stored import DeviceClass
from tests.builders import container, node_json, pod_json

I915 = "gpu.intel.com/i915"
CLAIM = {"resourceClaimName": "on-dra-x", "requestMappings": [{"containerName": "main", "resourceName": I915}]}


def cluster(*pods: dict[str, Any]) -> Cluster:
    bare = {"status": {"allocatable": {"cpu": "8"}, "capacity": {"cpu": "8"}}}
    nodes = [node_json("plugin", cards=1), {**bare, "metadata": {"name": "dra"}}, {**bare, "metadata": {"name": "cpu"}}]
    found = Cluster.of(
        [msgspec.convert(each, InspectedNode) for each in nodes],
        [msgspec.convert(each, InspectedPod) for each in pods],
    )
    spec = {"extendedResourceName": I915}
    found.classes.changed(msgspec.convert({"metadata": {"name": "gpu"}, "spec": spec}, DeviceClass))
    found.of_drivers = frozenset({"dra", "plugin"})
    return found


def test_a_bound_pod_is_said_to_be_served_by_dra() -> None:
    pod = pod_json(container(i915=1), name="on-dra", node="dra")
    pod["status"]["extendedResourceClaimStatus"] = CLAIM
    known = cluster(pod)
    served = "it is served by DRA (class gpu, ResourceClaim on-dra-x)"
    assert explain(known, msgspec.convert(pod, InspectedPod)).line == f"is on node dra without booked cards: {served}"
    (row,) = pod_report(known).rows
    assert (row["node"], row["note"], row["cards"]) == ("dra", served, None)


def test_nodes_that_dra_serves_are_named_for_a_waiting_pod_that_asks_for_counts_only() -> None:
    full = pod_json(
        container(i915=1), name="full", node="plugin", annotations={"gas-ts": "1", "gas-container-cards": "card0"}
    )
    whole, share = pod_json(container(i915=1), name="a"), pod_json(container(i915=1, memory_max=5), name="b")
    known = cluster(full, whole, share)
    notes = {row["name"]: str(row["note"]) for row in pod_report(known).rows}
    by_dra = "1 node serves it by DRA (class gpu), whose free devices are not looked at"
    assert by_dra in notes["a"]
    assert "DRA" not in notes["b"]
    served = "it is served by DRA (class gpu), whose free devices are not looked at"
    reasons = {each.text: each.nodes for each in explain(known, msgspec.convert(whole, InspectedPod)).groups}
    assert reasons == {
        "no card has 1 i915 free": 1,
        served: 1,
        "the node has no known GPU card": 1,
    }
    assert diagnose(known, msgspec.convert(whole, InspectedPod), ["dra"]).line == served
    assert by_dra in explain(cluster(whole), msgspec.convert(whole, InspectedPod)).line  # it fits on cards as well
