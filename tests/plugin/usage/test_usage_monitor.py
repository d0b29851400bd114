"""The monitor: current results, events that do not repeat themselves, and troubles in one sentence each."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from gas.plugin.matching.gpu_pods import GpuPod
from gas.plugin.metrics import Metrics
from gas.plugin.usage import usage_monitor
from gas.plugin.usage.part import METRICS, USAGE
from gas.plugin.usage.process_walk import ProcessWalker, Walk
from gas.plugin.usage.usage_monitor import OUTDATED, REPORT_AGAIN, UsageMonitor, usage_json, usage_samples
from gas.values.card_facts import CardFacts
from gas.values.cards import Card
from tests.background import eventually
from tests.builders import container
from tests.plugin.pods_for_plugin import STATIC_HASH, decided, mirror_of, pod_uid, seen
from tests.plugin.usage.processes import CARD0, CARD1, MIB, Processes, xe

GPUS = (
    CardFacts(
        card=Card(0), driver="xe", device_id="0xe20b", pci_address=CARD0, memory=12_000 * MIB, memory_size=16_000 * MIB
    ),
    CardFacts(
        card=Card(1), driver="xe", device_id="0xe20b", pci_address=CARD1, memory=12_000 * MIB, memory_size=16_000 * MIB
    ),
)


def gpu_pod(number: int, name: str, cards: str = "card0", memory: str = "1000Mi", **fields: Any) -> GpuPod:
    """Return a running pod that was given these cards."""
    amounts: dict[str, int | str] = {"xe": cards.count("card") or 1} | ({"memory_max": memory} if memory else {})
    wanted = container(**amounts)  # type: ignore[arg-type]
    annotations = decided(cards) | fields.pop("annotations", {}) if cards else {}
    return seen(
        wanted, name=name, uid=pod_uid(number), annotations=annotations, phase="Running", started=True, **fields
    )


class Node:
    """A monitor over a tree of processes, with a clock that the test moves."""

    def __init__(self, directory: Path, *pods: GpuPod, **options: Any) -> None:
        self.processes = Processes(directory / "proc")
        self.pods = list(pods)
        self.now = 0.0
        self.events: list[tuple[str, str]] = []
        self.monitor = UsageMonitor(
            self.pods,
            lambda: GPUS,
            self.processes.proc,
            lambda pod, sentence: self.events.append((pod.key, sentence)),
            clock=lambda: self.now,
            **options,
        )

    async def walk(self, seconds: float = 10.0) -> None:
        self.now += seconds
        await self.monitor.walk_once()

    def document(self) -> dict[str, Any]:
        return dict(json.loads(usage_json(self.monitor)))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_monitor, "PAUSE", 0.0)


async def test_use_stands_beside_the_request(tmp_path: Path) -> None:
    node = Node(tmp_path, gpu_pod(1, "a", "card0,card1"), gpu_pod(2, "b"), gpu_pod(3, "idle", "card1"))
    node.processes.add(10, 1, xe(1, vram=300, cycles=0, total=0), xe(2, address=CARD1, vram=400))
    node.processes.add(11, 2, xe(3, vram=50))
    await node.walk()
    node.processes.write(10, {3: xe(1, vram=300, cycles=25, total=100)})
    await node.walk()
    engines = {"rcs": {"busy": 0.25, "seconds": 2.5}, "ccs": {"busy": 0.0625, "seconds": 2.5}}
    idle = {"rcs": {"busy": 0.0, "seconds": 0.0}, "ccs": {"busy": 0.0, "seconds": 0.0}}
    pods = {each["name"]: each for each in node.document()["pods"]}
    assert pods["a"] == {
        "namespace": "default",
        "name": "a",
        "uid": pod_uid(1),
        "cards": {
            "card0": {"memoryUsed": 300 * MIB, "memoryRequested": 500 * MIB, "clients": 1, "engines": engines},
            "card1": {"memoryUsed": 400 * MIB, "memoryRequested": 500 * MIB, "clients": 1, "engines": idle},
        },
    }
    assert pods["b"]["cards"]["card0"]["memoryUsed"] == 50 * MIB
    assert pods["idle"]["cards"] == {
        "card1": {"memoryUsed": 0, "memoryRequested": 1000 * MIB, "clients": 0, "engines": {}}
    }
    metrics = Metrics("1", METRICS)
    metrics.read(lambda: usage_samples(node.monitor))
    value = metrics.registry.get_sample_value
    place = {"namespace": "default", "pod": "a", "card": "card0"}
    assert value("gas_plugin_pod_memory_used_bytes", place) == 300 * MIB
    assert value("gas_plugin_pod_memory_requested_bytes", place) == 500 * MIB
    assert value("gas_plugin_pod_engine_seconds_total", {**place, "engine": "rcs"}) == 2.5
    assert value("gas_plugin_usage_walks_total") == 2
    assert value("gas_plugin_pods_over_memory_request") == 0
    assert (value("gas_plugin_usage_cpu_seconds_total") or 0) > 0


async def test_the_receipt_says_which_cards_a_pod_was_given(tmp_path: Path) -> None:
    node = Node(tmp_path, gpu_pod(1, "a", "card0", annotations={"gas-allocated-cards": "card1"}))
    await node.walk()
    assert {card: each["memoryRequested"] for card, each in node.document()["pods"][0]["cards"].items()} == {
        "card1": 1000 * MIB
    }


async def test_use_of_a_card_that_the_pod_was_not_given(tmp_path: Path) -> None:
    """A privileged pod can open every card."""
    node = Node(tmp_path, gpu_pod(1, "a", "card0"))
    node.processes.add(10, 1, xe(1, address=CARD1, vram=300))
    await node.walk()
    cards = node.document()["pods"][0]["cards"]
    assert (cards["card1"]["memoryUsed"], cards["card1"]["memoryRequested"]) == (300 * MIB, None)
    metrics = Metrics("1", METRICS)
    metrics.read(lambda: usage_samples(node.monitor))
    place = {"namespace": "default", "pod": "a", "card": "card1"}
    assert metrics.registry.get_sample_value("gas_plugin_pod_memory_requested_bytes", place) is None


class TestStaticPods:
    async def test_use_counts_for_the_mirror_pod(self, tmp_path: Path) -> None:
        node = Node(tmp_path, gpu_pod(1, "a", annotations=mirror_of(STATIC_HASH)))
        node.processes.add(10, None, xe(1, vram=2000), cgroup_text=f"0::/kubepods/burstable/pod{STATIC_HASH}/c\n")
        await node.walk()
        (pod,) = node.document()["pods"]
        assert (pod["uid"], pod["cards"]["card0"]["memoryUsed"]) == (pod_uid(1), 2000 * MIB)
        assert [key for key, _ in node.events] == ["default/a"]

    @pytest.mark.parametrize(
        "annotations",
        [
            pytest.param({"kubernetes.io/config.hash": STATIC_HASH}, id="not-a-mirror-pod"),
            pytest.param(mirror_of(STATIC_HASH) | {"kubernetes.io/config.mirror": "0" * 32}, id="two-hashes"),
            pytest.param(mirror_of(pod_uid(2)), id="the-uid-of-another-pod"),
        ],
    )
    async def test_no_pod_can_claim_the_use_of_another(self, tmp_path: Path, annotations: dict[str, str]) -> None:
        node = Node(tmp_path, gpu_pod(1, "a", annotations=annotations))
        node.processes.add(10, None, xe(1, vram=2000), cgroup_text=f"0::/kubepods/burstable/pod{STATIC_HASH}/c\n")
        node.processes.add(11, 1, xe(2, vram=5))
        node.processes.add(12, 2, xe(3, vram=300))
        await node.walk()
        assert node.document()["pods"][0]["cards"]["card0"]["memoryUsed"] == 5 * MIB


class TestEvents:
    async def test_a_pod_that_uses_more_than_it_requested_is_reported_once(self, tmp_path: Path) -> None:
        node = Node(tmp_path, gpu_pod(1, "a"), gpu_pod(2, "b"))
        node.processes.add(10, 1, xe(1, vram=1000), xe(2, vram=1))
        node.processes.add(11, 2, xe(3, vram=1000))
        for _ in range(3):
            await node.walk()
        assert node.events == [
            (
                "default/a",
                "the pod uses 1001 MiB of card0 but requested 1000 MiB of memory.max; other pods on the card may find "
                "less memory than they requested: request what the pod needs, or make it use less",
            )
        ]
        metrics = Metrics("1", METRICS)
        metrics.read(lambda: usage_samples(node.monitor))
        assert metrics.registry.get_sample_value("gas_plugin_pods_over_memory_request") == 1

    async def test_use_of_reserved_memory_counts(self, tmp_path: Path) -> None:
        """Pods cannot request what `GPU_MEMORY_RESERVED` keeps, but they can use it."""
        node = Node(tmp_path, gpu_pod(1, "a", memory="12000Mi"))
        node.processes.add(10, 1, xe(1, vram=15_000))
        await node.walk()
        assert node.document()["pods"][0]["cards"]["card0"]["memoryUsed"] == 15_000 * MIB
        ((_, sentence),) = node.events
        assert sentence.startswith("the pod uses 15000 MiB of card0 but requested 12000 MiB of memory.max; ")

    async def test_it_is_reported_again_after_some_minutes(self, tmp_path: Path) -> None:
        node = Node(tmp_path, gpu_pod(1, "a"))
        node.processes.add(10, 1, xe(1, vram=2000))
        await node.walk()
        await node.walk(REPORT_AGAIN - 1)
        assert len(node.events) == 1
        await node.walk(1)
        assert len(node.events) == 2

    async def test_a_pod_that_goes_up_and_down_is_not_reported_more_often(self, tmp_path: Path) -> None:
        node = Node(tmp_path, gpu_pod(1, "a"))
        for number in range(10):
            node.processes.add(10, 1, xe(1, vram=2000 if number % 2 else 10))
            await node.walk()
        assert len(node.events) == 1

    async def test_both_cards_are_in_one_sentence(self, tmp_path: Path) -> None:
        node = Node(tmp_path, gpu_pod(1, "a", "card0,card1"))
        node.processes.add(10, 1, xe(1, vram=1500), xe(2, address=CARD1, vram=2500))
        await node.walk()
        ((_, sentence),) = node.events
        assert sentence.startswith(
            "the pod uses 1500 MiB of card0 but requested 500 MiB, 2500 MiB of card1 but requested 500 MiB of "
        )

    async def test_a_byte_too_much_does_not_read_as_the_same_amount(self, tmp_path: Path) -> None:
        node = Node(tmp_path, gpu_pod(1, "a"))
        node.processes.add(10, 1, xe(1, vram=1000).replace("1000 MiB", f"{1000 * MIB + 1}"))
        await node.walk()
        assert "1001 MiB of card0 but requested 1000 MiB" in node.events[0][1]

    @pytest.mark.parametrize("cards", ["card0", ""], ids=["decided", "undecided"])
    async def test_a_pod_that_requested_no_memory_is_not_judged(self, tmp_path: Path, cards: str) -> None:
        node = Node(tmp_path, gpu_pod(1, "a", cards, memory=""))
        node.processes.add(10, 1, xe(1, vram=5000))
        await node.walk()
        assert node.events == []
        assert node.document()["pods"][0]["cards"]["card0"]["memoryUsed"] == 5000 * MIB


class TestTroubles:
    async def test_before_the_first_walk(self, tmp_path: Path) -> None:
        node = Node(tmp_path, gpu_pod(1, "a"))
        document = node.document()
        assert (document["walked"], document["pods"]) == (None, [])
        assert document["trouble"] == "the processes of this node have not been read yet"

    async def test_a_missing_proc_is_logged_once(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        node = Node(tmp_path, gpu_pod(1, "a"))
        proc = node.processes.proc
        proc.rename(tmp_path / "away")
        for _ in range(3):
            await node.walk()
        sentence = f"cannot list the processes of this node: {proc}: No such file or directory"
        assert node.document()["trouble"] == sentence
        assert [record.getMessage() for record in caplog.records] == [sentence]
        (tmp_path / "away").rename(proc)
        await node.walk()
        assert node.document()["trouble"] is None

    async def test_old_results_are_not_shown(self, tmp_path: Path) -> None:
        node = Node(tmp_path, gpu_pod(1, "a"))
        node.processes.add(10, 1, xe(1, vram=5))
        await node.walk()
        node.processes.proc.rename(tmp_path / "away")
        await node.walk(OUTDATED - 1)
        assert len(node.document()["pods"]) == 1
        await node.walk(2)
        assert node.document()["pods"] == []

    async def test_without_the_node_s_processes(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        node = Node(tmp_path, gpu_pod(1, "a"))
        node.processes.add(1, None)
        await node.walk()
        assert not node.monitor.problems, "a pod may just have started"
        await node.walk()
        await node.walk()
        sentence = (
            "no process of the running pods with cards is visible; the plugin needs hostPID: true, or must run outside "
            "of containers"
        )
        assert node.monitor.problems == (sentence,)
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [sentence]
        node.processes.add(10, 1)
        await node.walk()
        assert not node.monitor.problems

    async def test_no_pods_are_no_problem(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        for _ in range(3):
            await node.walk()
        assert not node.monitor.problems

    async def test_a_driver_that_does_not_respond(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The event loop goes on, and no second walk starts behind the first."""
        respond = threading.Event()
        walk, walks = ProcessWalker.walk, 0

        def hang(self: ProcessWalker, pods: set[str]) -> Walk:
            nonlocal walks
            walks += 1
            respond.wait(20)
            return walk(self, pods)

        monkeypatch.setattr(ProcessWalker, "walk", hang)
        node = Node(tmp_path, gpu_pod(1, "a"), interval=0.01, slow=0.05)
        running = asyncio.create_task(node.monitor.run())
        sentence = "reading the processes of this node has taken over 0.05 s; a driver does not respond"
        await eventually(lambda: node.document()["trouble"] == sentence)
        await asyncio.sleep(0.1)
        assert walks == 1
        respond.set()
        await eventually(lambda: node.document()["trouble"] is None and walks > 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert [record.getMessage() for record in caplog.records].count(sentence) >= 1

    async def test_a_bug_does_not_end_the_measuring(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        walk, failed = ProcessWalker.walk, False

        def fail_once(self: ProcessWalker, pods: set[str]) -> Walk:
            nonlocal failed
            if not failed:
                failed = True
                raise RuntimeError("a bug")
            return walk(self, pods)

        monkeypatch.setattr(ProcessWalker, "walk", fail_once)
        node = Node(tmp_path, interval=0.01)
        running = asyncio.create_task(node.monitor.run())
        await eventually(lambda: node.monitor.walks > 0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert "the use of the cards could not be measured" in caplog.text


def test_without_the_flag_the_document_says_so() -> None:
    assert json.loads(USAGE.documents["/usage"]) == {
        "walked": None,
        "interval": 10.0,
        "trouble": "the use of the cards is not measured: see --usage",
        "problems": [],
        "pods": [],
    }
