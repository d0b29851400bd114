"""The files by which Gemini's scheduler of a card knows the shares of its pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gas.plugin.devices.allocation import Allocation
from gas.plugin.fences.fence import Fence
from gas.plugin.fences.share_files import ShareFiles
from gas.plugin.matching.gpu_pods import GpuPod, gpu_pod
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.selection import parse_vocabularies
from tests.other_words import sharing
from tests.plugin.gpus import gpu, nvidia_gpu
from tests.plugin.pods_for_plugin import node_pod

ALL = Vocabularies(parse_vocabularies("koordinator"))
CARD = nvidia_gpu(0)


def pod(name: str, **share: Any) -> GpuPod:
    found = gpu_pod(node_pod(sharing(shared=1, **share), name=name), ALL)
    assert found is not None
    return found


def shown(directory: Path) -> str:
    return (directory / CARD.uuid).read_text(encoding="utf-8")


def test_each_pod_has_a_line_until_it_is_gone(tmp_path: Path) -> None:
    pods = [pod("a", core=50, memory=2**30), pod("b", core=25, memory=2**20)]
    files = ShareFiles(Fence(driver="nvidia", shares_in=str(tmp_path)), pods)
    for each in (*pods, pods[0]):
        assert files.add(each, 0, [CARD, gpu(1)]) == Allocation()
    assert shown(tmp_path) == "2\ndefault/a 0.500 0.500 1073741824\ndefault/b 0.250 0.250 1048576\n"
    files.pods_changed()
    del pods[0]
    files.pods_changed()
    assert shown(tmp_path) == "1\ndefault/b 0.250 0.250 1048576\n"
    assert [file.name for file in tmp_path.iterdir()] == [CARD.uuid]


def test_lines_of_before_stay_when_the_plugin_starts(tmp_path: Path) -> None:
    (tmp_path / CARD.uuid).write_text("1\ndefault/old 0.100 0.100 5\n")
    files = ShareFiles(Fence(shares_in=str(tmp_path)), [])
    files.pods_changed()
    files.add(pod("a", core=50, memory=1), 0, [CARD])
    assert shown(tmp_path) == "2\ndefault/a 0.500 0.500 1\ndefault/old 0.100 0.100 5\n"


def test_without_a_request_for_compute_nothing_limits_it(tmp_path: Path) -> None:
    ShareFiles(Fence(shares_in=str(tmp_path)), []).add(pod("a", memory=1), 0, [CARD])
    assert shown(tmp_path) == "1\ndefault/a 0.000 1.000 1\n"


def test_a_pod_with_a_whole_card_has_no_line(tmp_path: Path) -> None:
    ShareFiles(Fence(shares_in=str(tmp_path)), []).add(pod("a", core=100, memory=CARD.memory), 0, [CARD])
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = ShareFiles(Fence(shares_in=str(tmp_path / "missing")), [])
    assert files.add(pod("a", memory=1), 0, [CARD]) == Allocation()
    assert "the shares of a card cannot be written: [Errno 2] No such file or directory" in caplog.text
