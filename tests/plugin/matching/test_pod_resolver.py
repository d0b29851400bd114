"""The questions to kubelet while it waits for a reply, and the time that the watch gets."""

from __future__ import annotations

import asyncio

import pytest

from gas.objects.stored import Pod
from gas.plugin.kubelet.device_server import REPLY_WITHIN, SETTLE_WITHIN
from gas.plugin.matching import pod_resolver
from gas.plugin.matching.gpu_pods import GpuPods
from gas.plugin.matching.matcher import Match, Matcher
from gas.plugin.matching.pod_resolver import PodResolver
from gas.vocabularies.known import DEFAULT
from tests.background import PATIENCE
from tests.builders import container
from tests.listed import list_all
from tests.plugin.called_by_hand import Kubelet
from tests.plugin.pods_for_plugin import decided, node_pod, question, slots

ONE = container("c", i915=1)
A = node_pod(ONE, name="a", annotations=decided("card2", ts=1))
B = node_pod(ONE, name="b", annotations=decided("card3", ts=2))


class Node:
    """Four cards, a kubelet, and the pods that the watch has shown."""

    def __init__(self, kubelet: Kubelet, *pods: Pod, watches: bool = True) -> None:
        self.pods = GpuPods(DEFAULT)
        self.resolver = PodResolver(Matcher(self.pods), kubelet, is_watching=lambda: watches)
        self.pods.subscribe(self.resolver.pods_changed)
        list_all(self.pods, list(pods))

    async def match(self) -> Match:
        preference = await asyncio.wait_for(self.resolver.resolve(question(slots(4))), PATIENCE)
        return preference.match

    async def resolved_after(self, *shown: Pod) -> tuple[str, str]:
        """Return `resolved`, which waits until the watch has shown the last of these pods."""
        resolving = asyncio.create_task(self.resolved())
        for pod in shown:
            await asyncio.sleep(0.02)
            assert not resolving.done()
            self.pods.changed(pod)
        return await resolving

    async def resolved(self) -> tuple[str, str]:
        """Return the pod's name, "none" without one, and the match's doubt."""
        match = await self.match()
        return (match.target.pod.raw.metadata.name if match.target else "none"), match.doubt


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten waits that are in vain."""
    monkeypatch.setattr(pod_resolver, "RESOLVE_WITHIN", 0.1)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengthen the limit of waits that must end before it."""
    monkeypatch.setattr(pod_resolver, "RESOLVE_WITHIN", 3600.0)


def test_resolving_ends_before_kubelet_chooses_by_itself() -> None:
    """It is also long enough for a kubelet on a busy machine."""
    assert 0.5 < pod_resolver.RESOLVE_WITHIN < REPLY_WITHIN < REPLY_WITHIN + SETTLE_WITHIN < 1.0


async def test_for_a_pod_alone_only_its_own_entry_is_requested() -> None:
    kubelet = Kubelet("a")
    assert await Node(kubelet, A).resolved() == ("a", "")
    assert kubelet.asked == ["a"]


# contract P3.2
async def test_of_several_pods_the_one_that_kubelet_lists_matches() -> None:
    kubelet = Kubelet("b")
    assert await Node(kubelet, A, B).resolved() == ("b", "")
    assert kubelet.asked == ["all"]


@pytest.mark.usefixtures("long")
async def test_a_slow_reply_is_waited_for() -> None:
    kubelet = Kubelet("b")
    kubelet.may_list.clear()
    asyncio.get_running_loop().call_later(0.05, kubelet.may_list.set)
    assert await Node(kubelet, A, B).resolved() == ("b", "")


@pytest.mark.usefixtures("short")
async def test_a_late_reply_leaves_a_guess() -> None:
    kubelet = Kubelet("b")
    kubelet.may_list.clear()
    assert await Node(kubelet, A, B).resolved() == ("a", "kubelet did not list its pods in time")


