from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from gas.plugin.discovery.scanner import AGAIN_AFTER, INTERVAL, RESTART_AFTER, Scanner
from gas.values.card_facts import Scan
from sandbox.hardware.fake_sysfs import FLEX_170, MAX_1550, Model, add_gpu, fake_gpus, write_tree
from tests.background import eventually
from tests.fake_gpus import card_directory, remove_gpu
from tests.plugin.gpus import gpu, read_gpus, scan

PATIENCE = 20


class Scans:
    """The changes that a scanner reported, scan after scan."""

    def __init__(self) -> None:
        self.scans: list[Scan] = []

    def __call__(self, scan: Scan) -> None:
        self.scans.append(scan)


async def test_only_changes_and_the_first_scan_are_reported() -> None:
    answers = [scan(), scan(), scan(gpu(0)), scan(gpu(0)), scan(gpu(0), problems=("card1: broken",))]
    seen = Scans()
    scanner = Scanner(iter(answers).__next__, seen)
    for answer in answers:
        await scanner.scan_once()
        assert scanner.scan == answer
    assert seen.scans == [answers[0], answers[2], answers[4]]
    assert (scanner.finished, scanner.faults, scanner.stuck) == (5, 0, None)


async def test_a_card_that_disappears_and_comes_back(tmp_path: Path) -> None:
    gpus = fake_gpus(FLEX_170, 2)
    write_tree(tmp_path, gpus)
    seen = Scans()
    scanner = Scanner(lambda: read_gpus(tmp_path), seen)
    await scanner.scan_once()
    remove_gpu(tmp_path, gpus[1])
    await scanner.scan_once()
    add_gpu(tmp_path, gpus[1])
    await scanner.scan_once()
    assert [[gpu.healthy for gpu in scan.gpus] for scan in seen.scans] == [[True, True], [True, False], [True, True]]
    assert seen.scans[0] == seen.scans[2]


@pytest.mark.parametrize(("model", "where"), [(MAX_1550, "gt"), (FLEX_170, "lmem_total_bytes")], ids=["gt", "memory"])
async def test_an_unreadable_description_keeps_tiles_and_memory(tmp_path: Path, model: Model, where: str) -> None:
    gpus = fake_gpus(model, 2)
    write_tree(tmp_path, gpus)
    seen = Scans()
    scanner = Scanner(lambda: read_gpus(tmp_path), seen)
    await scanner.scan_once()
    broken = card_directory(tmp_path, gpus[1]) / where
    broken.rename(broken.with_name("aside"))
    broken.symlink_to("nowhere")
    await scanner.scan_once()
    assert seen.scans[1].gpus == seen.scans[0].gpus
    (problem,) = seen.scans[1].problems
    assert problem.startswith(f"card1: {where} is a dangling link")


# contract P1.12
async def test_it_scans_at_each_interval() -> None:
    assert INTERVAL == 5
    scanner = Scanner(lambda: scan(gpu(0)), Scans(), interval=0.001)
    running = asyncio.create_task(scanner.run())
    await eventually(lambda: scanner.finished > 3)
    running.cancel()


async def test_a_scan_that_raises_keeps_the_last_scan_and_the_next_one_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[Scan | Exception] = [scan(gpu(0)), ZeroDivisionError("a bug"), scan(gpu(0), gpu(1))]

    def read() -> Scan:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    scanner = Scanner(read, Scans())
    await scanner.scan_once()
    await scanner.scan_once()
    assert scanner.scan == scan(gpu(0))
    assert scanner.faults == 1
    assert "the cards of this node could not be scanned" in caplog.text
    await scanner.scan_once()
    assert scanner.scan == scan(gpu(0), gpu(1))


async def test_a_card_that_does_not_respond_stops_neither_the_loop_nor_readers() -> None:
    answer = threading.Event()
    waits = iter([False, True])

    def read() -> Scan:
        if next(waits):
            answer.wait(PATIENCE)
            return scan(gpu(0), gpu(1))
        return scan(gpu(0))

    seen = Scans()
    scanner = Scanner(read, seen, slow=0.01)
    await scanner.scan_once()
    looking = asyncio.create_task(scanner.scan_once())
    await eventually(lambda: scanner.stuck)
    stuck = scanner.stuck
    assert stuck == "scanning the cards of this node has taken over 0.01 s; a card does not respond"
    assert seen.scans == [scan(gpu(0))]
    answer.set()
    await looking
    assert scanner.stuck is None
    assert seen.scans == [scan(gpu(0)), scan(gpu(0), gpu(1))]


async def test_a_scanner_can_be_stopped_while_a_card_does_not_respond() -> None:
    answer, started = threading.Event(), threading.Event()

    def read() -> Scan:
        started.set()
        answer.wait(PATIENCE)
        return scan()

    seen = Scans()
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
    before = set(threading.enumerate())
    running = asyncio.create_task(Scanner(read, seen).run())
    await eventually(started.is_set)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    answer.set()
    await eventually(lambda: not any(thread.name == "sysfs" for thread in set(threading.enumerate()) - before))
    await asyncio.sleep(0)
    assert seen.scans == errors == []


async def test_each_problem_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    broken, whole = scan(problems=("card1: broken",)), scan()
    answers = iter([broken, broken, whole, broken])
    scanner = Scanner(answers.__next__, Scans())
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            await scanner.scan_once()
    assert caplog.messages == ["card1: broken", "card1: broken"]


async def test_a_restart_is_asked_for_while_a_fault_that_it_mends_has_lasted() -> None:
    clock = [0.0]
    found = scan()
    scanner = Scanner(lambda: found, Scans(), clock=lambda: clock[0])
    asked = []
    for fault, seconds in [("a", 1), ("b", RESTART_AFTER - 1), ("b", 1), ("", 1), ("a", RESTART_AFTER), ("a", 1)]:
        found = scan(gpu(0, healthy=False), container_fault=fault)
        await scanner.scan_once()
        clock[0] += seconds
        asked.append(scanner.needs_restart)
    assert asked == [None, "b", "b", None, "a", "a"]


@pytest.mark.parametrize(
    ("saw_all", "others", "after"),
    [(True, True, RESTART_AFTER), (False, False, RESTART_AFTER), (False, True, AGAIN_AFTER)],
    ids=["lost-its-cards", "no-other-cards", "would-disturb-others"],
)
async def test_a_container_without_cards_from_the_start_is_made_again_rarely_beside_good_ones(
    saw_all: bool, others: bool, after: float
) -> None:
    clock = [0.0]
    found = scan(gpu(0))
    scanner = Scanner(lambda: found, Scans(), clock=lambda: clock[0])
    if saw_all:
        await scanner.scan_once()
    found = scan(gpu(0, healthy=others), container_fault="no library")
    await scanner.scan_once()
    clock[0] = after - 1
    assert scanner.needs_restart is None
    clock[0] = after
    assert scanner.needs_restart == "no library"
