"""The demo of the examples, with the real extender as a process of its own."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from gas.sandbox.__main__ import EXAMPLES, EXAMPLES_FLAGS
from gas.sandbox.demo import show_examples
from gas.sandbox.manifests import BadManifest
from tests.sandbox.manifest_files import node, pod, write


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
    placed, of = lines[-1].split(" ")[0::2][:2]
    assert placed == of
    assert int(of) == text.count(" ended, its cards are free")
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
    assert lines[3] == "  Three pods for two cards: one waits"
    heard = [" ".join(line.split()[2:4]) for line in lines if line.endswith(("card0", "card1")) and " s  " in line]
    assert heard == ["a n1", "b n1", "c n1"]
    assert lines[-1] == "3 of 3 pods got a node."


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
