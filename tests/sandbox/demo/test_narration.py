"""What a person sees: lines that fit a terminal, whole lines in a pipe, and the tables in the end."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from gas.sandbox.demo.narration import Narration, counted
from gas.sandbox.demo.pod_story import InsidePod

Object = dict[str, Any]

_SENTENCE = "0/3 nodes are available: 1 Insufficient gpu.intel.com/i915, 2 no card has 5.0 GB of memory.max free."


class _Screen:
    """A narration and what it has written."""

    def __init__(self, width: int = 200, *, terminal: bool = False) -> None:
        self._file = StringIO()
        self.width = width
        self.narration = Narration(
            Console(file=self._file, width=width, force_terminal=terminal, color_system=None, highlight=False)
        )

    @property
    def lines(self) -> list[str]:
        """Without the times, which differ from run to run."""
        return [re.sub(r"^ *[0-9.]+ s", "T", line).rstrip() for line in self._file.getvalue().splitlines()]


def _pod(name: str = "p", *, cards: int = 1, namespace: str = "default", **status: Any) -> Object:
    amounts = {"gpu.intel.com/i915": str(cards)} if cards else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": amounts}}]},
        "status": {"phase": "Pending", **status},
    }


def _refused(pod: Object, sentence: str = _SENTENCE) -> Object:
    condition = {"type": "PodScheduled", "status": "False", "message": sentence}
    return {**pod, "status": {**pod["status"], "conditions": [condition]}}


def _bound(pod: Object, node: str = "n1", **annotations: str) -> Object:
    named = {name.replace("_", "-"): value for name, value in annotations.items()}
    return {
        **pod,
        "metadata": {**pod["metadata"], "annotations": named},
        "spec": {**pod["spec"], "nodeName": node},
    }


@pytest.mark.parametrize(
    ("annotations", "cards"),
    [
        pytest.param({"gas_container_cards": "card0,card1||card2"}, "card0,card1||card2", id="as in the annotation"),
        pytest.param(
            {"gas_container_cards": "card0|card1", "gas_container_tiles": "card0:gt0+gt1|"},
            "card0:gt0+gt1|card1",
            id="with tiles where tiles were given",
        ),
        pytest.param(
            {"gas_container_cards": "card2", "gas_init_container_cards": "card0|card0"},
            "(card0|card0) card2",
            id="those of init containers first, in parentheses",
        ),
        pytest.param(
            {"gas_container_cards": "", "gas_init_container_cards": "card0"}, "(card0)", id="init containers only"
        ),
        pytest.param({"gas_container_cards": "card2", "gas_init_container_cards": "|"}, "card2", id="none in init"),
        pytest.param({}, "none written", id="none written"),
    ],
)
def test_a_bound_pod_is_told_with_its_cards(annotations: dict[str, str], cards: str) -> None:
    screen = _Screen()
    screen.narration.pod_changed(None, _pod())
    screen.narration.pod_changed(_pod(), _bound(_pod(), **annotations))
    assert screen.lines == [f"T  {'p':20}  n1 {cards}"]


def test_a_pod_is_told_once_when_bound_and_once_when_it_ends() -> None:
    screen = _Screen()
    bound = _bound(_pod(namespace="ml"), gas_container_cards="card0")
    for value in (_pod(namespace="ml"), bound, bound, {**bound, "status": {"phase": "Failed"}}, None):
        assert screen.narration.pod_changed(None, value) is None
    assert screen.lines == [f"T  {'ml/p':20}  n1 card0", f"T  {'ml/p':20}  ended, its cards are free"]


def test_a_pod_without_gpus_has_no_cards_to_lose() -> None:
    screen = _Screen()
    bound = _bound(_pod(cards=0))
    for value in (_pod(cards=0), bound, {**bound, "status": {"phase": "Succeeded"}}):
        screen.narration.pod_changed(None, value)
    assert screen.lines == [f"T  {'p':20}  n1 (asks for no GPU)", f"T  {'p':20}  ended"]


def test_a_reason_manages_when_it_is_new_and_told_with_cards_alike_together() -> None:
    screen = _Screen()
    assert screen.narration.pod_changed(None, _refused(_pod())) == "p"
    assert screen.narration.pod_changed(None, _refused(_pod())) is None
    assert screen.narration.pod_changed(None, _refused(_pod(), "another")) == "p"
    details = {"n1": ["card0: 3 of 8 free", "card1: 4 of 8 free", "card2: 3 of 8 free"], "n2": []}
    screen.narration.waits("p", details)
    assert screen.lines == [
        f"T  {'p':20}  waits: another",
        "           n1 card0, card2: 3 of 8 free",
        "           n1 card1: 4 of 8 free",
    ]


def test_of_many_nodes_a_few_are_shown_card_by_card() -> None:
    screen = _Screen()
    screen.narration.pod_changed(None, _refused(_pod()))
    screen.narration.waits("p", {f"n{number}": ["card0: full"] for number in range(5)})
    assert screen.lines[1:] == [
        *(f"           n{number} card0: full" for number in range(4)),
        "           and 1 more node",
    ]


def test_a_pod_bound_before_its_reason_could_be_told_does_not_wait_any_more() -> None:
    screen = _Screen()
    screen.narration.pod_changed(None, _refused(_pod()))
    screen.narration.pod_changed(None, _bound(_pod(), gas_container_cards="card0"))
    screen.narration.waits("p", {})
    assert screen.lines == [f"T  {'p':20}  n1 card0"]


@pytest.mark.parametrize("name", ["p", "a-namespace/a-deployment-with-a-long-name-5d4f8c7b9-x7k2p"])
def test_lines_fit_a_terminal_and_go_on_below_their_beginning(name: str) -> None:
    screen = _Screen(80, terminal=True)
    screen.narration.pod_changed(None, {**_refused(_pod()), "metadata": _pod(name)["metadata"]})
    screen.narration.waits(name, {})
    assert len(screen.lines) > 1
    assert all(len(line) <= 80 for line in screen.lines)
    joined = " ".join(" ".join(screen.lines).split())
    assert joined == f"T {name} waits: {_SENTENCE}"
    assert all(line.startswith(" " * 10) for line in screen.lines[1:])


def test_lines_of_a_pipe_are_whole() -> None:
    screen = _Screen(40)
    screen.narration.warn("a sentence that is much longer than this console is wide")
    assert screen.lines == ["warning: a sentence that is much longer than this console is wide"]


def test_the_table_of_times_says_where_every_pod_went_and_why_some_waited() -> None:
    screen = _Screen(80, terminal=True)
    for name in ("a", "b"):
        screen.narration.pod_changed(None, _pod(name))
    screen.narration.pod_changed(None, _bound(_pod("a"), gas_container_cards="card0"))
    screen.narration.pod_changed(None, _refused(_pod("b"), "no room"))
    screen.narration.pod_changed(None, _bound(_pod("b"), gas_container_cards="card1"))
    before = len(screen.lines)
    screen.narration.sum_up("Where the pods went", show_times=True)
    shown = [" ".join(line.split()) for line in screen.lines[before:] if line]
    assert shown[:2] == ["Where the pods went", "pod node cards waited"]
    assert shown[3:] == [
        "a n1 card0 0.0 s",
        "b n1 card1 0.0 s",
        "Why some of them waited",
        "b: no room",
        "2 of 2 pods got a node.",
    ]


def test_pods_found_on_their_nodes_are_apart_and_those_that_wait_for_one_reason_are_together() -> None:
    screen = _Screen()
    screen.narration.pod_changed(None, _bound(_pod("old"), gas_container_cards="card0"))
    screen.narration.pod_changed(None, _bound(_pod("bare")))
    screen.narration.pod_changed(None, _bound(_pod("cpu-only", cards=0)))
    assert screen.lines == [], "what was there is no news"
    for number in range(10):
        screen.narration.pod_changed(None, _refused(_pod(f"w{number}"), "no room"))
    screen.narration.sum_up("Where the waiting pods would go", show_times=False)
    shown = [" ".join(line.split()) for line in screen.lines if line and "──" not in line]
    assert shown[:4] == [
        "GPU pods that were on the nodes already",
        "pod node cards",
        "old n1 card0",
        "bare n1 none written",
    ]
    assert shown[4:7] == ["Where the waiting pods would go", "pod node cards", "w0 none"]
    assert shown[-3:] == [
        "Why the others wait",
        "w0, w1, w2, w3, w4, w5, w6, w7 and 2 more: no room",
        "0 of 10 pods got a node.",
    ]


def test_many_pods_found_on_their_nodes_are_counted_only() -> None:
    screen = _Screen()
    for number in range(41):
        screen.narration.pod_changed(None, _bound(_pod(f"old{number}")))
    screen.narration.sum_up("Where the waiting pods would go", show_times=False)
    assert [line for line in screen.lines if line] == ["41 GPU pods were on the nodes already", "No pod waits."]


@pytest.mark.parametrize(("count", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_counted(count: int, text: str) -> None:
    assert counted(count, "node") == text


def _running(**status: Any) -> Object:
    bound = _bound(_pod(), gas_container_cards="card1")
    return {**bound, "status": {"phase": "Running", **status}}


def _inside(cards: str, *, as_written: bool) -> InsidePod:
    return InsidePod(cards=cards, devices=f"{cards} renderD128", as_written=as_written)


def test_what_containers_have_is_told_once_they_run_and_in_the_end() -> None:
    screen = _Screen()
    screen.narration.look_inside = lambda _pod: _inside("card1", as_written=True)
    for value in (_pod(), _running(), _running(), {**_running(), "status": {"phase": "Succeeded"}}):
        screen.narration.pod_changed(None, value)
    assert screen.lines[1:] == [
        f"T  {'p':20}  runs with card1 renderD128: as written",
        f"T  {'p':20}  ended, its cards are free",
    ]
    screen.narration.sum_up("Where the pods went", show_times=False)
    shown = [" ".join(line.split()) for line in screen.lines if line]
    assert "pod node cards in its containers" in shown
    assert "p n1 card1 card1" in shown
    assert shown[-1] == "Every GPU pod had in its containers exactly the cards written on it: 1 of 1."


def test_other_cards_than_written_are_told_where_they_are_seen_and_in_the_end() -> None:
    screen = _Screen()
    screen.narration.look_inside = lambda _pod: _inside("card0", as_written=False)
    receipt = {"gas_allocated_cards": "card0", "gas_container_cards": "card1"}
    said = {**_bound(_pod(), **receipt), "status": {"phase": "Running"}}
    for value in (_pod(), _running(), said, said):
        screen.narration.pod_changed(None, value)
    assert screen.lines[1:] == [
        f"T  {'p':20}  runs with card0 renderD128: but card1 is written on it",
        f"T  {'p':20}  its node says on it what it has: gas-allocated-cards=card0",
    ]
    screen.narration.sum_up("Where the pods went", show_times=False)
    assert screen.lines[-1] == "warning: containers had other cards than those written on their pods: p"


def test_a_pod_that_kubelet_refused_has_failed_for_a_reason() -> None:
    screen = _Screen()
    refused = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Pod was rejected"}
    for value in (_pod(), {**_running(), "status": refused}):
        screen.narration.pod_changed(None, value)
    assert screen.lines[-1] == f"T  {'p':20}  failed, UnexpectedAdmissionError: Pod was rejected"


def test_a_node_is_told_with_what_it_says_about_cards() -> None:
    screen = _Screen()
    labels = {"gpu.intel.com/gpu-numbers": "0.1", "kubernetes.io/hostname": "n1"}
    screen.narration.tell_node("n1", labels, {"cpu": "8", "gpu.intel.com/xe": "0", "gpu.intel.com/i915": "20"})
    assert screen.lines == [f"  {'n1':16}  gpu-numbers=0.1  i915: 20"]
