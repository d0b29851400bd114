"""The time after a review: its Binding comes, none comes, or the extender's own bind does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gas.cluster.errors import ApiRefused, ApiUnavailable
from gas.extender.bookings import Event, State
from gas.extender.decider import Options
from gas.extender.late_bindings import LATEST_WRITE
from gas.objects.stored import Pod
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.selection import parse_vocabularies
from tests.background import turns
from tests.extender.binding import IN_DOUBT, HeldBindings, gpu_pod
from tests.extender.binding_reviews.setting import (
    ReviewingDecider,
    allowed,
    binding,
    following,
    outcomes,
    patched,
    plain_pod,
    reviewed,
)
from tests.extender.cluster import Outcome
from tests.extender.decider import booked_cards
from tests.kubeshare_words import share, sharing, sharing_node, with_card
from tests.other_words import decoded

# Reviews without a binding


async def test_a_review_that_no_binding_follows_books_cards_for_a_moment_only(caplog: pytest.LogCaptureFixture) -> None:
    decider = following(gpu_pod(), binding=0.01)
    written = await allowed(decider, gpu_pod())
    assert booked_cards(decider, "u1") == "card0 on n1, reserved"
    async with asyncio.timeout(10):
        while decider.bookings.in_doubt():  # noqa: ASYNC110 -- the review ends by itself
            await asyncio.sleep(0.01)
    assert booked_cards(decider, "u1") == "nothing"
    assert decider.reports.freed == ["n1"]
    assert (outcomes(decider, "settled"), outcomes(decider, "expired")) == (0, 1)
    (log,) = caplog.records
    assert log.message == "a binding that was given cards did not follow; they are free again"
    assert (vars(log)["pod"], vars(log)["node"]) == ("default/pod", "n1")
    with pytest.raises(ApiRefused):  # the write comes too late, and must not use cards that others may have by now
        decider.cluster.write_binding("default", written)


async def test_a_binding_that_was_written_without_news_from_the_watch_keeps_its_cards() -> None:
    decider = following(gpu_pod())
    written = await allowed(decider, gpu_pod())
    decider.cluster.on_change = lambda _type, _pod: None
    decider.cluster.write_binding("default", written)
    await decider.settle()
    assert booked_cards(decider, "u1") == "card0 on n1, held"
    assert not decider.reports.freed
    assert (outcomes(decider, "settled"), outcomes(decider, "expired")) == (1, 0)


@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_pod_that_is_gone_holds_nothing(*, is_watched: bool) -> None:
    decider = following(gpu_pod())
    await reviewed(decider, binding(gpu_pod()))
    if not is_watched:
        decider.cluster.on_change = lambda _type, _pod: None
    decider.cluster.remove("default/pod")
    await decider.settle()
    assert booked_cards(decider, "u1") == "nothing"
    assert (outcomes(decider, "settled"), outcomes(decider, "expired")) == (1, 0)


async def test_without_permission_to_change_pods_the_cards_come_back_when_no_write_can_come(
    caplog: pytest.LogCaptureFixture,
) -> None:
    decider = following(gpu_pod())

    async def forbidden(_namespace: str, _name: str, _uid: str) -> bool:
        decider.seconds += 10.0
        raise ApiUnavailable("forbidden")

    decider.change_version = forbidden
    await reviewed(decider, binding(gpu_pod()))
    await decider.settle()
    assert booked_cards(decider, "u1") == "nothing"
    assert decider.seconds >= LATEST_WRITE
    log, _ = caplog.records  # the second is about the end
    assert (log.message, vars(log)["pod"]) == ("it is not known yet whether a pod was bound: forbidden", "default/pod")


async def test_a_bind_waits_only_a_moment_for_the_settling_of_a_review() -> None:
    decider = following(gpu_pod())
    await reviewed(decider, binding(gpu_pod()))
    responds = asyncio.Event()

    async def slow(namespace: str, name: str) -> Pod | None:
        await responds.wait()
        return await decider.cluster.get_pod(namespace, name)

    decider.get_pod = slow
    assert await decider.bind(gpu_pod(), "n1") == IN_DOUBT
    responds.set()
    await decider.settle()
    assert booked_cards(decider, "u1") == "nothing"


async def test_a_review_during_the_settling_of_the_one_before_waits_for_its_end() -> None:
    decider = following(gpu_pod())
    await reviewed(decider, binding(gpu_pod()))
    decider.bookings.report("u1", Event.END_REVIEW)
    await asyncio.sleep(0)
    written = await allowed(decider, gpu_pod())
    assert outcomes(decider, "expired") == 1
    assert outcomes(decider, "chosen") == 2
    decider.cluster.write_binding("default", written)
    assert booked_cards(decider, "u1") == "card0 on n1, held"


async def test_of_two_reviews_at_once_the_later_one_ends_the_earlier() -> None:
    decider = following(gpu_pod())
    await asyncio.gather(*(reviewed(decider, binding(gpu_pod(), each)) for each in ("n1", "n2")))
    assert booked_cards(decider, "u1") == "card0 on n2, reserved"
    assert outcomes(decider, "expired") == 1


async def test_a_review_waits_for_the_end_of_one_whose_pod_asked_for_no_card_meanwhile() -> None:
    decider = ReviewingDecider(options=Options(vocabularies=Vocabularies(parse_vocabularies("kubeshare"))))
    decider.cluster.add(pod := sharing("pod", share(), with_card(cards=None)))
    decider.follow([decoded(sharing_node())])
    await allowed(decider, pod)
    following_one = len(asyncio.all_tasks())
    decider.cluster.edit("default/pod", lambda each: each["metadata"].update(annotations={}))
    decider.cluster.edit("default/pod", lambda each: each["metadata"].update(annotations=share()))
    await allowed(decider, pod)
    assert booked_cards(decider, "pod") == "card0 on n1, reserved"
    assert len(asyncio.all_tasks()) == following_one
    await decider.settle()


# The extender's own Binding, repeated


@pytest.mark.parametrize(
    ("changed", "passes"),
    [
        pytest.param({}, True, id="as-it-is"),
        pytest.param({"gas-container-cards": "card1"}, False, id="another-card"),
        pytest.param({"gas-ts": "1"}, False, id="guessed-time"),
        pytest.param({"gas-allocated-cards": "card1"}, False, id="with-a-receipt"),
        pytest.param({"gas-card-exclusion": "x"}, False, id="with-company"),
    ],
)
async def test_the_extenders_own_binding_keeps_its_cards(changed: dict[str, str], *, passes: bool) -> None:
    """It demands the pod as it was read, because any client that has seen it may have sent it."""
    decider = following(gpu_pod())
    held = HeldBindings(decider.cluster)
    own = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await turns()
    sent = binding(gpu_pod(), uid="u1", annotations=decider.cluster.bindings[0]["annotations"] | changed)
    result = await reviewed(decider, sent)
    if passes:
        version = decider.cluster.pods["default/pod"]["metadata"]["resourceVersion"]
        assert patched(sent, result) == {**sent, "metadata": sent["metadata"] | {"resourceVersion": version}}
        assert outcomes(decider, "carried") == 1
    else:
        assert result.refusal == "pod default/pod already has its cards on node n1 and keeps them"
    held.let_go()
    assert await own == ""
    assert booked_cards(decider, "u1") == "card0 on n1, held"


async def repeat_a_bind(decider: ReviewingDecider, outcome: Outcome, *, written_first: bool) -> dict[str, Any]:
    """Repeat the extender's own Binding of default/pod while it is being written, and return what may be written."""
    held = HeldBindings(decider.cluster)
    decider.cluster.outcome = outcome
    own = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await turns()
    repeated = await allowed(decider, gpu_pod(), uid="u1", annotations=decider.cluster.bindings[0]["annotations"])
    if written_first:
        decider.cluster.write_binding("default", repeated)
    held.let_go()
    assert bool(await own) == (written_first or outcome is not Outcome.WRITTEN)
    return repeated


