"""Whoever binds a GPU pod on the real API server: the Binding gets its cards in the same write, or it is refused."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from sandbox.certificates import Authority
from tests.e2e.bindings import bind_now
from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.kube_api import KubeApi, Object, refusal
from tests.e2e.pods import PODS, cards_of, container, event_messages, get_pod, pod, unbound
from tests.e2e.ports import free_port
from tests.e2e.service import Forwarder
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import BIND, BUSY, component_webhooks, later_webhook, register, slow_webhook, unregister

SCRIPTED = "binding-script"
NODES = 4
DRY_RUN = "?dryRun=All"


@dataclass(frozen=True, slots=True)
class Hooked:
    """A cluster of nodes with four cards each, whose API server has bindings reviewed."""

    cluster: Cluster
    extender: Extender
    port: int

    @property
    def api(self) -> KubeApi:
        return self.cluster.api

    def create(self, name: str, *, i915: int = 1, millicores: int = 400, scheduler: str = SCRIPTED) -> Object:
        return self.api.create(PODS, scheduled_by(scheduler, pod(name, container(i915=i915, millicores=millicores))))

    def booked(self) -> dict[str, str]:
        """Return the state of each booking by the pod's name."""
        return {book["pod"].removeprefix("default/"): book["state"] for book in self.extender.books()["pods"].values()}

    def outcomes(self, outcome: str) -> float:
        sample = f'gas_extender_reviewed_bindings_total{{outcome="{outcome}"}}'
        return self.extender.metric(sample, 0)


@pytest.fixture
def reviewed(cluster: Cluster) -> Iterator[Hooked]:
    for number in range(NODES):
        cluster.add_gpu_node(f"n{number}", cards=4, places=100)
    port = free_port()
    extender = cluster.extender("gas", f"--admission-port={port}", account=cluster.full_account)
    extender.start_and_wait_until_ready()
    authority = cluster.authority.certificate
    register(cluster.api, component_webhooks(BIND), port, authority, failurePolicy="Fail", timeoutSeconds=BUSY)
    try:
        ready = Hooked(cluster, extender, port)
        probe = ready.create("probe")
        wait_for(
            "the webhook is called", lambda: "node n99 is not known" in _refusal(ready.api, "probe", "n99", DRY_RUN)
        )
        cluster.api.delete(f"{PODS}/{probe['metadata']['name']}", gracePeriodSeconds="0")
        yield ready
    finally:
        unregister(cluster.api)


def scheduled_by(scheduler: str, created: Object) -> Object:
    created["spec"]["schedulerName"] = scheduler
    return created


def _refusal(api: KubeApi, name: str, node: str, query: str = "") -> str:
    """Return the sentence with which a Binding is refused; empty if it is written."""
    return refusal(lambda: bind_now(api, name, node, query=query))


@pytest.mark.parametrize("legacy", [False, True], ids=["pods/binding", "bindings"])
def test_a_script_that_binds_a_pod_gets_its_cards_in_the_same_write(reviewed: Hooked, *, legacy: bool) -> None:
    created = reviewed.create("p")
    reviewed.api.create(PODS, scheduled_by(SCRIPTED, pod("plain")))
    forged = {"gas-container-cards": "card3", "gas-allocated-cards": "card3", "note": "kept"}
    bind_now(reviewed.api, "p", "n1", legacy=legacy, annotations=forged)
    bind_now(reviewed.api, "plain", "n1", legacy=legacy)
    bound = get_pod(reviewed.api, "p")
    assert bound["metadata"]["uid"] == created["metadata"]["uid"]
    assert cards_of(bound) == "card0"
    assert bound["metadata"]["annotations"].keys() == {"gas-container-cards", "gas-ts", "note"}
    assert get_pod(reviewed.api, "plain")["spec"]["nodeName"] == "n1"
    wait_for("the pod is held", lambda: reviewed.booked() == {"p": "held"})

    large = [reviewed.create(f"large-{number}", millicores=700)["metadata"]["name"] for number in range(4)]
    bind_now(reviewed.api, large[0], "n0", query=DRY_RUN)
    assert reviewed.outcomes("dry-run") == 1
    assert "nodeName" not in get_pod(reviewed.api, large[0])["spec"]
    for name in large:
        bind_now(reviewed.api, name, "n0", legacy=legacy)
    reviewed.create("late", millicores=400)  # the sums of the node would have room for it
    said = _refusal(reviewed.api, "late", "n0")
    assert f'admission webhook "{BIND}" denied the request: ' in said
    assert "node n0 no longer has room for pod default/late: no card has " in said
    bind_now(reviewed.api, "late", "n1", legacy=legacy)
    assert reviewed.extender.books()["differences"] == []


def test_the_extenders_own_bindings_skip_the_webhook(reviewed: Hooked) -> None:
    before = {outcome: reviewed.outcomes(outcome) for outcome in ("chosen", "carried", "refused")}
    for number in range(5):
        reviewed.create(f"p{number}", scheduler="default-scheduler")
    wait_for("all pods are bound", lambda: not unbound(reviewed.api))
    assert all(cards_of(each) for each in reviewed.api.items(PODS))
    assert {outcome: reviewed.outcomes(outcome) for outcome in before} == before


