"""Bindings that the webhook refuses, and those that it leaves to the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gas.extender.admission.review import ALLOWED, BadReview
from gas.extender.binding_reviews.bindings import EXPIRY_WINDOW, MOST_EXPIRED, MOST_EXPIRED_ON_NODE
from gas.extender.bookings import Event
from gas.extender.readiness import NotReady
from gas.objects.stored import Pod
from tests.builders import container, pod_json
from tests.extender.binding import gpu_pod
from tests.extender.binding_reviews.setting import allowed, binding, following, outcomes, plain_pod, reviewed
from tests.extender.cluster import Cluster
from tests.extender.decider import as_pod, booked_cards


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
    decider.bookings.report("u1", Event.END_REVIEW)
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
    sent[part][name] = "x" * 253
    assert (await reviewed(decider, sent)).refusal


async def test_a_binding_without_a_name_is_a_bad_review() -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod(), name="", generateName="pod-")
    with pytest.raises(BadReview, match=r"^request\.object\.metadata\.name: expected the name of a pod, found"):
        await reviewed(decider, sent)
    assert not decider.cluster.asked


# Bindings that did not follow, again and again


async def test_a_sender_of_reviews_who_never_binds_is_refused_for_a_while() -> None:
    decider = following(gpu_pod())
    for _ in range(MOST_EXPIRED):
        assert not (await reviewed(decider, binding(gpu_pod()))).refusal
        await decider.settle()
        decider.seconds += 10.0
    asked = len(decider.cluster.asked)
    refusal = (await reviewed(decider, binding(gpu_pod()))).refusal
    assert refusal == "pod default/pod was given cards 3 times within 60 s and was not bound; retry in 30 s"
    assert booked_cards(decider, "u1") == "nothing"
    assert len(decider.cluster.asked) == asked
    decider.seconds = EXPIRY_WINDOW - 0.5
    assert (await reviewed(decider, binding(gpu_pod()))).refusal
    decider.seconds = EXPIRY_WINDOW
    assert not (await reviewed(decider, binding(gpu_pod()))).refusal
    assert await decider.bind(gpu_pod(), "n1") == "", "the extender's own bind is not affected"
    decider.cluster.remove("default/pod")
    decider.cluster.add(gpu_pod(uid="u2"))
    assert not (await reviewed(decider, binding(gpu_pod()))).refusal, "another pod"


async def test_a_node_whose_cards_are_given_again_and_again_is_refused_for_a_while() -> None:
    names = [f"p{number}" for number in range(MOST_EXPIRED_ON_NODE + 1)]
    pods = [gpu_pod(name=name, uid=name) for name in names]
    decider = following(*pods, plain_pod(uid="plain"))
    for pod in pods[:-1]:
        assert not (await reviewed(decider, binding(pod))).refusal
        await decider.settle()
    decider.seconds = 20.0
    last = pods[-1]
    refusal = (await reviewed(decider, binding(last))).refusal
    assert refusal == "cards of node n1 were given 10 times within 60 s to bindings that did not follow; retry in 40 s"
    assert not (await reviewed(decider, binding(last), dry_run=True)).refusal
    assert not (await reviewed(decider, binding(plain_pod()))).refusal
    assert not (await reviewed(decider, binding(last, "n2"))).refusal, "another node"
    assert await decider.bind(last, "n1") == "", "the extender's own bind is not affected"
    decider.seconds = EXPIRY_WINDOW - 0.5
    assert (await reviewed(decider, binding(pods[0]))).refusal
    decider.seconds = EXPIRY_WINDOW
    assert not (await reviewed(decider, binding(pods[0]))).refusal


async def test_bindings_that_are_written_do_not_count_against_their_node() -> None:
    names = [f"p{number}" for number in range(2 * MOST_EXPIRED_ON_NODE)]
    decider = following(*(gpu_pod(name=name, uid=name) for name in names))
    for name in names:
        decider.cluster.write_binding("default", (await allowed(decider, gpu_pod(name=name))))
        await decider.settle()
        decider.cluster.end(f"default/{name}")


async def test_bindings_that_fail_because_the_pod_changed_do_not_count_as_expired() -> None:
    decider = following(gpu_pod())
    assert not (await reviewed(decider, binding(gpu_pod()))).refusal
    await decider.settle()  # this one counts
    for number in range(2 * MOST_EXPIRED):
        assert not (await reviewed(decider, binding(gpu_pod()))).refusal
        decider.cluster.annotate("default/pod", note=str(number))
        await decider.settle()
        assert booked_cards(decider, "u1") == "nothing"
