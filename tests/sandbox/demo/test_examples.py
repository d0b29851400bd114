"""The demo of the examples, with the real extender and the real plugins as processes of their own."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from gas.sandbox.__main__ import EXAMPLES, EXAMPLES_FLAGS
from gas.sandbox.demo.examples import NodeNotDescribed, show_examples
from gas.sandbox.demo.manifests import BadManifest
from gas.sandbox.hardware.described_node import AmbiguousDriver
from tests.sandbox.demo.manifest_files import node, pod, write


async def _shown(directory: Path, *flags: str, run: float) -> list[str]:
    file = StringIO()
    console = Console(file=file, width=200, color_system=None, highlight=False)
    await show_examples(console, directory, flags, run=run, pause=0.05)
    return file.getvalue().splitlines()


async def test_every_example_is_shown_and_all_its_pods_get_their_cards() -> None:
    lines = await _shown(EXAMPLES, *EXAMPLES_FLAGS, run=0.3)
    text = "\n".join(lines)
    for file in EXAMPLES.glob("*.yaml"):
        assert f"examples/{file.name}" in lines
    assert "none written" not in text
    assert "warning" not in text
    placed, of = lines[-2].split(" ")[0::2][:2]
    assert placed == of
    assert lines[-1] == f"Every GPU pod had in its containers exactly the cards written on it: {of} of {of}."
    assert int(of) == text.count(" ended, its cards are free") == text.count(": as written")
    (masked,) = (line for line in lines if " tiles-of-two-cards " in line and " runs with " in line)
    assert re.search(r"card\d renderD\d+ card\d renderD\d+ ZE_AFFINITY_MASK=[01],[23]: as written$", masked)
    (init,) = (line for line in lines if " init-and-sidecar " in line and " runs with " in line)
    assert re.search(r"prepare: (card\d renderD\d+); encode: \1; main: card\d renderD\d+: as written$", init)
    (waits,) = (line for line in lines if " worked-3 " in line and " waits: " in line)
    assert waits.endswith("2 no card has 5.0 GB of memory.max free.")
    assert "           worked-example card0, card1: 3.0 of 8.0 GB of memory.max free, 5.0 needed" in lines


async def test_a_pod_waits_until_another_ends_and_the_file_says_what_it_is_about(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    write(tmp_path / "nodes" / "n.yaml", node("n1"))
    file = write(tmp_path / "three.yaml", *(pod(name) for name in ("a", "b", "c")))
    file.write_text(f"# Three pods for two cards:\n# one waits. And more.\n{file.read_text()}")
    lines = await _shown(tmp_path, run=0.3)
    assert lines[0] == "1 node; every pod runs for 0.3 seconds."
    assert "  Three pods for two cards: one waits" in lines
    assert (
        "  n1                cards=card0.card1  gpu-numbers=0.1  i915: 20  memory.max: 16G  millicores: 2k  tiles: 2"
        in lines
    )
    heard = [" ".join(line.split()[2:4]) for line in lines if line.endswith(("card0", "card1")) and " s  " in line]
    assert heard == ["a n1", "b n1", "c n1"]
    assert lines[-2] == "3 of 3 pods got a node."


async def test_a_pod_that_went_past_the_extender_is_shown_with_what_it_got(tmp_path: Path) -> None:
    """Its node is named and its annotation forged: kubelet gives it what is free, and the plugin writes that on it."""
    (tmp_path / "nodes").mkdir()
    write(tmp_path / "nodes" / "n.yaml", node("n1"))
    forged = {"gas-container-cards": "card7", "gas-ts": "1"}
    write(tmp_path / "forged.yaml", pod("forged", 1, annotations=forged, nodeName="n1"))
    lines = await _shown(tmp_path, run=1.5)
    (runs,) = (line for line in lines if " forged " in line and " runs with " in line)
    assert re.search(r"runs with card[01] renderD12[89]: but card7 is written on it$", runs)
    card = runs.split("runs with ")[1].split()[0]
    assert any(line.endswith(f"its node says on it what it has: gas-allocated-cards={card}") for line in lines)
    assert lines[-1] == "warning: containers had other cards than those written on their pods: forged"


async def test_a_node_whose_plugin_does_not_say_what_it_should_ends_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gas.sandbox.demo.examples.DESCRIBED_WITHIN", 0.01)
    (tmp_path / "nodes").mkdir()
    write(tmp_path / "nodes" / "n.yaml", node("n1"))
    write(tmp_path / "one.yaml", pod("a"))
    with pytest.raises(ExceptionGroup) as failed:
        await _shown(tmp_path, run=0.1)
    (error,) = failed.value.exceptions
    assert isinstance(error, NodeNotDescribed)
    assert "should: n1: gpu.intel.com/gpu-numbers, gpu.intel.com/i915, gpu.intel.com/memory.max" in str(error)


async def test_a_node_that_no_cards_can_be_made_for_is_told(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    other = node("n1")
    other["status"] = {"allocatable": {"gpu.intel.com/millicores": "1000"}}
    write(tmp_path / "nodes" / "n.yaml", other)
    write(tmp_path / "one.yaml", pod("a"))
    with pytest.raises(AmbiguousDriver, match="node n1: expected the resource i915 or xe for card0, found neither"):
        await _shown(tmp_path, run=0.1)


async def test_a_directory_without_examples_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadManifest, match=r"expected files with pods in .* and with nodes in"):
        await _shown(tmp_path, run=0.1)


async def test_an_example_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    write(tmp_path / "nodes" / "n.yaml", node("n1"))
    write(tmp_path / "bad.yaml", 17)
    with pytest.raises(
        BadManifest, match=r"bad.yaml, document 1, items\[0\]: expected an object with a kind, found 17"
    ):
        await _shown(tmp_path, run=0.1)
