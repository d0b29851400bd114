"""The scheduler loop with a scripted extender."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.api.client import ApiClient, WatchEvent
from sandbox.api.server import ApiServer
from sandbox.scheduler.extender_client import connected
from sandbox.scheduler.queue import SchedulingQueue
from sandbox.scheduler.scheduler import LateVolumes, Scheduler, VolumesFailed, waiting_sentence
from tests.sandbox.objects import I915, PODS, node, phase, pod, until
from tests.sandbox.scheduler.scripted_extender import ScriptedExtender, serving

NODES = "/api/v1/nodes"


@pytest.fixture
def ignorable(request: pytest.FixtureRequest) -> bool:
    """Return whether the extender is ignorable. Tests about that override it."""
    return bool(getattr(request, "param", False))


@asynccontextmanager
async def scheduling(
    client: ApiClient,
    extender: ScriptedExtender,
    directory: Path,
    *,
    ignorable: bool = False,
    weight: int = 0,
    volumes: LateVolumes | None = None,
    pod_groups: bool = False,
) -> AsyncIterator[None]:
    """Run a scheduler with an extender as long as the block."""
    async with (
        serving(extender, directory, ignorable=ignorable, weight=weight) as address,
        connected(address) as connection,
    ):
        queue = SchedulingQueue(first=0.02, longest=0.05)
        scheduler = Scheduler(client, connection, queue=queue, volumes=volumes, pod_groups=pod_groups)
        running = asyncio.create_task(scheduler.run())
        yield
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


@pytest.fixture
async def extender(client: ApiClient, tmp_path: Path, ignorable: bool) -> AsyncIterator[ScriptedExtender]:
    extender = ScriptedExtender(client)
    async with scheduling(client, extender, tmp_path, ignorable=ignorable):
        yield extender


def _node(value: dict[str, Any]) -> str:
    return str(value["spec"].get("nodeName", ""))


def _message(value: dict[str, Any]) -> str:
    conditions = value["status"].get("conditions") or []
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")


@pytest.mark.parametrize(
    ("scores", "weight", "expected"),
    [
        pytest.param({"full": 5000}, 1, "full", id="the-highest-score-wins"),
        pytest.param({"full": 5000}, 0, "idle", id="it-is-not-asked"),
        pytest.param(None, 1, "idle", id="it-scores-no-nodes"),
        pytest.param({}, 1, "idle", id="equal-scores"),
    ],
)
async def test_the_extenders_scores_are_added_to_the_free_share(
    client: ApiClient, tmp_path: Path, scores: dict[str, int] | None, weight: int, expected: str
) -> None:
    await client.post(NODES, node("full", cards=2))
    await client.post(NODES, node("idle", cards=8))
    extender = ScriptedExtender(client, scores=scores)
    async with scheduling(client, extender, tmp_path, weight=weight):
        await client.post(PODS, pod("p"))
        assert _node(await until(client, "p", _node)) == expected
    assert extender.scored == ([["full", "idle"]] if weight else [])


async def test_the_pods_of_a_group_are_bound_once_enough_have_a_node(client: ApiClient, tmp_path: Path) -> None:
    await client.post(NODES, node("n1"))
    await client.post(NODES, node("n2"))
    extender = ScriptedExtender(client, refuse=lambda pod, _node: "not yet" if pod == "b" else None)
    gang = {"metadata": {"name": "gang"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    async with scheduling(client, extender, tmp_path, pod_groups=True):
        await client.post(PODS, pod("a", schedulingGroup={"podGroupName": "gang"}))
        await until(client, "a", lambda p: "waiting for the PodGroup" in _message(p))
        await client.post("/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups", gang)
        await client.post(PODS, pod("b", schedulingGroup={"podGroupName": "gang"}))
        await until(client, "b", lambda p: "not yet" in _message(p))
        await until(client, "a", lambda p: "too few pods of its PodGroup have a node" in _message(p))
        first, second = extender.filters[:2]
        assert (first["Pod"]["metadata"]["name"], second["Pod"]["metadata"]["name"]) == ("a", "b")
        assert len(second["NodeNames"]) == 1, "a is assumed on the other node"
        assert extender.binds == []
        extender.refuse = lambda _pod, _node: None
        await client.post(NODES, node("n3"))
        assert _node(await until(client, "a", _node)) != _node(await until(client, "b", _node))


class Volumes:
    """A provisioner of volumes for every pod, which fails at first."""

    def __init__(self, client: ApiClient, failures: int) -> None:
        self.nominated: list[str] = []  # the nominations that pods had when their volumes were made
        self._client = client
        self._failures = failures
        self._node: str | None = None

    def node_of(self, _pod: object) -> str | None:
        return self._node

    def are_missing(self, _pod: object) -> bool:
        return self._node is None

    async def make(self, pod: Mapping[str, Any], node: str) -> None:
        now = await self._client.get(f"{PODS}/{pod['metadata']['name']}")
        self.nominated.append(now["status"].get("nominatedNodeName", ""))
        if len(self.nominated) <= self._failures:
            raise VolumesFailed("no space")
        self._node = node


async def test_a_pod_is_nominated_before_its_volumes_are_made_and_tried_there_first_if_they_are_not(
    client: ApiClient, tmp_path: Path
) -> None:
    await client.post(NODES, node("n1"))
    await client.post(NODES, node("n2"))
    extender, volumes = ScriptedExtender(client), Volumes(client, failures=1)
    async with scheduling(client, extender, tmp_path, volumes=volumes):
        await client.post(PODS, pod("p"))
        where = _node(await until(client, "p", _node))
    assert volumes.nominated == [where, where]
    assert [asked["NodeNames"] for asked in extender.filters] == [["n1", "n2"], [where]]


async def test_a_pod_whose_volumes_are_on_a_full_node_gets_no_other_and_its_nomination_ends(
    client: ApiClient, tmp_path: Path
) -> None:
    await client.post(NODES, node("n1"))
    extender, volumes = ScriptedExtender(client, bind_error="no card is free"), Volumes(client, failures=0)
    async with scheduling(client, extender, tmp_path, volumes=volumes):
        await client.post(PODS, pod("p"))
        await until(client, "p", lambda p: p["status"].get("nominatedNodeName"))
        await client.post(NODES, node("n2"))
        extender.refuse = lambda _pod, name: "full" if name == "n1" else None
        waits = await until(client, "p", lambda p: not p["status"].get("nominatedNodeName"))
    assert "1 node(s) had volume node affinity conflict" in _message(waits)


async def test_the_extender_filters_and_binds(client: ApiClient, extender: ScriptedExtender) -> None:
    await client.post(NODES, node("n1"))
    created = await client.post(PODS, pod("p"))
    bound = await until(client, "p", _node)
    assert _node(bound) == "n1"
    assert bound["metadata"]["annotations"]["by"] == "extender"
    (asked,) = extender.filters
    assert set(asked) == {"Pod", "Nodes", "NodeNames"}
    assert asked["Nodes"] is None
    assert asked["NodeNames"] == ["n1"]
    assert asked["Pod"]["metadata"]["uid"] == created["metadata"]["uid"]
    assert extender.binds == [
        {"PodName": "p", "PodNamespace": "default", "PodUID": created["metadata"]["uid"], "Node": "n1"}
    ]


async def test_pods_without_managed_resources_never_reach_the_extender(
    client: ApiClient, extender: ScriptedExtender
) -> None:
    await client.post(NODES, node("n1"))
    await client.post(PODS, pod("p", cards=0))
    bound = await until(client, "p", _node)
    assert "annotations" not in bound["metadata"]
    assert extender.filters == extender.binds == []


async def test_nodes_whose_sum_is_too_small_are_not_offered(client: ApiClient, extender: ScriptedExtender) -> None:
    for value in (node("big", 4), node("small", 1), node("none", 0)):
        await client.post(NODES, value)
    await client.post(PODS, pod("p", cards=2))
    assert _node(await until(client, "p", _node)) == "big"
    await client.post(PODS, pod("q", cards=1))
    await until(client, "q", _node)
    assert extender.filters[0]["NodeNames"] == ["big"]
    assert extender.filters[-1]["NodeNames"] == ["big", "small"]


async def test_the_node_with_the_largest_free_share_is_chosen(client: ApiClient, extender: ScriptedExtender) -> None:
    await client.post(NODES, node("a", 2))
    await client.post(NODES, node("b", 4))
    for name in ("p1", "p2", "p3"):
        await client.post(PODS, pod(name))
        await until(client, name, _node)
    assert [bind["Node"] for bind in extender.binds] == ["b", "a", "b"]


async def test_a_pod_that_fits_no_node_gets_a_condition(client: ApiClient, extender: ScriptedExtender) -> None:
    extender.refuse = lambda _pod, _node: "no card has 5.0 GB of memory.max free"
    for name, cards in (("n1", 1), ("n2", 1), ("n3", 0)):
        await client.post(NODES, node(name, cards))
    await client.post(PODS, pod("p"))
    sentence = f"0/3 nodes are available: 1 Insufficient {I915}, 2 no card has 5.0 GB of memory.max free."
    waiting = await until(client, "p", lambda value: _message(value) == sentence)
    (condition,) = waiting["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")


@pytest.mark.parametrize("deleted", [pytest.param(True, id="deleted"), pytest.param(False, id="succeeded")])
async def test_a_waiting_pod_is_scheduled_when_another_ends(
    client: ApiClient, extender: ScriptedExtender, *, deleted: bool
) -> None:
    await client.post(NODES, node("n1", 1))
    await client.post(PODS, pod("first"))
    await until(client, "first", _node)
    await client.post(PODS, pod("second"))
    await until(client, "second", _message)
    if deleted:
        await client.delete(f"{PODS}/first", {"gracePeriodSeconds": 0})
    else:
        await client.patch(f"{PODS}/first/status", {"status": {"phase": "Succeeded"}})
    assert _node(await until(client, "second", _node)) == "n1"


async def test_a_waiting_pod_is_tried_again_only_when_a_node_changes(
    client: ApiClient, extender: ScriptedExtender
) -> None:
    extender.refuse = lambda _pod, _node: "no"
    await client.post(NODES, node("n1", 1))
    await client.post(PODS, pod("p"))
    await until(client, "p", lambda value: _message(value).endswith("1 no."))
    asked = len(extender.filters)
    await asyncio.sleep(0.2)
    assert len(extender.filters) == asked
    extender.refuse = lambda _pod, _node: None
    await client.patch(f"{NODES}/n1", {"metadata": {"annotations": {"woken": "1"}}})
    assert _node(await until(client, "p", _node)) == "n1"


@pytest.mark.parametrize("verb", ["filter", "bind"])
async def test_a_failure_of_the_extender_is_reported_and_tried_again(
    client: ApiClient, extender: ScriptedExtender, verb: str
) -> None:
    setattr(extender, f"{verb}_error", "not the leader")
    await client.post(NODES, node("n1", 1))
    await client.post(PODS, pod("p"))
    await until(client, "p", lambda value: _message(value) == "not the leader")
    setattr(extender, f"{verb}_error", "")
    assert _node(await until(client, "p", _node)) == "n1"


@pytest.mark.parametrize("ignorable", [True], indirect=True)
async def test_an_ignorable_extender_is_ignored_when_it_fails(client: ApiClient, extender: ScriptedExtender) -> None:
    extender.filter_error = extender.bind_error = "not ready"
    await client.post(NODES, node("n1", 1))
    await client.post(PODS, pod("p"))
    bound = await until(client, "p", _node)
    assert "annotations" not in bound["metadata"], "bound by the scheduler, without cards"
    assert len(extender.filters) == len(extender.binds) == 1


async def test_pods_of_other_schedulers_gated_pods_and_deleted_pods_are_ignored(
    client: ApiClient, extender: ScriptedExtender
) -> None:
    await client.post(PODS, pod("other", schedulerName="other"))
    await client.post(PODS, pod("gated", schedulingGates=[{"name": "example.com/later"}]))
    deleted = pod("deleted")
    deleted["metadata"]["finalizers"] = ["example.com/wait"]
    await client.post(PODS, deleted)
    await client.delete(f"{PODS}/deleted")
    await client.post(NODES, node("n1", 4))
    await client.post(PODS, pod("p"))
    await until(client, "p", _node)
    await asyncio.sleep(0.1)
    for name in ("other", "gated", "deleted"):
        assert _node(await client.get(f"{PODS}/{name}")) == ""
    assert {asked["Pod"]["metadata"]["name"] for asked in extender.filters} == {"p"}


class _SlowToSee(ApiClient):
    """Delay every event of a watch."""

    @asynccontextmanager
    async def watch(self, path: str, version: str, **query: str) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with super().watch(path, version, **query) as events:
            yield _late(events)


async def _late(events: AsyncIterator[WatchEvent]) -> AsyncIterator[WatchEvent]:
    async for event in events:
        await asyncio.sleep(0.2)
        yield event


async def test_a_bound_pod_counts_before_the_watch_shows_it(
    server: ApiServer, client: ApiClient, tmp_path: Path
) -> None:
    await client.post(NODES, node("n1", 1))
    await client.post(PODS, pod("p"))
    await client.post(PODS, pod("q"))
    extender = ScriptedExtender(client)
    async with _SlowToSee(server.url) as late, scheduling(late, extender, tmp_path):
        await until(client, "q", _message)
    assert [bind["PodName"] for bind in extender.binds] == ["p"]


async def test_scheduling_continues_after_the_api_server_was_away(
    server: ApiServer, client: ApiClient, extender: ScriptedExtender
) -> None:
    await client.post(NODES, node("n1", 2))
    await client.post(PODS, pod("p"))
    await until(client, "p", _node)
    await server.pause()
    await asyncio.sleep(0.1)
    await server.resume()
    created = await client.post(PODS, pod("q"))
    assert phase(created) == "Pending"
    assert _node(await until(client, "q", _node)) == "n1"


@pytest.mark.parametrize(
    ("nodes", "reasons", "sentence"),
    [
        pytest.param(
            3,
            ["no card has 5.0 GB free", "Insufficient gpu.intel.com/i915", "no card has 5.0 GB free"],
            "0/3 nodes are available: 1 Insufficient gpu.intel.com/i915, 2 no card has 5.0 GB free.",
            id="equal-reasons-are-counted",
        ),
        pytest.param(0, [], "0/0 nodes are available.", id="no-nodes"),
        pytest.param(1, ["Insufficient a", "Insufficient b"], "0/1 nodes are available: 1 Insufficient a, "
                     "1 Insufficient b.", id="two-reasons-of-one-node"),
    ],
)  # fmt: skip
def test_reasons_are_counted_in_one_sentence(nodes: int, reasons: list[str], sentence: str) -> None:
    assert waiting_sentence(nodes, reasons) == sentence