async def test_a_repeated_binding_that_is_written_before_the_extenders_own_keeps_the_cards() -> None:
    decider = following(gpu_pod())
    decider.cluster.on_change = lambda _type, _pod: None  # the watch is slow
    await repeat_a_bind(decider, Outcome.WRITTEN, written_first=True)
    await decider.settle()
    assert booked_cards(decider, "u1") == "card0 on n1, held"


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.LOST_BEFORE_WRITING])
@pytest.mark.parametrize("comes_late", [True, False])
async def test_a_repeated_binding_uses_no_cards_that_are_free_again(outcome: Outcome, *, comes_late: bool) -> None:
    decider = following(gpu_pod())
    repeated = await repeat_a_bind(decider, outcome, written_first=False)
    assert booked_cards(decider, "u1") == "card0 on n1, reserved"
    if comes_late:
        await decider.settle()
        assert booked_cards(decider, "u1") == "nothing"
        with pytest.raises(ApiRefused, match="Precondition failed"):
            decider.cluster.write_binding("default", repeated)
    else:
        decider.cluster.write_binding("default", repeated)
        await decider.settle()
        assert booked_cards(decider, "u1") == "card0 on n1, held"


async def test_a_repeated_binding_is_forgotten_once_the_extender_has_written_its_own() -> None:
    decider = following(gpu_pod())
    repeated = await repeat_a_bind(decider, Outcome.WRITTEN, written_first=False)
    with pytest.raises(ApiRefused):
        decider.cluster.write_binding("default", repeated)
    assert decider.bookings.state("u1") is State.HELD


