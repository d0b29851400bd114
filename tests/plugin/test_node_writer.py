from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from gas.cluster import paths
from gas.cluster.backoff import Backoff
from gas.cluster.connection import ApiServer as Connection
from gas.cluster.errors import ApiRefused, Forbidden, OutcomeUnknown
from gas.cluster.events import Events, Involved
from gas.cluster.listing import Lister
from gas.cluster.objects import patch_node_status
from gas.cluster.watch import Watch
from gas.objects.stored import Node
from gas.plugin import node_writer
from gas.plugin.node_writer import NodeEvents, NodeWriter, clear_node
from gas.values.errors import GasError
from gas.vocabularies.aliyun.vocabulary import ALIYUN
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.known import DEFAULT
from gas.vocabularies.protocol import NodeDescription
from sandbox.api.kinds import NODES
from sandbox.api.patches import MERGE_PATCH
from sandbox.api.routes import Access
from sandbox.api.server import ApiServer
from tests.background import eventually, in_background
from tests.cluster.scripted_server import connected
from tests.listed import list_all

GPU = "gpu.intel.com/"
SOON = Backoff(0.001, 0.001)
WANTED = NodeDescription(labels={GPU + "gpu-numbers": "0.1"}, resources={GPU + "tiles": 2})
FOREIGN = {"zone": "a", GPU + "xe-links": "0.0-1.0"}

CANNOT_WRITE = "cannot write labels and resources on the node"


