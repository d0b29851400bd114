"""The webhook of bindings: every GPU pod gets its cards in the write that binds it, and reviews alone book nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gas.cluster.errors import ApiRefused, ApiUnavailable
from gas.extender.admission.bind import MOST_READS
from gas.extender.admission.bindings import EXPIRY_WINDOW, LATEST_WRITE, MOST_EXPIRED, MOST_EXPIRED_ON_NODE
from gas.extender.admission.review import ALLOWED, BadReview
from gas.extender.readiness import NotReady
from gas.objects import Pod
from tests.builders import container, pod_json
from tests.extender.admission.binding_reviews import binding, patched, review_of, reviewed
from tests.extender.binding import HeldBindings, following, gpu_pod
from tests.extender.cluster import Cluster, Outcome
from tests.extender.decider import DrivenDecider, as_pod, booked_cards
from tests.extender.eventually import turns

GIVEN_A_MOMENT_AGO = (
    "pod default/pod was given cards on node n1 a moment ago, and that binding may still come; try again in a moment"
)


def plain_pod(**fields: Any) -> dict[str, Any]:
    """Return a pod that asks for no cards."""
    return pod_json(container(), **{"name": "plain", "uid": "p1", **fields})


def outcomes(decider: DrivenDecider, outcome: str) -> float:
    return decider.counted("reviewed_bindings_total", outcome=outcome)


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ({"name": "a\nb\x1b[31m"}, r"pod 'default/a\nb\x1b[31m' does not exist"),
        ({"uid": "\x1b[31m"}, r"the Binding demands '\x1b[31m'"),
        ({"resourceVersion": "7\n"}, r"the Binding demands '7\n'"),
    ],
)
async def test_names_of_a_forged_binding_are_quoted(metadata: dict[str, Any], sentence: str) -> None:
    decider = following(gpu_pod())
    forged = binding(gpu_pod())
    forged["metadata"] = {**forged["metadata"], **({"uid": ""} if "name" in metadata else {}), **metadata}
    refusal = (await reviewed(decider, forged)).refusal
    assert refusal.endswith(sentence)


@pytest.mark.parametrize("resource", ["pods", "bindings"])
async def test_a_binding_of_a_gpu_pod_gets_its_cards_and_demands_the_pod_as_it_was_read(resource: str) -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod(), annotations={"note": "kept"})
    written = patched(sent, await reviewed(decider, sent, resource=resource))
    metadata = written["metadata"]
    assert metadata["annotations"]["gas-container-cards"] == "card0"
    assert metadata["annotations"]["gas-ts"].isdigit()
    assert metadata["annotations"]["note"] == "kept"
    assert metadata["uid"] == "u1"
    assert metadata["resourceVersion"] == decider.cluster.pods["default/pod"]["metadata"]["resourceVersion"]
    assert booked_cards(decider, "u1") == "card0 on n1, reserved"
    (decision,) = decider.decisions
    assert (decision.verb, decision.pod, decision.node, decision.cards) == ("review", "default/pod", "n1", "card0")
    decider.cluster.write_binding("default", written)
    assert booked_cards(decider, "u1") == "card0 on n1, held"
    await decider.settle()
    assert booked_cards(decider, "u1") == "card0 on n1, held"
    assert (outcomes(decider, "chosen"), outcomes(decider, "settled"), outcomes(decider, "expired")) == (1, 1, 0)


class TestPodsWithoutGpus:
    """They pass by what the watch has shown, without a request to the API server."""

    async def test_a_binding_with_a_uid_stays_as_it_is(self) -> None:
        decider = following(plain_pod())
        assert await reviewed(decider, binding(plain_pod(), uid="p1")) == ALLOWED
        assert not decider.cluster.asked

    async def test_a_binding_without_a_uid_is_for_this_pod_and_no_later_one_of_its_name(self) -> None:
        decider = following(plain_pod())
        sent = binding(plain_pod())
        written = patched(sent, await reviewed(decider, sent))
        assert written["metadata"] == {"name": "plain", "uid": "p1"}
        assert not decider.cluster.asked
        decider.cluster.remove("default/plain")
        decider.cluster.add(gpu_pod(name="plain", uid="u9"))
        with pytest.raises(ApiRefused):
            decider.cluster.write_binding("default", written)

    async def test_one_that_the_watch_has_not_shown_is_read(self) -> None:
        decider = following()
        decider.cluster.on_change = lambda _type, _pod: None
        decider.cluster.add(plain_pod())
        sent = binding(plain_pod())
        assert patched(sent, await reviewed(decider, sent))["metadata"] == {"name": "plain", "uid": "p1"}
        assert decider.cluster.asked == ["default/plain"]

    async def test_the_watch_gets_a_moment_to_show_it(self) -> None:
        decider = following(watch_patience=30.0)
        asking = asyncio.create_task(reviewed(decider, binding(plain_pod(), uid="p1")))
        await turns()
        assert not asking.done()
        decider.cluster.add(gpu_pod())
        await turns()
        assert not asking.done()
        decider.cluster.add(plain_pod())
        assert await asking == ALLOWED
        assert not decider.cluster.asked


class TestUnknownPods:
    async def test_a_gpu_pod_that_the_watch_has_not_shown_gets_its_cards(self) -> None:
        decider = following()
        decider.cluster.on_change = lambda _type, _pod: None
        decider.cluster.add(gpu_pod())
        sent = binding(gpu_pod())
        written = patched(sent, await reviewed(decider, sent))
        assert written["metadata"]["annotations"]["gas-container-cards"] == "card0"
        decider.cluster.on_change = decider.see
        decider.cluster.write_binding("default", written)
        assert booked_cards(decider, "u1") == "card0 on n1, held"

    async def test_a_pod_that_does_not_exist_is_refused_as_it_may_be_created_before_the_write(self) -> None:
        decider = following()
        assert (await reviewed(decider, binding(gpu_pod()))).refusal == "pod default/pod does not exist"

    async def test_while_it_cannot_be_read_the_failure_policy_decides(self) -> None:
        decider = following()
        decider.cluster.away = True
        with pytest.raises(NotReady, match="pod default/pod cannot be read: cannot connect to the API server"):
            await reviewed(decider, binding(gpu_pod()))

    async def test_a_flood_of_unknown_pods_reads_only_some_at_a_time_and_delays_no_known_one(self) -> None:
        decider = following(gpu_pod(), read_timeout=0.2)
        asked: list[str] = []

        async def slow(namespace: str, name: str) -> Pod | None:
            if name == "pod":
                return await decider.cluster.get_pod(namespace, name)
            asked.append(name)
            await asyncio.sleep(1000)
            return None

        decider.get_pod = slow
        flood = [
            asyncio.create_task(reviewed(decider, binding(plain_pod(name=f"forged-{number}"))))
            for number in range(3 * MOST_READS)
        ]
        await turns()
        assert len(asked) == MOST_READS
        assert not (await reviewed(decider, binding(gpu_pod()))).refusal
        results = await asyncio.gather(*flood, return_exceptions=True)
        assert all(isinstance(result, NotReady) and "no response in 0.2 s" in str(result) for result in results)


# One review and its repetitions


async def test_the_same_review_twice_gets_the_same_cards_without_another_read() -> None:
    decider = following(gpu_pod())
    first = await reviewed(decider, binding(gpu_pod()))
    books = decider.booked()
    assert await reviewed(decider, binding(gpu_pod())) == first
    assert decider.booked() == books
    assert decider.cluster.asked == ["default/pod"]
    assert outcomes(decider, "repeated") == 1


async def test_a_patched_binding_that_is_reviewed_again_stays_as_it_is() -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod())
    written = patched(sent, await reviewed(decider, sent))
    assert patched(written, await reviewed(decider, written)) == written


async def test_a_review_after_a_change_of_the_pod_demands_the_new_version_with_the_same_cards() -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod())
    first = patched(sent, await reviewed(decider, sent))
    decider.cluster.annotate("default/pod", note="changed")
    second = patched(sent, await reviewed(decider, sent))
    assert second["metadata"]["annotations"] == first["metadata"]["annotations"]
    with pytest.raises(ApiRefused):
        decider.cluster.write_binding("default", first)
    decider.cluster.write_binding("default", second)
    assert booked_cards(decider, "u1") == "card0 on n1, held"


@pytest.mark.parametrize("metadata", [{}, {"uid": "u1"}], ids=["by-name", "with-uid"])
async def test_a_binding_to_another_node_settles_the_first_at_once(metadata: dict[str, str]) -> None:
    decider = following(gpu_pod())
    first = patched(binding(gpu_pod()), await reviewed(decider, binding(gpu_pod())))
    second = binding(gpu_pod(), "n2", **metadata)
    written = patched(second, await reviewed(decider, second))
    assert booked_cards(decider, "u1") == "card0 on n2, reserved"
    with pytest.raises(ApiRefused):
        decider.cluster.write_binding("default", first)
    decider.cluster.write_binding("default", written)
    assert booked_cards(decider, "u1") == "card0 on n2, held"


async def test_a_binding_to_another_node_is_refused_if_the_first_was_written() -> None:
    decider = following(gpu_pod())
    first = patched(binding(gpu_pod()), await reviewed(decider, binding(gpu_pod())))
    decider.cluster.on_change = lambda _type, _pod: None  # the watch is slow
    decider.cluster.write_binding("default", first)
    refusal = (await reviewed(decider, binding(gpu_pod(), "n2"))).refusal
    assert refusal == "pod default/pod already has its cards on node n1 and keeps them"
    assert booked_cards(decider, "u1") == "card0 on n1, held"


async def test_a_dry_run_for_another_node_ends_no_review() -> None:
    decider = following(gpu_pod())
    first = patched(binding(gpu_pod()), await reviewed(decider, binding(gpu_pod())))
    assert (await reviewed(decider, binding(gpu_pod(), "n2"), dry_run=True)).refusal == GIVEN_A_MOMENT_AGO
    decider.cluster.write_binding("default", first)
    assert booked_cards(decider, "u1") == "card0 on n1, held"


# Refusals


REFUSED: list[Any] = [
    pytest.param(
        None, {"uid": "u7"}, "is another pod of that name: its UID is u1, the Binding demands u7", id="other-uid"
    ),
    pytest.param(
        None,
        {"resourceVersion": "7"},
        "pod default/pod has changed: its resource version is 1, the Binding demands 7",
        id="other-version",
    ),
    pytest.param(lambda cluster: cluster.remove("default/pod"), {}, "pod default/pod does not exist", id="gone"),
    pytest.param(
        lambda cluster: cluster.mark_deleted("default/pod"), {}, "pod default/pod is being deleted", id="being-deleted"
    ),
    pytest.param(
        lambda cluster: cluster.edit("default/pod", lambda pod: pod["spec"].update(nodeName="n2")),
        {},
        "pod default/pod is already bound to node n2",
        id="bound",
    ),
    pytest.param(lambda cluster: cluster.end("default/pod", "Failed"), {}, "already terminated", id="ended"),
    pytest.param(None, {"node": "n9"}, "node n9 is not known, so pod default/pod cannot be bound", id="unknown-node"),
]


@pytest.mark.parametrize(("happens", "changed", "sentence"), REFUSED)
async def test_a_binding_that_must_fail_is_refused_and_books_nothing(
    happens: Callable[[Cluster], object] | None, changed: dict[str, str], sentence: str
) -> None:
    decider = following(gpu_pod())
    if happens is not None:
        happens(decider.cluster)
    books = decider.booked()
    node = changed.pop("node", "n1")
    assert sentence in (await reviewed(decider, binding(gpu_pod(), node, **changed))).refusal
    assert decider.booked() == books
    assert outcomes(decider, "refused") == 1


async def test_a_node_without_room_is_refused_with_the_sentence() -> None:
    decider = following(gpu_pod())
    for number in (0, 1):
        bound = gpu_pod(uid=f"other-{number}", node="n1", annotations={"gas-container-cards": f"card{number}"})
        decider.pods.changed(as_pod(bound))
    refusal = (await reviewed(decider, binding(gpu_pod()))).refusal
    assert refusal.startswith("node n1 no longer has room for pod default/pod: no card has ")
    assert decider.counted("refusals_total", reason="no-room") == 1


async def test_a_pod_with_an_invalid_need_is_refused() -> None:
    senseless = pod_json(container(i915=1, xe=1), uid="u1")
    decider = following(senseless)
    refusal = (await reviewed(decider, binding(senseless))).refusal
    assert "both gpu.intel.com/i915 and gpu.intel.com/xe" in refusal


async def test_a_gpu_pod_that_cannot_be_read_is_refused_whatever_the_failure_policy() -> None:
    decider = following(gpu_pod())
    decider.cluster.away = True
    refusal = (await reviewed(decider, binding(gpu_pod()))).refusal
    assert refusal == (
        "pod default/pod cannot be read, so it is not bound: cannot connect to the API server; try again"
    )
    assert booked_cards(decider, "u1") == "nothing"


async def test_a_review_does_not_wait_long_for_an_earlier_one_whose_outcome_is_not_known() -> None:
    decider = following(gpu_pod(), read_timeout=0.05)
    await reviewed(decider, binding(gpu_pod()))
    decider.cluster.away = True
    decider.bind_reviews.hurry("u1")
    await asyncio.sleep(0)
    refusal = (await reviewed(decider, binding(gpu_pod()))).refusal
    assert refusal == "pod default/pod cannot be read, so it is not bound: no response in 0.05 s; try again"
    assert booked_cards(decider, "u1") == "card0 on n1, reserved"
    decider.cluster.away = False
    await decider.settle()
    assert booked_cards(decider, "u1") == "nothing"


async def test_a_replica_that_may_not_decide_leaves_it_to_the_failure_policy_at_once() -> None:
    decider = following(gpu_pod(), plain_pod())
    decider.not_ready = "this replica does not lead"
    for pod in (gpu_pod(), plain_pod()):
        with pytest.raises(NotReady, match="does not lead"):
            await reviewed(decider, binding(pod))
    assert not decider.cluster.asked


async def test_a_replica_that_stops_leading_while_it_reads_books_nothing() -> None:
    decider = following(gpu_pod())
    read = decider.get_pod

    async def overtaken(namespace: str, name: str) -> Pod | None:
        decider.not_ready = "this replica does not lead"
        return await read(namespace, name)

    decider.get_pod = overtaken
    with pytest.raises(NotReady):
        await reviewed(decider, binding(gpu_pod()))
    assert booked_cards(decider, "u1") == "nothing"


async def test_other_objects_and_targets_are_left_to_the_api_server() -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod())
    assert await reviewed(decider, sent, resource="configmaps") == ALLOWED
    assert await reviewed(decider, sent, operation="DELETE") == ALLOWED
    for target in ({"kind": "Pod", "name": "n1"}, {"kind": "Node", "name": ""}, {}):
        assert await reviewed(decider, sent | {"target": target}) == ALLOWED
    assert booked_cards(decider, "u1") == "nothing"


async def test_a_binding_that_cannot_be_read_is_a_bad_review() -> None:
    decider = following(gpu_pod())
    with pytest.raises(BadReview, match="metadata"):
        await reviewed(decider, binding(gpu_pod(), annotations={"gas-ts": 7}))


@pytest.mark.parametrize("field", ["metadata.name", "metadata.uid", "metadata.resourceVersion", "target.name"])
async def test_a_binding_with_a_name_that_no_object_can_have_is_a_bad_review(field: str) -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod())
    part, name = field.split(".")
    sent[part][name] = "x" * 254
    with pytest.raises(
        BadReview, match=rf"^request\.object\.{field}: expected at most 253 characters, found 'x{{40}}'…$"
    ):
        await reviewed(decider, sent)


async def test_a_binding_without_a_name_is_a_bad_review() -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod(), name="", generateName="pod-")
    with pytest.raises(BadReview, match=r"^request\.object\.metadata\.name: expected the name of a pod, found"):
        await reviewed(decider, sent)
    assert not decider.cluster.asked


# Dry run


async def test_a_dry_run_shows_the_cards_and_books_nothing() -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod())
    first = await reviewed(decider, sent, dry_run=True)
    assert patched(sent, first)["metadata"]["annotations"]["gas-container-cards"] == "card0"
    assert not decider.booked()
    assert not decider.bind_reviews.is_open("u1")
    assert outcomes(decider, "dry-run") == 1


async def test_a_dry_run_during_a_review_keeps_no_binding_alive() -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod())
    await reviewed(decider, sent)
    decider.cluster.annotate("default/pod", note="changed")
    await reviewed(decider, sent, dry_run=True)
    await decider.settle()
    assert booked_cards(decider, "u1") == "nothing"
    assert "gas-expired-binding" not in decider.cluster.pods["default/pod"]["metadata"]["annotations"]


# Reviews without a binding


async def test_a_review_that_no_binding_follows_books_cards_for_a_moment_only() -> None:
    decider = following(gpu_pod(), moment=0.01)
    sent = binding(gpu_pod())
    written = patched(sent, await reviewed(decider, sent))
    assert booked_cards(decider, "u1") == "card0 on n1, reserved"
    async with asyncio.timeout(10):
        while decider.bind_reviews.is_open("u1"):  # noqa: ASYNC110 -- the review ends by itself
            await asyncio.sleep(0.01)
    assert booked_cards(decider, "u1") == "nothing"
    assert decider.reports.freed == ["n1"]
    assert (outcomes(decider, "settled"), outcomes(decider, "expired")) == (0, 1)
    with pytest.raises(ApiRefused):  # the write comes too late, and must not use cards that others may have by now
        decider.cluster.write_binding("default", written)


async def test_a_binding_that_was_written_without_news_from_the_watch_keeps_its_cards() -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod())
    written = patched(sent, await reviewed(decider, sent))
    decider.cluster.on_change = lambda _type, _pod: None
    decider.cluster.write_binding("default", written)
    await decider.settle()
    assert booked_cards(decider, "u1") == "card0 on n1, held"
    assert not decider.reports.freed


async def test_a_binding_that_is_written_while_the_version_is_changed_keeps_its_cards() -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod())
    written = patched(sent, await reviewed(decider, sent))
    read = decider.cluster.get_pod

    async def just_before_the_write(namespace: str, name: str) -> Pod | None:
        pod = await read(namespace, name)
        if not decider.cluster.pods["default/pod"]["spec"].get("nodeName"):
            decider.cluster.write_binding("default", written)
        return pod

    decider.get_pod = just_before_the_write
    decider.cluster.on_change = lambda _type, _pod: None
    await decider.settle()
    assert booked_cards(decider, "u1") == "card0 on n1, held"


async def test_the_pod_is_read_until_the_api_server_responds() -> None:
    decider = following(gpu_pod())
    await reviewed(decider, binding(gpu_pod()))
    decider.cluster.away = True
    decider.bind_reviews.hurry("u1")
    await turns()
    assert len(decider.cluster.asked) > 2
    assert booked_cards(decider, "u1") == "card0 on n1, reserved"
    decider.cluster.away = False
    await decider.settle()
    assert booked_cards(decider, "u1") == "nothing"


async def test_without_permission_to_change_pods_the_cards_come_back_when_no_write_can_come() -> None:
    decider = following(gpu_pod())

    async def forbidden(_namespace: str, _name: str, _uid: str) -> bool:
        decider.clock += 10.0
        raise ApiUnavailable("forbidden")

    decider.change_version = forbidden
    await reviewed(decider, binding(gpu_pod()))
    await decider.settle()
    assert booked_cards(decider, "u1") == "nothing"
    assert decider.clock >= LATEST_WRITE


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda cluster: cluster.remove("default/pod"), id="deleted"),
        pytest.param(lambda cluster: (cluster.remove("default/pod"), cluster.add(gpu_pod(uid="u2"))), id="recreated"),
        pytest.param(lambda cluster: cluster.end("default/pod"), id="ended"),
    ],
)
async def test_a_pod_that_is_gone_holds_nothing(happens: Callable[[Cluster], object]) -> None:
    decider = following(gpu_pod())
    await reviewed(decider, binding(gpu_pod()))
    decider.cluster.on_change = lambda _type, _pod: None
    happens(decider.cluster)
    await decider.settle()
    assert booked_cards(decider, "u1") == "nothing"


async def test_a_review_during_the_settling_of_the_one_before_waits_for_its_end() -> None:
    decider = following(gpu_pod())
    await reviewed(decider, binding(gpu_pod()))
    decider.bind_reviews.hurry("u1")
    await asyncio.sleep(0)
    written = patched(binding(gpu_pod()), await reviewed(decider, binding(gpu_pod())))
    assert outcomes(decider, "expired") == 1
    assert outcomes(decider, "chosen") == 2
    decider.cluster.write_binding("default", written)
    assert booked_cards(decider, "u1") == "card0 on n1, held"


async def test_a_sender_of_reviews_who_never_binds_is_refused_for_a_while() -> None:
    decider = following(gpu_pod())
    for _ in range(MOST_EXPIRED):
        assert not (await reviewed(decider, binding(gpu_pod()))).refusal
        await decider.settle()
    decider.clock = 20.0
    asked = len(decider.cluster.asked)
    refusal = (await reviewed(decider, binding(gpu_pod()))).refusal
    assert refusal == "pod default/pod was given cards 3 times within 60 s and was not bound; retry in 40 s"
    assert booked_cards(decider, "u1") == "nothing"
    assert len(decider.cluster.asked) == asked
    assert await decider.bind(gpu_pod(), "n1") == "", "the extender's own bind is not affected"
    decider.cluster.remove("default/pod")
    decider.cluster.add(gpu_pod(uid="u2"))
    assert not (await reviewed(decider, binding(gpu_pod()))).refusal, "another pod"


async def test_after_a_while_reviews_of_the_pod_are_given_cards_again() -> None:
    decider = following(gpu_pod())
    for _ in range(MOST_EXPIRED):
        await reviewed(decider, binding(gpu_pod()))
        await decider.settle()
    decider.clock = EXPIRY_WINDOW
    assert not (await reviewed(decider, binding(gpu_pod()))).refusal


async def test_a_node_whose_cards_are_given_again_and_again_is_refused_for_a_while() -> None:
    names = [f"p{number}" for number in range(MOST_EXPIRED_ON_NODE + 1)]
    pods = [gpu_pod(name=name, uid=name) for name in names]
    decider = following(*pods, plain_pod())
    for pod in pods[:-1]:
        assert not (await reviewed(decider, binding(pod))).refusal
        await decider.settle()
    decider.clock = 20.0
    last = pods[-1]
    refusal = (await reviewed(decider, binding(last))).refusal
    assert refusal == "cards of node n1 were given 10 times within 60 s to bindings that did not follow; retry in 40 s"
    assert not (await reviewed(decider, binding(last), dry_run=True)).refusal
    assert not (await reviewed(decider, binding(plain_pod()))).refusal
    assert not (await reviewed(decider, binding(last, "n2"))).refusal, "another node"
    assert await decider.bind(last, "n1") == "", "the extender's own bind is not affected"
    decider.clock = EXPIRY_WINDOW
    assert not (await reviewed(decider, binding(pods[0]))).refusal


async def test_bindings_that_are_written_do_not_count_against_their_node() -> None:
    names = [f"p{number}" for number in range(2 * MOST_EXPIRED_ON_NODE)]
    decider = following(*(gpu_pod(name=name, uid=name) for name in names))
    for name in names:
        sent = binding(gpu_pod(name=name))
        decider.cluster.write_binding("default", patched(sent, await reviewed(decider, sent)))
        await decider.settle()
        decider.cluster.end(f"default/{name}")


async def test_bindings_that_fail_because_the_pod_changed_do_not_count_as_expired() -> None:
    decider = following(gpu_pod())
    for number in range(2 * MOST_EXPIRED):
        assert not (await reviewed(decider, binding(gpu_pod()))).refusal
        decider.cluster.annotate("default/pod", note=str(number))
        await decider.settle()
        assert booked_cards(decider, "u1") == "nothing"


# Choices that a Binding brings along


FORGED: list[Any] = [
    pytest.param({"gas-container-cards": "card1", "gas-ts": "1"}, id="another-card"),
    pytest.param({"gas-container-cards": "card7", "gas-ts": "1"}, id="a-card-that-does-not-exist"),
    pytest.param({"gas-container-cards": "nonsense"}, id="unreadable"),
    pytest.param({"gas-container-cards": ""}, id="empty"),
    pytest.param({"gas-allocated-cards": "card1"}, id="a-receipt"),
    pytest.param({"gas-container-tiles": "card1:gt0"}, id="tiles"),
    pytest.param({"gas-card-exclusion": "mine", "gas-card-affinity": "x"}, id="company"),
    pytest.param({"gas-init-container-cards": "card1"}, id="init-containers"),
]


@pytest.mark.parametrize("forged", FORGED)
async def test_a_choice_that_the_extender_did_not_make_is_replaced(forged: dict[str, str]) -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod(), annotations=forged, labels={"gas-card-exclusion": "mine", "app": "x"})
    metadata = patched(sent, await reviewed(decider, sent))["metadata"]
    assert metadata["annotations"].keys() == {"gas-container-cards", "gas-ts"}
    assert metadata["annotations"]["gas-container-cards"] == "card0"
    decider.cluster.write_binding("default", {**sent, "metadata": metadata})
    assert booked_cards(decider, "u1") == "card0 on n1, held"
    assert not decider.pods.in_trouble


async def test_annotations_of_a_template_on_the_pod_are_emptied() -> None:
    copied = gpu_pod(annotations={"gas-allocated-cards": "card1", "gas-container-tiles": "card1:gt0"})
    decider = following(copied)
    annotations = patched(binding(copied), await reviewed(decider, binding(copied)))["metadata"]["annotations"]
    assert annotations["gas-allocated-cards"] == ""
    assert annotations["gas-container-tiles"] == ""


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


async def repeat_a_bind(decider: DrivenDecider, outcome: Outcome, *, written_first: bool) -> dict[str, Any]:
    """Repeat the extender's own Binding of default/pod while it is being written, and return what may be written."""
    held = HeldBindings(decider.cluster)
    decider.cluster.outcome = outcome
    own = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await turns()
    sent = binding(gpu_pod(), uid="u1", annotations=decider.cluster.bindings[0]["annotations"])
    repeated = patched(sent, await reviewed(decider, sent))
    if written_first:
        decider.cluster.write_binding("default", repeated)
    held.let_go()
    assert bool(await own) == (written_first or outcome is not Outcome.WRITTEN)
    return repeated


