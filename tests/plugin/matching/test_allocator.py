"""The allocator's replies to kubelet, its metrics and its log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest

from gas.objects.stored import NodePod
from gas.plugin.devices.allocation import Allocation, NoSuchCards
from gas.plugin.devices.device_ids import NO_IDS, AllocateRequest, Ids, PreferredRequest
from gas.plugin.flags import parse_flags
from gas.plugin.kubelet.pod_resources import ContainerIds, Listing, PodResources
from gas.plugin.matching.allocator import Allocator, IssuedEnvironments
from gas.plugin.matching.gpu_pods import GpuPods
from gas.plugin.matching.matcher import Matcher
from gas.plugin.matching.pod_resolver import PodResolver
from gas.plugin.metrics import Metrics
from gas.vocabularies.known import DEFAULT
from tests.builders import container
from tests.listed import list_all
from tests.plugin.gpus import gpu
from tests.plugin.pods_for_plugin import I915, WITHOUT_DEVICES, decided, ids, node_pod, slots

ONE = container("c", i915=1)


class Kubelet(PodResources):
    """A list with the pods of these names, which have no devices yet."""

    def __init__(self, *names: str) -> None:
        self.names = names

    async def pods(self) -> Listing | None:
        return {f"default/{name}": WITHOUT_DEVICES for name in self.names} or None

    async def pod(self, namespace: str, name: str) -> ContainerIds | None:
        return WITHOUT_DEVICES if name in self.names else None


class Node:
    """Four cards, a kubelet, and the pods that the watch has shown."""

    def __init__(self, kubelet: Kubelet, *pods: NodePod) -> None:
        self.pods = GpuPods(DEFAULT)
        list_all(self.pods, list(pods))
        self.metrics = Metrics("1")
        matcher = Matcher(self.pods)
        self.allocator = Allocator(
            matcher,
            PodResolver(matcher, kubelet, is_watching=lambda: True),
            IssuedEnvironments(DEFAULT),
            self.metrics,
            parse_flags([], environ={}, host_name="n"),
            gpus=lambda: [gpu(card) for card in range(4)],
            clock=time.monotonic,
        )

    async def prefer(self, offered: Ids | None = None) -> list[str]:
        ids = slots(4) if offered is None else offered
        request = PreferredRequest(resource=I915, offered=tuple(sorted(ids)), must_include=NO_IDS, size=1)
        return list(map(str, await self.allocator.prefer(request)))

    def allocate(self, *texts: str) -> Allocation:
        return self.allocator.allocate(AllocateRequest(resource=I915, ids=ids(*texts)))


A = node_pod(ONE, name="a", annotations=decided("card2", ts=1))
B = node_pod(ONE, name="b", annotations=decided("card3", ts=2))


# contract P3.5
async def test_the_cards_decided_are_preferred() -> None:
    assert await Node(Kubelet("b"), A, B).prefer() == ["card3-0"]


async def test_cards_that_are_gone_cannot_be_allocated() -> None:
    node = Node(Kubelet(), A)
    with pytest.raises(NoSuchCards):
        node.allocate("card9-0")


@pytest.mark.parametrize(
    ("given", "outcome"),
    [pytest.param("card2-0", "as-decided", id="as-decided"), pytest.param("card1-0", "otherwise", id="otherwise")],
)
async def test_allocations_are_counted(given: str, outcome: str) -> None:
    node = Node(Kubelet("a"), A)
    await node.prefer()
    node.allocate(given)
    labels = {"resource": "i915", "outcome": outcome}
    assert node.metrics.registry.get_sample_value("gas_plugin_allocations_total", labels) == 1


class TestLog:
    """Everything that may lead to a receipt has its reason in the log, at the default level."""

    @pytest.fixture
    def because(self, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
        caplog.set_level(logging.INFO, "gas.plugin.matching.allocator")
        return lambda: [getattr(record, "because", "") for record in caplog.records]

    async def test_cards_as_decided_are_not_logged(self, because: Callable[[], list[str]]) -> None:
        node = Node(Kubelet("a"), A)
        await node.prefer()
        node.allocate("card2-0")
        assert because() == []

    async def test_the_reason_of_a_guess_is_logged(self, because: Callable[[], list[str]]) -> None:
        node = Node(Kubelet(), A, B)
        await node.prefer()
        assert because() == ["kubelet does not list its pods"]

    async def test_the_reason_of_other_cards_is_logged(self, because: Callable[[], list[str]]) -> None:
        node = Node(Kubelet("a"), A)
        await node.prefer(slots(2))
        node.allocate("card1-0")
        (reported,) = because()
        assert reported.startswith("kubelet did not offer card2: ")

    async def test_other_cards_after_a_guess_are_logged_with_the_reason_of_the_guess(
        self, because: Callable[[], list[str]]
    ) -> None:
        node = Node(Kubelet(), A, B)
        await node.prefer()
        node.allocate("card1-0")
        assert because() == ["kubelet does not list its pods"] * 2

    async def test_malformed_tiles_are_logged_although_the_cards_are_as_decided(
        self, because: Callable[[], list[str]]
    ) -> None:
        tiled = container("c", i915=1, tiles=1)
        node = Node(Kubelet("a"), node_pod(tiled, name="a", annotations=decided("card2", tiles="card2:tile0")))
        assert await node.prefer() == ["card2-0"]
        assert node.allocate("card2-0").env == {}
        (reason,) = because()
        assert reason.startswith("the tiles of its decision cannot be read: ")

    async def test_a_missing_question_is_logged(self, because: Callable[[], list[str]]) -> None:
        node = Node(Kubelet(), A, B)
        await node.prefer()
        node.allocate("card2-0")
        node.allocate("card1-0")
        assert because()[-1] == "kubelet did not ask for a preference"

    async def test_of_very_many_ids_only_the_number_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        node = Node(Kubelet())
        caplog.set_level(logging.INFO, "gas.plugin.matching.allocator")
        node.allocate(*(f"card{card}-{slot}" for card in (0, 1) for slot in range(500)))
        assert [record.__dict__["ids"] for record in caplog.records] == ["500 of card0,500 of card1"]
