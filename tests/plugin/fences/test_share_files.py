"""The files by which Gemini's scheduler of a card knows the shares of its pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gas.plugin.devices.allocation import Allocation
from gas.plugin.fences.fence import Fence
from gas.plugin.fences.share_files import ShareFiles
from gas.plugin.matching.gpu_pods import GpuPod, GpuPods, gpu_pod
from gas.plugin.matching.matcher import Matcher
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.selection import parse_vocabularies
from tests.builders import container
from tests.listed import list_all
from tests.other_words import sharing
from tests.plugin.gpus import gpu, nvidia_gpu
from tests.plugin.pods_for_plugin import node_pod

ALL = Vocabularies(parse_vocabularies("koordinator"))
CARD = nvidia_gpu(0)


def pod(name: str, **share: Any) -> GpuPod:
    found = gpu_pod(node_pod(sharing(shared=1, **share), name=name), ALL)
    assert found is not None
    return found


def share_files(directory: Path, pods: GpuPods | None = None, driver: str = "") -> ShareFiles:
    pods = GpuPods(ALL) if pods is None else pods
    files = ShareFiles(Fence(driver=driver, shares_in=str(directory)), Matcher(pods))
    pods.subscribe(files.pods_changed)
    return files


def shown(directory: Path) -> str:
    return (directory / CARD.uuid).read_text(encoding="utf-8")


def test_each_pod_has_a_line_until_it_is_gone(tmp_path: Path) -> None:
    pods = GpuPods(ALL)
    a, b = pod("a", core=50, memory=2**30), pod("b", core=25, memory=2**20)
    files = share_files(tmp_path, pods, driver="nvidia")
    list_all(pods, [a.raw, b.raw])
    for each in (a, b, a):
        assert files.add(each, 0, [CARD, gpu(1)]) == Allocation()
    assert shown(tmp_path) == "2\ndefault/a 0.500 0.500 1073741824\ndefault/b 0.250 0.250 1048576\n"
    pods.deleted(a.raw)
    assert shown(tmp_path) == "1\ndefault/b 0.250 0.250 1048576\n"
    assert [file.name for file in tmp_path.iterdir()] == [CARD.uuid]


def test_lines_of_before_go_when_all_pods_are_known_and_theirs_has_ended(tmp_path: Path) -> None:
    lines = "default/deleted 0.1 0.1 5\ndefault/ended 0.1 0.1 5\ndefault/old 0.1 0.1 5\n"
    (tmp_path / CARD.uuid).write_text(f"3\n{lines}")
    (tmp_path / "of-others").write_text("first\nsecond\n")
    pods = GpuPods(ALL)
    files = share_files(tmp_path, pods)
    a = pod("a", core=50, memory=1)
    pods.listed([a.raw])
    files.add(a, 0, [CARD])
    assert shown(tmp_path) == f"4\ndefault/a 0.500 0.500 1\n{lines}"
    of_kubeshare = node_pod(container(), name="old")
    list_all(pods, [a.raw, of_kubeshare, node_pod(container(), name="ended", phase="Succeeded")])
    assert shown(tmp_path) == "2\ndefault/a 0.500 0.500 1\ndefault/old 0.1 0.1 5\n"
    pods.changed(node_pod(container(), name="old", phase="Failed"))
    assert shown(tmp_path) == "1\ndefault/a 0.500 0.500 1\n"
    assert (tmp_path / "of-others").read_text() == "first\nsecond\n"


def test_without_a_request_for_compute_nothing_limits_it(tmp_path: Path) -> None:
    share_files(tmp_path).add(pod("a", memory=1), 0, [CARD])
    assert shown(tmp_path) == "1\ndefault/a 0.000 1.000 1\n"


def test_a_pod_with_a_whole_card_has_no_line(tmp_path: Path) -> None:
    share_files(tmp_path).add(pod("a", core=100, memory=CARD.memory), 0, [CARD])
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = share_files(tmp_path / "missing")
    assert files.add(pod("a", memory=1), 0, [CARD]) == Allocation()
    assert "the shares of a card cannot be written: [Errno 2] No such file or directory" in caplog.text
