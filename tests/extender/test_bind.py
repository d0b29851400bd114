"""The bind verb: one write, cards reserved before it, and no card lost or given twice whatever the outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from gas.cluster.errors import ApiRefused, ApiUnavailable, OutcomeUnknown
from gas.extender.bind import MOST_CONFLICTS
from gas.extender.bookings import Event
from gas.extender.readiness import NotReady
from gas.extender.wire import BindingArgs, Unreadable
from gas.objects.stored import Pod
from tests.background import turns
from tests.builders import container, node, pod_json
from tests.extender.binding import IN_PROGRESS, HeldBindings, following, gpu_pod
from tests.extender.cluster import Cluster, Outcome
from tests.extender.decider import DrivenDecider, as_pod, booked_cards
from tests.listed import list_all


@pytest.fixture
async def decider() -> DrivenDecider:
    return following(gpu_pod())


# contract E3.4, E11.2
async def test_a_bound_pod_has_node_and_cards_in_one_write(
    decider: DrivenDecider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert await decider.bind(gpu_pod(), "n1") == ""
    (binding,) = decider.cluster.bindings
    assert binding["uid"] == "u1"
    assert binding["node"] == "n1"
    assert binding["annotations"]["gas-container-cards"] == "card0"
    assert binding["annotations"]["gas-ts"].isdigit()
    assert decider.cluster.pods["default/pod"]["spec"]["nodeName"] == "n1"
    assert booked_cards(decider, "u1") == "card0 on n1, held"
    assert decider.counted("requests_total", verb="bind", result="bound") == 1
    (log,) = (vars(each) for each in caplog.records if each.message == "bound")
    assert (log["pod"], log["node"], log["cards"]) == ("default/pod", "n1", "card0")


# contract E11.1
async def test_cards_are_reserved_before_the_write_and_until_the_watch_confirms(decider: DrivenDecider) -> None:
    held = HeldBindings(decider.cluster)
    events: list[Pod] = []
    decider.cluster.on_change = lambda _type, pod: events.append(pod)
    binding = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await turns()
    assert booked_cards(decider, "u1") == "card0 on n1, reserved"
    held.let_go()
    assert await binding == ""
    assert booked_cards(decider, "u1") == "card0 on n1, reserved"
    decider.see("MODIFIED", events[0])
    assert booked_cards(decider, "u1") == "card0 on n1, held"
    assert not decider.reports.freed


class TestVersion:
    """A Binding demands the version of the pod that was decided about."""

    @pytest.mark.parametrize(("changes", "sent"), [(1, 2), (MOST_CONFLICTS, MOST_CONFLICTS + 1)])
    async def test_a_pod_that_has_changed_is_decided_about_again_at_once(self, changes: int, sent: int) -> None:
        decider = following(gpu_pod())
        decider.cluster.on_change = lambda _type, _pod: None  # the watch is late
        left = list(range(changes))

        async def change() -> None:
            if left:
                decider.cluster.annotate("default/pod", change=str(left.pop()))

        decider.cluster.before = change
        assert await decider.bind(gpu_pod(), "n1") == ""
        assert len(decider.cluster.bindings) == sent
        assert booked_cards(decider, "u1") == "card0 on n1, reserved"

    async def test_one_that_changes_all_the_time_is_left_to_the_next_bind(self) -> None:
        decider = following(gpu_pod())

        async def change() -> None:
            decider.cluster.annotate("default/pod", change=str(len(decider.cluster.bindings)))

        decider.cluster.before = change
        assert "Precondition failed" in await decider.bind(gpu_pod(), "n1")
        assert len(decider.cluster.bindings) == MOST_CONFLICTS + 1
        assert booked_cards(decider, "u1") == "nothing"

    async def test_no_new_version_is_bound_by_a_replica_that_leads_no_more(self) -> None:
        decider = following(gpu_pod())

        async def change() -> None:
            decider.cluster.annotate("default/pod", change="1")
            decider.not_ready = "another one leads"

        decider.cluster.before = change
        with pytest.raises(NotReady, match="another one leads"):
            await decider.bind(gpu_pod(), "n1")
        assert len(decider.cluster.bindings) == 1
        assert booked_cards(decider, "u1") == "nothing"


# contract E11.4
@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        pytest.param(Outcome.REFUSED, "the object has been modified", id="refused"),
        pytest.param(Outcome.NEVER_SENT, "cannot connect to the API server", id="never-sent"),
    ],
)
async def test_a_write_that_changed_nothing_takes_the_reservation_back(
    decider: DrivenDecider, outcome: Outcome, sentence: str
) -> None:
    decider.cluster.outcome = outcome
    assert sentence in await decider.bind(gpu_pod(), "n1")
    assert booked_cards(decider, "u1") == "nothing"
    assert decider.reports.freed == ["n1"]
    assert len(decider.cluster.bindings) == 1
    assert decider.counted("requests_total", verb="bind", result="error") == 1
    decider.cluster.outcome = Outcome.WRITTEN
    assert await decider.bind(gpu_pod(), "n1") == ""


REFUSED: list[Any] = [
    pytest.param(lambda cluster: cluster.remove("default/pod"), {}, "pod default/pod no longer exists", id="gone"),
    pytest.param(
        lambda cluster: (cluster.remove("default/pod"), cluster.add(gpu_pod(uid="u2"))),
        {},
        "pod default/pod is another pod of that name: its UID is u2, the request names u1",
        id="recreated",
    ),
    pytest.param(None, {"PodUID": "u7"}, "its UID is u1, the request names u7", id="other-uid"),
    pytest.param(
        lambda cluster: cluster.edit("default/pod", lambda pod: pod["spec"].update(nodeName="n2")),
        {},
        "pod default/pod is already bound to node n2",
        id="bound-by-others",
    ),
    pytest.param(
        lambda cluster: (
            cluster.pods["default/pod"]["metadata"].update(annotations={"gas-container-cards": "card1"}),
            cluster.edit("default/pod", lambda pod: pod["spec"].update(nodeName="n2")),
        ),
        {},
        "already has its cards on node n2 and keeps them",
        id="bound-and-booked",
    ),
    pytest.param(
        lambda cluster: cluster.end("default/pod", "Failed"), {}, "pod default/pod has already terminated", id="ended"
    ),
    pytest.param(None, {"Node": "n9"}, "node n9 is not known, so pod default/pod cannot be bound", id="unknown-node"),
    pytest.param(None, {"Node": "../n1"}, "Node is not a valid name", id="hostile-node"),
]


# contract E10.5
@pytest.mark.parametrize(("happens", "changed", "sentence"), REFUSED)
async def test_a_pod_that_cannot_be_bound_is_refused_and_nothing_changes(
    decider: DrivenDecider, happens: Callable[[Cluster], object] | None, changed: dict[str, str], sentence: str
) -> None:
    if happens is not None:
        happens(decider.cluster)
    books = decider.booked()
    assert sentence in await decider.bind(gpu_pod(), "n1", **changed)
    assert not decider.cluster.bindings
    assert decider.booked() == books


async def test_for_a_node_that_became_full_since_the_filter_the_shortage_is_named(decider: DrivenDecider) -> None:
    for number in (0, 1):
        bound = gpu_pod(uid=f"other-{number}", node="n1", annotations={"gas-container-cards": f"card{number}"})
        decider.pods.changed(as_pod(bound))
    sentence = await decider.bind(gpu_pod(), "n1")
    assert sentence.startswith("node n1 no longer has room for pod default/pod: no card has ")
    assert not decider.cluster.bindings
    assert decider.counted("refusals_total", reason="no-room") == 1


async def test_a_pod_with_an_invalid_need_is_not_bound() -> None:
    senseless = pod_json(container(i915=1, xe=1), uid="u1")
    decider = following(senseless)
    assert "both gpu.intel.com/i915 and gpu.intel.com/xe" in await decider.bind(senseless, "n1")
    assert not decider.cluster.bindings


# contract E11.6
async def test_a_repeated_bind_keeps_the_cards_and_writes_nothing(decider: DrivenDecider) -> None:
    await decider.bind(gpu_pod(), "n1")
    books = decider.booked()
    for where in ("n1", "n2"):
        assert await decider.bind(gpu_pod(), where) == "pod default/pod already has its cards on node n1 and keeps them"
    assert decider.booked() == books
    assert len(decider.cluster.bindings) == 1


async def test_a_second_bind_while_one_is_in_progress_is_refused(decider: DrivenDecider) -> None:
    held = HeldBindings(decider.cluster)
    first = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await turns()
    assert await decider.bind(gpu_pod(), "n2") == IN_PROGRESS
    assert decider.counted("requests_total", verb="bind", result="error") == 1
    held.let_go()
    assert await first == ""
    assert booked_cards(decider, "u1") == "card0 on n1, held"


async def test_a_body_that_is_not_json_is_unreadable() -> None:
    with pytest.raises(Unreadable):
        await following().binder(b"{")


async def test_a_request_without_names_is_an_error_in_the_response() -> None:
    decider = following()
    assert json.loads(await decider.binder(b"{}"))["Error"]
    assert decider.counted("requests_total", verb="bind", result="bad-request") == 1


class TestLeadership:
    async def test_a_replica_that_does_not_lead_binds_nothing(self, decider: DrivenDecider) -> None:
        decider.not_ready = "this replica of the extender is not the leader; the client will retry"
        with pytest.raises(NotReady, match="is not the leader"):
            await decider.bind(gpu_pod(), "n1")
        assert not decider.cluster.bindings

    async def test_a_replica_that_stops_leading_while_it_reads_the_pod_binds_nothing(self) -> None:
        decider = following()
        decider.cluster.add(gpu_pod())
        decider.pods.waiting.clear()
        get_pod = decider.cluster.get_pod

        async def losing(namespace: str, name: str) -> Pod | None:
            decider.not_ready = "another one leads"
            return await get_pod(namespace, name)

        decider.get_pod = losing
        with pytest.raises(NotReady, match="another one leads"):
            await decider.bind(gpu_pod(), "n1")
        assert not decider.cluster.bindings
        assert booked_cards(decider, "u1") == "nothing"


class TestWithoutCards:
    # contract E5.5
    @pytest.mark.parametrize("known", [True, False], ids=["in-a-monitoring-pod", "without-any-gpu-resource"])
    async def test_a_pod_without_cards_is_bound_like_any_other(self, *, known: bool) -> None:
        asking = pod_json(container(i915_monitoring=1) if known else container(), uid="u1")
        decider = following(asking)
        assert await decider.bind(asking, "n1") == ""
        assert decider.cluster.bindings[0]["annotations"] == {}
        assert decider.cluster.pods["default/pod"]["spec"]["nodeName"] == "n1"
        assert booked_cards(decider, "u1") == "nothing"

    async def test_its_unknown_outcome_is_settled_and_books_nothing(self) -> None:
        asking = pod_json(container(), uid="u1")
        decider = following(asking)
        decider.cluster.outcome = Outcome.LOST_AFTER_WRITING
        await decider.bind(asking, "n1")
        await decider.settle()
        assert not decider.booked()

    # contract E5.7
    async def test_a_pod_whose_only_need_is_in_an_init_container_is_bound_with_it(self) -> None:
        asking = pod_json(container(), init=(container("first", i915=1),), uid="u1")
        decider = following(asking)
        assert await decider.bind(asking, "n1") == ""
        written = decider.cluster.bindings[0]["annotations"]
        assert written["gas-init-container-cards"] == "card0"
        assert written["gas-container-cards"] == ""
        assert booked_cards(decider, "u1") == "card0 on n1, held"
        assert not decider.reports.mismatches


# contract E11.7
async def test_our_annotations_on_a_pending_pod_are_overwritten_or_emptied() -> None:
    forged = {
        "gas-container-cards": "card1",
        "gas-container-tiles": "card1:gt0",
        "gas-allocated-cards": "card1",
        "gas-ts": "1",
        "notes": "mine",
    }
    decider = following(gpu_pod(annotations=forged))
    assert await decider.bind(gpu_pod(annotations=forged), "n1") == ""
    written = decider.cluster.pods["default/pod"]["metadata"]["annotations"]
    assert written["gas-container-cards"] == "card0"
    assert written["gas-container-tiles"] == ""
    assert written["gas-allocated-cards"] == ""
    assert written["gas-ts"] != "1"
    assert written["notes"] == "mine"
    assert booked_cards(decider, "u1") == "card0 on n1, held"
    assert not decider.reports.mismatches


# contract E11.1
async def test_of_twenty_binds_at_once_exactly_those_that_fit_succeed() -> None:
    pods = [gpu_pod(name=f"pod-{number}", uid=f"u{number}") for number in range(20)]
    decider = following(*pods)
    held = HeldBindings(decider.cluster)
    binds = [asyncio.create_task(decider.bind(each, "n1")) for each in pods]
    await turns()
    held.let_go()
    answers = await asyncio.gather(*binds)
    assert answers.count("") == 2
    assert sum("no longer has room" in answer for answer in answers) == 18
    assert len(decider.cluster.bindings) == 2
    assert {sent["annotations"]["gas-container-cards"] for sent in decider.cluster.bindings} == {"card0", "card1"}


async def test_the_refusal_of_a_pod_is_dropped_when_it_is_bound() -> None:
    decider = following(gpu_pod(), gpu_pod(uid="u2", name="other"))
    await decider.ask(gpu_pod(), "absent")
    await decider.ask(gpu_pod(uid="u2", name="other"), "absent")
    decider.cluster.on_change = lambda _type, _pod: None
    await decider.bind(gpu_pod(), "n1")
    assert list(decider.refusals) == ["u2"]


async def test_after_a_failed_bind_the_next_filter_sees_the_cards_as_free() -> None:
    decider = following(*(gpu_pod(uid=f"u{number}", name=f"pod-{number}") for number in range(3)), patience=60.0)
    list_all(decider.nodes, [node("n1", cards=1)])
    held = HeldBindings(decider.cluster)
    decider.cluster.outcome = Outcome.REFUSED
    await decider.ask(gpu_pod(uid="u0", name="pod-0"), "n1")
    binding = asyncio.create_task(decider.bind(gpu_pod(uid="u0", name="pod-0"), "n1"))
    await turns()
    during = await asyncio.wait_for(decider.ask(gpu_pod(uid="u1", name="pod-1"), "n1"), 10.0)
    assert during["NodeNames"] == [], "it does not wait for the write"
    held.let_go()
    assert await binding
    assert (await decider.ask(gpu_pod(uid="u1", name="pod-1"), "n1"))["NodeNames"] == ["n1"]


@pytest.mark.parametrize(
    "error",
    [ApiRefused(404, "NotFound", "no"), ApiUnavailable("away"), OutcomeUnknown("unknown")],
    ids=["refused", "unavailable", "unknown"],
)
async def test_filters_that_wait_go_on_after_every_failure(error: Exception) -> None:
    decider = following(gpu_pod(), patience=60.0)

    async def failing(*_binding: Any) -> None:
        raise error

    decider.bind_pod = failing
    await decider.ask(gpu_pod(), "n1")
    asking = asyncio.create_task(decider.ask(gpu_pod(uid="u2"), "n1"))
    await turns()
    assert not asking.done()
    assert await decider.bind(gpu_pod(), "n1") == str(error)
    assert decider.counted("requests_total", verb="bind", result="error") == 1
    assert (await asking)["NodeNames"] == ["n1"]
    await decider.settle()


class TestTimestamps:
    """``gas-ts`` rises on each node, whatever the clock does: the device plugin orders the node's pods by it."""

    # contract E3.4
    @pytest.mark.parametrize("second", [999.0, 1000.0])
    def test_it_rises_when_the_clock_stands_still_or_is_set_back(self, second: float) -> None:
        decider = following()
        first = reserved(decider, "a", now=1000.0)
        assert first == 1000 * 10**9
        assert reserved(decider, "b", now=second) == first + 1
        assert reserved(decider, "c", node="n2", now=second) == int(second * 10**9)

    # contract E3.7
    def test_it_is_later_than_what_a_leader_with_another_clock_wrote(self) -> None:
        decider = following()
        written = {"gas-container-cards": "card0", "gas-ts": str(1005 * 10**9)}
        decider.pods.changed(as_pod(gpu_pod(name="a", uid="a", node="n1", annotations=written)))
        assert reserved(decider, "b", now=1000.0) == 1005 * 10**9 + 1

    # contract E3.7
    @pytest.mark.parametrize("written", [1790 * 10**15, 2**63 - 2 - 10**9])
    def test_it_is_later_however_far_the_clock_was_set_back(self, written: int) -> None:
        decider = following()
        annotations = {"gas-container-cards": "card0", "gas-ts": str(written)}
        decider.pods.changed(as_pod(gpu_pod(name="a", uid="a", node="n1", annotations=annotations)))
        assert reserved(decider, "b", now=0.0) == written + 1

    # contract E3.7
    @pytest.mark.parametrize("cards", ["damaged", ""])
    def test_it_is_later_than_that_of_a_pod_whose_cards_cannot_be_read(self, cards: str) -> None:
        decider = following()
        for name, moment in (("n1", 1005), ("n2", 1010)):
            written = {"gas-container-cards": cards, "gas-ts": str(moment)}
            decider.pods.changed(as_pod(gpu_pod(name=name, uid=name, node=name, annotations=written)))
        assert reserved(decider, "b", now=0.0) == 1006

    # contract E3.7
    def test_it_is_later_although_the_nodes_object_was_deleted_and_made_again(self) -> None:
        decider = following()
        first = reserved(decider, "a", now=1000.0)
        decider.nodes.deleted(node("n1"))
        decider.nodes.changed(node("n1"))
        assert reserved(decider, "b", now=900.0) == first + 1

    def test_it_is_forgotten_with_the_node_and_the_last_pod_on_it(self) -> None:
        decider = following()
        reserved(decider, "a", now=1000.0)
        decider.nodes.deleted(node("n1"))
        decider.bookings.report("a", Event.REFUSED)
        decider.nodes.changed(node("n1"))
        assert reserved(decider, "b", now=900.0) == 900 * 10**9

    @pytest.mark.parametrize("text", [str(2**63 - 1 - 10**9), "9" * 19, "9" * 5000, "-5", "soon", "\u0661"])
    def test_a_timestamp_that_the_extender_cannot_have_written_is_ignored(self, text: str) -> None:
        decider = following()
        written = {"gas-container-cards": "card0", "gas-ts": text}
        decider.pods.changed(as_pod(gpu_pod(name="a", uid="a", node="n1", annotations=written)))
        assert reserved(decider, "b", now=1000.0) == 1000 * 10**9


def reserved(decider: DrivenDecider, name: str, *, now: float, node: str = "n1") -> int:
    """Reserve cards for a new pod and return its timestamp."""
    args = BindingArgs(pod_name=name, pod_namespace="default", pod_uid=name, node=node)
    pod = as_pod(pod_json(container(i915=1, millicores=1), name=name, uid=name))
    return int(decider.reserve(args, pod, now=now)["gas-ts"])