def test_a_binding_that_is_written_too_late_fails_and_its_cards_are_free(reviewed: Hooked, tmp_path: Path) -> None:
    """Another webhook after the extender's takes its time; meanwhile the cards are given to another pod."""
    for number in range(2):
        reviewed.create(f"p{number}", i915=4, millicores=4000)
    with slow_webhook(reviewed.api, Authority(tmp_path, name="slow-ca"), seconds=6.0, pod="p0"):
        late: list[str] = []
        writing = threading.Thread(target=lambda: late.append(_refusal(reviewed.api, "p0", "n0")))
        writing.start()
        wait_for("cards are reserved", lambda: reviewed.booked() == {"p0": "reserved"})
        assert "no longer has room" in _refusal(reviewed.api, "p1", "n0")
        wait_for("the reservation expires", lambda: reviewed.booked() == {})
        bind_now(reviewed.api, "p1", "n0")
        writing.join()
    assert "Precondition failed: ResourceVersion" in late[0] or "the object has been modified" in late[0]
    assert reviewed.outcomes("expired") == 1
    assert "nodeName" not in get_pod(reviewed.api, "p0")["spec"]
    assert reviewed.extender.books()["differences"] == []
    wait_for("the other webhook is gone", lambda: _refusal(reviewed.api, "p0", "n1") == "")
    assert cards_of(get_pod(reviewed.api, "p0")) == "card0,card1,card2,card3"


def test_a_review_that_meets_a_replica_that_does_not_lead_is_sent_again_to_another_one(cluster: Cluster) -> None:
    """The API server may have kept a connection to a replica that led before."""
    cluster.add_gpu_node("n0", places=200)
    ports = {name: free_port() for name in ("leader", "other")}
    replicas = {
        name: cluster.extender(name, "--leader-elect", f"--admission-port={port}", account=cluster.full_account)
        for name, port in ports.items()
    }
    replicas["leader"].start_and_wait_until_ready()
    replicas["other"].start()
    wait_for("the other does not lead", lambda: says_that_it_does_not_lead(replicas["other"]))
    front = free_port()
    service = Forwarder("127.0.0.1", front, ports["other"], ports["leader"])
    authority, shipped = cluster.authority.certificate, component_webhooks(BIND)
    register(cluster.api, shipped, front, authority, failurePolicy="Fail", timeoutSeconds=BUSY)
    try:
        cluster.api.create(PODS, scheduled_by(SCRIPTED, pod("probe", container(i915=1))))
        wait_for(
            "the webhook is called", lambda: "node n99 is not known" in _refusal(cluster.api, "probe", "n99", DRY_RUN)
        )
        seconds = []
        for number in range(10):
            cluster.api.create(PODS, scheduled_by(SCRIPTED, pod(f"p{number}", container(i915=1))))
            service.end_connections()
            turned_away, started = not_ready(replicas["other"]), time.monotonic()
            bind_now(cluster.api, f"p{number}", "n0")
            seconds.append(time.monotonic() - started)
            # Connections go to each replica in turn, so the first new one goes to the replica that does not lead.
            assert not_ready(replicas["other"]) > turned_away
            assert cards_of(get_pod(cluster.api, f"p{number}")) in ("card0", "card1")
        assert not_ready(replicas["leader"]) == 0
        print(f"{median(seconds):.3f} s for a binding whose first review meets a replica that does not lead")
    finally:
        unregister(cluster.api)
        service.close()


def says_that_it_does_not_lead(replica: Extender) -> bool:
    try:
        return "lead" in (replica.why_not_ready() or "")
    except (OSError, http.client.HTTPException):
        return False


def not_ready(replica: Extender) -> float:
    """Return how many reviews of bindings the replica has turned away because it may not decide."""
    return replica.metric('gas_extender_reviews_total{result="not-ready",webhook="bind"}', 0)


@pytest.mark.parametrize("reinvocation", ["Never", "IfNeeded"])
def test_cards_that_a_later_webhook_removes_are_stated_again_once(
    reviewed: Hooked, tmp_path: Path, reinvocation: str
) -> None:
    """If the API server asks the later webhook again as well, that one has the last word, and the pod is reported."""
    reviewed.create("p")
    with removing_webhook(reviewed.api, Authority(tmp_path, name="later-ca"), reinvocation):
        bind_now(reviewed.api, "p", "n1")
    wait_for("the cards are held", lambda: reviewed.booked() == {"p": "held"})
    bound = get_pod(reviewed.api, "p")
    assert bound["spec"]["nodeName"] == "n1"
    if reinvocation == "Never":
        assert cards_of(bound) == "card0"
        assert troubles(reviewed) == []
        return
    assert not cards_of(bound)
    wait_for("the extender counts it", lambda: reviewed.extender.metric("gas_extender_unannotated_gpu_pods") == 1)
    assert [each["pod"] for each in troubles(reviewed)] == ["default/p"]
    wait_for("it has an event", lambda: event_messages(reviewed.api, "p", "GPUBookingMismatch"))


def removing_webhook(api: KubeApi, authority: Authority, reinvocation: str) -> AbstractContextManager[None]:
    """Register a webhook that runs after the extender's and removes the annotations of Bindings."""

    def remove(written: Object) -> list[Object]:
        has_any = bool(written["metadata"].get("annotations"))
        return [{"op": "remove", "path": "/metadata/annotations"}] if has_any else []

    return later_webhook(api, authority, remove, matchConditions=[], reinvocationPolicy=reinvocation)


def troubles(ready: Hooked) -> list[Object]:
    return list(ready.extender.books()["trouble"].values())
