"""The demo of the examples, with the real extender and the real plugins as processes of their own."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from sandbox.__main__ import EXAMPLES
from sandbox.demo.examples import NodeNotDescribed, flags_of, show_examples
from sandbox.demo.manifests import BadManifest
from sandbox.demo.picture import Run, draw
from sandbox.hardware.described_node import AmbiguousDriver
from tests.sandbox.demo.manifest_files import node, pod, write


async def _run(directory: Path, *flags: str, run: float) -> tuple[Run, list[str]]:
    """Return the run and the lines of the demo's output."""
    file = StringIO()
    console = Console(file=file, width=200, color_system=None, highlight=False)
    shown = await show_examples(console, directory, flags, run=run, pause=0.05)
    return shown, file.getvalue().splitlines()


async def _shown(directory: Path, *files: tuple[str, object]) -> None:
    """Run the demo of an example, of the node n1 unless a file is about it."""
    (directory / "nodes").mkdir()
    for name, content in (("nodes/n.yaml", node("n1")), *files):
        write(directory / name, content)
    await _run(directory, run=0.1)


async def _of_vocabulary(name: str, run: float) -> tuple[dict[str, str], str]:
    """Return the decided cards of the pods of a vocabulary's examples, which all ran, and the demo's output."""
    directory = EXAMPLES / name
    found, lines = await _run(directory, *flags_of(directory), run=run)
    text = "\n".join(lines)
    assert "warning" not in text
    count = len(found.pods)
    assert lines[-2].startswith(f"{count} of {count} pods")
    assert lines[-1].startswith(f"{count} of {count} GPU pods had exactly the decided cards")
    return {each.name: each.cards for each in found.pods}, text


async def test_all_pods_of_the_examples_get_the_decided_cards() -> None:
    run, lines = await _run(EXAMPLES, *flags_of(EXAMPLES), run=0.3)
    text = "\n".join(lines)
    assert lines[0] == "3 nodes; each pod runs for 0.3 seconds."
    assert "  The worked example: three pods of 5 GB each for a node with two cards of 8 GB each" in lines
    assert "                    resources  i915=20  memory.max=16G  millicores=2k  tiles=2" in lines
    for file in EXAMPLES.glob("*.yaml"):
        assert f"examples/{file.name}" in lines
    assert "no cards annotated" not in text
    assert "warning" not in text
    placed, of = lines[-2].split(" ")[0::2][:2]
    assert placed == of
    assert lines[-1] == f"{of} of {of} GPU pods had exactly the decided cards in their containers."
    assert int(of) == text.count(" finished:  its cards are free again") == text.count(" (as decided)")
    (masked,) = (line for line in lines if " tiles-of-two-cards " in line and " running: " in line)
    assert re.search(r"card\d renderD\d+ card\d renderD\d+ ZE_AFFINITY_MASK=[01],[23] \(as decided\)$", masked)
    (init,) = (line for line in lines if " init-and-sidecar " in line and " running: " in line)
    assert re.search(r"prepare: (card\d renderD\d+); encode: \1; main: card\d renderD\d+ \(as decided\)$", init)
    (waits,) = (line for line in lines if " worked-3 " in line and " waiting: " in line)
    assert waits.endswith("2 no card has 5.0 GB of memory.max free.")
    assert "           worked-example card0, card1: 3.0 of 8.0 GB of memory.max free, 5.0 needed" in lines
    shown = re.sub(r"<[^>]*>", "", draw(run))  # a name that is longer than its bar has two colors
    for each in run.pods:
        assert each.name in shown


async def test_the_examples_in_the_words_of_aliyun_get_the_decided_cards() -> None:
    cards, text = await _of_vocabulary("aliyun", run=1.0)
    assert "aliyun.com/gpu-count=2  aliyun.com/gpu-mem=2k  i915=20" in text
    assert re.search(r" aliyun-3 .* waiting: .*no card has 600 MiB of aliyun.com/gpu-mem free", text)
    assert [cards[name] for name in ("aliyun-1", "aliyun-2")] == ["card0", "card1"]
    assert cards["two-containers"] in ("card0|card0", "card1|card1")


async def test_the_examples_in_the_words_of_koordinator_get_the_decided_cards() -> None:
    cards, text = await _of_vocabulary("koordinator", run=1.0)
    assert all(f"koordinator.sh/{name}=200" in text for name in ("gpu", "gpu-core", "gpu-memory-ratio", "gpu.shared"))
    assert cards["half"] == "card0"
    assert cards["both-cards"] == "card0,card1"
    assert re.search(r" waits .*no card has 600 millicores free", text)


async def test_the_examples_in_the_words_of_kubeshare_get_the_decided_cards() -> None:
    cards, text = await _of_vocabulary("kubeshare", run=2.0)  # abcde-1 must not end before abcde-2 has a node
    assert "kubeshare/vgpu=2k" in text
    assert re.search(r" share-4 .* waiting: .*no card has 700 millicores free", text)
    assert [cards[f"share-{number}"] for number in (1, 2, 3)] == ["card0", "card0", "card1"]
    assert cards["abcde-1"] == cards["abcde-2"]
    assert cards["on-two-cards"] == "card0,card1"
    assert cards["shared"] in ("card0", "card1")


def test_flags_of_examples_are_lines_of_a_file(tmp_path: Path) -> None:
    assert flags_of(tmp_path) == []
    (tmp_path / "flags").write_text("# for all\n--v=2\n\n --enableAllowlist\n")
    assert flags_of(tmp_path) == ["--v=2", "--enableAllowlist"]
    (tmp_path / "flags").write_bytes(b"\xff")
    with pytest.raises(BadManifest, match=r"flags: cannot be read"):
        flags_of(tmp_path)


async def test_the_demo_ends_if_a_plugin_does_not_describe_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.demo.examples.DESCRIBED_WITHIN", 0.01)
    with pytest.raises(ExceptionGroup) as failed:
        await _shown(tmp_path, ("one.yaml", pod("a")))
    (error,) = failed.value.exceptions
    assert isinstance(error, NodeNotDescribed)
    assert "in 0.01 s: n1: gpu.intel.com/gpu-numbers, gpu.intel.com/i915, gpu.intel.com/memory.max" in str(error)


async def test_a_node_without_a_driver_is_refused(tmp_path: Path) -> None:
    other = node("n1") | {"status": {"allocatable": {"gpu.intel.com/millicores": "1000"}}}
    with pytest.raises(AmbiguousDriver, match="node n1: expected the resource i915 or xe for card0, found neither"):
        await _shown(tmp_path, ("nodes/n.yaml", other), ("one.yaml", pod("a")))


async def test_a_directory_without_examples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadManifest, match=r"expected files with pods in .* and with nodes in"):
        await _shown(tmp_path)


async def test_an_unreadable_example_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BadManifest, match=r"bad.yaml, document 1, items\[0\]: expected an object with a kind, found 17"
    ):
        await _shown(tmp_path, ("bad.yaml", 17))