async def test_the_right_cards_without_the_time_of_the_decision_are_refused() -> None:
    other = gpu_pod(name="other", uid="u2")
    decider = following(gpu_pod(), other)
    held = HeldBindings(decider.cluster)
    own = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await turns()
    guessed = binding(gpu_pod(), uid="u1", annotations={"gas-container-cards": "card0"})
    assert "already has its cards on node n1" in (await reviewed(decider, guessed)).refusal
    held.let_go()
    assert await own == ""


@pytest.mark.parametrize(("node", "metadata"), [("n1", {}), ("n2", {"uid": "u1"})], ids=["no-uid", "another-node"])
async def test_the_extenders_own_binding_demands_its_pod_and_its_node(node: str, metadata: dict[str, str]) -> None:
    decider = following(gpu_pod())
    held = HeldBindings(decider.cluster)
    own = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await turns()
    sent = binding(gpu_pod(), node, **metadata, annotations=decider.cluster.bindings[0]["annotations"])
    assert "already has its cards on node n1" in (await reviewed(decider, sent)).refusal
    held.let_go()
    assert await own == ""


# Beside the extender's own bind


async def test_the_extenders_bind_takes_over_from_a_review_without_a_binding() -> None:
    decider = following(gpu_pod())
    written = await allowed(decider, gpu_pod(), "n2")
    assert await decider.bind(gpu_pod(), "n1") == ""
    assert booked_cards(decider, "u1") == "card0 on n1, held"
    with pytest.raises(ApiRefused):
        decider.cluster.write_binding("default", written)


async def test_a_bind_whose_outcome_is_not_known_is_settled_before_another_binding_is_given_cards() -> None:
    decider = following(gpu_pod())
    decider.cluster.outcome = Outcome.LOST_BEFORE_WRITING
    await decider.bind(gpu_pod(), "n1")
    own = decider.cluster.pod("default/pod"), "n1", decider.cluster.bindings[0]["annotations"]
    assert not (await reviewed(decider, binding(gpu_pod(), "n2"))).refusal
    assert booked_cards(decider, "u1") == "card0 on n2, reserved"
    decider.cluster.outcome = Outcome.WRITTEN
    with pytest.raises(ApiRefused):
        await decider.cluster.bind_pod(*own)


async def test_a_reservation_that_a_list_lacks_is_settled_as_a_review() -> None:
    decider = following()
    decider.cluster.on_change = lambda _type, _pod: None
    decider.cluster.add(gpu_pod())
    written = await allowed(decider, gpu_pod())
    decider.list_pods([])  # from before the pod was created
    assert booked_cards(decider, "u1") == "card0 on n1, reserved"
    await decider.settle()
    assert booked_cards(decider, "u1") == "nothing"
    with pytest.raises(ApiRefused):
        decider.cluster.write_binding("default", written)


