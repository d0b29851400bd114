"""The extender with exactly the original's role, and with all permissions."""

from __future__ import annotations

from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.pods import (
    PODS,
    cards_by_pod,
    container,
    delete_now,
    event_messages,
    get_pod,
    is_refused,
    node_of,
    pod,
)
from tests.e2e.waiting import wait_for

NODE = "/api/v1/nodes/n1"
DESCHEDULE = "telemetry.aware.scheduling.policy/gas-deschedule-pods-card0"
LABEL = "gpu.aware.scheduling/deschedule-pod"


def start(cluster: Cluster, *flags: str, account: KubeApi | None = None) -> Extender:
    """Start the extender, with the original's role by default, and add a node of two cards of 1000 millicores."""
    cluster.add_node(
        "n1",
        labels={"gpu.intel.com/gpu-numbers": "0.1"},
        resources={"gpu.intel.com/i915": "20", "gpu.intel.com/millicores": "2000"},
    )
    extender = cluster.extender("gas", *flags, account=account)
    extender.start_and_wait_until_ready()
    return extender


def gpu_pod(name: str, millicores: int) -> Object:
    return pod(name, container(i915=1, millicores=millicores))


def label_of(api: KubeApi, name: str) -> str | None:
    label: str | None = get_pod(api, name)["metadata"].get("labels", {}).get(LABEL)
    return label


def annotations_of_the_node(api: KubeApi) -> Object:
    annotations: Object = api.get(NODE)["metadata"].get("annotations", {})
    return annotations


def put_label(api: KubeApi, name: str, value: str | None) -> None:
    """Set a label of the node; None removes it."""
    api.merge(NODE, {"metadata": {"labels": {name: value}}})


# contract E14.3
def test_the_original_role_is_enough_to_place_and_to_label_pods_that_should_leave(cluster: Cluster) -> None:
    api = cluster.api
    start(cluster)
    for number in (1, 2):
        api.create(PODS, gpu_pod(f"big-{number}", 700))
    wait_for("both are bound", lambda: len(cards_by_pod(api)) == 2)
    (on_card0,) = (name for name, cards in cards_by_pod(api).items() if cards == "card0")
    (on_card1,) = cards_by_pod(api).keys() - {on_card0}

    put_label(api, DESCHEDULE, "1")
    assert wait_for("the pod is labelled", lambda: label_of(api, on_card0)) == "gpu"
    assert label_of(api, on_card1) is None
    put_label(api, DESCHEDULE, None)
    wait_for("the label is gone", lambda: label_of(api, on_card0) is None)


def test_the_original_role_is_enough_to_wake_a_waiting_pod(cluster: Cluster) -> None:
    api = cluster.api
    extender = start(cluster)
    for number in (1, 2):
        api.create(PODS, gpu_pod(f"big-{number}", 700))
    wait_for("both are bound", lambda: len(cards_by_pod(api)) == 2)
    # Of the node 600 are left, so it is the books by card that refuse them.
    for name in ("waiter-1", "waiter-2"):
        api.create(PODS, gpu_pod(name, 600))
        wait_for("it is refused", lambda name=name: is_refused(api, name))  # type: ignore[misc]
    delete_now(api, "big-1")
    wait_for("one of the waiters is bound", lambda: len(cards_by_pod(api)) == 2)
    # The other one keeps waiting, so kube-scheduler must be woken.
    wait_for("the node is patched", lambda: "gas-released" in annotations_of_the_node(api))
    assert extender.metric("gas_extender_wakes_total") >= 1


def test_under_the_original_role_missing_events_are_named_once_and_left_out(cluster: Cluster) -> None:
    api = cluster.api
    extender = start(cluster)
    put_label(api, "gpu.intel.com/numa-gpu-map", "senseless")
    for number in (1, 2, 3):
        api.create(PODS, gpu_pod(f"impossible-{number}", 1500))
    for number in (1, 2, 3):
        wait_for("it is refused", lambda name=f"impossible-{number}": is_refused(api, name))  # type: ignore[misc]
    said = wait_for("the log says so", lambda: lines_with(extender, "no events are written"))
    assert len(said) == 1
    assert 'give its role the verb "create" on resource "events"' in said[0]
    api.create(PODS, gpu_pod("possible", 500))
    wait_for("it is bound", lambda: node_of(api, "possible"))
    assert len(lines_with(extender, "events")) == 1
    assert event_messages(api, "impossible-1", "NoGPUCardFits") == []


def test_under_the_original_role_an_election_is_refused_once_and_nothing_is_decided(cluster: Cluster) -> None:
    extender = cluster.extender("gas", "--leader-elect")
    extender.start()
    said = wait_for("the log says so", lambda: lines_with(extender, "cannot take part in leader election"))
    assert len(said) == 1
    assert 'resource "leases"' in said[0]
    assert not extender.is_ready()


def test_with_the_full_role_a_refused_pod_and_a_senseless_node_have_events(cluster: Cluster) -> None:
    api = cluster.api
    start(cluster, account=cluster.full_account)
    for number in (1, 2):
        api.create(PODS, gpu_pod(f"big-{number}", 700))
    wait_for("both are bound", lambda: len(cards_by_pod(api)) == 2)
    api.create(PODS, gpu_pod("refused", 400))
    (message, *more) = wait_for("its event", lambda: event_messages(api, "refused", "NoGPUCardFits"))
    assert "no card has 400 millicores free" in message
    assert more == []
    put_label(api, "gpu.intel.com/numa-gpu-map", "senseless")
    (message, *_) = wait_for("the node's event", lambda: event_messages(api, "n1", "InvalidGPULabels"))
    assert "numa-gpu-map" in message


def lines_with(extender: Extender, words: str) -> list[str]:
    return [line for line in extender.program.log_text().splitlines() if words in line]
