"""The bind verb: one write, cards reserved before it, and nothing lost or given twice whatever becomes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from gas.cluster.errors import ApiRefused, ApiUnavailable, OutcomeUnknown
from gas.extender.wire import Unreadable
from gas.objects import Pod
from tests.builders import container, node, pod_json
from tests.extender.cluster import Cluster, Outcome
from tests.extender.decider import Decider, as_pod, booked_cards

IN_HAND = "an earlier bind of pod default/pod is still in hand"


def gpu_pod(**fields: Any) -> dict[str, Any]:
    """A pod that wants one of the two cards of a node, for itself."""
    return pod_json(container(i915=1, millicores=600), **{"uid": "u1", **fields})


def following(*pods: dict[str, Any], **options: Any) -> Decider:
    """A cluster with nodes n1 and n2 of two cards each and these pods, of which everything is known."""
    decider = Decider(**options)
    for each in pods:
        decider.cluster.add(each)
    decider.follow([node("n1"), node("n2")])
    return decider


async def turns(count: int = 20) -> None:
    """Let everything else run that can."""
    for _ in range(count):
        await asyncio.sleep(0)


class Held:
    """Holds every Binding until it is let go."""

    def __init__(self, cluster: Cluster) -> None:
        self._go = asyncio.Event()
        cluster.before = self._go.wait

    def let_go(self) -> None:
        self._go.set()


async def test_a_bound_pod_has_node_and_cards_in_one_write() -> None:
    decider = following(gpu_pod())
    assert await decider.bind(gpu_pod(), "n1") == ""
    (binding,) = decider.cluster.bindings
    assert binding["uid"] == "u1"
    assert binding["node"] == "n1"
    assert binding["annotations"]["gas-container-cards"] == "card0"
    assert binding["annotations"]["gas-ts"].isdigit()
    assert decider.cluster.pods["default/pod"]["spec"]["nodeName"] == "n1"
    assert booked_cards(decider, "u1") == "card0 on n1, held"
    assert decider.counted("requests_total", verb="bind", result="bound") == 1


async def test_cards_are_reserved_before_the_write_and_until_the_watch_confirms() -> None:
    decider = following(gpu_pod())
    held = Held(decider.cluster)
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
    assert not decider.released


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        pytest.param(Outcome.REFUSED, "the object has been modified", id="refused"),
        pytest.param(Outcome.NEVER_SENT, "cannot connect to the API server", id="never-sent"),
    ],
)
async def test_a_write_that_changed_nothing_takes_the_reservation_back(outcome: Outcome, sentence: str) -> None:
    decider = following(gpu_pod())
    decider.cluster.outcome = outcome
    assert sentence in await decider.bind(gpu_pod(), "n1")
    assert booked_cards(decider, "u1") == "nothing"
    assert decider.released == ["n1"]
    assert not decider.cluster.asked
    assert decider.counted("requests_total", verb="bind", result="error") == 1
    decider.cluster.outcome = Outcome.WRITTEN
    assert await decider.bind(gpu_pod(), "n1") == ""


class TestUnknownOutcome:
    """Nobody knows whether the pod was bound: its cards stay reserved until the pod itself has been looked at."""

    @pytest.mark.parametrize(
        ("outcome", "booked"),
        [
            pytest.param(Outcome.LOST_AFTER_WRITING, "card0 on n1, held", id="it-was-written"),
            pytest.param(Outcome.LOST_BEFORE_WRITING, "nothing", id="it-was-not"),
        ],
    )
    async def test_the_pod_tells(self, outcome: Outcome, booked: str) -> None:
        decider = following(gpu_pod())
        decider.cluster.on_change = lambda _type, _pod: None  # the watch is broken as well
        decider.cluster.outcome = outcome
        assert "broke" in await decider.bind(gpu_pod(), "n1")
        assert booked_cards(decider, "u1") == "card0 on n1, reserved"
        await decider.binder.settle()
        assert booked_cards(decider, "u1") == booked
        assert decider.released == ([] if "held" in booked else ["n1"])

    async def test_it_is_asked_until_the_api_server_answers(self) -> None:
        decider = following(gpu_pod())
        decider.cluster.outcome = Outcome.LOST_BEFORE_WRITING
        await decider.bind(gpu_pod(), "n1")
        decider.cluster.away = True
        await turns()
        assert len(decider.cluster.asked) > 2
        assert booked_cards(decider, "u1") == "card0 on n1, reserved"
        assert await decider.bind(gpu_pod(), "n1") == IN_HAND
        decider.cluster.away = False
        await decider.binder.settle()
        assert booked_cards(decider, "u1") == "nothing"
        decider.cluster.outcome = Outcome.WRITTEN
        assert await decider.bind(gpu_pod(), "n1") == ""

    async def test_one_look_is_not_enough_since_the_write_may_still_be_on_its_way(self) -> None:
        decider = following(gpu_pod())
        decider.cluster.outcome = Outcome.LOST_BEFORE_WRITING

        async def just_before_the_write_arrives(namespace: str, name: str) -> Pod | None:
            seen = await decider.cluster.get_pod(namespace, name)
            if len(decider.cluster.asked) == 1:
                decider.cluster.outcome = Outcome.WRITTEN
                await decider.cluster.bind_pod(**_binding(decider))
            return seen

        decider.get_pod = just_before_the_write_arrives
        decider.cluster.on_change = lambda _type, _pod: None
        await decider.bind(gpu_pod(), "n1")
        await decider.binder.settle()
        assert booked_cards(decider, "u1") == "card0 on n1, held"
        assert not decider.released

    @pytest.mark.parametrize(
        "happens",
        [
            pytest.param(lambda cluster: cluster.remove("default/pod"), id="deleted"),
            pytest.param(
                lambda cluster: (cluster.remove("default/pod"), cluster.add(gpu_pod(uid="u2"))), id="recreated"
            ),
            pytest.param(lambda cluster: cluster.end("default/pod"), id="ended"),
        ],
    )
    async def test_a_pod_that_is_gone_holds_nothing(self, happens: Callable[[Cluster], object]) -> None:
        decider = following(gpu_pod())
        decider.cluster.outcome = Outcome.LOST_AFTER_WRITING
        decider.cluster.on_change = lambda _type, _pod: None
        await decider.bind(gpu_pod(), "n1")
        happens(decider.cluster)
        await decider.binder.settle()
        assert booked_cards(decider, "u1") == "nothing"
        assert decider.released == ["n1"]

    async def test_a_pod_bound_elsewhere_by_then_holds_nothing_here(self) -> None:
        decider = following(gpu_pod())
        decider.cluster.outcome = Outcome.LOST_BEFORE_WRITING
        await decider.bind(gpu_pod(), "n1")
        decider.cluster.pods["default/pod"]["spec"]["nodeName"] = "n2"
        await decider.binder.settle()
        assert booked_cards(decider, "u1") == "nothing"
        assert decider.released == ["n1"]
        assert "without cards" in decider.troubles[0][1]

    async def test_an_answer_older_than_the_watch_books_no_pod_that_is_gone(self) -> None:
        decider = following(gpu_pod())
        decider.cluster.outcome = Outcome.LOST_AFTER_WRITING
        bound: list[Pod] = []

        async def late(_namespace: str, _name: str) -> Pod:
            if not bound:
                bound.append(decider.cluster.pod("default/pod"))
                decider.cluster.remove("default/pod")
                await asyncio.sleep(0)
            return bound[0]

        decider.get_pod = late
        await decider.bind(gpu_pod(), "n1")
        await decider.binder.settle()
        assert booked_cards(decider, "u1") == "nothing"

    async def test_a_write_that_takes_too_long_is_one(self) -> None:
        decider = following(gpu_pod(), write_timeout=0.01)
        Held(decider.cluster)
        assert "did not answer in time" in await decider.bind(gpu_pod(), "n1")
        assert booked_cards(decider, "u1") == "card0 on n1, reserved"
        await decider.binder.settle()
        assert booked_cards(decider, "u1") == "nothing"

    async def test_a_broken_answer_about_the_pod_is_asked_again(self, caplog: pytest.LogCaptureFixture) -> None:
        decider = following(gpu_pod())
        decider.cluster.outcome = Outcome.LOST_BEFORE_WRITING
        get_pod, failures = decider.cluster.get_pod, [RuntimeError("a bug")]

        async def first_broken(namespace: str, name: str) -> Pod | None:
            if failures:
                raise failures.pop()
            return await get_pod(namespace, name)

        decider.get_pod = first_broken
        await decider.bind(gpu_pod(), "n1")
        await decider.binder.settle()
        assert booked_cards(decider, "u1") == "nothing"
        assert "could not be looked at" in caplog.text


def _binding(decider: Decider) -> dict[str, Any]:
    sent = dict(decider.cluster.bindings[-1])
    namespace, _, name = sent.pop("pod").partition("/")
    return {"namespace": namespace, "name": name, **sent}


class TestVanished:
    """A reserved pod that a complete list does not have is looked at."""

    async def test_after_a_bind_that_the_watch_missed(self) -> None:
        decider = following(gpu_pod())
        decider.cluster.on_change = lambda _type, _pod: None
        assert await decider.bind(gpu_pod(), "n1") == ""
        decider.pods.waiting.clear()
        decider.cluster.remove("default/pod")
        decider.pods.replaced([])
        await decider.binder.settle()
        assert booked_cards(decider, "u1") == "nothing"
        assert decider.released == ["n1"]

    async def test_a_pod_younger_than_the_list_keeps_its_cards(self) -> None:
        decider = following(gpu_pod())
        decider.cluster.on_change = lambda _type, _pod: None
        assert await decider.bind(gpu_pod(), "n1") == ""
        decider.pods.waiting.clear()
        decider.pods.replaced([])
        await decider.binder.settle()
        assert booked_cards(decider, "u1") == "card0 on n1, held"
        assert not decider.released

    async def test_while_its_bind_is_in_hand_that_is_waited_for(self) -> None:
        decider = following()
        decider.cluster.add(gpu_pod())
        decider.pods.deleted(as_pod(gpu_pod(uid="another")))
        decider.pods.waiting.clear()
        decider.cluster.on_change = lambda _type, _pod: None
        held = Held(decider.cluster)
        binding = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
        await turns()
        decider.pods.replaced([])
        assert booked_cards(decider, "u1") == "card0 on n1, reserved"
        held.let_go()
        assert await binding == ""
        decider.cluster.remove("default/pod")
        await decider.binder.settle()
        assert booked_cards(decider, "u1") == "nothing"


REFUSED: list[Any] = [
    pytest.param(lambda cluster: cluster.remove("default/pod"), {}, "pod default/pod is gone", id="gone"),
    pytest.param(
        lambda cluster: (cluster.remove("default/pod"), cluster.add(gpu_pod(uid="u2"))),
        {},
        "pod default/pod is another pod of that name: its UID is u2, asked was u1",
        id="recreated",
    ),
    pytest.param(None, {"PodUID": "u7"}, "its UID is u1, asked was u7", id="other-uid"),
    pytest.param(
        lambda cluster: cluster.edit("default/pod", lambda pod: pod["spec"].update(nodeName="n2")),
        {},
        "pod default/pod is bound to node n2 already",
        id="bound-by-others",
    ),
    pytest.param(
        lambda cluster: (
            cluster.pods["default/pod"]["metadata"].update(annotations={"gas-container-cards": "card1"}),
            cluster.edit("default/pod", lambda pod: pod["spec"].update(nodeName="n2")),
        ),
        {},
        "has its cards on node n2 already and keeps them",
        id="bound-and-booked",
    ),
    pytest.param(
        lambda cluster: cluster.end("default/pod", "Failed"), {}, "pod default/pod has ended already", id="ended"
    ),
    pytest.param(None, {"Node": "n9"}, "node n9 is not known, so pod default/pod cannot be bound", id="unknown-node"),
    pytest.param(None, {"Node": "../n1"}, "Node cannot be a name", id="hostile-node"),
    pytest.param(None, {"PodName": "pod/../../x"}, "PodName cannot be a name", id="hostile-pod"),
    pytest.param(None, {"PodUID": ""}, "no PodUID", id="no-uid"),
]


@pytest.mark.parametrize(("happens", "changed", "sentence"), REFUSED)
async def test_what_cannot_be_bound_is_said_and_changes_nothing(
    happens: Callable[[Cluster], object] | None, changed: dict[str, str], sentence: str
) -> None:
    decider = following(gpu_pod())
    if happens is not None:
        happens(decider.cluster)
    books = decider.books()
    assert sentence in await decider.bind(gpu_pod(), "n1", **changed)
    assert not decider.cluster.bindings
    assert decider.books() == books


async def test_a_node_that_became_full_since_the_filter_says_what_is_short() -> None:
    decider = following(gpu_pod())
    for number in (0, 1):
        bound = gpu_pod(uid=f"other-{number}", node="n1", annotations={"gas-container-cards": f"card{number}"})
        decider.pods.changed(as_pod(bound))
    sentence = await decider.bind(gpu_pod(), "n1")
    assert sentence.startswith("node n1 has no room for pod default/pod any more: no card has ")
    assert not decider.cluster.bindings
    assert decider.counted("refusals_total", reason="no-room") == 1


async def test_a_need_that_makes_no_sense_is_not_bound() -> None:
    senseless = pod_json(container(i915=1, xe=1), uid="u1")
    decider = following(senseless)
    assert "both gpu.intel.com/i915 and gpu.intel.com/xe" in await decider.bind(senseless, "n1")
    assert not decider.cluster.bindings


async def test_a_repeated_bind_keeps_the_cards_and_writes_nothing() -> None:
    decider = following(gpu_pod())
    await decider.bind(gpu_pod(), "n1")
    books = decider.books()
    for where in ("n1", "n2"):
        assert await decider.bind(gpu_pod(), where) == "pod default/pod has its cards on node n1 already and keeps them"
    assert decider.books() == books
    assert len(decider.cluster.bindings) == 1


async def test_a_second_bind_while_one_is_in_hand_is_refused() -> None:
    decider = following(gpu_pod())
    held = Held(decider.cluster)
    first = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await turns()
    assert await decider.bind(gpu_pod(), "n2") == IN_HAND
    held.let_go()
    assert await first == ""
    assert booked_cards(decider, "u1") == "card0 on n1, held"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff"])
async def test_what_is_no_json_is_not_answered(body: bytes) -> None:
    with pytest.raises(Unreadable):
        await following().binder(body)


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b'{"PodName": 3}'])
async def test_what_names_nothing_is_an_error_in_the_answer(body: bytes) -> None:
    decider = following()
    assert json.loads(await decider.binder(body))["Error"]
    assert decider.counted("requests_total", verb="bind", result="bad-request") == 1


class TestLeadership:
    async def test_who_does_not_lead_binds_nothing(self) -> None:
        decider = following(gpu_pod())
        decider.not_ready = "this replica of the extender does not lead; another one answers"
        assert await decider.bind(gpu_pod(), "n1") == decider.not_ready
        assert not decider.cluster.bindings

    async def test_who_lost_it_while_the_pod_was_looked_up_binds_nothing(self) -> None:
        decider = following()
        decider.cluster.add(gpu_pod())
        decider.pods.waiting.clear()
        get_pod = decider.cluster.get_pod

        async def losing(namespace: str, name: str) -> Pod | None:
            decider.not_ready = "another one leads"
            return await get_pod(namespace, name)

        decider.get_pod = losing
        assert await decider.bind(gpu_pod(), "n1") == "another one leads"
        assert not decider.cluster.bindings
        assert booked_cards(decider, "u1") == "nothing"


class TestWithoutCards:
    @pytest.mark.parametrize("known", [True, False], ids=["in-a-monitoring-pod", "without-any-resource-of-ours"])
    async def test_a_pod_that_wants_none_is_bound_like_any_other(self, *, known: bool) -> None:
        asking = pod_json(container(i915_monitoring=1) if known else container(), uid="u1")
        decider = following(asking)
        assert await decider.bind(asking, "n1") == ""
        assert decider.cluster.bindings[0]["annotations"] == {}
        assert decider.cluster.pods["default/pod"]["spec"]["nodeName"] == "n1"
        assert booked_cards(decider, "u1") == "nothing"

    async def test_its_unknown_outcome_is_looked_at_and_books_nothing(self) -> None:
        asking = pod_json(container(), uid="u1")
        decider = following(asking)
        decider.cluster.outcome = Outcome.LOST_AFTER_WRITING
        await decider.bind(asking, "n1")
        await decider.binder.settle()
        assert not decider.books()

    async def test_a_pod_whose_only_need_is_in_an_init_container_is_bound_with_it(self) -> None:
        asking = pod_json(container(), init=(container("first", i915=1),), uid="u1")
        decider = following(asking)
        assert await decider.bind(asking, "n1") == ""
        written = decider.cluster.bindings[0]["annotations"]
        assert written["gas-init-container-cards"] == "card0"
        assert written["gas-container-cards"] == ""
        assert booked_cards(decider, "u1") == "card0 on n1, held"
        assert not decider.troubles


async def test_annotations_of_ours_on_a_pending_pod_are_overwritten_or_emptied() -> None:
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
    assert not decider.troubles


async def test_of_twenty_binds_at_once_exactly_those_that_fit_succeed() -> None:
    pods = [gpu_pod(name=f"pod-{number}", uid=f"u{number}") for number in range(20)]
    decider = following(*pods)
    held = Held(decider.cluster)
    binds = [asyncio.create_task(decider.bind(each, "n1")) for each in pods]
    await turns()
    held.let_go()
    answers = await asyncio.gather(*binds)
    assert answers.count("") == 2
    assert sum("has no room" in answer for answer in answers) == 18
    assert len(decider.cluster.bindings) == 2
    assert {sent["annotations"]["gas-container-cards"] for sent in decider.cluster.bindings} == {"card0", "card1"}


@pytest.mark.parametrize("written", [True, False], ids=["after-it-was-written", "before-it-was-written"])
async def test_a_bind_that_is_broken_off_leaks_nothing(*, written: bool) -> None:
    decider = following(gpu_pod())
    decider.cluster.on_change = lambda _type, _pod: None
    entered = asyncio.Event()
    bind_pod = decider.cluster.bind_pod

    async def stuck(**binding: Any) -> None:
        if written:
            await bind_pod(**binding)
        entered.set()
        await asyncio.Event().wait()

    decider.bind_pod = stuck
    binding = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await entered.wait()
    binding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await binding
    assert booked_cards(decider, "u1") == "card0 on n1, reserved"
    await decider.binder.settle()
    assert booked_cards(decider, "u1") == ("card0 on n1, held" if written else "nothing")


async def test_a_bind_that_is_broken_off_before_its_write_leaks_nothing() -> None:
    decider = following()
    entered = asyncio.Event()

    async def stuck(_namespace: str, _name: str) -> Pod:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    decider.get_pod = stuck
    binding = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await entered.wait()
    binding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await binding
    decider.get_pod = decider.cluster.get_pod
    decider.cluster.add(gpu_pod())
    assert await decider.bind(gpu_pod(), "n1") == ""


async def test_a_bug_in_a_write_is_looked_at_too() -> None:
    decider = following(gpu_pod())

    async def broken(**_binding: Any) -> None:
        raise ZeroDivisionError

    decider.bind_pod = broken
    with pytest.raises(ZeroDivisionError):
        await decider.bind(gpu_pod(), "n1")
    await decider.binder.settle()
    assert booked_cards(decider, "u1") == "nothing"


async def test_settling_waits_for_the_binds_in_hand() -> None:
    decider = following(gpu_pod())
    held = Held(decider.cluster)
    binding = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await turns()
    settled = asyncio.create_task(decider.binder.settle())
    await turns()
    assert not settled.done()
    held.let_go()
    await settled
    assert binding.done()


async def test_the_refusal_of_a_pod_is_dropped_when_it_is_bound() -> None:
    decider = following(gpu_pod(), gpu_pod(uid="u2", name="other"))
    await decider.ask(gpu_pod(), "nobody")
    await decider.ask(gpu_pod(uid="u2", name="other"), "nobody")
    decider.cluster.on_change = lambda _type, _pod: None
    await decider.bind(gpu_pod(), "n1")
    assert [uid for uid, _ in decider.refusals] == ["u2"]


async def test_a_bind_that_fails_lets_the_next_filter_see_the_room_again() -> None:
    decider = following(*(gpu_pod(uid=f"u{number}", name=f"pod-{number}") for number in range(3)))
    decider.nodes.replaced([node("n1", cards=1)])
    held = Held(decider.cluster)
    decider.cluster.outcome = Outcome.REFUSED
    binding = asyncio.create_task(decider.bind(gpu_pod(uid="u0", name="pod-0"), "n1"))
    await turns()
    assert (await decider.ask(gpu_pod(uid="u1", name="pod-1"), "n1"))["NodeNames"] == []
    held.let_go()
    assert await binding
    assert (await decider.ask(gpu_pod(uid="u1", name="pod-1"), "n1"))["NodeNames"] == ["n1"]


@pytest.mark.parametrize(
    "error",
    [ApiRefused(404, "NotFound", "no"), ApiUnavailable("away"), OutcomeUnknown("unknown")],
    ids=["refused", "unavailable", "unknown"],
)
async def test_every_failure_is_told_to_the_filters_that_wait(error: Exception) -> None:
    decider = following(gpu_pod(), patience=60.0)

    async def failing(**_binding: Any) -> None:
        raise error

    decider.bind_pod = failing
    await decider.ask(gpu_pod(), "n1")
    asking = asyncio.create_task(decider.ask(gpu_pod(uid="u2"), "n1"))
    await turns()
    assert not asking.done()
    assert await decider.bind(gpu_pod(), "n1") == str(error)
    assert (await asking)["NodeNames"] == ["n1"]
    await decider.binder.settle()
