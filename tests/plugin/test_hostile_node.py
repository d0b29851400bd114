"""A hostile node: pods, kubelet's calls and what it lists spoil no other pod, and no call is without a reply."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.objects.stored import Pod
from gas.plugin.devices.allocation import NoSuchCards
from gas.plugin.flags import parse_flags
from gas.plugin.kubelet.device_server import CallTracker, DeviceServer
from gas.plugin.kubelet.pod_resources import PodResources
from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api
from gas.plugin.kubelet_api import podresources_v1_pb2 as resources_api
from gas.plugin.metrics import Metrics
from gas.plugin.own_node import WatchedNode
from gas.values.timing import SYSTEM_TIMING
from gas.vocabularies.combined import Vocabularies
from tests.builders import container
from tests.hostile import TEXTS, assert_no_bug, broken, decoded, hostile
from tests.hostile_documents import ALL_VOCABULARIES, BOUND
from tests.lines import at_most
from tests.plugin.gpus import gpu
from tests.plugin.pods_for_plugin import I915, decided, node_pod

GOOD = node_pod(container("c", i915=1), name="good", annotations=decided("card2"))
IDS = ("card0-0", "card1-0", "card2-0", "card2-1", "card3-0", "all", "card4-0", "card0-999999999")
ODD = st.sampled_from((*IDS, *(text[:5000] for text in TEXTS)))
SIZES = st.sampled_from((0, 1, 2, 70, -1, 2**31 - 1))


def listed(name: str, *ids: str, container: str = "main") -> Any:
    devices = [resources_api.ContainerDevices(resource_name=I915, device_ids=ids)]
    containers = [resources_api.ContainerResources(name=container, devices=devices)]
    return resources_api.PodResources(namespace="default", name=name, containers=containers)


@st.composite
def replies(draw: st.DrawFn) -> bytes:
    """Return what kubelet replies to List, Get or GetAllocatableResources, maybe cut short or with other bytes."""
    names = st.sampled_from(("good", *(each["metadata"]["name"] for each in BOUND), *(text[:5000] for text in TEXTS)))
    pods = [listed(name, *draw(st.lists(ODD, max_size=4))) for name in draw(st.lists(names, max_size=5))]
    body: bytes = resources_api.ListPodResourcesResponse(pod_resources=pods).SerializeToString()
    at = draw(st.integers(0, len(body)))
    return draw(st.sampled_from((body, body, body[:at] + draw(st.binary(max_size=3)) + body[at + 1 :])))


class Channel:
    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def unary_unary(self, *_: object) -> Any:
        async def call(*_: object, **__: object) -> Any:
            return self._data.draw(replies())

        return call


@hostile(10)
@given(pods=st.lists(broken(*BOUND), max_size=3), data=st.data())
def test_pods_and_calls_spoil_nothing(pods: list[Any], data: st.DataObject, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        flags = parse_flags([ALL_VOCABULARIES], environ={}, host_name="bad")
        kubelet = PodResources(Path("/nowhere"), (I915,))
        await kubelet.close()
        kubelet._channel = Channel(data)
        away = AsyncMock(side_effect=AssertionError)
        node = WatchedNode(
            away,
            flags,
            Vocabularies(flags.vocabularies),
            Metrics("1"),
            SYSTEM_TIMING,
            gpus=lambda: [gpu(card) for card in range(4)],
            resources=kubelet,
            calls=CallTracker(),
        )
        node._receipts.patch_pod = AsyncMock(return_value=True)
        server = DeviceServer(I915, allocate=node.allocate, fallback=node.allocate_to_any, prefer=node.prefer)
        node.gpu_pods.listed([GOOD, *(seen for sent in pods for seen in decoded(sent, Pod))])
        offered, kept = data.draw(st.lists(ODD, max_size=6)), data.draw(st.lists(ODD, max_size=2))
        asked = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=offered, must_include_deviceIDs=kept, allocation_size=data.draw(SIZES)
        )
        with at_most(20_000):
            await node.catch_up()
            await server.preferred(asked)
            with suppress(NoSuchCards):  # kubelet named no card of this node: the pod fails with that sentence
                server.allocated(api.ContainerAllocateRequest(devices_ids=offered))
            await node._receipts.compare()
            node.pods.users()
        good = server.allocated(api.ContainerAllocateRequest(devices_ids=["card2-0"]))
        assert [each.host_path for each in good.devices] == ["/dev/dri/card2", "/dev/dri/renderD130"]

    asyncio.run(main())
    assert_no_bug(caplog)