def decoded(**node: object) -> Node:
    return msgspec.convert(node, Node)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between writes."""
    for name in ("PAUSE", "FORBIDDEN_PAUSE"):
        monkeypatch.setattr(node_writer, name, 0.001)
    monkeypatch.setattr(node_writer, "Backoff", lambda **_: SOON)


class Cluster:
    """An API server with one node, n1, and a connection to it."""

    def __init__(self, server: ApiServer, connection: Connection) -> None:
        self.server = server
        self.connection = connection
        self.server.api.create(
            NODES, None, {"metadata": {"name": "n1", "labels": FOREIGN}, "status": {"capacity": {"cpu": "8"}}}
        )

    def writer(self) -> NodeWriter:
        return NodeWriter(partial(patch_node_status, self.connection, "n1"), DEFAULT)

    @asynccontextmanager
    async def described(self, wanted: NodeDescription) -> AsyncIterator[NodeWriter]:
        """Run a writer of this description; the block begins when it has written."""
        writer = self.writer()
        writer.want(wanted)
        async with self.running(writer):
            await eventually(lambda: writer.writes)
            yield writer

    @asynccontextmanager
    async def running(self, writer: NodeWriter) -> AsyncIterator[Watch[Node]]:
        """Run the writer with a watch of the node."""
        lister = Lister(self.connection, paths.NODES, Node, field_selector="metadata.name=n1")
        watch = Watch(lister, writer, backoff=SOON)
        async with in_background(watch.run(), writer.run()):
            yield watch

    def patch(self, change: Mapping[str, Any]) -> None:
        """Write as another program."""
        self.server.api.patch(NODES, None, "n1", (MERGE_PATCH, msgspec.json.encode(change)), "status")

    @property
    def node(self) -> dict[str, Any]:
        return dict(self.server.api.get(NODES, None, "n1").value)

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.node["metadata"].get("labels") or {})

    @property
    def version(self) -> str:
        return str(self.node["metadata"]["resourceVersion"])


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with ApiServer() as server, connected(server.url, tmp_path) as connection:
        yield Cluster(server, connection)


async def test_the_description_is_written_and_other_fields_stay(cluster: Cluster) -> None:
    async with cluster.described(WANTED):
        pass
    assert cluster.labels == {**FOREIGN, **WANTED.labels}
    for field in ("capacity", "allocatable"):
        assert cluster.node["status"][field] == {"cpu": "8", GPU + "tiles": "2"}


async def test_nothing_is_written_before_the_first_description(cluster: Cluster) -> None:
    writer, version = cluster.writer(), cluster.version
    async with cluster.running(writer) as watch:
        await watch.synced.wait()
        await asyncio.sleep(0.02)
    assert cluster.version == version


async def test_a_node_that_matches_is_not_written(cluster: Cluster) -> None:
    async with cluster.described(WANTED) as writer:
        version = cluster.version
        writer.want(NodeDescription(labels=dict(WANTED.labels), resources=dict(WANTED.resources)))
        await asyncio.sleep(0.02)
        assert cluster.version == version
        cluster.patch({"metadata": {"labels": {"zone": "b"}}})
        await asyncio.sleep(0.02)
    assert writer.writes == 1
    assert cluster.labels["zone"] == "b"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"metadata": {"labels": {GPU + "gpu-numbers": "7"}}}, id="a-label-changed"),
        pytest.param({"metadata": {"labels": {GPU + "gpu-numbers": None}}}, id="a-label-taken-away"),
        pytest.param({"metadata": {"labels": {GPU + "gpu-numbers2": "Z1"}}}, id="a-continuation-that-is-not-needed"),
        pytest.param({"status": {"capacity": {GPU + "tiles": "0"}}}, id="a-resource-set-to-0"),
        pytest.param({"status": {"allocatable": {GPU + "tiles": None}}}, id="a-resource-taken-away"),
    ],
)
async def test_changes_by_other_programs_are_corrected(cluster: Cluster, change: dict[str, Any]) -> None:
    async with cluster.described(WANTED) as writer:
        right = (cluster.labels, cluster.node["status"])
        cluster.patch(change)
        assert (cluster.labels, cluster.node["status"]) != right
        await eventually(lambda: writer.writes == 2)
        assert (cluster.labels, cluster.node["status"]) == right


async def test_a_change_that_the_watch_shows_before_the_response_to_a_write_is_corrected() -> None:
    written = decoded(metadata={"name": "n1", "labels": WANTED.labels})

    async def late(_patch: object) -> Node:
        if not writer.writes:
            writer.changed(decoded(metadata={"name": "n1", "labels": {GPU + "gpu-numbers": "7"}}))
        return written

    writer = NodeWriter(late, DEFAULT)
    writer.want(NodeDescription(labels=WANTED.labels))
    writer.changed(decoded(metadata={"name": "n1"}))
    async with in_background(writer.run()):
        await eventually(lambda: writer.writes == 2)


# contract A1.27
@pytest.mark.parametrize("recorded", [True, False])
async def test_a_resource_is_removed_only_from_a_node_with_records_of_cards(cluster: Cluster, recorded: bool) -> None:
    """Aliyun's own plugin writes aliyun.com/gpu-count on nodes where this one has no cards."""
    annotations = {"gas-cards": "[]"} if recorded else {}
    counts = {"aliyun.com/gpu-count": "3"}
    cluster.patch({"metadata": {"annotations": annotations}, "status": {"capacity": counts, "allocatable": counts}})
    writer = NodeWriter(partial(patch_node_status, cluster.connection, "n1"), Vocabularies([ALIYUN]))
    writer.want(NodeDescription(labels={GPU + "gpu-numbers": "0"}))
    async with cluster.running(writer):
        await eventually(lambda: writer.writes)
    assert ("aliyun.com/gpu-count" in cluster.node["status"]["capacity"]) is not recorded


async def test_nothing_is_written_while_held_and_everything_after_it_resumes(cluster: Cluster) -> None:
    writer = cluster.writer()
    writer.hold()
    async with cluster.running(writer) as watch:
        await watch.synced.wait()
        writer.want(WANTED)
        cluster.patch({"metadata": {"labels": {GPU + "gpu-numbers": "7"}}})
        await asyncio.sleep(0.05)
        assert (writer.writes, writer.trouble) == (0, None)
        writer.resume()
        await eventually(lambda: writer.writes == 1)
        assert cluster.node["metadata"]["labels"][GPU + "gpu-numbers"] == "0.1"


async def test_a_node_that_is_created_later_is_written_then(cluster: Cluster) -> None:
    cluster.server.api.delete(NODES, None, "n1", {})
    writer = cluster.writer()
    writer.want(WANTED)
    async with cluster.running(writer):
        await asyncio.sleep(0.02)
        assert writer.writes == 0
        cluster.server.api.create(NODES, None, {"metadata": {"name": "n1"}})
        await eventually(lambda: writer.writes)
    assert cluster.labels == WANTED.labels


async def test_other_nodes_are_left_alone(cluster: Cluster) -> None:
    cluster.server.api.create(NODES, None, {"metadata": {"name": "n2"}})
    async with cluster.described(WANTED):
        pass
    assert "labels" not in cluster.server.api.get(NODES, None, "n2").value["metadata"]


