"""A bind with an unknown outcome: its cards stay reserved until the pod itself has been read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from gas.cluster.errors import ApiRefused
from gas.objects.stored import Pod
from tests.background import turns
from tests.extender.binding import IN_DOUBT, HeldBindings, following, gpu_pod
from tests.extender.cluster import Cluster, Outcome
from tests.extender.decider import DrivenDecider, as_pod, booked_cards
from tests.listed import list_all


@pytest.fixture
async def decider() -> DrivenDecider:
    return following(gpu_pod())


class TestUnknownOutcome:
    """It is not known whether the pod was bound: its cards stay reserved until the pod itself has been read."""

    # contract E11.5
    @pytest.mark.parametrize(
        ("outcome", "booked"),
        [
            pytest.param(Outcome.LOST_AFTER_WRITING, "card0 on n1, held", id="it-was-written"),
            pytest.param(Outcome.LOST_BEFORE_WRITING, "nothing", id="it-was-not"),
        ],
    )
    async def test_the_pod_itself_decides(self, decider: DrivenDecider, outcome: Outcome, booked: str) -> None:
        decider.cluster.on_change = lambda _type, _pod: None  # the watch is broken as well
        decider.cluster.outcome = outcome
        assert "broke" in await decider.bind(gpu_pod(), "n1")
        assert booked_cards(decider, "u1") == "card0 on n1, reserved"
        await decider.settle()
        assert booked_cards(decider, "u1") == booked
        assert decider.reports.freed == ([] if "held" in booked else ["n1"])

    async def test_the_pod_is_read_until_the_api_server_answers(self, decider: DrivenDecider) -> None:
        decider.cluster.outcome = Outcome.LOST_BEFORE_WRITING
        await decider.bind(gpu_pod(), "n1")
        decider.cluster.away = True
        await turns()
        assert len(decider.cluster.asked) > 2
        assert booked_cards(decider, "u1") == "card0 on n1, reserved"
        assert await decider.bind(gpu_pod(), "n1") == IN_DOUBT
        decider.cluster.away = False
        await decider.settle()
        assert booked_cards(decider, "u1") == "nothing"
        decider.cluster.outcome = Outcome.WRITTEN
        assert await decider.bind(gpu_pod(), "n1") == ""

    # contract E11.5
    @pytest.mark.parametrize("is_changed", [False, True], ids=["before-its-version-changes", "after-that"])
    async def test_a_write_that_arrives_after_the_pod_was_read(self, *, is_changed: bool) -> None:
        decider = following(gpu_pod())
        decider.cluster.outcome = Outcome.LOST_BEFORE_WRITING
        decider.cluster.on_change = lambda _type, _pod: None
        late = decider.cluster.pod("default/pod")

        async def with_a_late_write(namespace: str, name: str, uid: str) -> bool:
            if is_changed:
                await decider.cluster.change_version(namespace, name, uid)
            decider.cluster.outcome = Outcome.WRITTEN
            with contextlib.suppress(ApiRefused):
                await decider.cluster.bind_pod(late, "n1", decider.cluster.bindings[0]["annotations"])
            return await decider.cluster.change_version(namespace, name, uid)

        decider.change_version = with_a_late_write
        await decider.bind(gpu_pod(), "n1")
        await decider.settle()
        assert booked_cards(decider, "u1") == ("nothing" if is_changed else "card0 on n1, held")
        assert decider.cluster.pod("default/pod").node_name == ("" if is_changed else "n1")

    @pytest.mark.parametrize(
        "happens",
        [
            pytest.param(lambda cluster: cluster.remove("default/pod"), id="deleted"),
            pytest.param(
                lambda cluster: (cluster.remove("default/pod"), cluster.add(gpu_pod(uid="u2"))), id="recreated"
            ),
            pytest.param(
                lambda cluster: (cluster.remove("default/pod"), cluster.add(gpu_pod(uid="u2", node="n2"))),
                id="recreated-and-bound",
            ),
            pytest.param(lambda cluster: cluster.end("default/pod"), id="ended"),
        ],
    )
    async def test_a_pod_that_is_gone_holds_nothing(
        self, decider: DrivenDecider, happens: Callable[[Cluster], object]
    ) -> None:
        decider.cluster.outcome = Outcome.LOST_AFTER_WRITING
        decider.cluster.on_change = lambda _type, _pod: None
        await decider.bind(gpu_pod(), "n1")
        happens(decider.cluster)
        await decider.settle()
        assert booked_cards(decider, "u1") == "nothing"
        assert decider.reports.freed == ["n1"]

    async def test_a_pod_bound_elsewhere_by_then_holds_nothing_here(self, decider: DrivenDecider) -> None:
        decider.cluster.outcome = Outcome.LOST_BEFORE_WRITING
        await decider.bind(gpu_pod(), "n1")
        decider.cluster.pods["default/pod"]["spec"]["nodeName"] = "n2"
        await decider.settle()
        assert booked_cards(decider, "u1") == "nothing"
        assert decider.reports.freed == ["n1"]
        assert "without cards" in decider.reports.mismatches[0][1]

    async def test_a_response_older_than_the_watch_books_no_deleted_pod(self, decider: DrivenDecider) -> None:
        decider.cluster.outcome = Outcome.LOST_AFTER_WRITING
        decider.cluster.on_change = lambda event, pod: decider.see(event, pod) if event == "DELETED" else None
        bound: list[Pod] = []

        async def late(_namespace: str, _name: str) -> Pod:
            if not bound:
                bound.append(decider.cluster.pod("default/pod"))
                decider.cluster.remove("default/pod")
                await asyncio.sleep(0)
            return bound[0]

        decider.get_pod = late
        await decider.bind(gpu_pod(), "n1")
        await decider.settle()
        assert booked_cards(decider, "u1") == "nothing"

    @pytest.mark.parametrize("is_there", [True, False], ids=["created-after-the-list", "gone-before-the-list"])
    async def test_a_pod_read_while_a_list_is_read_that_lacks_it_is_read_again(self, *, is_there: bool) -> None:
        decider = following()
        decider.cluster.on_change = lambda _type, _pod: None
        decider.cluster.add(gpu_pod())
        decider.cluster.outcome = Outcome.LOST_AFTER_WRITING
        await decider.bind(gpu_pod(), "n1")
        await decider.settle()
        bound = decider.cluster.pod("default/pod")
        if not is_there:
            decider.cluster.remove("default/pod")
        list_all(decider.pods, [])
        await decider.settle()
        assert bool(decider.pods._apart) == is_there
        decider.pods.changed(bound)
        assert booked_cards(decider, "u1") == ("card0 on n1, held" if is_there else "nothing")

    async def test_after_a_broken_response_the_pod_is_read_again(self, caplog: pytest.LogCaptureFixture) -> None:
        decider = following(gpu_pod())
        decider.cluster.outcome = Outcome.LOST_BEFORE_WRITING
        get_pod, failures = decider.cluster.get_pod, [RuntimeError("a bug")]

        async def first_broken(namespace: str, name: str) -> Pod | None:
            if failures:
                raise failures.pop()
            return await get_pod(namespace, name)

        decider.get_pod = first_broken
        await decider.bind(gpu_pod(), "n1")
        await decider.settle()
        assert booked_cards(decider, "u1") == "nothing"
        (log,) = [each for each in caplog.records if "could not be read" in each.message]
        assert vars(log)["pod"] == "default/pod"


class TestVanished:
    """A reserved pod that is missing in a complete list is read."""

    async def test_after_a_bind_that_the_watch_missed(self, decider: DrivenDecider) -> None:
        decider.cluster.on_change = lambda _type, _pod: None
        assert await decider.bind(gpu_pod(), "n1") == ""
        decider.pods.waiting.clear()
        decider.cluster.remove("default/pod")
        decider.list_pods([])
        await decider.settle()
        assert booked_cards(decider, "u1") == "nothing"
        assert decider.reports.freed == ["n1"]

    async def test_a_pod_younger_than_the_list_keeps_its_cards(self, decider: DrivenDecider) -> None:
        decider.cluster.on_change = lambda _type, _pod: None
        assert await decider.bind(gpu_pod(), "n1") == ""
        decider.pods.waiting.clear()
        decider.list_pods([])
        await decider.settle()
        assert booked_cards(decider, "u1") == "card0 on n1, held"
        assert not decider.reports.freed

    async def test_its_bind_in_progress_is_waited_for(self) -> None:
        decider = following()
        decider.cluster.add(gpu_pod())
        decider.pods.deleted(as_pod(gpu_pod(uid="another")))
        decider.pods.waiting.clear()
        decider.cluster.on_change = lambda _type, _pod: None
        held = HeldBindings(decider.cluster)
        binding = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
        await turns()
        decider.list_pods([])
        assert booked_cards(decider, "u1") == "card0 on n1, reserved"
        held.let_go()
        assert await binding == ""
        decider.cluster.remove("default/pod")
        await decider.settle()
        assert booked_cards(decider, "u1") == "nothing"

    async def test_a_pod_that_comes_into_doubt_again_at_once_is_read_again(self) -> None:
        decider = following()
        decider.cluster.on_change = lambda _type, _pod: None
        decider.cluster.add(gpu_pod())
        decider.cluster.outcome = Outcome.LOST_AFTER_WRITING
        learn = decider.pods.learn

        def then_listed(pods: list[Pod]) -> None:
            learn(pods)
            decider.cluster.remove("default/pod")
            asyncio.get_running_loop().call_soon(list_all, decider.pods, [])

        decider.pods.learn = then_listed  # type: ignore[method-assign]
        await decider.bind(gpu_pod(), "n1")
        await decider.settle()
        await turns()
        assert booked_cards(decider, "u1") == "nothing"


@pytest.mark.parametrize("written", [True, False], ids=["after-it-was-written", "before-it-was-written"])
async def test_a_cancelled_bind_leaks_nothing(decider: DrivenDecider, *, written: bool) -> None:
    decider.cluster.on_change = lambda _type, _pod: None
    entered = asyncio.Event()
    bind_pod = decider.cluster.bind_pod

    async def stuck(*binding: Any) -> None:
        if written:
            await bind_pod(*binding)
        entered.set()
        await asyncio.Event().wait()

    decider.bind_pod = stuck
    binding = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await entered.wait()
    binding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await binding
    assert booked_cards(decider, "u1") == "card0 on n1, reserved"
    await decider.settle()
    assert booked_cards(decider, "u1") == ("card0 on n1, held" if written else "nothing")


async def test_a_bind_cancelled_before_its_write_leaks_nothing() -> None:
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


async def test_a_write_that_fails_by_a_bug_is_settled_too(decider: DrivenDecider) -> None:

    async def broken(*_binding: Any) -> None:
        raise ZeroDivisionError

    decider.bind_pod = broken
    with pytest.raises(ZeroDivisionError):
        await decider.bind(gpu_pod(), "n1")
    await decider.settle()
    assert booked_cards(decider, "u1") == "nothing"


async def test_settling_waits_for_binds_in_progress(decider: DrivenDecider) -> None:
    held = HeldBindings(decider.cluster)
    binding = asyncio.create_task(decider.bind(gpu_pod(), "n1"))
    await turns()
    settled = asyncio.create_task(decider.settle())
    await turns()
    assert not settled.done()
    held.let_go()
    await settled
    assert binding.done()
