"""Pods that wait because the memory of cards is unknown, which kube-scheduler does not ask the extender about."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gas.extender.decider import Decider
from gas.extender.unknown_memory import NODES_A_TURN
from gas.extender.verdicts import Turns
from gas.objects.stored import Node
from tests.builders import container, node, pod
from tests.extender.decider import OPTIONS

GIB = 2**30


def gpu_node(name: str, *sources: str, memory: int = 0) -> Node:
    """Return a node with one card for each source of memory, whose cards have ``memory`` bytes in sum."""
    records = [{"card": card, "memorySource": source} for card, source in enumerate(sources)]
    count = len(sources)
    amounts = {"xe": 10 * count, "millicores": 1000 * count} | ({"memory_max": memory} if memory else {})
    return node(name, cards=count, annotations={"gas-cards": json.dumps(records)}, **amounts)


def done(turns: Turns[Any]) -> Any:
    try:
        while True:
            next(turns)
    except StopIteration as stop:
        return stop.value


def waiting(*nodes: Node, **requests: dict[str, Any]) -> dict[str, str]:
    """Return the sentence of each pod that is announced, by name; ``requests`` are those of pods by name."""
    decider = Decider(OPTIONS)
    for each in nodes:
        decider.nodes.changed(each)
    for name, amounts in requests.items():
        decider.pods.changed(pod(container(**amounts), uid=name, name=name))
    return {pod.metadata.name: sentence for pod, sentence in done(decider.waiting_for_unknown_memory())}


WANTS_5_GB: dict[str, Any] = {"xe": 1, "memory_max": "5G"}


def test_the_sentence_says_which_cards_and_what_to_do() -> None:
    nodes = (gpu_node("gpu-1", "unknown", "query"), gpu_node("gpu-2", "unknown"), gpu_node("gpu-3", "unknown"))
    assert waiting(*nodes, a=WANTS_5_GB) == {
        "a": "no node states as much memory.max as the pod requests: the memory of card0 of node gpu-1 and of cards of"
        " 2 more nodes is unknown; the event GPUMemoryUnknown of the node says why; let gas-plugin open render nodes,"
        " or set GPU_MEMORY_OVERRIDE"
    }
    (sentence,) = waiting(*nodes[:2], a=WANTS_5_GB).values()
    assert "and of cards of 1 more node is" in sentence
    (sentence,) = waiting(nodes[1], a=WANTS_5_GB).values()
    assert "the memory of card0 of node gpu-2 is unknown" in sentence


def test_only_pods_that_a_known_memory_would_help_are_announced() -> None:
    announced = waiting(
        gpu_node("gpu-1", "unknown"),
        helped=WANTS_5_GB,
        wants_no_memory={"xe": 1},
        wants_another_driver={"i915": 1, "memory_max": "5G"},
        wants_two_cards={"xe": 2, "memory_max": "5G"},
        wants_half_a_need={"xe": 1, "memory_max": "-5"},
    )
    assert announced.keys() == {"helped"}


def test_a_pod_for_which_another_node_states_enough_memory_is_not_announced() -> None:
    """It waits for other reasons, such as pods that use that node now."""
    nodes = (gpu_node("gpu-1", "unknown"), gpu_node("gpu-2", "query", memory=8 * GIB))
    assert waiting(*nodes, small=WANTS_5_GB, large={"xe": 1, "memory_max": "9Gi"}).keys() == {"large"}


def test_cards_without_memory_of_their_own_are_not_unknown() -> None:
    assert waiting(gpu_node("gpu-1", "shared"), a=WANTS_5_GB) == {}
    assert waiting(gpu_node("gpu-1", "query", memory=GIB), a=WANTS_5_GB) == {}
    assert waiting(node("gpu-1"), a=WANTS_5_GB) == {}


def test_a_node_that_learns_its_memory_ends_it() -> None:
    decider = Decider(OPTIONS)
    decider.nodes.changed(gpu_node("gpu-1", "unknown"))
    decider.pods.changed(pod(container(**WANTS_5_GB), uid="a"))
    assert len(done(decider.waiting_for_unknown_memory())) == 1
    decider.nodes.changed(gpu_node("gpu-1", "query", memory=8 * GIB))
    assert done(decider.waiting_for_unknown_memory()) == []


def test_a_pod_that_is_gone_meanwhile_is_not_announced() -> None:
    decider = Decider(OPTIONS)
    decider.nodes.changed(gpu_node("gpu-1", "unknown"))
    gone, stays = (pod(container(**WANTS_5_GB), uid=uid, name=uid) for uid in ("gone", "stays"))
    for each in (gone, stays):
        decider.pods.changed(each)
    turns = decider.waiting_for_unknown_memory()
    next(turns)
    decider.pods.deleted(gone)
    assert [each.uid for each, _ in done(turns)] == ["stays"]


def test_filters_get_their_turns_while_needs_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gas.extender.decider.PODS_A_TURN", 2)
    decider = Decider(OPTIONS)
    decider.nodes.changed(gpu_node("gpu-1", "unknown"))
    taken = []
    for uid in "abcd":
        decider.pods.changed(pod(container(**WANTS_5_GB), uid=uid))
        taken.append(len(list(decider.waiting_for_unknown_memory())))
    assert [each - taken[0] for each in taken] == [0, 0, 1, 1]


def test_filters_get_their_turns_while_very_many_unlike_nodes_are_looked_at() -> None:
    decider = Decider(OPTIONS)
    count = 10 * NODES_A_TURN
    for number in range(count):
        other = {"card": 0, "memorySource": "unknown", "pci": f"{number:04x}:4d:00.0"}
        annotations = {"gas-cards": json.dumps([other])}
        decider.nodes.changed(node(f"gpu-{number:04}", cards=1, annotations=annotations, xe=10))
    decider.pods.changed(pod(container(**WANTS_5_GB), uid="a"))
    turns, taken = decider.waiting_for_unknown_memory(), 0
    try:
        while True:
            next(turns)
            taken += 1
    except StopIteration as stop:
        ((_, sentence),) = stop.value
    assert f"of cards of {count - 1} more nodes" in sentence
    assert taken >= 10
