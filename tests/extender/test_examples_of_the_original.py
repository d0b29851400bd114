"""The numbers that the README of Intel's GPU Aware Scheduling works out, and the pod with which it ends."""

from __future__ import annotations

from typing import Any

from tests.builders import container, node_json, pod_json
from tests.extender.decider import DrivenDecider, booked_cards, following

GB = 10**9


def with_labels(*, i915: int, label: str, **amounts: Any) -> dict[str, Any]:
    """Return a node whose cards the label of the README names."""
    node = node_json("n1", cards=0, i915=i915, **amounts)
    node["metadata"]["labels"] = {"gpu.intel.com/cards": label}
    return node


def amounts(decider: DrivenDecider, name: str) -> list[dict[str, int]]:
    return [dict(each) for each in decider.booked()[name].footprint.amounts.values()]


async def test_example_1_of_three_pods_of_5_gb_two_fit_on_two_cards_of_8_gb_though_6_gb_are_left() -> None:
    pods = [pod_json(container(i915=1, memory_max=5 * GB), name=f"p{at}", uid=f"p{at}") for at in range(3)]
    decider = following([node_json("n1", cards=2, i915=20, memory_max=16 * GB)], *pods)
    assert [await decider.bind(each, "n1") for each in pods[:2]] == ["", ""]
    assert [booked_cards(decider, name) for name in ("p0", "p1")] == ["card0 on n1, held", "card1 on n1, held"]
    refused = (await decider.ask(pods[2], "n1"))["FailedNodes"]
    assert refused == {"n1": "no card has 5.0 GB of memory.max free"}


async def test_example_2_two_i915_with_2000_millicores_take_1000_of_each_of_two_cards() -> None:
    asked = pod_json(container(i915=2, millicores=2000), name="p", uid="p")
    decider = following([node_json("n1", cards=3, i915=3, millicores=3000)], asked)
    assert await decider.bind(asked, "n1") == ""
    assert amounts(decider, "p") == [{"i915": 1, "millicores": 1000}] * 2


async def test_example_3_two_containers_of_two_cards_are_annotated_card0_card1_and_card2_card3() -> None:
    asked = pod_json(container("a", i915=2), container("b", i915=2), name="p", uid="p")
    decider = following([node_json("n1", cards=4, i915=4)], asked)
    assert await decider.bind(asked, "n1") == ""
    annotations = decider.cluster.bindings[0]["annotations"]
    assert annotations["gas-container-cards"] == "card0,card1|card2,card3"
    assert annotations["gas-ts"].isdigit()


async def test_example_4_the_cards_of_the_label_have_equal_parts_of_the_nodes_resources() -> None:
    node = with_labels(i915=4, label="card0.card1.card2.card3", millicores=4000)
    fits = pod_json(container(i915=1, millicores=1000), name="fits", uid="fits")
    large = pod_json(container(i915=1, millicores=1001), name="large", uid="large")
    decider = following([node], fits, large)
    assert (await decider.ask(large, "n1"))["FailedNodes"] == {"n1": "no card has 1001 millicores free"}
    assert await decider.bind(fits, "n1") == ""


async def test_the_demo_app_gets_a_card() -> None:
    demo = pod_json(container("nginx", i915=1), name="demo-app", uid="demo-app", labels={"app": "demo"})
    decider = following([with_labels(i915=1, label="card0")], demo)
    assert await decider.bind(demo, "n1") == ""
    assert booked_cards(decider, "demo-app") == "card0 on n1, held"
