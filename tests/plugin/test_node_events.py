"""Events of the node about states that last: the plugin posts each again for as long as it is true."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from gas.cluster.events import Events, Involved
from gas.plugin import node_writer
from gas.plugin.discovery.render_node import CannotAsk
from gas.plugin.discovery.sysfs import SysfsCards
from gas.plugin.node_writer import NodeEvents
from sandbox.hardware.fake_sysfs import ARC_A770, ARC_B580, FLEX_170, fake_gpus, write_tree
from tests.builders import container, pod_json
from tests.plugin.node_of_sandbox import SandboxNode, sandbox_node
from tests.plugin.pods_for_plugin import decided
from tests.plugin.scripted_kubelet import eventually


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let states be repeated at once, and equal events be written as often as they are posted."""
    monkeypatch.setattr(node_writer, "REPEAT", 0.05)
    monkeypatch.setattr("gas.cluster.events._QUIET", 0.0)


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
    posts.events.set_states("Dirty", ["dust", "rust"])
    posts.events.set_states("Dirty", ["rust", "mud"])
    posts.events.set_states("Old", ["rust"])
    assert posts.posted == [("Dirty", "dust"), ("Dirty", "rust"), ("Dirty", "mud"), ("Old", "rust")]


def test_a_state_that_returns_is_posted_again() -> None:
    posts = Posts()
    for sentences in (["dust"], [], ["dust"]):
        posts.events.set_states("Dirty", sentences)
    assert posts.posted == [("Dirty", "dust")] * 2


@pytest.mark.usefixtures("often")
async def test_what_ended_is_not_repeated() -> None:
    posts = Posts()
    repeating = asyncio.create_task(posts.events.repeat())
    posts.events.set_states("Dirty", ["dust"])
    posts.events.set_states("Old", ["rust"])
    posts.events.set_states("Old", [])
    await eventually(lambda: posts.posted.count(("Dirty", "dust")) >= 3)
    repeating.cancel()
    assert posts.posted.count(("Old", "rust")) == 1


async def is_repeated(node: SandboxNode, reason: str) -> None:
    await eventually(lambda: max(node.event_counts(reason), default=0) >= 3)
    assert len(node.event_counts(reason)) == 1, "one Event object, which is updated"


def nothing(node: Path, driver: str) -> tuple[int, ...]:
    raise CannotAsk("cannot open a render node: Operation not permitted")


@pytest.mark.usefixtures("often")
class TestReasons:
    async def test_fake_cards_and_unknown_memory(self) -> None:
        async with sandbox_node(*fake_gpus(ARC_B580, 1)) as node:
            sources = (SysfsCards(node.tree, query=nothing),)
            async with node.running_plugin(sources=sources):
                await is_repeated(node, "GPUMemoryUnknown")
                await is_repeated(node, "FakeGPUs")

    async def test_numbers_that_mean_another_card(self) -> None:
        async with sandbox_node(*fake_gpus(FLEX_170, 1)) as node, node.running_plugin() as plugin:
            pod = node.create(pod_json(container(i915=1), name="old", annotations=decided("card0")))
            assert await node.got(pod) == ["card0"]
            await eventually(lambda: node.pod("old")["status"]["phase"] == "Running")
            shutil.rmtree(node.tree)
            (other,) = fake_gpus(ARC_A770, 2)[1:]
            write_tree(node.tree, (replace(other, card=0),))
            await plugin.scanner.scan_once()
            await is_repeated(node, "GPUCardsRenumbered")
