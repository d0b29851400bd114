"""Whoever binds a GPU pod on the real API server: the Binding gets its cards in the same write, or it is refused."""

from __future__ import annotations

import base64
import http.client
import http.server
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from random import Random
from statistics import median

import pytest

from benchmarks.processes import resident_bytes
from gas.daemon.serving import MOST_ADMISSION_CONNECTIONS
from gas.extender.admission.app import LARGE, LARGEST_REVIEW, MOST_LARGE
from tests.e2e.admission_cluster import Forwarder
from tests.e2e.audit import audit, live_holders
from tests.e2e.bindings import BindingScript, bind_now, binding
from tests.e2e.callers import Caller, status
from tests.e2e.certificates import Authority
from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.flood import flood
from tests.e2e.kube_api import KubeApi, Object, RefusedError
from tests.e2e.pod_runner import RUNS_FOR, PodRunner
from tests.e2e.pods import PODS, cards_of, container, event_messages, get_pod, pod, unbound
from tests.e2e.ports import free_port
from tests.e2e.scheduler import KubeScheduler
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import BIND, BUSY, MUTATING, component_webhooks, on_loopback, register, unregister
from tests.e2e.written_cards import wants_cards
from tests.extender.admission.reviews import patched, review_json

SCRIPTED, OTHER = "binding-script", "other-scheduler"
PODS_IN_ALL, KILLS = 500, 10
NODES = 4
DRY_RUN = "?dryRun=All"
FLOODED_BINDINGS = 40
LARGEST_CONNECTION = 0.6e6
"""Bytes that a connection of the admission port takes at most."""
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

    @property
    def caller(self) -> Caller:
        return Caller(self.port, self.cluster.authority.certificate)

    def post(self, document: Object) -> Object:
        """Send a review to the port as any program of the network could, and return the response."""
        response: Object = json.loads(self.caller.post("/bind", json.dumps(document).encode())[1])["response"]
        return response


@contextmanager
def hooked(cluster: Cluster, *, policy: str, millicores: int = 4000, **changes: object) -> Iterator[Hooked]:
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
    authority = cluster.authority.certificate
    register(cluster.api, component_webhooks(BIND), port, authority, failurePolicy=policy, **changes)
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
    with hooked(cluster, policy="Fail", timeoutSeconds=BUSY) as ready:
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
    assert f'admission webhook "{BIND}" denied the request: ' in refusal
    assert "node n0 no longer has room for pod default/p: no card has " in refusal
    bind_now(reviewed.api, "p", "n1")
    assert audit(reviewed.api) == []


def test_a_pod_with_501_containers_is_bound_with_one_card_and_refused_with_501(reviewed: Hooked) -> None:
    """The webhook for new pods would refuse both; without it the API server creates them."""
    for name, with_cards in (("one", 1), ("all", 501)):
        cards = [container(f"c{each}", i915=1) for each in range(with_cards)]
        plain = [container(f"c{each}") for each in range(with_cards, 501)]
        reviewed.api.create(PODS, scheduled_by(SCRIPTED, pod(name, *cards, *plain)))
    bind_now(reviewed.api, "one", "n0")
    assert (cards_of(get_pod(reviewed.api, "one")) or "").strip("|") == "card0"
    with pytest.raises(RefusedError) as refused:
        bind_now(reviewed.api, "all", "n0")
    assert refused.value.status == HTTPStatus.FORBIDDEN
    sentence = "the pod has 501 containers that ask for cards, expected at most 64; use several pods"
    assert f'admission webhook "{BIND}" denied the request: {sentence}' in refused.value.message
    assert "nodeName" not in get_pod(reviewed.api, "all")["spec"]
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