async def test_without_permission_it_names_the_missing_rule_and_resumes_once_it_is_granted(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    def no_patches(access: Access) -> bool:
        return access.verb != "patch"

    cluster.server.settings.authorize = no_patches
    writer = cluster.writer()
    writer.want(WANTED)
    sentence = (
        f"{CANNOT_WRITE}:"
        " the API server does not let admin patch nodes/status: give its role the verb"
        ' "patch" on resource "nodes/status" in the whole cluster; cards are still allocated'
    )
    async with cluster.running(writer):
        await eventually(lambda: writer.trouble)
        await asyncio.sleep(0.03)
        trouble = writer.trouble
        assert trouble == sentence
        assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [sentence]
        cluster.server.settings.authorize = lambda access: True
        await eventually(lambda: writer.writes)
    assert writer.trouble is None
    assert cluster.labels == {**FOREIGN, **WANTED.labels}


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(OutcomeUnknown("the connection broke"), id="the-outcome-is-unknown"),
        pytest.param(ApiRefused(422, "Invalid", "no"), id="refused"),
        pytest.param(Forbidden("Forbidden", "a webhook says no"), id="forbidden-by-something-else"),
    ],
)
async def test_a_write_that_fails_is_retried(failure: GasError) -> None:
    troubles: list[str | None] = []

    async def patch(_patch: object) -> Node | None:
        troubles.append(writer.trouble)
        if len(troubles) < 3:
            raise failure
        return decoded(
            metadata={"name": "n1", "labels": WANTED.labels},
            status={"capacity": {GPU + "tiles": "2"}, "allocatable": {GPU + "tiles": "2"}},
        )

    writer = NodeWriter(patch, DEFAULT)
    writer.want(WANTED)
    list_all(writer, [decoded(metadata={"name": "n1"})])
    running = asyncio.create_task(writer.run())
    await eventually(lambda: writer.writes)
    writer.want(NodeDescription(labels=WANTED.labels, resources=WANTED.resources))
    await asyncio.sleep(0.01)
    running.cancel()
    assert troubles == [None, *2 * [f"{CANNOT_WRITE}: {failure}; cards are still allocated"]]
    assert (writer.writes, writer.trouble) == (1, None)


async def test_a_node_that_is_deleted_meanwhile_is_not_an_error() -> None:
    async def patch(_patch: object) -> Node | None:
        return None

    writer = NodeWriter(patch, DEFAULT)
    writer.want(WANTED)
    writer.changed(decoded(metadata={"name": "n1"}))
    running = asyncio.create_task(writer.run())
    await eventually(lambda: writer.writes)
    await asyncio.sleep(0.02)
    running.cancel()
    assert (writer.writes, writer.trouble) == (1, None)


async def test_a_node_without_description_is_not_cleared(cluster: Cluster) -> None:
    version = cluster.version
    assert await clear_node(cluster.connection, "n1", DEFAULT) is not None
    assert cluster.version == version
    assert await clear_node(cluster.connection, "n2", DEFAULT) is None


def test_states_are_repeated_before_the_api_server_forgets_their_events() -> None:
    assert node_writer.REPEAT < 3600


class Posts:
    """The states, and the events that were posted."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str]] = []
        self.events = NodeEvents(cast(Events, self), "node-1")

    def post(self, involved: Involved, *, severity: str, reason: str, message: str) -> None:
        assert (involved.kind, involved.name, severity) == ("Node", "node-1", "Warning")
        self.posted.append((reason, message))


def test_only_a_new_sentence_is_posted_at_once() -> None:
    posts = Posts()
    for sentences in (["dust", "rust"], ["rust", "mud"], ["dust"]):
        posts.events.set_states("Dirty", sentences)
    posts.events.set_states("Old", ["rust"])
    assert [said for _, said in posts.posted] == ["dust", "rust", "mud", "dust", "rust"]


async def test_what_ended_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_writer, "REPEAT", 0.05)
    posts = Posts()
    repeating = asyncio.create_task(posts.events.repeat())
    posts.events.set_states("Dirty", ["dust"])
    posts.events.set_states("Old", ["rust"])
    posts.events.set_states("Old", [])
    await eventually(lambda: posts.posted.count(("Dirty", "dust")) >= 3)
    repeating.cancel()
    assert posts.posted.count(("Old", "rust")) == 1
