"""NVIDIA's Python bindings and a library behind them: what the plugin finds, in a process of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.fake_nvml import GIB, FakeNvml, card, uuid
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
    assert [gpu["memory"] for gpu in found["gpus"]] == [79 * GIB] * 4
    assert [gpu["memory_size"] for gpu in found["gpus"]] == [80 * GIB, 79 * GIB, 80 * GIB, 80 * GIB]
    assert [gpu["links"] for gpu in found["gpus"]] == [[1], [0], [3], [2]]
    assert [gpu["board"] for gpu in found["gpus"]] == [0, 0, None, None]
    assert found["broken"] == [4]
    assert "card4: it is divided into MIG instances" in found["problems"][0]


def test_errors_of_the_library_are_sentences_and_pass(library: FakeNvml) -> None:
    for code, words in (
        (9, "the kernel has not loaded NVIDIA's driver; load the module nvidia"),
        (999, "Unknown Error"),
    ):
        library.write([f"init {code}", card(0)])
        with Scans(library.environment) as scans:
            assert scans.scan()["problems"] == [f"NVML: nvmlInitWithFlags: {words}; NVIDIA's cards are not offered"]
            library.write([card(0)])
            assert len(scans.scan()["gpus"]) == 1


@pytest.mark.skipif(has_library(), reason="this machine has NVIDIA's own library")
def test_a_missing_library_is_a_sentence(tmp_path: Path) -> None:
    with Scans({"LD_LIBRARY_PATH": str(tmp_path)}) as scans:
        (problem,) = scans.scan()["problems"]
    assert problem.startswith("NVML: nvmlInitWithFlags: libnvidia-ml.so.1 was not found; install NVIDIA's driver")


def test_a_lost_card_a_failed_one_and_one_that_hangs_do_not_hide_the_others(library: FakeNvml) -> None:
    library.write([card(number) for number in range(4)])
    with Scans(library.environment, within=5) as scans:
        assert len(scans.scan()["gpus"]) == 4
        library.write(
            [f"event {uuid(1)} 79", f"event {uuid(3)} 31", card(0), card(1), card(2, error=15), card(3, hang=1)]
        )
        found = scans.scan()
        assert [(gpu["card"], gpu["healthy"]) for gpu in found["gpus"]] == [(0, True), (1, False)]
        assert found["broken"] == [2, 3]
        assert [problem.partition(":")[0] for problem in found["problems"]] == ["card2", "card3", "card1"]
        library.write([f"event {uuid(1)} 79", f"event {uuid(3)} 31", *(card(number) for number in range(4))])
        found = scans.scan()
        assert [(gpu["card"], gpu["healthy"]) for gpu in found["gpus"]] == [(0, True), (1, False), (2, True), (3, True)]
