"""Which limits pods get, and that they are there before a container starts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gas.plugin.card_pods import Holder
from gas.plugin.devices.device_ids import AllocateRequest, Ids
from gas.plugin.limits.limit_files import LimitFiles, Limits, Outcome
from gas.plugin.limits.memory_limits import LimitTimes, MemoryLimits, wanted_limits
from gas.plugin.matching.gpu_pods import GpuPod
from gas.values.card_facts import CardFacts
from gas.values.cards import Card
from tests.background import eventually
from tests.builders import container
from tests.plugin.limits.kernel import CARD0, CARD1, MIB, Kernel, region
from tests.plugin.pods_for_plugin import STATIC_HASH, XE, decided, ids, mirror_of, pod_uid, seen

GPUS = (
    CardFacts(card=Card(0), driver="xe", device_id="0xe20b", pci_address=CARD0, memory=1000 * MIB),
    CardFacts(card=Card(1), driver="xe", device_id="0xe20b", pci_address=CARD1, memory=1000 * MIB, tiles=2),
)
CAPACITY = {region(CARD0): 1000 * MIB, region(CARD1, 0): 500 * MIB, region(CARD1, 1): 500 * MIB}


def gpu_pod(cards: str = "card0", memory: str = "100Mi", number: int = 1, **fields: Any) -> GpuPod:
    wanted = container(xe=1, memory_max=memory)
    return seen(wanted, uid=pod_uid(number), name=f"p{number}", annotations=decided(cards), **fields)


def limits_of(pod: GpuPod) -> dict[str, int]:
    """Return the limits in MiB by region, of regions that are limited."""
    wanted = wanted_limits(pod, GPUS, CAPACITY)
    assert wanted.keys() == CAPACITY.keys(), "every region of the node is stated, so that none is left behind"
    return {name: limit // MIB for name, limit in wanted.items() if limit is not None}


class TestWhichLimits:
    def test_a_shared_card_is_limited_to_the_request(self) -> None:
        assert limits_of(gpu_pod()) == {region(CARD0): 100}

    def test_a_whole_card_is_not_limited(self) -> None:
        assert limits_of(gpu_pod(memory="1000Mi")) == {}

    def test_a_pod_with_all_memory_that_pods_may_request_leaves_the_reserve(self) -> None:
        """`GPU_MEMORY_RESERVED` keeps 400 MiB of the 1000 MiB that the card has."""
        reserved = replace(GPUS[0], memory=600 * MIB, memory_size=1000 * MIB)
        assert wanted_limits(gpu_pod(memory="600Mi"), [reserved], CAPACITY) == {region(CARD0): 600 * MIB}

    def test_a_pod_that_requests_no_memory_is_not_limited(self) -> None:
        assert limits_of(seen(container(xe=1), annotations=decided("card0"))) == {}

    def test_a_pod_without_known_cards_is_not_limited(self) -> None:
        assert limits_of(seen(container(xe=1, memory_max="1Gi"))) == {}

    def test_each_tile_gets_the_limit_of_the_card(self) -> None:
        assert limits_of(gpu_pod("card1")) == {region(CARD1, 0): 100, region(CARD1, 1): 100}

    def test_a_tile_that_is_smaller_than_the_limit_needs_none(self) -> None:
        assert limits_of(gpu_pod("card1", "600Mi")) == {}

    def test_the_receipt_moves_the_limit(self) -> None:
        pod = seen(container(xe=1, memory_max="100Mi"), annotations=decided("card0") | {"gas-allocated-cards": "card1"})
        assert limits_of(pod) == {region(CARD1, 0): 100, region(CARD1, 1): 100}

    def test_containers_that_run_together_add_up(self) -> None:
        pod = seen(
            container("one", xe=1, memory_max="100Mi"),
            container("two", xe=1, memory_max="200Mi"),
            annotations=decided("card0|card0"),
        )
        assert limits_of(pod) == {region(CARD0): 300}

    @pytest.mark.parametrize(("prepare", "expected"), [("400Mi", 450), ("100Mi", 250)], ids=["init", "apps"])
    def test_sidecars_count_with_the_larger_of_init_containers_and_apps(self, prepare: str, expected: int) -> None:
        """The limit has room for every moment of the pod, so restarts of its containers do not change it."""
        pod = seen(
            container("main", xe=1, memory_max="200Mi"),
            init=(
                container("side", always=True, xe=1, memory_max="50Mi"),
                container("prepare", xe=1, memory_max=prepare),
            ),
            annotations=decided("card0", init="card0|card0"),
        )
        assert limits_of(pod) == {region(CARD0): expected}


class Node:
    """Pods that have cards, the ids that they got, and the kernel's limits. ``troubles`` has each once."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.kernel = Kernel(tmp_path / "cgroup", monkeypatch, CAPACITY)
        self.pods: list[GpuPod] = []
        self.given: dict[str, Holder] = {}
        self.troubles: list[str] = []
        self.current: tuple[str, ...] = ()
        self.files = LimitFiles(self.kernel.root)
        self.limits = MemoryLimits(
            self, lambda: GPUS, self.files, self._set_troubles, LimitTimes(**{"watch_within": 0.2, **options})
        )

    def __iter__(self) -> Iterator[GpuPod]:
        return iter(self.pods)

    def present(self) -> list[str]:
        return [pod.key for pod in self.pods]

    def holders(self, _resource: str, got: Ids) -> list[Holder]:
        return [holder for id_, holder in self.given.items() if got == ids(id_)]

    def users(self) -> dict[Card, set[str]]:
        return {}

    def _set_troubles(self, troubles: Collection[str]) -> None:
        self.troubles += [each for each in troubles if each not in self.current]
        self.current = tuple(troubles)

    def add(self, pod: GpuPod, id_: str = "", *, is_certain: bool = True) -> Path:
        """Show a pod whose container got an id, and create its cgroup."""
        self.pods.append(pod)
        if id_:
            self.given[id_] = Holder(pod, is_certain)
        self.limits.pods_changed()
        return self.kernel.add(f"kubepods/burstable/pod{pod.uid}")

    async def start(self, id_: str) -> None:
        await self.limits.before_start(AllocateRequest(resource=XE, ids=ids(id_)))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