def test_a_review_that_meets_a_replica_that_does_not_lead_is_sent_again_to_another_one(cluster: Cluster) -> None:
    """The API server may have kept a connection to a replica that led before."""
    cluster.add_node(
        "n0",
        labels={"gpu.intel.com/gpu-numbers": "0.1"},
        resources={"gpu.intel.com/i915": "400", "gpu.intel.com/millicores": "4000"},
    )
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
    try:
        return replica.metric('gas_extender_reviews_total{result="not-ready",webhook="bind"}')
    except KeyError:
        return 0.0


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
        wait_for("the cards are free", lambda: reviewed.booked() == {}, every=0.02)
        booked_seconds += time.monotonic() - since
    assert "was given cards 3 times within 60 s and was not bound" in refused
    print(f"booked for {booked_seconds:.1f} s in all")
    assert reviewed.booked() == {}
    unknown = reviewed.post(review_json(binding("no-such-pod", "n0"), subresource="binding", name="no-such-pod"))
    assert unknown["status"]["message"] == "pod default/no-such-pod does not exist"
    again = reviewed.create("q", i915=4, millicores=4000, scheduler="default-scheduler")
    wait_for("the extender binds", lambda: cards_of(get_pod(reviewed.api, again["metadata"]["name"])))


def test_cards_are_given_in_time_while_slow_huge_and_repeated_reviews_arrive(reviewed: Hooked) -> None:
    created = reviewed.create("p", scheduler="none")
    dry = review_json(
        binding("p", "n0", uid=created["metadata"]["uid"]), subresource="binding", name="p", user="x", dry_run=True
    )
    with ExitStack() as opened, ThreadPoolExecutor(8) as pool:
        begun = reviewed.caller.begun
        too_large = opened.enter_context(begun("/bind", size=10**7))
        huge = [opened.enter_context(begun("/bind", size=LARGEST_REVIEW)) for _ in range(MOST_LARGE + 10)]
        slow = [opened.enter_context(begun("/bind", size=LARGE)) for _ in range(50)]
        repeated = [pool.submit(reviewed.post, dry) for _ in range(100)]
        for number in range(8):
            reviewed.create(f"p{number}")
            bind_now(reviewed.api, f"p{number}", "n1")
            assert cards_of(get_pod(reviewed.api, f"p{number}"))
        assert status(too_large) == 413
        assert {status(client) for client in slow} == {408}
        statuses = [status(client) for client in huge]
        assert (statuses.count(408), statuses.count(503)) == (MOST_LARGE, 10)
        given = {cards_of(patched(dry["request"]["object"], each.result())) for each in repeated}
        assert given == {"card0"}
    wait_for("no cards of the dry runs are booked", lambda: "p" not in reviewed.booked())
    assert audit(reviewed.api) == []


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
    wait_for("the extender counts it", lambda: unannotated(reviewed) == 1)
    assert [each["pod"] for each in troubles(reviewed)] == ["default/p"]
    wait_for("it has an event", lambda: event_messages(reviewed.api, "p", "GPUBookingMismatch"))


