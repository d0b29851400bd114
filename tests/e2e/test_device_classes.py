"""Resources that a DeviceClass stands for: nodes of the plugin and of a DRA driver under the real kube-scheduler.

Only the driver's and kubelet's part is played: ResourceSlices, claims and the controllers that end these are real.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.kubectl import KubectlGas
from tests.e2e.pods import PODS, asking, cards_by_pod, delete_now, get_pod, is_refused, node_of, pod
from tests.e2e.release import selected_release
from tests.e2e.waiting import wait_for

RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
DRIVER = "gpu.example.com"
I915 = "gpu.intel.com/i915"
GATES = "" if selected_release().minor >= 36 else "DRAExtendedResource=true"  # on by default from Kubernetes 1.36 on


@pytest.fixture(autouse=True)
def _with_gates(cluster: Cluster) -> Iterator[None]:
    """Let kube-apiserver and kube-scheduler know DeviceClasses that stand for resources."""
    if GATES:
        cluster.control_plane.restart_api_server(f"--feature-gates={GATES}")
    cluster.restart_scheduler(ignorable=False, feature_gates=GATES)
    yield
    if GATES:
        cluster.control_plane.restart_api_server()


@contextmanager
def driver(cluster: Cluster, resource: str, **devices: int) -> Iterator[None]:
    """Let a class stand for a resource, and a driver publish this many devices of each node."""
    api = cluster.api
    cluster.controller_manager.start("resourceclaim-controller", "garbage-collector-controller")
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    spec = {"extendedResourceName": resource, "selectors": [selector]}
    api.create(f"{RESOURCES}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": spec})
    for node, count in devices.items():
        published = {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(count)],
        }
        api.create(f"{RESOURCES}/resourceslices", {"metadata": {"name": f"{node}-slice"}, "spec": published})
    try:
        yield
    finally:
        api.delete_all(PODS, gracePeriodSeconds="0")
        wait_for("the end of all claims", lambda: not api.items(CLAIMS))
        cluster.controller_manager.program.kill()
        for collection in ("resourceslices", "deviceclasses"):
            api.delete_all(f"{RESOURCES}/{collection}")


def add_plugin_node(cluster: Cluster, name: str, resource: str, cards: int) -> None:
    labels = {"gpu.intel.com/gpu-numbers": ".".join(map(str, range(cards)))} if "intel" in resource else {}
    shares = {"gpu.intel.com/millicores": str(1000 * cards)} if labels else {}
    cluster.add_node(name, labels=labels, resources={resource: str(cards), **shares})


def claim_of(written: Object) -> str | None:
    """Return the name of the claim from which kubelet would take the pod's devices."""
    name: str | None = written["status"].get("extendedResourceClaimStatus", {}).get("resourceClaimName")
    return name


def is_decided(api: KubeApi, name: str) -> bool:
    return node_of(api, name) is not None or is_refused(api, name)


@pytest.mark.parametrize("resource", [I915, "gpu.intel.com/xe", "nvidia.com/gpu"])
def test_pods_use_the_nodes_of_both(cluster: Cluster, kubectl_gas: KubectlGas, resource: str) -> None:
    api = cluster.api
    extender = cluster.extender("one", "--vocabularies=intel,vendor", account=cluster.full_account)
    extender.start_and_wait_until_ready()
    add_plugin_node(cluster, "plugin", resource, cards=1)
    cluster.add_node("dra")
    cluster.add_node("none")
    with driver(cluster, resource, dra=1):
        names = ("one", "two", "three")
        for name in names:  # there is room for one at both, then at the other one, then at none
            api.create(PODS, pod(name, asking({resource: 1})))
            wait_for("a decision", partial(is_decided, api, name))
        places = {name: node_of(api, name) for name in names}
        assert sorted(map(str, places.values())) == ["None", "dra", "plugin"]
        assert places["three"] is None
        for name, place in places.items():
            written = get_pod(api, name)
            assert (claim_of(written) is not None) == (place == "dra"), written
        assert set(cards_by_pod(api).values()) == {"card0", None}
        assert list(extender.booked()) == ["plugin"]
        books = extender.books()
        assert (books["trouble"], books["promised"], books["differences"]) == ({}, {}, [])
        if "intel" in resource:  # no extender's pod shows kubectl gas that vendor's words are on
            notes = {row["name"]: str(row["note"]) for row in kubectl_gas.data("pods")}
            (on_dra,) = (name for name, place in places.items() if place == "dra")
            assert notes[on_dra] == f"it is served by DRA (class gpu, ResourceClaim {claim_of(get_pod(api, on_dra))})"
            assert "1 node serves it by DRA (class gpu)" in notes["three"]
        on_plugin = next(name for name, place in places.items() if place == "plugin")
        api.create(PODS, pod("share", asking({resource: 1, "gpu.intel.com/millicores": 100})))
        wait_for("a refusal", lambda: is_refused(api, "share"))
        delete_now(
            api, on_plugin
        )  # then either pod could go there, and nothing makes a share pass on the driver's node
        wait_for("the pod that waited", lambda: node_of(api, "three") or node_of(api, "share"))
        assert node_of(api, "share") in (None, "plugin")