class TestStarts:
    async def test_the_limit_is_there_when_the_call_returns(self, node: Node) -> None:
        cgroup, other = node.add(gpu_pod(), "card0-0"), node.add(gpu_pod(number=2), "card0-1")
        await node.start("card0-0")
        assert node.kernel.of(cgroup) == {region(CARD0): str(100 * MIB)}
        assert node.kernel.of(other) == {}, "only the pod that starts"

    async def test_a_restart_writes_nothing(self, node: Node) -> None:
        node.add(gpu_pod(), "card0-0")
        await node.start("card0-0")
        await node.start("card0-0")
        assert len(node.kernel.written) == 1

    async def test_if_it_is_not_certain_which_pod_starts_all_get_their_limits(self, node: Node) -> None:
        cgroups = [node.add(gpu_pod(number=number), f"card0-{number}", is_certain=False) for number in (1, 2)]
        await node.start("card0-1")
        assert all(node.kernel.of(cgroup) for cgroup in cgroups)

    async def test_a_pod_that_the_watch_shows_late(self, node: Node) -> None:
        starting = asyncio.create_task(node.start("card0-0"))
        await asyncio.sleep(0.05)
        assert not starting.done()
        cgroup = node.add(gpu_pod(), "card0-0")
        await starting
        assert node.kernel.of(cgroup) == {region(CARD0): str(100 * MIB)}

    async def test_a_pod_that_the_watch_does_not_show_starts_nevertheless(
        self, node: Node, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with asyncio.timeout(2):
            await node.start("card0-0")
        assert "a container starts whose pod is not known" in caplog.text

    async def test_files_that_do_not_respond(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Containers start without limits, no second thread writes, and later starts are limited again."""
        node = Node(tmp_path, monkeypatch, within=0.1)
        respond, apply, applied = threading.Event(), node.files.apply, 0

        def hang(wanted: Mapping[str, Limits]) -> Outcome:
            nonlocal applied
            applied += 1
            respond.wait(20)
            return apply(wanted)

        monkeypatch.setattr(node.files, "apply", hang)
        first, second = node.add(gpu_pod(), "card0-0"), node.add(gpu_pod(number=2), "card0-1")
        async with asyncio.timeout(5):
            await node.start("card0-0")
            await node.start("card0-1")
        assert node.troubles == ["memory limits of pods cannot be set: the node's /sys/fs/cgroup does not respond"]
        assert applied == 1
        respond.set()
        await node.start("card0-1")
        assert node.kernel.of(first)
        assert node.kernel.of(second)
        assert node.limits.trouble is None


@pytest.mark.parametrize(
    "path", [f"kubepods/burstable/pod{STATIC_HASH}", f"kubepods.slice/kubepods-pod{STATIC_HASH}.slice"]
)
async def test_a_static_pod_is_limited_in_the_cgroup_that_kubelet_made(node: Node, path: str) -> None:
    """The API server's mirror pod has another UID."""
    wanted = container(xe=1, memory_max="100Mi")
    node.pods.append(seen(wanted, uid=pod_uid(1), annotations=decided("card0") | mirror_of(STATIC_HASH)))
    cgroup = node.kernel.add(path)
    await node.limits.apply(None)
    assert node.kernel.of(cgroup) == {region(CARD0): str(100 * MIB)}
    assert node.limits.limited == 1


class TestTroubles:
    async def test_a_node_without_the_controller_says_so_once(self, node: Node) -> None:
        node.add(gpu_pod(), "card0-0")
        (node.kernel.root / "dmem.capacity").unlink()
        for _ in range(3):
            await node.start("card0-0")
            await node.limits.apply(None)
        (trouble,) = node.troubles
        assert trouble.startswith("the kernel does not limit memory of cards: ")
        assert node.limits.trouble == trouble

    async def test_a_card_whose_driver_registers_nothing(self, node: Node) -> None:
        node.kernel.capacity.pop(region(CARD0))
        limited = node.add(gpu_pod("card1"), "card1-0")
        node.add(gpu_pod(number=2), "card0-0")
        await node.limits.apply(None)
        assert node.kernel.of(limited)
        assert node.limits.limited == 1
        assert node.troubles == [
            "the memory of card0 cannot be limited: the driver does not register it with the controller dmem, as xe "
            "does from Linux 6.14 on and i915 does not; pods run without limits there"
        ]


async def test_a_limit_that_the_kernel_does_not_accept_is_the_trouble_of_that_pod(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = node.add(gpu_pod(), "card0-0"), node.add(gpu_pod(number=2), "card0-1")
    node.kernel.used[first] = {region(CARD0): 200 * MIB}
    sentence = (
        "the kernel did not accept a memory limit of pod default/p1: the pod uses more of a card than it requested of "
        "memory.max; it runs without that limit until it uses less, or is restarted"
    )
    for _ in range(2):
        await node.limits.apply(None)
        await node.start("card0-1")
        assert (node.limits.limited, node.limits.trouble) == (1, sentence)
    assert node.troubles == [record.getMessage() for record in caplog.records] == [sentence]
    node.kernel.used.clear()
    await node.start("card0-0")
    assert node.limits.trouble is None


async def test_the_trouble_of_a_pod_ends_with_the_pod(node: Node) -> None:
    node.kernel.used[node.add(gpu_pod())] = {region(CARD0): 200 * MIB}
    await node.limits.apply(None)
    assert node.limits.trouble is not None
    node.pods.clear()
    await node.limits.apply(None)
    assert node.limits.trouble is None


class TestRunningPodsWithoutCgroup:
    SENTENCE = (
        "memory limits cannot be set for the running pods default/p1: their cgroups are not found in the node's "
        "/sys/fs/cgroup; they run without limits; check that the plugin sees the node's own directory"
    )

    async def test_one_is_reported_once_until_its_cgroup_is_found(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        node = Node(tmp_path, monkeypatch, missing_for=0.0)
        node.pods.append(gpu_pod(phase="Running"))
        other = gpu_pod(number=2)
        node.add(other)
        for _ in range(2):
            await node.limits.apply(None)
            await node.limits.apply([other])
        assert node.troubles == [self.SENTENCE], "the start of another pod does not end the trouble"
        assert (node.limits.trouble, node.limits.limited) == (self.SENTENCE, 1)
        assert [record.getMessage() for record in caplog.records] == [self.SENTENCE]
        node.kernel.add(f"kubepods/burstable/pod{pod_uid(1)}")
        await node.limits.apply(None)
        assert (node.limits.trouble, node.limits.limited) == (None, 2)

    async def test_a_pod_may_be_starting_or_ending(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        node = Node(tmp_path, monkeypatch, missing_for=0.1)
        node.pods.append(gpu_pod(phase="Running"))
        await node.limits.apply(None)
        assert node.limits.trouble is None
        await asyncio.sleep(0.1)
        await node.limits.apply(None)
        assert node.limits.trouble == self.SENTENCE

    @pytest.mark.parametrize(
        "pod",
        [
            pytest.param(gpu_pod(phase="Pending"), id="waits"),
            pytest.param(gpu_pod(memory="1000Mi", phase="Running"), id="wants-no-limit"),
        ],
    )
    async def test_others_are_not_reported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pod: GpuPod) -> None:
        node = Node(tmp_path, monkeypatch, missing_for=0.0)
        node.pods.append(pod)
        await node.limits.apply(None)
        assert node.limits.trouble is None


async def test_limits_follow_the_pods_and_a_bug_does_not_end_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, monkeypatch, interval=0.05, pause=0.01)
    apply, failed = node.files.apply, False

    def fail_once(wanted: Mapping[str, Limits]) -> Outcome:
        nonlocal failed
        if not failed:
            failed = True
            raise RuntimeError("a bug")
        return apply(wanted)

    monkeypatch.setattr(node.files, "apply", fail_once)
    running = asyncio.create_task(node.limits.run())
    cgroup = node.add(gpu_pod())
    await eventually(lambda: node.kernel.of(cgroup) == {region(CARD0): str(100 * MIB)})
    assert "the memory limits of pods could not be set" in caplog.text
    node.pods[0] = gpu_pod("card1")
    node.limits.pods_changed()
    await eventually(lambda: node.kernel.of(cgroup).keys() == {region(CARD1, 0), region(CARD1, 1)})
    node.kernel.limits[cgroup].clear()
    await eventually(lambda: len(node.kernel.of(cgroup)) == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
