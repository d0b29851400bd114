"""The demo's output: lines that fit a terminal, whole lines in a pipe, and the tables at the end."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from sandbox.demo.output import Output, counted
from sandbox.demo.pod_history import InsidePod

Object = dict[str, Any]

_SENTENCE = "0/3 nodes are available: 1 Insufficient gpu.intel.com/i915, 2 no card has 5.0 GB of memory.max free."


class _Screen:
    """An Output and what it has printed."""

    def __init__(self, width: int = 200, *, terminal: bool = False, pods_run: bool = False) -> None:
        self._file = StringIO()
        self.width = width
        self.output = Output(
            Console(file=self._file, width=width, force_terminal=terminal, color_system=None, highlight=False),
            pods_run=pods_run,
        )

    @property
    def lines(self) -> list[str]:
        """Return the lines without the times, which differ from run to run."""
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
        pytest.param({}, "no cards annotated", id="none written"),
    ],
)
def test_a_scheduled_pod_is_printed_with_its_cards(annotations: dict[str, str], cards: str) -> None:
    screen = _Screen()
    screen.output.pod_changed(None, _pod())
    screen.output.pod_changed(_pod(), _bound(_pod(), **annotations))
    assert screen.lines == [f"T  {'p':20}  scheduled: n1 {cards}"]


def test_a_pod_is_printed_once_when_it_is_scheduled_and_once_when_it_ends() -> None:
    screen = _Screen()
    bound = _bound(_pod(namespace="ml"), gas_container_cards="card0")
    for value in (_pod(namespace="ml"), bound, bound, {**bound, "status": {"phase": "Failed"}}, None):
        assert screen.output.pod_changed(None, value) is None
    assert screen.lines == [
        f"T  {'ml/p':20}  scheduled: n1 card0",
        f"T  {'ml/p':20}  finished:  its cards are free again",
    ]


def test_a_pod_without_gpus_is_printed_without_cards() -> None:
    screen = _Screen()
    bound = _bound(_pod(cards=0))
    for value in (_pod(cards=0), bound, {**bound, "status": {"phase": "Succeeded"}}):
        screen.output.pod_changed(None, value)
    assert screen.lines == [f"T  {'p':20}  scheduled: n1 (needs no GPU)", f"T  {'p':20}  finished"]


def test_a_new_reason_is_printed_with_cards_grouped_by_sentence() -> None:
    screen = _Screen()
    assert screen.output.pod_changed(None, _refused(_pod())) == "p"
    assert screen.output.pod_changed(None, _refused(_pod())) is None
    assert screen.output.pod_changed(None, _refused(_pod(), "another")) == "p"
    details = {"n1": ["card0: 3 of 8 free", "card1: 4 of 8 free", "card2: 3 of 8 free"], "n2": []}
    screen.output.print_waiting("p", details)
    assert screen.lines == [
        f"T  {'p':20}  waiting: another",
        "           n1 card0, card2: 3 of 8 free",
        "           n1 card1: 4 of 8 free",
    ]


def test_the_cards_of_a_few_nodes_are_printed() -> None:
    screen = _Screen()
    screen.output.pod_changed(None, _refused(_pod()))
    screen.output.print_waiting("p", {f"n{number}": ["card0: full"] for number in range(5)})
    assert screen.lines[1:] == [
        *(f"           n{number} card0: full" for number in range(4)),
        "           and 1 more node",
    ]


def test_a_pod_that_was_scheduled_before_its_reason_was_printed_does_not_wait_any_more() -> None:
    screen = _Screen()
    screen.output.pod_changed(None, _refused(_pod()))
    screen.output.pod_changed(None, _bound(_pod(), gas_container_cards="card0"))
    screen.output.print_waiting("p", {})
    assert screen.lines == [f"T  {'p':20}  scheduled: n1 card0"]


@pytest.mark.parametrize("name", ["p", "a-namespace/a-deployment-with-a-long-name-5d4f8c7b9-x7k2p"])
def test_lines_are_wrapped_and_indented_on_a_terminal(name: str) -> None:
    screen = _Screen(80, terminal=True)
    screen.output.pod_changed(None, {**_refused(_pod()), "metadata": _pod(name)["metadata"]})
    screen.output.print_waiting(name, {})
    assert len(screen.lines) > 1
    assert all(len(line) <= 80 for line in screen.lines)
    joined = " ".join(" ".join(screen.lines).split())
    assert joined == f"T {name} waiting: {_SENTENCE}"
    assert all(line.startswith(" " * 10) for line in screen.lines[1:])


def test_lines_are_not_wrapped_in_a_pipe() -> None:
    screen = _Screen(40)
    screen.output.print_warning("a sentence that is much longer than this console is wide")
    assert screen.lines == ["warning: a sentence that is much longer than this console is wide"]


def test_the_summary_shows_where_every_pod_went_how_long_it_waited_and_why() -> None:
    screen = _Screen(80, terminal=True)
    for name in ("a", "b"):
        screen.output.pod_changed(None, _pod(name))
    screen.output.pod_changed(None, _bound(_pod("a"), gas_container_cards="card0"))
    screen.output.pod_changed(None, _refused(_pod("b"), "no room"))
    screen.output.pod_changed(None, _bound(_pod("b"), gas_container_cards="card1"))
    before = len(screen.lines)
    screen.output.print_summary("Where the pods went", show_times=True)
    shown = [" ".join(line.split()) for line in screen.lines[before:] if line]
    assert shown[:2] == ["Where the pods went", "pod node decided cards waited"]
    assert shown[3:] == [
        "a n1 card0 0.0 s",
        "b n1 card1 0.0 s",
        "Why some pods waited",
        "b: no room",
        "2 of 2 pods got a node.",
    ]


def test_the_summary_separates_pods_that_had_a_node_and_groups_waiting_pods_by_reason() -> None:
    screen = _Screen()
    screen.output.pod_changed(None, _bound(_pod("old"), gas_container_cards="card0"))
    screen.output.pod_changed(None, _bound(_pod("bare")))
    screen.output.pod_changed(None, _bound(_pod("cpu-only", cards=0)))
    assert screen.lines == [], "pods that already had a node are not printed"
    for number in range(10):
        screen.output.pod_changed(None, _refused(_pod(f"w{number}"), "no room"))
    screen.output.print_summary("Where the waiting pods would go", show_times=False)
    shown = [" ".join(line.split()) for line in screen.lines if line and "──" not in line]
    assert shown[:4] == [
        "GPU pods that already had a node",
        "pod node decided cards",
        "old n1 card0",
        "bare n1 no cards annotated",
    ]
    assert shown[4:7] == ["Where the waiting pods would go", "pod node decided cards", "w0 none"]
    assert shown[-3:] == [
        "Why the other pods wait",
        "w0, w1, w2, w3, w4, w5, w6, w7 and 2 more: no room",
        "0 of 10 pods got a node.",
    ]


def test_many_pods_that_already_had_a_node_are_only_counted() -> None:
    screen = _Screen()
    for number in range(41):
        screen.output.pod_changed(None, _bound(_pod(f"old{number}")))
    screen.output.print_summary("Where the waiting pods would go", show_times=False)
    assert [line for line in screen.lines if line] == ["41 GPU pods already had a node", "No pod is waiting."]


@pytest.mark.parametrize(("count", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_counted(count: int, text: str) -> None:
    assert counted(count, "node") == text


def _running(**status: Any) -> Object:
    bound = _bound(_pod(), gas_container_cards="card1")
    return {**bound, "status": {"phase": "Running", **status}}


def _inside(cards: str, *, as_decided: bool) -> InsidePod:
    return InsidePod(cards=cards, devices=f"{cards} renderD128", as_decided=as_decided)


def test_the_devices_in_containers_are_printed_when_they_run_and_in_the_summary() -> None:
    screen = _Screen(pods_run=True)
    for value in (_pod(), _running(), _running(), {**_running(), "status": {"phase": "Succeeded"}}):
        screen.output.pod_changed(None, value, lambda _pod: _inside("card1", as_decided=True))
    assert screen.lines[1:] == [
        f"T  {'p':20}  running:   card1 renderD128 (as decided)",
        f"T  {'p':20}  finished:  its cards are free again",
    ]
    screen.output.print_summary("Where the pods went", show_times=False)
    shown = [" ".join(line.split()) for line in screen.lines if line]
    assert "pod node decided cards cards in containers" in shown
    assert "p n1 card1 card1" in shown
    assert shown[-1] == "1 of 1 GPU pod had exactly the decided cards in their containers."


def test_other_cards_than_decided_are_printed_when_they_are_seen_and_in_the_summary() -> None:
    screen = _Screen(pods_run=True)
    receipt = {"gas_allocated_cards": "card0", "gas_container_cards": "card1"}
    said = {**_bound(_pod(), **receipt), "status": {"phase": "Running"}}
    for value in (_pod(), _running(), said, said):
        screen.output.pod_changed(None, value, lambda _pod: _inside("card0", as_decided=False))
    assert screen.lines[1:] == [
        f"T  {'p':20}  running:   card0 renderD128 (decided: card1)",
        f"T  {'p':20}  its node reports other cards than decided: gas-allocated-cards=card0",
    ]
    screen.output.print_summary("Where the pods went", show_times=False)
    assert screen.lines[-1] == "warning: containers had other cards than the extender decided: p"


def test_a_pod_that_kubelet_rejected_is_printed_with_the_reason() -> None:
    screen = _Screen()
    refused = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Pod was rejected"}
    for value in (_pod(), {**_running(), "status": refused}):
        screen.output.pod_changed(None, value)
    assert screen.lines[-1] == f"T  {'p':20}  failed: UnexpectedAdmissionError: Pod was rejected"


def test_a_node_is_printed_with_its_gpu_labels_and_resources() -> None:
    screen = _Screen()
    labels = {"gpu.intel.com/gpu-numbers": "0.1", "kubernetes.io/hostname": "n1"}
    screen.output.print_node("n1", labels, {"cpu": "8", "gpu.intel.com/xe": "0", "gpu.intel.com/i915": "20"})
    assert screen.lines == [f"  {'n1':16}  labels     gpu-numbers=0.1", f"  {'':16}  resources  i915=20"]
