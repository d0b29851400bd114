"""Kubelet follows a preference as far as it can, and chooses the rest itself."""

from __future__ import annotations

import pytest

from tests.kubelet_behaviour.conftest import MakePlugin
from tests.kubelet_behaviour.node import Node
from tests.kubelet_behaviour.pods import container

THREE = ("card0", "card1", "card2")


@pytest.mark.parametrize(
    ("wish", "count", "bounds"),
    [
        pytest.param([], 1, (set(), set(THREE)), id="an-empty-wish"),
        pytest.param(["card9"], 1, (set(), set(THREE)), id="an-unknown-id"),
        pytest.param(["card9", "card0"], 2, ({"card0"}, set(THREE)), id="an-unknown-id-beside-a-known-one"),
        pytest.param(["card0", "card1"], 1, (set(), {"card0", "card1"}), id="more-than-asked"),
        pytest.param(["card0"], 2, ({"card0"}, set(THREE)), id="fewer-than-asked"),
        pytest.param(["card1", "card1"], 1, ({"card1"}, {"card1"}), id="the-same-twice"),
    ],
)
async def test_a_wish(
    node: Node, plugin: MakePlugin, wish: list[str], count: int, bounds: tuple[set[str], set[str]]
) -> None:
    cards = await plugin(*THREE, prefer=lambda asked: wish)
    created = await node.create("p", container("a", count))
    await node.until_phase(created, "Running")
    (ids,) = cards.allocated
    assert len(ids) == count
    surely, among = bounds
    assert surely <= ids <= among


async def test_an_id_that_another_pod_has_is_not_given_again(node: Node, plugin: MakePlugin) -> None:
    cards = await plugin(*THREE, prefer=lambda asked: ["card0"])
    for name in ("p", "q"):
        await node.until_phase(await node.create(name), "Running")
    first, second = cards.allocated
    assert first == {"card0"}
    assert second < {"card1", "card2"}
