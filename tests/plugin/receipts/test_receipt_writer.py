"""The times at which kubelet's list is compared, and the annotations that are written."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

import pytest

from gas.cluster.errors import Forbidden
from gas.objects.stored import Pod
from gas.plugin.card_pods import CardPod
from gas.plugin.devices.device_ids import AllocateRequest
from gas.plugin.kubelet.device_server import CallTracker
from gas.plugin.kubelet.pod_resources import ContainerIds, Listing, PodResources
from gas.plugin.matching.allocator import IssuedEnvironment, IssuedEnvironments
from gas.plugin.matching.gpu_pods import GpuPods
from gas.plugin.matching.matcher import SETTLED, Matcher
from gas.plugin.metrics import Metrics
from gas.plugin.node_writer import FORBIDDEN_PAUSE, Events
from gas.plugin.receipts import receipt_writer
from gas.plugin.receipts.receipt_writer import WRITE_AGAIN, ReceiptWriter
from gas.values.errors import GasError
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.intel.vocabulary import INTEL
from gas.vocabularies.known import DEFAULT
from tests.background import eventually, in_background
from tests.builders import container
from tests.listed import list_all
from tests.made_up import ASSIGNED, MADE_UP, SLICE
from tests.plugin.gpus import gpu
from tests.plugin.pods_for_plugin import I915, decided, ids, node_pod, question, slots

ONE = container("c", i915=1)
A = node_pod(ONE, name="a", started=True, annotations=decided("card0"))
B = node_pod(ONE, name="b", started=True, annotations=decided("card0"))
RECEIPT = {"gas-allocated-cards": "card1"}


class Kubelet(PodResources):
    """A kubelet that has given these ids to the container ``c`` of each pod; None if it does not reply.

    asked         how often it was
    before_answer called with each question
    """

    def __init__(self, resource: str = I915, /, **given: str) -> None:
        self.resource = resource
        self.given: dict[str, str] | None = given
        self.asked = 0
        self.before_answer: Callable[[], None] = lambda: None

    async def pods(self) -> Listing | None:
        self.asked += 1
        self.before_answer()
        if self.given is None:
            return None
        return {f"default/{name}": _entry(self.resource, text) for name, text in self.given.items()}


def _entry(resource: str, text: str) -> ContainerIds:
    return {"c": {resource: ids(*text.split(","))} if text else {}}


class Node(Events):
    """A writer whose clock stands still.

    patched   the annotations that were written, by pod
    refuses   the error of every patch
    tries     how many patches were tried
    reported  the pods and sentences of all events
    """

    def __init__(self, kubelet: Kubelet, *pods: Pod, vocabularies: Vocabularies = DEFAULT) -> None:
        self.kubelet = kubelet
        self.patched: list[tuple[str, Mapping[str, str | None]]] = []
        self.refuses: GasError | None = None
        self.tries = 0
        self.pods = GpuPods(vocabularies)
        list_all(self.pods, list(pods))
        self.matcher = Matcher(self.pods)
        self.environments = IssuedEnvironments(vocabularies)
        self.now = 1000.0
        self.calls = CallTracker(lambda: self.now)
        self.reported: list[tuple[str, str]] = []
        self.writer = ReceiptWriter(
            self.matcher,
            kubelet,
            self.environments,
            self.patch,
            calls=self.calls,
            metrics=Metrics("1"),
            events=self,
        )

    async def patch(self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]) -> bool:
        self.tries += 1
        if self.refuses is not None:
            raise self.refuses
        pod = self.pods.get(uid)
        assert pod is not None
        assert pod.key == f"{namespace}/{name}"
        self.patched.append((name, annotations))
        return True

    def on_pod(self, pod: CardPod, reason: str, message: str, *, is_warning: bool = True) -> None:
        assert reason.startswith("GPU")
        assert is_warning == reason.endswith("Mismatch")
        self.reported.append((pod.key, message))

    def given(self, id_: str, mask: str) -> None:
        """Record a reply of now, for one card of two tiles."""
        env = {"ZE_AFFINITY_MASK": mask}
        self.environments.add(I915, IssuedEnvironment(ids(id_), [gpu(0, tiles=2)], env, at=self.now))

    def running(self) -> AbstractAsyncContextManager[object]:
        return in_background(self.writer.run())


async def test_a_difference_is_reported_and_written_on_its_pod_alone() -> None:
    unlisted = node_pod(ONE, name="unlisted", uid="unlisted", started=True, annotations=decided("card0"))
    node = Node(Kubelet(a="card1-0", b="card0-0"), unlisted, A, B)
    await node.writer.compare()
    assert node.patched == [("a", RECEIPT)]
    assert [key for key, _ in node.reported] == ["default/a"]
    assert (node.writer.written, node.writer.finished) == (1, 1)


async def test_a_receipt_that_the_watch_does_not_show_is_written_again_after_a_while_but_reported_once() -> None:
    node = Node(Kubelet(a="card1-0"), A)
    written = []
    for seconds in (0.0, WRITE_AGAIN - 0.1, 0.1):
        node.now += seconds
        await node.writer.compare()
        assert node.writer.written == len(node.patched)
        written.append(len(node.patched))
    assert written == [1, 1, 2]
    assert len(node.reported) == 1


async def test_a_receipt_that_was_removed_is_written_at_once() -> None:
    node = Node(Kubelet(a="card1-0"), A)
    await node.writer.compare()
    node.pods.changed(node_pod(ONE, name="a", started=True, annotations=decided("card0") | RECEIPT))
    await node.writer.compare()
    assert len(node.patched) == 1
    node.pods.changed(A)
    await node.writer.compare()
    assert len(node.patched) == 2


async def test_another_difference_is_reported_too() -> None:
    node = Node(Kubelet(a="card1-0"), A)
    await node.writer.compare()
    node.kubelet.given = {"a": "card2-0"}
    node.now += WRITE_AGAIN
    await node.writer.compare()
    assert [annotations for _, annotations in node.patched] == [RECEIPT, {"gas-allocated-cards": "card2"}]
    assert len(node.reported) == 2


async def test_a_receipt_that_is_wrong_and_not_needed_is_removed() -> None:
    forged = {"gas-allocated-init-cards": "card7"}
    node = Node(Kubelet(a="card0-0"), node_pod(ONE, name="a", started=True, annotations=decided("card0") | forged))
    await node.writer.compare()
    ((_, annotations),) = node.patched
    assert annotations["gas-allocated-init-cards"] is None


@pytest.mark.parametrize(
    "given", [pytest.param(None, id="does-not-answer"), pytest.param({}, id="says-nothing-after-its-start")]
)
async def test_nothing_is_compared_while_kubelet(given: dict[str, str] | None) -> None:
    node = Node(Kubelet(), A)
    node.kubelet.given = given
    await node.writer.compare()
    assert node.reported == []
    assert node.writer.finished == 0


async def test_a_pod_that_changes_while_kubelet_is_asked_waits_for_the_next_comparison() -> None:
    """Another pod of the same name may have come meanwhile."""
    node = Node(Kubelet(a="card1-0"), A)
    other = node_pod(ONE, name="a", uid="other", started=True, annotations=decided("card1"))
    node.kubelet.before_answer = lambda: list_all(node.pods, [other])
    await node.writer.compare()
    assert node.reported == []


async def test_a_pod_in_the_middle_waits() -> None:
    """As when kubelet, after its restart, asks again for the init containers of a pod that had a status."""
    init = (container("i", i915=1), container("j", i915=1))
    pod = node_pod(container("c"), name="a", init=init, started=True, annotations=decided("", init="card0|card0"))
    node = Node(Kubelet(a=""), pod)
    node.matcher.prefer(question(slots(2)), listing={"default/a": {"c": {}}})
    node.matcher.allocate(AllocateRequest(resource=I915, ids=ids("card1-0")), now=node.now)
    await node.writer.compare()
    assert node.reported == []
    node.matcher.allocate(AllocateRequest(resource=I915, ids=ids("card1-0")), now=node.now)
    await node.writer.compare()
    assert [key for key, _ in node.reported] == ["default/a"]


async def test_the_matcher_learns_kubelets_list() -> None:
    waiting = node_pod(ONE, name="a", annotations=decided("card0"))
    node = Node(Kubelet(a="card1-0"), waiting)
    await node.writer.compare()
    assert node.matcher.prefer(question(slots(2))).match.target is None


async def test_a_write_that_fails_is_retried_and_its_reason_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(Kubelet(a="card1-0", b="card1-0"), A, B)
    node.refuses = GasError("the API server is away")
    await node.writer.compare()
    await node.writer.compare()
    assert node.writer.trouble == "cannot write receipts on pods: the API server is away"
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [node.writer.trouble]
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [(vars(record)["pod"], record.message) for record in warnings] == node.reported
    assert (len(node.reported), node.writer.written) == (2, 0)
    node.refuses = None
    await node.writer.compare()
    assert node.patched == [("a", RECEIPT), ("b", RECEIPT)]
    assert node.writer.trouble is None


async def test_while_an_rbac_rule_is_missing_differences_are_reported_and_writing_pauses() -> None:
    node = Node(Kubelet(a="card1-0", b="card1-0"), A, B)
    node.refuses = Forbidden("Forbidden", "a webhook does not like it")
    await node.writer.compare()
    await node.writer.compare()
    assert node.tries == 1
    assert len(node.reported) == 2
    node.now += FORBIDDEN_PAUSE
    node.refuses = None
    await node.writer.compare()
    assert len(node.patched) == 2


async def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    node = Node(Kubelet(a="card1-0"), A)
    await node.writer.compare()
    gone = [weakref.ref(pod) for pod in node.pods]
    list_all(node.pods, [])
    await node.writer.compare()
    gc.collect()
    assert [pod() for pod in gone] == [None]
    list_all(node.pods, [A])
    await node.writer.compare()
    assert len(node.reported) == 2


class TestEnvironments:
    """Replies to pods with one tile each of ``card0``, where a has the mask of b."""

    @pytest.fixture
    def node(self) -> Node:
        one = container("c", i915=1, tiles=1)
        tiles = {"a": "card0:gt0", "b": "card0:gt1"}
        pods = [
            node_pod(one, name=name, started=True, annotations=decided("card0", tiles=text))
            for name, text in tiles.items()
        ]
        node = Node(Kubelet(a="card0-0", b="card0-1"), *pods)
        node.given("card0-0", "1")
        node.now += 1
        return node

    async def test_the_mask_of_another_pod_is_reported_once(self, node: Node, caplog: pytest.LogCaptureFixture) -> None:
        await node.writer.compare()
        await node.writer.compare()
        sentence = "container 'c' was given ZE_AFFINITY_MASK=1 instead of ZE_AFFINITY_MASK=0"
        assert node.reported == [("default/a", sentence)]
        assert [(vars(record)["pod"], record.message) for record in caplog.records] == node.reported

    async def test_a_container_that_kubelet_lists_later_is_reported_later(self, node: Node) -> None:
        node.kubelet.given = None
        await node.writer.compare()
        node.now += 60
        node.kubelet.given = {"a": "card0-0"}
        await node.writer.compare()
        assert [key for key, _ in node.reported] == ["default/a"]

    async def test_a_container_of_an_unwatched_pod_is_reported_later(self, node: Node) -> None:
        pods = [pod.raw for pod in node.pods]
        late = Node(node.kubelet)
        late.given("card0-0", "1")
        late.now += 60
        await late.writer.compare()
        list_all(late.pods, pods)
        await late.writer.compare()
        assert [key for key, _ in late.reported] == ["default/a"]

    async def test_replies_that_no_container_has_are_forgotten(self, node: Node) -> None:
        """As from ordinary init containers and refused pods: another plugin may have answered for these ids since."""
        node.kubelet.given = {"b": "card0-1"}
        node.now += SETTLED
        await node.writer.compare()
        node.kubelet.given = {"a": "card0-0"}
        await node.writer.compare()
        assert node.reported == []

    async def test_a_reply_during_kubelets_list_waits_for_the_next_comparison(self, node: Node) -> None:
        """In that list, another container had the ids."""
        node.kubelet.before_answer = lambda: node.given("card0-0", "0")
        await node.writer.compare()
        assert node.reported == []

    async def test_ids_that_are_passed_on_while_kubelet_lists_them_are_compared_later(self, node: Node) -> None:
        def pass_on() -> None:
            node.given("card0-0", "1")
            node.now += 1

        node.kubelet.before_answer = pass_on
        await node.writer.compare()
        assert node.reported == []


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_writer, "INTERVAL", 0.01)


async def test_after_an_allocate_it_compares_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_writer, "INTERVAL", 3600.0)
    node = Node(Kubelet(a="card0-0"), A)
    async with node.running():
        await eventually(lambda: node.writer.finished == 1)
        node.writer.compare_soon()
        await eventually(lambda: node.writer.finished == 2)


async def test_after_an_allocate_during_a_comparison_it_compares_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_writer, "INTERVAL", 3600.0)
    node = Node(Kubelet(a="card0-0"), A)

    def allocate_once() -> None:
        node.kubelet.before_answer = lambda: None
        node.writer.compare_soon()

    node.kubelet.before_answer = allocate_once
    async with node.running():
        await eventually(lambda: node.writer.finished == 2)


@pytest.mark.usefixtures("often")
async def test_it_compares_every_few_seconds_and_later_less_often() -> None:
    node = Node(Kubelet(a="card0-0"), A)
    async with node.running():
        await eventually(lambda: node.writer.finished >= 3)
        node.now += receipt_writer.RECENT
        await asyncio.sleep(0.1)
        finished = node.writer.finished
        await asyncio.sleep(0.1)
        assert node.writer.finished == finished


async def test_kubelet_is_not_asked_while_it_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked between its choice of ids and the end of Allocate, kubelet may forget that they are taken."""
    monkeypatch.setattr(receipt_writer, "QUIET", 0.01)
    node = Node(Kubelet(a="card0-0"), A)
    with node.calls.call():
        pass
    async with node.running():
        await asyncio.sleep(0.05)
        assert node.kubelet.asked == 0
        node.now += 1
        await eventually(lambda: node.writer.finished)


