"""The picture of a run of the demo."""

from __future__ import annotations

import re
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


def _texts(*pods: PodHistory) -> list[str]:
    """Return the texts of the picture from top to bottom. Parsing it checks that it is well-formed XML."""
    root = ElementTree.fromstring(draw(Run(pods, NODES)))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_each_card_is_a_row_with_the_pods_that_held_it() -> None:
    texts = _texts(_pod("a", 1, 4, "card0"), _pod("b", 2, 5, "card0,card1"), _pod("c", 5, 6, "card1"))
    start = texts.index("n1")
    assert texts[start : start + 7] == ["n1", "2 GPUs with 17.2 GB each", "card0", "a", "b", "card1", "b"]
    assert texts[start + 7] == "c"


def test_tiles_are_named_and_neighbouring_idle_cards_share_a_row() -> None:
    texts = _texts(_pod("a", 1, 4, "card1||", tiles="card1:gt0+gt1||", node="tiles"))
    start = texts.index("tiles")
    assert texts[start : start + 6] == [
        "tiles",
        "4 GPUs with 137 GB and 2 tiles each",
        "card0",
        "card1",
        "a gt0+gt1",
        "card2 to card3",
    ]


def test_a_waiting_pod_is_shown_with_the_reason_for_the_cards() -> None:
    reason = "0/3 nodes are available: 1 Insufficient gpu.intel.com/i915, 2 no card has 5.0 GB of memory.max free."
    texts = _texts(_pod("a", 1, 4, "card0"), _pod("w", 4, 5, "card0", reason=reason), _pod("never", None, None))
    start = texts.index("waiting pods")
    assert texts[start + 2 : start + 4] == ["w", "no card has 5.0 GB of memory.max free"]
    assert "2 of 3 pods got a node. 2 of 2 had exactly the decided GPUs in their containers." in texts


def test_pods_that_are_scheduled_at_once_are_not_shown_as_waiting() -> None:
    assert "waiting pods" not in _texts(_pod("a", 1.2, 4, "card0", reason="0/1 nodes are available: 1 no room."))


def test_other_cards_than_decided_are_counted() -> None:
    texts = _texts(_pod("a", 1, 4, "card0"), _pod("wrong", 1, 4, "card1"))
    assert "2 of 2 pods got a node. 1 of 2 had exactly the decided GPUs in their containers." in texts


def test_names_are_escaped() -> None:
    assert "<&>" in _texts(_pod("<&>", 1, 4, "card0"))


def test_pods_at_the_same_time_are_drawn_below_each_other() -> None:
    picture = draw(Run([_pod("a", 1, 4, "card0"), _pod("b", 2, 5, "card0"), _pod("c", 4.5, 6, "card0")], NODES))
    heights = {name: re.search(rf'y="([0-9.]+)" class="pod">{name}<', picture) for name in "abc"}
    a, b, c = (float(match[1]) for match in heights.values() if match is not None)
    assert a == c < b


def test_the_picture_in_the_readme_shows_the_pods_and_nodes_of_the_examples() -> None:
    """``make picture`` draws it from a run. If this test fails, run that command."""
    picture = (EXAMPLES.parent / "docs" / "demo.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    pods = [pod.typed.metadata.name for file in EXAMPLES.glob("*.yaml") for pod in read_manifests(file).pods]
    nodes = [node.typed.name for file in EXAMPLES.glob("nodes/*.yaml") for node in read_manifests(file).nodes]
    assert [name for name in (*pods, *nodes) if f">{name}" not in picture] == []
    assert f"{len(pods)} of {len(pods)} had exactly the decided GPUs in their containers." in picture