async def test_without_a_list_the_likeliest_pod_is_taken() -> None:
    assert await Node(Kubelet(), A, B).resolved() == ("a", "kubelet does not list its pods")


async def test_of_several_pods_that_kubelet_lists_the_likeliest_is_taken() -> None:
    assert await Node(Kubelet("a", "b"), A, B).resolved() == ("a", "several containers match")


async def test_no_known_pod_may_match() -> None:
    other = node_pod(container("c", i915=2), name="other")
    assert await Node(Kubelet("other"), other).resolved() == (
        "none",
        "no pod that kubelet lists requests these devices",
    )


@pytest.mark.usefixtures("long")
async def test_an_unwatched_pod_is_waited_for() -> None:
    node = Node(Kubelet("b"), A)
    assert await node.resolved_after(B) == ("b", "")


@pytest.mark.usefixtures("long")
async def test_without_a_list_the_watch_is_waited_for_while_no_pod_is_known() -> None:
    node = Node(Kubelet())
    web = node_pod(container("c"), name="web")
    assert await node.resolved_after(web, A) == ("a", "kubelet does not list its pods")


@pytest.mark.usefixtures("short")
async def test_a_silent_watch_is_waited_for_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(Kubelet())
    assert await node.resolved() == ("none", "kubelet does not list its pods")
    monkeypatch.setattr(pod_resolver, "RESOLVE_WITHIN", 3600.0)
    assert (await node.resolved())[0] == "none"
    node.pods.changed(node_pod(container("c"), name="web"))
    assert (await node.resolved_after(A))[0] == "a"


@pytest.mark.usefixtures("long")
async def test_pods_shown_during_a_call_that_fails_count() -> None:
    kubelet = Kubelet()
    kubelet.may_list.clear()
    node = Node(kubelet)
    answering = asyncio.create_task(node.resolved())
    await asyncio.sleep(0.02)
    node.pods.changed(A)
    kubelet.may_list.set()
    assert (await answering)[0] == "a"


@pytest.mark.usefixtures("long")
async def test_without_a_watch_no_pod_is_waited_for() -> None:
    assert (await Node(Kubelet("b"), watches=False).resolved())[0] == "none"


@pytest.mark.usefixtures("short")
async def test_a_pod_that_the_watch_never_shows_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(Kubelet("unseen"), A)
    assert (await node.match()).doubt == "the watch has not shown default/unseen yet, which kubelet lists"
    monkeypatch.setattr(pod_resolver, "RESOLVE_WITHIN", 3600.0)
    assert await node.resolved() == ("none", "the watch has not shown default/unseen yet, which kubelet lists")


@pytest.mark.usefixtures("long")
async def test_a_pod_deleted_by_force_that_kubelet_still_lists_is_not_waited_for() -> None:
    victim = node_pod(ONE, name="victim", started=True, annotations=decided("card0"))
    kubelet = Kubelet("victim", "b", victim="card0-0")
    node = Node(kubelet, victim, A, B)
    node.pods.deleted(victim)
    assert await node.resolved() == ("b", "")


@pytest.mark.usefixtures("long")
async def test_the_next_pod_of_that_name_is_waited_for() -> None:
    first = node_pod(ONE, name="b", uid="first", started=True)
    node = Node(Kubelet("b"), first, A)
    node.pods.deleted(first)
    assert await node.resolved_after(B) == ("b", "")


@pytest.mark.usefixtures("short")
async def test_a_pod_waited_for_in_vain_is_waited_for_again_after_it_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    kubelet = Kubelet("b")
    node = Node(kubelet, A)
    await node.match()
    earlier = node_pod(ONE, name="b", uid="earlier", started=True)
    list_all(node.pods, [A, earlier, node_pod(ONE, name="c")])
    await node.match()
    list_all(node.pods, [A])
    monkeypatch.setattr(pod_resolver, "RESOLVE_WITHIN", 3600.0)
    assert await node.resolved_after(B) == ("b", "")
