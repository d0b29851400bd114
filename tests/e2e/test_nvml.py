"""NVIDIA's Python bindings and a library behind them: what the plugin finds, in a process of its own."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.e2e.fake_nvml import GIB, FakeNvml, card, instance, mig_uuid, uuid
from tests.e2e.nvml_scans import Scans, has_library

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture
def library(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path / "nvml")


def test_a_card_has_every_fact_that_the_library_states(library: FakeNvml) -> None:
    library.write(
        [
            f"near {uuid(0)} {uuid(1)}",
            card(0, peer=17),
            card(1, peer=16, v1=1),
            card(2, switch=1, mig=0),
            card(3, switch=1),
            card(4, mig=1),
            card(5, mig=1, sms=132),
            instance(5, gi=1, ci=0, sms=60, total=40 * GIB, reserved=GIB),
            instance(5, gi=2, ci=0, sms=16, total=20 * GIB, reserved=2 * GIB),
            instance(5, gi=2, ci=1, sms=16, total=20 * GIB, reserved=2 * GIB),
        ]
    )
    with Scans(library.environment) as scans:
        found = scans.scan()
    first = found["gpus"][0]
    assert (first["card"], first["driver"], first["device_id"], first["model"]) == (
        0,
        "nvidia",
        "0x2330",
        "NVIDIA_H100",
    )
    assert (first["pci_address"], first["uuid"]) == ("0000:10:00.0", uuid(0))
    whole, undivided, instances = found["gpus"][:4], found["gpus"][4], found["gpus"][5:]
    assert [gpu["memory"] for gpu in whole] == [79 * GIB] * 4
    assert [gpu["memory_size"] for gpu in whole] == [80 * GIB, 79 * GIB, 80 * GIB, 80 * GIB]
    assert [gpu["links"] for gpu in whole] == [[1], [0], [3], [2]]
    assert [gpu["board"] for gpu in whole] == [0, 0, None, None]
    assert found["broken"] == []
    assert (undivided["card"], undivided["healthy"]) == (4, False)
    assert "card4: MIG is enabled, and it has no instances" in found["problems"][0]
    assert [gpu["uuid"] for gpu in instances] == [mig_uuid(5, 1, 0), mig_uuid(5, 2, 0), mig_uuid(5, 2, 1)]
    assert [gpu["card"] for gpu in instances] == [60010, 60020, 60021]
    assert [(gpu["memory"], gpu["millicores"]) for gpu in instances] == [
        (39 * GIB, 454),
        (9 * GIB, 121),
        (9 * GIB, 121),
    ]


def test_the_processes_of_a_card_have_their_memory_and_their_time(library: FakeNvml) -> None:
    at = int(time.time() * 1e6) + 10_000_000
    library.write(
        [
            card(0),
            card(1, mig=1, sms=132),
            instance(1, gi=1, ci=0, sms=60),
            f"process of={uuid(0)} pid=7 memory={GIB} sm=50 at={at}",
            f"process of={uuid(0)} pid=8 memory=5",
            f"process of={mig_uuid(1, 1, 0)} pid=9 memory=6",
        ]
    )
    with Scans(library.environment) as scans:
        found = scans.scan()
    assert [(pid, card, memory) for pid, card, memory, _ in found["processes"]] == [
        (7, 0, GIB),
        (8, 0, 5),
        (9, 20010, 6),
    ]
    busy = [of_process.get("sm", 0) for *_, of_process in found["processes"]]
    assert 4e9 < busy[0] <= 5e9
    assert busy[1:] == [0, 0]


def test_errors_of_the_library_are_sentences_and_pass(library: FakeNvml) -> None:
    for code, words in (
        (9, "the kernel has not loaded NVIDIA's driver; load the module nvidia"),
        (999, "Unknown Error"),
    ):
        library.write([f"init {code}", card(0)])
        with Scans(library.environment) as scans:
            found = scans.scan()
            assert found["problems"] == [f"NVML: nvmlInitWithFlags: {words}; NVIDIA's cards are not offered"]
            assert not found["container_fault"]
            library.write([card(0)])
            assert len(scans.scan()["gpus"]) == 1


@pytest.mark.skipif(has_library(), reason="this machine has NVIDIA's own library")
def test_a_missing_library_is_a_sentence(tmp_path: Path) -> None:
    with Scans({"LD_LIBRARY_PATH": str(tmp_path)}) as scans:
        (problem,) = scans.scan()["problems"]
    assert problem.startswith("NVML: nvmlInitWithFlags: libnvidia-ml.so.1 was not found; install NVIDIA's driver")


def test_a_lost_card_a_failed_one_and_one_that_hangs_do_not_hide_the_others(library: FakeNvml) -> None:
    good = [card(number, recovery=1) for number in range(4)]
    library.write(good)
    events = [f"event {uuid(1)} 79", f"event {uuid(3)} 31"]
    with Scans(library.environment, within=2) as scans:
        assert len(scans.scan()["gpus"]) == 4
        library.write([*events, *good[:2], card(2, error=15), card(3, hang=1)])
        found = [scans.scan() for _ in range(3)][-1]
        assert [(gpu["card"], gpu["healthy"]) for gpu in found["gpus"]] == [(0, True), (1, False)]
        assert found["broken"] == [2, 3]
        assert [problem.partition(":")[0] for problem in found["problems"]] == ["card2", "card3", "card1"]
        library.write([*events, *good, card(4, error=999)])
        scans.scan()
        library.write([*events, f"event {uuid(2)} 48", f"event {uuid(4)} 94", f"event {uuid(4)} 109", *good, card(4)])
        health = [{gpu["card"]: gpu["healthy"] for gpu in scans.scan()["gpus"]} for _ in range(2)][-1]
        assert health == {0: True, 1: False, 2: False, 3: True, 4: False}


def test_a_failure_of_an_instance_is_that_of_no_other(library: FakeNvml) -> None:
    lines = [card(0, mig=1, sms=132), *(instance(0, gi=gi, ci=0, sms=60) for gi in (1, 2))]
    library.write(lines)
    with Scans(library.environment) as scans:
        assert len(scans.scan()["gpus"]) == 2
        library.write([*lines, f"event {uuid(0)} 48 2 0"])
        assert [gpu["healthy"] for gpu in scans.scan()["gpus"]] == [True, False]


def test_cards_that_the_container_no_longer_may_use_need_a_new_one(library: FakeNvml) -> None:
    library.write([card(0), card(1)])
    with Scans(library.environment) as scans:
        assert len(scans.scan()["gpus"]) == 2
        for lines in (["count 999", card(0)], [card(0, error=999), card(1, error=4)], ["init 9", "count 1"]):
            library.write(lines)
            assert scans.scan()["container_fault"].startswith("NVML: ")


def test_what_a_card_does_not_state_does_not_cost_it_its_place(library: FakeNvml) -> None:
    library.write([card(7, unified=1, wsl=1), card(8, recovery=2)])
    with Scans(library.environment) as scans:
        found = scans.scan()
    assert [(gpu["card"], gpu["memory_source"], gpu["healthy"]) for gpu in found["gpus"]] == [
        (0, "shared", True),
        (8, "query", False),
    ]
    assert found["problems"] == ["card8: its driver demands: reset it; it is unhealthy"]
