from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import pytest

from gas.cluster.errors import ApiUnavailable, Forbidden
from gas.objects import Node
from gas.plugin.left_over_capacity import LeftOverCapacity
from gas.plugin.node_description import NodeDescription

ALIKE = NodeDescription()
UNLIKE = NodeDescription(annotations={"gas-card-capacity": "card0=i915:1,xe:0;card1=i915:0,xe:1"})


def node(annotation: str | None) -> Node:
    annotations = {} if annotation is None else {"gas-card-capacity": annotation}
    return msgspec.convert({"metadata": {"name": "n1", "annotations": annotations}}, Node)


async def told(answers: Iterator[Node | Exception | None], wanted: NodeDescription) -> None:
    """Until the answers are used up."""
    used_up = asyncio.Event()

    async def get_node() -> Node | None:
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
            return answer
        used_up.set()
        return None

    left_over = LeftOverCapacity(get_node, retry=0.001)
    running = asyncio.create_task(left_over.run())
    for _ in range(3):
        left_over.want(wanted)
        await asyncio.sleep(0.01)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert used_up.is_set()


@pytest.mark.parametrize(
    ("annotation", "wanted", "is_told"),
    [
        pytest.param("card0=i915:2,xe:0", ALIKE, True, id="one-that-outlived-the-difference"),
        pytest.param("card0=i915:2,xe:0", UNLIKE, True, id="one-of-other-cards"),
        pytest.param("card1=xe:1,i915:0; card0=i915:1,xe:0", UNLIKE, False, id="one-that-says-what-there-is"),
        pytest.param(None, UNLIKE, False, id="none"),
        pytest.param(None, ALIKE, False, id="none-needed"),
    ],
)
async def test_an_annotation_that_is_not_true_is_told(
    caplog: pytest.LogCaptureFixture, annotation: str | None, wanted: NodeDescription, is_told: bool
) -> None:
    await told(iter([node(annotation)]), wanted)
    assert ("kubectl annotate node n1 gas-card-capacity-" in caplog.text) is is_told


async def test_a_node_that_cannot_be_had_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    await told(iter([ApiUnavailable("away"), None, node("card0=xe:1")]), ALIKE)
    assert len(caplog.records) == 1


async def test_without_permission_there_is_nothing_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    async def get_node() -> Node | None:
        raise Forbidden("Forbidden", "nodes is forbidden")

    left_over = LeftOverCapacity(get_node)
    left_over.want(ALIKE)
    async with asyncio.timeout(20):
        await left_over.run()
    assert not caplog.records