async def test_a_filter_waits_for_the_review_of_the_pod_before() -> None:
    decider = following(gpu_pod(), gpu_pod(name="other", uid="u2"), patience=30.0)
    await decider.ask(gpu_pod(), "n1")
    asking = asyncio.create_task(decider.ask(gpu_pod(name="other", uid="u2"), "n1"))
    await turns()
    assert not asking.done()
    await reviewed(decider, binding(gpu_pod()))
    assert (await asking)["NodeNames"] == ["n1"]


@pytest.mark.parametrize(
    ("node", "metadata", "dry_run"),
    [
        pytest.param("n1", {}, True, id="dry-run"),
        pytest.param("n9", {}, False, id="refused"),
        pytest.param("n1", {"uid": "u1", "resourceVersion": "7"}, False, id="forged"),
    ],
)
async def test_a_review_that_books_nothing_ends_no_wait_for_a_bind(
    node: str, metadata: dict[str, str], *, dry_run: bool
) -> None:
    decider = following(gpu_pod(), gpu_pod(name="other", uid="u2"), patience=30.0)
    await decider.ask(gpu_pod(), "n1")
    asking = asyncio.create_task(decider.ask(gpu_pod(name="other", uid="u2"), "n1"))
    await reviewed(decider, binding(gpu_pod(), node, **metadata), dry_run=dry_run)
    await turns()
    assert not asking.done()
    assert await decider.bind(gpu_pod(), "n1") == ""
    assert (await asking)["NodeNames"] == ["n1"]


@pytest.mark.parametrize("pod", [plain_pod(), gpu_pod()], ids=["without-gpus", "gpu-pod"])
async def test_a_review_ends_the_wait_for_a_bind_and_a_dry_run_does_not(pod: dict[str, Any]) -> None:
    decider = following(pod, gpu_pod(name="other", uid="u2"), patience=30.0)
    decider.pending_binds.passed(pod["metadata"]["uid"])
    asking = asyncio.create_task(decider.ask(gpu_pod(name="other", uid="u2"), "n1"))
    await reviewed(decider, binding(pod), dry_run=True)
    await turns()
    assert not asking.done()
    await reviewed(decider, binding(pod))
    assert (await asyncio.wait_for(asking, 10.0))["NodeNames"] == ["n1"]


async def test_a_pod_that_is_bound_without_the_cards_that_were_reserved_is_counted_as_one_without() -> None:
    decider = following(gpu_pod())
    await reviewed(decider, binding(gpu_pod()))
    decider.cluster.write_binding("default", binding(gpu_pod()))  # the response came too late, and the policy is Ignore
    (bound,) = decider.pods.in_trouble.values()
    assert bound.trouble is not None
    assert bound.trouble.unannotated
    assert "bound without cards written on it" in bound.trouble.sentence
    decider.cluster.annotate("default/pod", gas_card_exclusion="x")
    assert [each.trouble for each in decider.pods.in_trouble.values()] == [bound.trouble]


@pytest.mark.parametrize("verb", ["review", "bind"])
async def test_a_pod_that_the_watch_shows_bound_while_it_is_read_gets_no_cards(verb: str) -> None:
    """The API server did not wait for the review, the policy is Ignore, and the pod is bound without cards."""
    decider = following(gpu_pod())
    if verb == "bind":
        decider.pods.waiting.clear()  # the watch has not shown the pod yet, so it is read
    decider.cluster.outcome = Outcome.LOST_BEFORE_WRITING

    async def read_and_be_overtaken(namespace: str, name: str) -> Pod | None:
        pod = await decider.cluster.get_pod(namespace, name)
        decider.cluster.write_binding("default", binding(gpu_pod()))
        decider.get_pod = decider.cluster.get_pod
        return pod

    decider.get_pod = read_and_be_overtaken
    if verb == "review":
        refusal = (await reviewed(decider, binding(gpu_pod()))).refusal
    else:
        refusal = await decider.bind(gpu_pod(), "n2")
    assert refusal == "pod default/pod is already bound to node n1"
    await decider.settle()
    assert booked_cards(decider, "u1") == "nothing"
    assert [each.trouble.unannotated for each in decider.pods.in_trouble.values() if each.trouble] == [True]
