"""Company and named cards through the real kube-scheduler, with a restart of the extender in the middle."""

from __future__ import annotations

from typing import Any

from tests.e2e.audit import audit
from tests.e2e.cluster import Cluster
from tests.e2e.kube_api import KubeApi
from tests.e2e.pods import PODS, cards_by_pod, cards_of, container, delete_now, event_messages, get_pod, pod
from tests.e2e.waiting import wait_for

LABELS = {"gpu.intel.com/gpu-numbers": "0.1.2"}
CARDS = {"gpu.intel.com/i915": "30", "gpu.intel.com/millicores": "3000"}


def create(api: KubeApi, name: str, /, **labels: str) -> None:
    """Create a pod that asks for a card; ``affinity="red"`` is its annotation gas-card-affinity."""
    annotations = {f"gas-card-{label.replace('_', '-')}": text for label, text in labels.items()}
    api.create(PODS, pod(name, container(i915=1, millicores=100), annotations=annotations))


def bound(api: KubeApi, name: str, /, **labels: str) -> str | None:
    create(api, name, **labels)
    wait_for(f"{name} is bound", lambda: name in cards_by_pod(api))
    return cards_of(get_pod(api, name))


def refused(api: KubeApi, name: str, sentence: str, /, **labels: str) -> None:
    create(api, name, **labels)
    said = wait_for(f"the event of {name}", lambda: event_messages(api, name, "FailedScheduling"))
    assert f"0/1 nodes are available: 1 {sentence}" in said[0]


def test_pods_keep_company_across_a_restart_of_the_extender(cluster: Cluster) -> None:
    api = cluster.api
    cluster.restart_scheduler(ignorable=False)
    cluster.add_node("n1", labels=LABELS, resources=CARDS)
    extender = cluster.extender("gas")
    extender.start_and_wait_until_ready()
    assert bound(api, "plain") == "card0"
    assert bound(api, "red-1", affinity="red", exclusion="team") == "card1"
    assert bound(api, "named-1", name="workbench") == "card2"

    extender.program.kill()
    extender.start_and_wait_until_ready()
    assert booked(extender.books(), "company") == {"red-1": {"affinity": "red", "exclusion": "team"}}
    assert booked(extender.books(), "card_name") == {"named-1": "workbench"}
    assert bound(api, "red-2", affinity="red", exclusion="team") == "card1"
    assert bound(api, "named-2", name="workbench") == "card2"
    assert bound(api, "apart-1", anti_affinity="replica") == "card0"
    assert bound(api, "apart-2", anti_affinity="replica") == "card2"
    refused(api, "apart-3", "no card open to anti-affinity 'replica' has 100 millicores free", anti_affinity="replica")
    refused(api, "blue", "no card open to exclusion 'blue' has 100 millicores free", exclusion="blue")

    for name in ("red-1", "red-2"):
        delete_now(api, name)
    wait_for("one of the two gets the card that is idle now", lambda: len(cards_by_pod(api)) == 6)
    newcomer = "blue" if "blue" in cards_by_pod(api) else "apart-3"
    assert cards_of(get_pod(api, newcomer)) == "card1"
    assert audit(api) == []
    assert extender.books()["differences"] == []


def booked(books: dict[str, Any], field: str) -> dict[str, Any]:
    """Return a field of the bookings by the pod's name, for pods that have it."""
    return {each["pod"].removeprefix("default/"): each[field] for each in books["pods"].values() if field in each}
