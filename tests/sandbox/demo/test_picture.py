"""The picture of a run of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from sandbox.__main__ import EXAMPLES
from sandbox.demo.manifests import read_manifests
from sandbox.demo.picture import Run, draw
from sandbox.demo.pod_history import InsidePod, PodHistory
from sandbox.hardware.described_node import Hardware
from sandbox.hardware.fake_sysfs import FLEX_170, MAX_1550_XE, fake_gpus

NODES = {"n1": Hardware(fake_gpus(FLEX_170, 2)), "tiles": Hardware(fake_gpus(MAX_1550_XE, 4), memory_override=10**9)}


def _pod(name: str, bound: float | None, ended: float | None, cards: str = "", **more: str) -> PodHistory:
    tiles, node, reason = more.get("tiles", ""), more.get("node", "n1"), more.get("reason", "")
    history = PodHistory(name, 1.0, asks_for_gpus=True, found=False, bound=bound, ended=ended, reason=reason)
    if bound is not None:
        history.node = node
        history.annotations = {"gas-container-cards": cards, "gas-container-tiles": tiles}
        history.inside = InsidePod(cards=cards, devices=cards, as_decided=name != "wrong")
    return history


def _lines(picture: str) -> list[str]:
    """Return the lines of text in a picture, with one space between words."""
    rows: dict[str, list[str]] = {}
    for text in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text"):
        rows.setdefault(text.get("y", ""), []).append(text.text or "")
    return [" ".join(" ".join(texts).replace("\N{NO-BREAK SPACE}", " ").split()) for texts in rows.values()]


def _drawn(*pods: PodHistory) -> list[str]:
    return _lines(draw(Run(pods, NODES)))


def _below(heading: str, lines: Sequence[str], count: int) -> Sequence[str]:
    start = lines.index(heading) + 1
    return lines[start : start + count]


def test_each_card_is_a_row_with_the_pods_that_held_it() -> None:
    lines = _drawn(_pod("a", 1, 4, "card0"), _pod("b", 2, 5, "card0,card1"), _pod("c", 5, 6, "card1"))
    assert _below("n1 2 GPUs with 17.2 GB each", lines, 3) == ["card0 a", "b", "card1 b c"]


def test_tiles_are_named() -> None:
    lines = _drawn(_pod("a", 1, 4, "card1||", tiles="card1:gt0+gt1||", node="tiles"))
    rows = _below("tiles 4 GPUs with 137 GB and 2 tiles each", lines, 4)
    assert rows == ["card0", "card1 a gt0+gt1", "card2", "card3"]


def test_a_waiting_pod_is_shown_with_the_reason_for_the_cards() -> None:
    reason = "0/3 nodes are available: 1 Insufficient gpu.intel.com/i915, 2 no card has 5.0 GB of memory.max free."
    lines = _drawn(_pod("a", 1, 4, "card0"), _pod("w", 4, 5, "card0", reason=reason), _pod("never", None, None))
    assert _below("waiting pods", lines, 1) == ["w no card has 5.0 GB of memory.max free"]
    assert "2 of 3 pods got a node. 2 of 2 had exactly the decided GPUs in their containers." in lines


def test_pods_that_are_scheduled_at_once_are_not_shown_as_waiting() -> None:
    assert "waiting pods" not in _drawn(_pod("a", 1.2, 4, "card0", reason="0/1 nodes are available: 1 no room."))


def test_other_cards_than_decided_are_counted() -> None:
    lines = _drawn(_pod("a", 1, 4, "card0"), _pod("wrong", 1, 4, "card1"))
    assert "2 of 2 pods got a node. 1 of 2 had exactly the decided GPUs in their containers." in lines


def test_a_picture_loads_nothing_from_elsewhere() -> None:
    picture = draw(Run([_pod("a", 1, 4, "card0")], NODES))
    assert "url(" not in picture.replace("url(#", "")


def test_the_picture_in_the_readme_shows_the_pods_and_nodes_of_the_examples() -> None:
    """``make picture`` draws it from a run. If this test fails, run that command."""
    text = "\n".join(_lines((EXAMPLES.parent / "docs" / "demo.svg").read_text(encoding="utf-8")))
    pods = [pod.typed.metadata.name for file in EXAMPLES.glob("*.yaml") for pod in read_manifests(file).pods]
    nodes = [node.typed.name for file in EXAMPLES.glob("nodes/*.yaml") for node in read_manifests(file).nodes]
    assert [name for name in (*pods, *nodes) if name not in text.split()] == []
    assert f"{len(pods)} of {len(pods)} had exactly the decided GPUs in their containers." in text
