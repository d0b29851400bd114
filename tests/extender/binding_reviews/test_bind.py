"""The webhook of bindings: every GPU pod gets its cards in the write that binds it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gas.cluster.errors import ApiRefused
from gas.extender.admission.review import ALLOWED
from gas.extender.binding_reviews.reviews import MOST_READS
from gas.extender.readiness import NotReady
from gas.objects.stored import Pod
from tests.background import turns
from tests.builders import container, pod_json
from tests.extender.binding import gpu_pod
from tests.extender.binding_reviews.setting import (
    allowed,
    binding,
    following,
    outcomes,
    patched,
    plain_pod,
    reviewed,
)
from tests.extender.decider import booked_cards

GIVEN_A_MOMENT_AGO = (
    "pod default/pod was given cards on node n1 a moment ago, and that binding may still come; try again in a moment"
)


@pytest.mark.parametrize("resource", ["pods", "bindings"])
async def test_a_binding_of_a_gpu_pod_gets_its_cards_and_demands_the_pod_as_it_was_read(
    resource: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    decider = following(gpu_pod())
    decider.seconds = 7.0
    sent = binding(gpu_pod(), annotations={"note": "kept"}, labels={"note": "kept"})
    written = patched(sent, await reviewed(decider, sent, resource=resource))
    metadata = written["metadata"]
    assert metadata["annotations"]["gas-container-cards"] == "card0"
    assert metadata["annotations"]["gas-ts"].isdigit()
    assert metadata["annotations"]["note"] == metadata["labels"]["note"] == "kept"
    assert metadata["uid"] == "u1"
    assert metadata["resourceVersion"] == decider.cluster.pods["default/pod"]["metadata"]["resourceVersion"]
    assert booked_cards(decider, "u1") == "card0 on n1, reserved"
    (decision,) = decider.decisions
    assert (decision.uid, decision.pod, decision.node, decision.cards) == ("u1", "default/pod", "n1", "card0")
    assert decision.milliseconds == {"review": 0.0}
    assert decision.time > 1.7e9
    (log,) = (vars(each) for each in caplog.records)
    assert log["message"] == "gave cards to a binding of another client"
    assert (log["pod"], log["node"], log["cards"], log["user"]) == ("default/pod", "n1", "card0", "alice")
    assert decider.bookings.in_doubt() == {"u1": "n1"}
    decider.cluster.write_binding("default", written)
    assert booked_cards(decider, "u1") == "card0 on n1, held"
    assert not decider.bookings.in_doubt()
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
        written = await allowed(decider, plain_pod())
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
        assert (await allowed(decider, plain_pod()))["metadata"] == {"name": "plain", "uid": "p1"}
        assert decider.cluster.asked == ["default/plain"]

    async def test_one_that_asks_for_a_part_of_no_card_books_nothing(self) -> None:
        pod = pod_json(container(millicores=100), uid="u1")
        decider = following(pod)
        assert (await allowed(decider, pod))["metadata"]["uid"] == "u1"
        assert booked_cards(decider, "u1") == "nothing"
        assert outcomes(decider, "none") == 1

    async def test_the_watch_gets_a_moment_to_show_it(self) -> None:
        decider = following(watch_patience=30.0)
        asking = asyncio.create_task(reviewed(decider, binding(plain_pod(), uid="p1")))
        await turns()
        assert not asking.done()
        decider.cluster.add(gpu_pod(name="plain", uid="p0"))
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
        written = await allowed(decider, gpu_pod())
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
        assert not any(each.done() for each in flood)
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
    written = await allowed(decider, gpu_pod())
    assert (await reviewed(decider, written)).patch == ()


async def test_a_review_after_a_change_of_the_pod_demands_the_new_version_with_the_same_cards() -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod())
    first = patched(sent, await reviewed(decider, sent))
    decider.cluster.annotate("default/pod", note="changed")
    second = patched(sent, await reviewed(decider, sent))
    assert second["metadata"]["annotations"] == first["metadata"]["annotations"]
    assert patched(sent, await reviewed(decider, sent)) == second
    assert decider.cluster.asked == ["default/pod"] * 2, "each version is read once"
    with pytest.raises(ApiRefused):
        decider.cluster.write_binding("default", first)
    decider.cluster.write_binding("default", second)
    assert booked_cards(decider, "u1") == "card0 on n1, held"


@pytest.mark.parametrize("metadata", [{}, {"uid": "u1"}], ids=["by-name", "with-uid"])
async def test_a_binding_to_another_node_settles_the_first_at_once(metadata: dict[str, str]) -> None:
    decider = following(gpu_pod())
    first = await allowed(decider, gpu_pod())
    second = binding(gpu_pod(), "n2", **metadata)
    written = patched(second, await reviewed(decider, second))
    assert booked_cards(decider, "u1") == "card0 on n2, reserved"
    with pytest.raises(ApiRefused):
        decider.cluster.write_binding("default", first)
    decider.cluster.write_binding("default", written)
    assert booked_cards(decider, "u1") == "card0 on n2, held"


async def test_a_binding_to_another_node_is_refused_if_the_first_was_written() -> None:
    decider = following(gpu_pod())
    first = await allowed(decider, gpu_pod())
    decider.cluster.on_change = lambda _type, _pod: None  # the watch is slow
    decider.cluster.write_binding("default", first)
    refusal = (await reviewed(decider, binding(gpu_pod(), "n2"))).refusal
    assert refusal == "pod default/pod already has its cards on node n1 and keeps them"
    assert booked_cards(decider, "u1") == "card0 on n1, held"


async def test_a_dry_run_for_another_node_ends_no_review() -> None:
    decider = following(gpu_pod())
    first = await allowed(decider, gpu_pod())
    assert (await reviewed(decider, binding(gpu_pod(), "n2"), dry_run=True)).refusal == GIVEN_A_MOMENT_AGO
    decider.cluster.write_binding("default", first)
    assert booked_cards(decider, "u1") == "card0 on n1, held"


# Dry run


async def test_a_dry_run_shows_the_cards_and_books_nothing() -> None:
    decider = following(gpu_pod())
    sent = binding(gpu_pod())
    first = await reviewed(decider, sent, dry_run=True)
    assert patched(sent, first)["metadata"]["annotations"]["gas-container-cards"] == "card0"
    assert not decider.booked()
    assert outcomes(decider, "dry-run") == 1


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