async def test_a_repeated_binding_that_is_written_before_the_extenders_own_keeps_the_cards() -> None:
    decider = following(gpu_pod())
    decider.cluster.on_change = lambda _type, _pod: None  # the watch is slow
    await repeat_a_bind(decider, Outcome.WRITTEN, written_first=True)
    assert booked_cards(decider, "u1") == "card0 on n1, reserved"
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
    decider.bind_reviews.take_back("u1")
    assert not decider.bind_reviews.is_open("u1")


async def test_the_right_cards_without_the_time_of_the_decision_are_refused() -> None:
    other = gpu_pod(name="other", uid="u2")
    decider = following(gpu_pod(), other)
    decider.cluster.outcome = Outcome.LOST_BEFORE_WRITING
    await decider.bind(gpu_pod(), "n1")
    guessed = binding(gpu_pod(), uid="u1", annotations={"gas-container-cards": "card0"})
    assert "already has its cards on node n1" in (await reviewed(decider, guessed)).refusal
    repeated = binding(gpu_pod(), uid="u1", annotations=decider.cluster.bindings[0]["annotations"])
    assert "already has its cards on node n1" in (await reviewed(decider, repeated)).refusal, "it is written no more"
    await decider.settle()
    assert booked_cards(decider, "u1") == "nothing"


