"""Whoever binds a GPU pod on the real API server: the Binding gets its cards in the same write, or it is refused."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.e2e.audit import audit, live_holders
from tests.e2e.bindings import HOOK, RULES, BindingScript, bind_now, binding, register_bind
from tests.e2e.certificates import Authority
from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.kube_api import KubeApi, Object, RefusedError
from tests.e2e.pod_runner import RUNS_FOR, PodRunner
from tests.e2e.pods import PODS, cards_of, container, event_messages, get_pod, pod, unbound
from tests.e2e.ports import free_port
from tests.e2e.scheduler import KubeScheduler
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import MUTATING, unregister, webhook
from tests.e2e.written_cards import wants_cards
from tests.extender.admission.reviews import review_json

SCRIPTED, OTHER = "binding-script", "other-scheduler"
PODS_IN_ALL, KILLS = 500, 10
NODES = 4
DRY_RUN = "?dryRun=All"
GIVEN = "gave cards to a binding of another client"


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
        try:
            return self.extender.metric(sample)
        except KeyError:
            return 0.0

    def post(self, document: Object) -> Object:
        """Send a review to the port as any program of the network could, and return the response."""
        context = ssl.create_default_context(cafile=str(self.cluster.authority.certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)
        try:
            connection.request("POST", "/bind", json.dumps(document), {"Content-Type": "application/json"})
            response: Object = json.loads(connection.getresponse().read())["response"]
            return response
        finally:
            connection.close()


@contextmanager
def hooked(cluster: Cluster, *, policy: str, millicores: int = 4000) -> Iterator[Hooked]:
    resources = {"i915": "400", "millicores": str(millicores)}
    for number in range(NODES):
        cluster.add_node(
            f"n{number}",
            labels={"gpu.intel.com/gpu-numbers": "0.1.2.3"},
            resources={f"gpu.intel.com/{name}": amount for name, amount in resources.items()},
        )
    port = free_port()
    extender = cluster.extender("gas", f"--admission-port={port}", account=cluster.full_account)
    extender.start_and_wait_until_ready()
    register_bind(cluster.api, port, cluster.authority.certificate, policy=policy)
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


@pytest.fixture
def reviewed(cluster: Cluster) -> Iterator[Hooked]:
    with hooked(cluster, policy="Fail") as ready:
        yield ready


def scheduled_by(scheduler: str, created: Object) -> Object:
    created["spec"]["schedulerName"] = scheduler
    return created


def _refusal(api: KubeApi, name: str, node: str, query: str = "") -> str:
    """Return the sentence with which a Binding is refused; empty if it is written."""
    try:
        bind_now(api, name, node, query=query)
    except RefusedError as refused:
        return refused.message
    return ""


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
    assert audit(reviewed.api) == []


def test_a_node_without_room_is_refused_with_the_extenders_sentence(reviewed: Hooked) -> None:
    for number in range(4):
        reviewed.create(f"large-{number}", millicores=700)
        bind_now(reviewed.api, f"large-{number}", "n0")
    reviewed.create("p", millicores=400)  # the sums of the node would have room for it
    refusal = _refusal(reviewed.api, "p", "n0")
    assert f'admission webhook "{HOOK}" denied the request: ' in refusal
    assert "node n0 no longer has room for pod default/p: no card has " in refusal
    bind_now(reviewed.api, "p", "n1")
    assert audit(reviewed.api) == []


def test_a_dry_run_books_nothing(reviewed: Hooked) -> None:
    reviewed.create("p")
    bind_now(reviewed.api, "p", "n0", query=DRY_RUN)
    assert reviewed.outcomes("dry-run") == 1
    assert reviewed.booked() == {}
    assert "nodeName" not in get_pod(reviewed.api, "p")["spec"]


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
    assert audit(reviewed.api) == []
    wait_for("the other webhook is gone", lambda: _refusal(reviewed.api, "p0", "n1") == "")
    assert cards_of(get_pod(reviewed.api, "p0")) == "card0,card1,card2,card3"


def test_forged_reviews_book_cards_for_a_moment_only(reviewed: Hooked) -> None:
    created = reviewed.create("p", i915=4, millicores=4000, scheduler=SCRIPTED)
    document = review_json(
        binding("p", "n0", uid=created["metadata"]["uid"]),
        subresource="binding",
        name="p",
        user="system:kube-scheduler",
    )
    refused = ""
    booked_seconds, started = 0.0, time.monotonic()
    while not refused and time.monotonic() - started < 60:
        response = reviewed.post(document)
        if not response["allowed"]:
            refused = response["status"]["message"]
            break
        since = time.monotonic()
        wait_for("the cards are free", lambda: reviewed.booked() == {}, seconds=10, every=0.02)
        booked_seconds += time.monotonic() - since
    assert "was given cards 3 times within 60 s and was not bound" in refused
    assert booked_seconds < 3 * 3.5
    assert reviewed.booked() == {}
    unknown = reviewed.post(review_json(binding("no-such-pod", "n0"), subresource="binding", name="no-such-pod"))
    assert unknown["status"]["message"] == "pod default/no-such-pod does not exist"
    again = reviewed.create("q", i915=4, millicores=4000, scheduler="default-scheduler")
    wait_for("the extender binds", lambda: cards_of(get_pod(reviewed.api, again["metadata"]["name"])))


@contextmanager
def slow_webhook(api: KubeApi, authority: Authority, *, seconds: float, pod: str) -> Iterator[None]:
    """Register a webhook that runs after the extender's and takes its time for one pod."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(seconds)
            review["response"] = {"uid": review["request"]["uid"], "allowed": True}
            body = json.dumps(review).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    serving = authority.server("slow")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(serving.certificate, serving.key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hook = webhook("slow.example.com", server.server_address[1], "/", authority.certificate, RULES, policy="Fail")
    hook |= {
        "timeoutSeconds": 30,
        "matchConditions": [{"name": "one-pod", "expression": f"object.metadata.name == '{pod}'"}],
    }
    # Registrations are called in the order of their names.
    api.create(MUTATING, {"metadata": {"name": "slow-after-gas-bind"}, "webhooks": [hook]})
    try:
        time.sleep(2)  # the API server reads registrations with a delay, and nothing else shows that it has
        yield
    finally:
        api.delete(f"{MUTATING}/slow-after-gas-bind")
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_pods_of_three_schedulers_get_their_cards_while_the_extender_comes_and_goes(
    cluster: Cluster, binaries: Path, tmp_path: Path, policy: str
) -> None:
    """Bind by kube-scheduler with ``ignorable: true``, by a scheduler without extender, and by a script."""
    seed = int(os.environ.get("GAS_E2E_SEED") or time.time_ns() % 10**6)
    print(f"\nseed {seed}; the same again with GAS_E2E_SEED={seed}")
    rng = Random(seed)
    cluster.restart_scheduler(ignorable=True)
    other = KubeScheduler(
        tmp_path, binaries, cluster.authority, cluster.control_plane.scheduler, None, scheduler_name=OTHER
    )
    lasting = policy == "Ignore"  # those without cards are counted at the end, so all must still be there
    # Two pods of 400 fit on a card, and a node whose cards all have two has room for two more by its sums.
    with hooked(cluster, policy=policy, millicores=64_000 if lasting else 4000) as ready:
        api = ready.api
        script = BindingScript(api, [f"n{number}" for number in range(NODES)], rng, scheduler_name=SCRIPTED)
        other.start()
        try:
            with PodRunner(api), script:
                kill_while_pods_come(ready, rng, lasting=lasting)
                wait_for("every pod is bound", lambda: not unbound(api), seconds=400, every=1)
                without = bound_without_cards(api)
                if policy == "Fail":
                    assert without == []
                    assert HOOK in cluster.scheduler.program.log_text(), "kube-scheduler never bound on its own"
                else:
                    assert without
                    wait_for("the extender counts them", lambda: unannotated(ready) == len(without))
                    assert {each["pod"].removeprefix("default/") for each in troubles(ready)} == set(without)
                    for name in without:
                        wait_for(
                            f"the event of {name}",
                            lambda name=name: event_messages(api, name, "GPUBookingMismatch"),  # type: ignore[misc]
                        )
                assert [line for line in audit(api) if not names_any(line, without)] == []
                wait_for("nothing is in doubt", lambda: set(ready.booked().values()) <= {"held"})
                wait_for("all cards are booked", lambda: live_names(api) - set(without) <= ready.booked().keys())
                if not without:
                    assert ready.extender.books()["differences"] == []
        finally:
            other.stop()
        given = given_by_review(ready)
    for prefix in ("other", "script"):
        assert any(name.startswith(prefix) for name in given), f"no pod {prefix}-… got its cards in a review"
    print(f"{policy}: {KILLS} kills, {len(given)} pods given cards in reviews, {len(without)} bound without cards")


def kill_while_pods_come(ready: Hooked, rng: Random, *, lasting: bool) -> None:
    """Create all pods in bursts, and kill the extender in the middle of some of them."""
    kinds = {"kube": "default-scheduler", "other": OTHER, "script": SCRIPTED}
    names = [f"{list(kinds)[number % 3]}-{number}" for number in range(PODS_IN_ALL)]
    bursts = [names[start : start + 20] for start in range(0, PODS_IN_ALL, 20)]
    kills = 0
    for number, burst in enumerate(bursts):
        for name in burst:
            needs = container() if rng.random() < 0.1 else container(i915=1, millicores=400)
            created = scheduled_by(kinds[name.split("-")[0]], pod(name, needs))
            if not lasting:
                created["metadata"]["labels"] = {RUNS_FOR: f"{rng.uniform(0.5, 2):.1f}"}
            ready.api.create(PODS, created)
        if number % 2 == 0 and kills < KILLS:
            time.sleep(rng.uniform(0, 0.3))
            ready.extender.program.kill()
            kills += 1
            time.sleep(rng.uniform(0, 1.5))
            ready.extender.start_and_wait_until_ready()
            if not lasting:
                assert audit(ready.api) == []
        time.sleep(rng.uniform(0, 0.5))
    assert kills == KILLS


def bound_without_cards(api: KubeApi) -> list[str]:
    pods = [each for each in api.items(PODS) if each["spec"].get("nodeName") and wants_cards(each)]
    return [each["metadata"]["name"] for each in pods if not cards_of(each)]


def live_names(api: KubeApi) -> set[str]:
    return {each["metadata"]["name"] for each in live_holders(api)}


def unannotated(ready: Hooked) -> float:
    return ready.extender.metric("gas_extender_unannotated_gpu_pods")


def troubles(ready: Hooked) -> list[Object]:
    return list(ready.extender.books()["trouble"].values())


def names_any(line: str, names: list[str]) -> bool:
    return any(f"pod {name}:" in line for name in names)


def given_by_review(ready: Hooked) -> set[str]:
    """Return the names of the pods that the extender's log says were given cards in a review."""
    lines = [line for line in ready.extender.program.log.read_text().splitlines() if GIVEN in line]
    words = [word for line in lines for word in line.replace('"', " ").replace(",", " ").split()]
    return {word.partition("default/")[2] for word in words if "default/" in word}
