"""What kubelet is answered, and what it is asked meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from gas.plugin import answers
from gas.plugin.allocation_policy import PreferredRequest
from gas.plugin.answers import Answers
from gas.plugin.container_answer import NoSuchCards
from gas.plugin.device_server import ANSWER_WITHIN, AllocateRequest
from gas.plugin.matching import Matching
from gas.plugin.metrics import Metrics
from gas.plugin.pod_objects import NodePod
from gas.plugin.pod_resources import ContainerDevices, PodDevices, PodResources
from gas.plugin.waiting_pods import PodsOfNode
from tests.builders import container
from tests.plugin.gpus import gpu
from tests.plugin.pods_for_plugin import decided, ids, node_pod, slots
from tests.plugin.scripted_kubelet import PATIENCE

ONE = container("c", i915=1)


class Kubelet(PodResources):
    """Answers what a test says. ``asked`` is what it was asked for, in order."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked: list[str] = []

    async def pods(self) -> tuple[PodDevices, ...] | None:
        self.asked.append("all")
        return tuple(_entry(name) for name in self.names) or None

    async def pod(self, namespace: str, name: str) -> PodDevices | None:
        self.asked.append(name)
        return _entry(name) if name in self.names else None


def _entry(name: str) -> PodDevices:
    return PodDevices(namespace="default", name=name, containers=(ContainerDevices(name="c", ids={}),))


class Node:
    """Four cards, a kubelet, and the pods that the watch has shown."""

    def __init__(self, kubelet: Kubelet, *pods: NodePod, watches: bool = True) -> None:
        self.pods = PodsOfNode(self.changed)
        self.metrics = Metrics("1")
        self.answers = Answers(
            Matching(self.pods),
            kubelet,
            self.metrics,
            gpus=lambda: [gpu(card) for card in range(4)],
            watches=lambda: watches,
        )
        self.pods.replaced(list(pods))

    def changed(self) -> None:
        self.answers.pods_changed()

    async def prefer(self) -> Collection[object]:
        offered = tuple(sorted(slots(4)))
        request = PreferredRequest(resource="i915", offered=offered, must_include=frozenset(), size=1)
        return list(map(str, await self.answers.prefer(request)))


A = node_pod(ONE, name="a", annotations=decided("card2", ts=1))
B = node_pod(ONE, name="b", annotations=decided("card3", ts=2))


async def test_of_a_pod_alone_only_its_own_entry_is_asked_for() -> None:
    kubelet = Kubelet("a")
    assert await Node(kubelet, A).prefer() == ["card2-0"]
    assert kubelet.asked == ["a"]


async def test_of_several_pods_the_one_that_kubelet_has_is_it() -> None:
    kubelet = Kubelet("b")
    assert await Node(kubelet, A, B).prefer() == ["card3-0"]
    assert kubelet.asked == ["all"]


async def test_a_pod_that_kubelet_has_and_the_watch_has_not_shown_is_waited_for() -> None:
    node = Node(Kubelet("b"), A)
    answering = asyncio.create_task(node.prefer())
    await asyncio.sleep(0.02)
    assert not answering.done()
    node.pods.changed(B)
    assert await answering == ["card3-0"]


async def test_without_a_watch_nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "WATCH_WITHIN", 3600.0)
    assert len(await asyncio.wait_for(Node(Kubelet("b"), watches=False).prefer(), PATIENCE)) == 1


async def test_a_pod_that_the_watch_never_shows_does_not_keep_kubelet_waiting() -> None:
    assert len(await Node(Kubelet("unseen"), A).prefer()) == 1


def test_the_longest_waits_together_end_before_kubelet_chooses_by_itself() -> None:
    assert 2 * answers.LISTING_WITHIN + answers.WATCH_WITHIN < ANSWER_WITHIN


async def test_without_kubelets_word_the_likeliest_pod_is_taken() -> None:
    assert await Node(Kubelet(), A, B).prefer() == ["card2-0"]


async def test_cards_that_are_gone_cannot_be_given() -> None:
    node = Node(Kubelet(), A)
    with pytest.raises(NoSuchCards):
        node.answers.allocate(AllocateRequest(resource="i915", ids=ids("card9-0")))


@pytest.mark.parametrize(
    ("given", "outcome"),
    [pytest.param("card2-0", "as-decided", id="as-decided"), pytest.param("card1-0", "otherwise", id="otherwise")],
)
async def test_what_was_given_is_counted(given: str, outcome: str) -> None:
    node = Node(Kubelet("a"), A)
    await node.prefer()
    node.answers.allocate(AllocateRequest(resource="i915", ids=ids(given)))
    labels = {"resource": "i915", "outcome": outcome}
    assert node.metrics.registry.get_sample_value("gas_plugin_allocations_total", labels) == 1
