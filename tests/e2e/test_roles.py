"""The extender with exactly the original's role."""

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
    pod,
)
from tests.e2e.waiting import wait_for

NODE = "/api/v1/nodes/n1"
DESCHEDULE = "telemetry.aware.scheduling.policy/gas-deschedule-pods-card0"
LABEL = "gpu.aware.scheduling/deschedule-pod"


def start(cluster: Cluster) -> Extender:
    """Start the extender with the original's role, and add a node of two cards of 1000 millicores."""
    cluster.add_gpu_node("n1")
    extender = cluster.extender("gas")
    extender.start_and_wait_until_ready()
    return extender


def gpu_pod(name: str, millicores: int) -> Object:
    return pod(name, container(i915=1, millicores=millicores))


def label_of(api: KubeApi, name: str) -> str | None:
    label: str | None = get_pod(api, name)["metadata"].get("labels", {}).get(LABEL)
    return label


def put_label(api: KubeApi, name: str, value: str | None) -> None:
    """Set a label of the node; None removes it."""
    api.merge(NODE, {"metadata": {"labels": {name: value}}})


# contract E14.3
def test_the_original_role_is_enough_to_place_pods_to_wake_them_and_to_label_those_that_should_leave(
    cluster: Cluster,
) -> None:
    api = cluster.api
    extender = start(cluster)
    for number in (1, 2):
        api.create(PODS, gpu_pod(f"big-{number}", 700))
    wait_for("both are bound", lambda: len(cards_by_pod(api)) == 2)
    (on_card0,) = (name for name, cards in cards_by_pod(api).items() if cards == "card0")
    (on_card1,) = cards_by_pod(api).keys() - {on_card0}

    # Of the node 600 are left, so it is the ledger's cards that refuse them.
    for name in ("waiter-1", "waiter-2"):
        api.create(PODS, gpu_pod(name, 600))
        wait_for("it is refused", lambda name=name: is_refused(api, name))  # type: ignore[misc]
    delete_now(api, on_card1)
    wait_for("one of the waiters is bound", lambda: len(cards_by_pod(api)) == 2)
    # The other one keeps waiting, so kube-scheduler must be woken.
    wait_for("the node is patched", lambda: "gas-released" in api.get(NODE)["metadata"].get("annotations", {}))
    assert extender.metric("gas_extender_wakes_total") >= 1

    (on_card1,) = cards_by_pod(api).keys() - {on_card0}
    put_label(api, DESCHEDULE, "1")
    assert wait_for("the pod is labelled", lambda: label_of(api, on_card0)) == "gpu"
    assert label_of(api, on_card1) is None
    put_label(api, DESCHEDULE, None)
    wait_for("the label is gone", lambda: label_of(api, on_card0) is None)

    said = wait_for("the log says so", lambda: lines_with(extender, "no events are written"))
    assert len(said) == len(lines_with(extender, "events")) == 1
    assert 'give its role the verb "create" on resource "events"' in said[0]
    assert event_messages(api, "waiter-1", "NoGPUCardFits") == []


def test_under_the_original_role_an_election_is_refused_once_and_nothing_is_decided(cluster: Cluster) -> None:
    extender = cluster.extender("gas", "--leader-elect")
    extender.start()
    said = wait_for("the log says so", lambda: lines_with(extender, "cannot take part in leader election"))
    assert len(said) == 1
    assert 'resource "leases"' in said[0]
    assert not extender.is_ready()


def lines_with(extender: Extender, words: str) -> list[str]:
    return [line for line in extender.program.log_text().splitlines() if words in line]