def test_without_a_drivers_node_or_without_the_permission_nothing_changes(cluster: Cluster) -> None:
    api = cluster.api
    one = cluster.extender("one")  # with the original's role
    one.start_and_wait_until_ready()
    add_plugin_node(cluster, "plugin", I915, cards=1)
    with driver(cluster, I915):
        for name in ("one", "two"):
            api.create(PODS, pod(name, asking({I915: 1})))
            wait_for("a decision", partial(is_decided, api, name))
        assert (node_of(api, "one"), node_of(api, "two")) == ("plugin", None)
    wait_for("a line about the permission", lambda: "cannot watch /apis/resource.k8s.io" in one.program.log_text())
    cluster.add_node("dra")
    with driver(cluster, I915, dra=1):
        api.create(PODS, pod("late", asking({I915: 2})))
        api.create(PODS, pod("small", asking({I915: 1})))
        wait_for("a refusal", partial(is_decided, api, "small"))
        assert node_of(api, "small") in (None, "plugin")
        assert one.is_ready()


ROUNDS, LOAD = 50, 60


def test_nothing_is_given_twice_while_the_plugin_goes_away_and_comes_back(cluster: Cluster) -> None:
    """A driver publishes the cards of the plugin's node as well, so kube-scheduler would take them meanwhile."""
    api = cluster.api
    extender = cluster.extender("one", account=cluster.full_account)
    extender.start_and_wait_until_ready()
    cards, devices = 8, 4
    add_plugin_node(cluster, "plugin", I915, cards=cards)
    cluster.add_node("dra")

    def flap() -> None:
        for _ in range(ROUNDS):
            for amount in ("0", str(cards)):
                api.merge("/api/v1/nodes/plugin/status", {"status": {"allocatable": {I915: amount}}})
                time.sleep(0.1)

    with driver(cluster, I915, plugin=cards, dra=devices):
        flapping = threading.Thread(target=flap)
        flapping.start()
        number = 0
        while flapping.is_alive():
            number += 1
            api.create(PODS, pod(f"load-{number}", asking({I915: 1})))
            if number > LOAD // 2:
                delete_now(api, f"load-{number - LOAD // 2}")
            time.sleep(0.1)
            check_nothing_double(api, cards, devices)
        flapping.join()
        wait_for("pods on the cards", lambda: len(check_nothing_double(api, cards, devices)) > 0)
        books = extender.books()
        assert (books["trouble"], books["differences"]) == ({}, [])


def check_nothing_double(api: KubeApi, cards: int, devices: int) -> list[str]:
    """Check that each card has one pod, decided by the extender, and none by a claim. Return the pods on cards."""
    bound = [each for each in api.items(PODS) if each["spec"].get("nodeName")]
    on_plugin = [each for each in bound if each["spec"]["nodeName"] == "plugin"]
    held = [each["metadata"].get("annotations", {}).get("gas-container-cards") for each in on_plugin]
    assert None not in held, on_plugin
    assert len(held) == len(set(held)) <= cards
    assert not any(map(claim_of, on_plugin))
    on_dra = [each for each in bound if each["spec"]["nodeName"] == "dra"]
    assert all(map(claim_of, on_dra))
    assert len(on_dra) <= devices
    return [each["metadata"]["name"] for each in on_plugin]
