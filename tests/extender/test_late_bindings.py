"""The first moments of a replica: no Binding that an earlier one allowed is written once this one decides."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from gas.cluster.errors import ApiRefused, ApiUnavailable
from gas.extender.late_bindings import LATEST_WRITE, end_earlier_bindings
from gas.extender.readiness import NotReady, read_bound_pods
from gas.objects.stored import Pod
from sandbox.api.failure import ApiFailure
from sandbox.api.kinds import PODS
from sandbox.api.routes import Access
from sandbox.api.server import ApiServer
from tests.background import eventually, turns
from tests.builders import container, node, pod_json
from tests.extender.assembled import add_node, add_pod, bind, extender, pod_now, state
from tests.extender.binding import gpu_pod
from tests.extender.binding_reviews.setting import (
    ReviewingDecider,
    allowed,
    binding,
    catch_up,
    following,
    kill,
)
from tests.extender.cluster import Cluster
from tests.extender.decider import booked_cards


def big_pod(name: str) -> dict[str, Any]:
    """Return a pod that needs both cards of a node."""
    return pod_json(container(i915=2, millicores=1200), name=name, uid=name)


async def after_a_kill(before: ReviewingDecider) -> ReviewingDecider:
    """Return the decider that follows on one that was killed, after it has caught up."""
    await kill(before)
    decider = ReviewingDecider(before.cluster)
    decider.follow([node("n1"), node("n2")])
    await catch_up(decider)
    return decider


async def test_a_binding_that_was_allowed_before_a_kill_can_no_longer_be_written() -> None:
    before = following(big_pod("a"), big_pod("b"))
    late = await allowed(before, big_pod("a"))
    decider = await after_a_kill(before)
    assert await decider.bind(big_pod("b"), "n1") == ""
    with pytest.raises(ApiRefused, match="Precondition failed"):
        decider.cluster.write_binding("default", late)
    assert booked_cards(decider, "a") == "nothing"
    assert booked_cards(decider, "b") == "card0,card1 on n1, held"


async def test_a_binding_that_is_written_meanwhile_keeps_its_cards() -> None:
    before = following(big_pod("a"), big_pod("b"))
    late = await allowed(before, big_pod("a"))
    await kill(before)
    cluster = before.cluster
    decider = ReviewingDecider(cluster)
    decider.follow([node("n1"), node("n2")])
    cluster.on_change = lambda _event, _pod: None  # the watch is slow
    change = cluster.change_version

    async def after_the_write(namespace: str, name: str, uid: str) -> bool:
        if name == "a":
            cluster.write_binding("default", late)
        return await change(namespace, name, uid)

    decider.change_version = after_the_write
    await catch_up(decider)
    assert booked_cards(decider, "a") == "card0,card1 on n1, held"
    assert "no longer has room" in await decider.bind(big_pod("b"), "n1")


class Watched:
    """The steps of a replica before it decides. Its clock and pauses stand still unless the test moves them."""

    def __init__(self, cluster: Cluster) -> None:
        self.now = 0.0
        self.learned: list[list[Pod]] = []
        self.changed: list[str] = []
        self.refuse: set[str] = set()
        self.cluster = cluster

    async def run(self) -> None:
        await end_earlier_bindings(self.list_pods, self.change_version, retry_pause=0.0, clock=lambda: self.now)
        await read_bound_pods(self.list_pods, self.learned.append, retry_pause=0.0)

    async def list_pods(self) -> list[Pod]:
        if self.cluster.away:
            raise ApiUnavailable("cannot connect to the API server")
        return self.cluster.all()

    async def change_version(self, namespace: str, name: str, uid: str) -> bool:
        if name in self.refuse:
            raise ApiUnavailable("no response")
        self.changed.append(f"{namespace}/{name}")
        return await self.cluster.change_version(namespace, name, uid)


async def test_only_pods_that_wait_get_another_version() -> None:
    cluster = Cluster()
    for each in (
        gpu_pod(name="waits", uid="1", namespace="team"),
        gpu_pod(name="over", uid="2"),
        gpu_pod(name="bound", uid="3"),
    ):
        cluster.add(each)
    cluster.end("default/over")
    cluster.edit("default/bound", lambda pod: pod["spec"].update(nodeName="n1"))
    watched = Watched(cluster)
    await watched.run()
    assert watched.changed == ["team/waits"]
    assert len(watched.learned) == 1


async def test_a_change_that_fails_is_tried_again_and_the_others_are_not(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    for number in range(100):
        cluster.add(gpu_pod(name=f"p{number}", uid=str(number)))
    watched = Watched(cluster)
    watched.refuse = {"p7"}
    task = asyncio.create_task(watched.run())
    await turns(50)
    assert not task.done()
    assert sorted(watched.changed) == sorted(f"default/p{number}" for number in range(100) if number != 7)
    assert caplog.messages == [
        "cannot end earlier bindings of 1 pod(s), so nothing is decided for up to 60 s: no response"
    ]
    watched.refuse.clear()
    await task
    assert watched.changed.count("default/p7") == 1
    assert len(watched.changed) == 100


async def test_after_the_latest_moment_of_a_write_the_versions_no_longer_matter() -> None:
    cluster = Cluster()
    cluster.add(gpu_pod())
    watched = Watched(cluster)
    watched.refuse = {"pod"}
    task = asyncio.create_task(watched.run())
    await turns(5)
    watched.now = LATEST_WRITE - 1
    await turns(50)
    assert not task.done()
    assert not watched.learned
    watched.now = LATEST_WRITE
    await task
    assert len(watched.learned) == 1


async def test_while_the_api_server_is_away_nothing_is_decided() -> None:
    cluster = Cluster()
    cluster.add(gpu_pod())
    cluster.away = True
    watched = Watched(cluster)
    task = asyncio.create_task(watched.run())
    await turns(50)
    watched.now = LATEST_WRITE
    await turns(50)
    assert not task.done()
    cluster.away = False
    await task
    assert len(watched.learned) == 1


async def test_pods_that_cannot_be_listed_at_first_get_another_version_later(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.add(gpu_pod())
    cluster.away = True
    watched = Watched(cluster)
    task = asyncio.create_task(watched.run())
    await turns(5)
    assert re.search("cannot list the pods that wait: (?!None)", caplog.text)
    cluster.away = False
    await task
    assert watched.changed == ["default/pod"]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ((), "first list of pods"),
        (("--admission-port=1",), "first list of pods"),
        (("--admission-port=1", "--leader-elect", "--lease-namespace=default"), "has just become the leader"),
    ],
    ids=["alone", "alone-with-reviews", "leader"],
)
async def test_the_whole_extender_ends_earlier_bindings_before_it_is_ready(
    server: ApiServer, tmp_path: Path, flags: tuple[str, ...], reason: str
) -> None:
    add_node(server)
    pod, other = add_pod(server, "a"), add_pod(server, "b")
    go = asyncio.Event()

    async def hold(access: Access) -> ApiFailure | None:
        if access.kind is PODS and access.verb == "patch":
            await go.wait()
        return None

    # The earlier extender gave the Binding these demands, and was killed.
    late = binding(pod, resourceVersion=pod["metadata"]["resourceVersion"], uid=pod["metadata"]["uid"])
    server.settings.intercept = hold
    async with extender(server, tmp_path, *flags, ready=False) as running:
        await eventually(lambda: reason in (running.readiness.why_not() or ""))
        with pytest.raises(NotReady, match=reason):
            await bind(running, other)
        go.set()
        await eventually(running.readiness.may_act)
        with pytest.raises(ApiFailure):
            server.api.bind("default", "a", late)
        assert await bind(running, other) == ""
        assert pod_now(server, "a")["metadata"]["annotations"]["gas-expired-binding"].isdigit()
        assert state(running, pod) is None