@pytest.mark.parametrize(
    "floods",
    [{"silent": 1500}, {"unfinished": 800}, {"slow": 800, "idle": 400}],
    ids=["silent", "unfinished", "slow-and-idle"],
)
def test_reviews_are_in_time_and_memory_is_bounded_in_a_flood_of_connections(
    reviewed: Hooked, tmp_path: Path, floods: dict[str, int]
) -> None:
    """The API server keeps connections, and opens further ones for reviews at the same time."""
    api, pid = reviewed.api, reviewed.extender.program.pid
    authority = reviewed.cluster.authority.certificate
    names = [f"p{number}" for number in range(FLOODED_BINDINGS)]
    for name in names:
        reviewed.create(name, millicores=100)
    before = resident_bytes(pid)

    def bind(name: str) -> float:
        began = time.monotonic()
        bind_now(api, name, "n0")  # raises RefusedError if the review is not in time
        return time.monotonic() - began

    with ExitStack() as running:
        for kind, clients in floods.items():
            running.enter_context(flood(kind, clients, reviewed.port, authority, tmp_path / f"{kind}.log"))
        pool = running.enter_context(ThreadPoolExecutor(len(names) // 2))
        one_by_one = [bind(name) for name in names[::2]]
        at_once = list(pool.map(bind, names[1::2]))
        time.sleep(5)
        grown = resident_bytes(pid, peak=True) - before
    for how, seconds in {"one by one": one_by_one, "at once": at_once}.items():
        print(f"\n{floods}: {len(seconds)} {how}: {median(seconds):.3f} s a binding, at most {max(seconds):.3f} s")
    print(f"{grown / 1e6:.0f} MB more than before")
    assert all(cards_of(get_pod(api, name)) for name in names)
    assert grown < 2 * MOST_ADMISSION_CONNECTIONS * LARGEST_CONNECTION
    assert audit(api) == []


def slow_webhook(api: KubeApi, authority: Authority, *, seconds: float, pod: str) -> AbstractContextManager[None]:
    """Register a webhook that runs after the extender's and takes its time for one pod."""

    def wait(_: Object) -> list[Object]:
        time.sleep(seconds)
        return []

    one_pod = [{"name": "one-pod", "expression": f"object.metadata.name == '{pod}'"}]
    return later_webhook(api, authority, wait, matchConditions=one_pod)


def removing_webhook(api: KubeApi, authority: Authority, reinvocation: str) -> AbstractContextManager[None]:
    """Register a webhook that runs after the extender's and removes the annotations of Bindings."""

    def remove(written: Object) -> list[Object]:
        has_any = bool(written["metadata"].get("annotations"))
        return [{"op": "remove", "path": "/metadata/annotations"}] if has_any else []

    return later_webhook(api, authority, remove, matchConditions=[], reinvocationPolicy=reinvocation)


@contextmanager
def later_webhook(
    api: KubeApi, authority: Authority, respond: Callable[[Object], list[Object]], **changes: object
) -> Iterator[None]:
    """Register a webhook that runs after the extender's.

    respond  Binding -> JSON patch
    changes  replace fields of its registration
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            patch = base64.b64encode(json.dumps(respond(review["request"]["object"])).encode()).decode()
            review["response"] = {
                "uid": review["request"]["uid"],
                "allowed": True,
                "patchType": "JSONPatch",
                "patch": patch,
            }
            body = json.dumps(review).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    serving = authority.server("later")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(serving.certificate, serving.key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (registration,) = component_webhooks(BIND)
    hook = on_loopback(
        registration["webhooks"][0],
        server.server_address[1],
        authority.certificate,
        name="later.example.com",
        failurePolicy="Fail",
        timeoutSeconds=30,
        **changes,
    )
    # Registrations are called in the order of their names.
    api.create(MUTATING, {"metadata": {"name": "later-than-gas"}, "webhooks": [hook]})
    try:
        time.sleep(2)  # the API server reads registrations with a delay, and nothing else shows that it has
        yield
    finally:
        api.delete(f"{MUTATING}/later-than-gas")
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

        def tried_alone() -> object:
            return bound_without_cards(api) if lasting else BIND in cluster.scheduler.program.log_text()

        other.start()
        try:
            with PodRunner(api), script:
                kill_while_pods_come(ready, rng, lasting=lasting, felt=tried_alone)
                wait_for("every pod is bound", lambda: not unbound(api), seconds=400, every=1)
                without = bound_without_cards(api)
                if policy == "Fail":
                    assert without == []
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


def kill_while_pods_come(ready: Hooked, rng: Random, *, lasting: bool, felt: Callable[[], object]) -> None:
    """Create all pods in bursts, and kill the extender in the middle of some of them.

    lasting  whether the pods stay
    felt     whether a scheduler has tried to bind a pod while the extender was away; it starts again afterwards
    """
    kinds = {"kube": "default-scheduler", "other": OTHER, "script": SCRIPTED}
    names = [f"{list(kinds)[number % 3]}-{number}" for number in range(PODS_IN_ALL)]
    bursts = [names[start : start + 20] for start in range(0, PODS_IN_ALL, 20)]
    kills = 0
    for number, burst in enumerate(bursts):
        # At least one pod of each scheduler is created after the kill.
        killed_before = rng.choice(burst[:-3]) if number % 2 == 0 and kills < KILLS else ""
        for name in burst:
            if name == killed_before:
                ready.extender.program.kill()
                kills += 1
            needs = container() if rng.random() < 0.1 else container(i915=1, millicores=400)
            created = scheduled_by(kinds[name.split("-")[0]], pod(name, needs))
            if not lasting:
                created["metadata"]["labels"] = {RUNS_FOR: f"{rng.uniform(0.5, 2):.1f}"}
            ready.api.create(PODS, created)
        if killed_before:
            time.sleep(rng.uniform(0, 1.5))
            wait_for("a scheduler tried to bind a pod without the extender", felt)
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