async def test_the_extenders_own_binding_demands_its_pod() -> None:
    decider = following(gpu_pod())
    held = HeldBindings(decider.cluster)
    own = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await turns()
    sent = binding(gpu_pod(), annotations=decider.cluster.bindings[0]["annotations"])
    assert "already has its cards on node n1" in (await reviewed(decider, sent)).refusal
    held.let_go()
    assert await own == ""


# Beside the extender's own bind


async def test_the_extenders_bind_takes_over_from_a_review_without_a_binding() -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod(), "n2")
    written = patched(sent, await reviewed(decider, sent))
    assert await decider.bind(gpu_pod(), "n1") == ""
    assert booked_cards(decider, "u1") == "card0 on n1, held"
    with pytest.raises(ApiRefused):
        decider.cluster.write_binding("default", written)


async def test_a_bind_whose_outcome_is_not_known_keeps_other_bindings_away() -> None:
    decider = following(gpu_pod())
    decider.cluster.outcome = Outcome.LOST_BEFORE_WRITING
    await decider.bind(gpu_pod(), "n1")
    sent = binding(gpu_pod())
    assert "already has its cards on node n1" in (await reviewed(decider, sent)).refusal
    await decider.settle()
    assert not (await reviewed(decider, sent)).refusal


async def test_a_reservation_that_a_list_lacks_is_settled_as_a_review() -> None:
    decider = following()
    decider.cluster.on_change = lambda _type, _pod: None
    decider.cluster.add(gpu_pod())
    sent = binding(gpu_pod())
    written = patched(sent, await reviewed(decider, sent))
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


async def test_a_dry_run_of_a_pod_without_gpus_ends_no_wait_for_a_bind() -> None:
    decider = following(plain_pod(), gpu_pod(), patience=30.0)
    decider.pending_binds.passed("p1")
    asking = asyncio.create_task(decider.ask(gpu_pod(), "n1"))
    await reviewed(decider, binding(plain_pod()), dry_run=True)
    await turns()
    assert not asking.done()
    await reviewed(decider, binding(plain_pod()))
    assert (await asking)["NodeNames"] == ["n1"]


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


def test_a_review_of_a_binding_is_that_of_the_api_server() -> None:
    assert review_of(binding(gpu_pod())).target == "pods/binding"
    assert review_of(binding(gpu_pod()), resource="bindings").target == "bindings"