@pytest.mark.usefixtures("often")
async def test_an_unexpected_error_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(Kubelet(a="card0-0"), A)
    answers = itertools.chain([RuntimeError("unexpected")], itertools.repeat(None))

    def before_answer() -> None:
        if (error := next(answers)) is not None:
            raise error

    node.kubelet.before_answer = before_answer
    async with node.running():
        await eventually(lambda: node.writer.finished)
    assert "could not be compared" in caplog.text


class TestAfterAllocate:
    """A vocabulary may expect an annotation on pods that have got their cards."""

    VOCABULARIES = Vocabularies([INTEL, MADE_UP])

    def pod(self, **annotations: str) -> Pod:
        init, main = ({"name": name, "resources": {"requests": {SLICE: "1"}}} for name in "ic")
        decision = decided("card0", init="card0") | annotations
        return node_pod(main, init=(init,), name="a", uid="u", started=True, annotations=decision)

    def node(self, pod: Pod, given: str) -> Node:
        return Node(Kubelet(SLICE, a=given), pod, vocabularies=self.VOCABULARIES)

    async def test_it_is_written_once_the_pod_has_its_cards(self) -> None:
        node = self.node(self.pod(), "card0-0")
        await node.writer.compare()
        await node.writer.compare()
        assert node.patched == [("a", {ASSIGNED: "true"})]
        assert (node.reported, node.writer.written) == ([], 0)

    async def test_not_before(self) -> None:
        node = self.node(self.pod(), "")
        await node.writer.compare()
        assert node.patched == []

    async def test_not_while_kubelet_does_not_list_the_pod(self) -> None:
        node = Node(Kubelet(SLICE, b="card0-0"), self.pod(), vocabularies=self.VOCABULARIES)
        await node.writer.compare()
        assert node.patched == []

    async def test_not_again_when_the_watch_shows_it(self) -> None:
        node = self.node(self.pod(), "card0-0")
        await node.writer.compare()
        node.pods.changed(self.pod(**{ASSIGNED: "true"}))
        await node.writer.compare()
        assert len(node.patched) == 1

    async def test_a_receipt_comes_first(self) -> None:
        node = self.node(self.pod(), "card1-0")
        await node.writer.compare()
        assert node.patched == [("a", RECEIPT)]
        node.now += WRITE_AGAIN
        node.pods.changed(self.pod(**RECEIPT))
        await node.writer.compare()
        assert node.patched[1:] == [("a", {ASSIGNED: "true"})]
