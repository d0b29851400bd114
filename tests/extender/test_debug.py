"""The documents under /debug: the ledger and the last refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gas.extender.debug import books_json, differences, refusals_json
from tests.builders import container, node, pod_json
from tests.extender.decider import DrivenDecider, as_pod
from tests.listed import list_all

POLICY = "telemetry.aware.scheduling.p/"


def bound(cards: str | None, uid: str = "u1", **fields: Any) -> dict[str, Any]:
    written = {} if cards is None else {"gas-container-cards": cards}
    return pod_json(container(i915=1, millicores=300), uid=uid, name=uid, node="n1", annotations=written, **fields)


def knowing(*pods: dict[str, Any]) -> DrivenDecider:
    decider = DrivenDecider()
    list_all(decider.nodes, [node("n1", labels={POLICY + "gas-disable-card1": "x"})])
    list_all(decider.pods, [as_pod(pod) for pod in pods])
    return decider


def books(decider: DrivenDecider) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(books_json(decider))
    return shown


def test_capacity_and_bookings_are_shown_card_by_card() -> None:
    shown = books(knowing(bound("card0")))
    assert list(shown["nodes"]["n1"]) == ["card0", "card1"]
    assert shown["nodes"]["n1"]["card0"] == {
        "capacity": {"i915": 1, "memory.max": 8_000_000_000, "millicores": 1000},
        "booked": {"i915": 1, "millicores": 300},
        "tiles": [],
        "pods": 1,
        "disabled": False,
    }
    assert shown["nodes"]["n1"]["card1"]["disabled"] is True
    assert shown["pods"]["u1"] == {
        "pod": "default/u1",
        "node": "n1",
        "state": "held",
        "cards": {"card0": {"amounts": {"i915": 1, "millicores": 300}, "tiles": []}},
    }
    assert shown["trouble"] == shown["problems"] == {}
    assert shown["differences"] == []


def test_tiles_are_shown_with_the_pods_that_hold_them() -> None:
    decider = DrivenDecider()
    list_all(decider.nodes, [node("n1", i915=2, tiles=4)])
    tiled = bound("card1")
    tiled["metadata"]["annotations"]["gas-container-tiles"] = "card1:gt1"
    tiled["spec"]["containers"][0]["resources"]["requests"]["gpu.intel.com/tiles"] = 1
    decider.pods.changed(as_pod(tiled))
    shown = books(decider)
    assert shown["nodes"]["n1"]["card1"]["tiles"] == [1]
    assert shown["pods"]["u1"]["cards"]["card1"]["tiles"] == [1]


def test_cards_held_on_a_node_that_is_gone_or_shrank_are_shown() -> None:
    decider = knowing(bound("card0"), bound("card7", "u2"))
    list_all(decider.nodes, [])
    shown = books(decider)
    assert shown["nodes"]["n1"]["card0"]["capacity"] == {}
    assert shown["nodes"]["n1"]["card7"]["pods"] == 1


def test_pods_in_trouble_are_shown_with_the_reason() -> None:
    shown = books(knowing(bound(None), bound("card0,\x1b[2J" * 1000, "u2")))
    assert shown["trouble"]["u1"] == {
        "pod": "default/u1",
        "node": "n1",
        "trouble": "it is bound without cards written on it, so its cards are not booked",
    }
    assert "gas-container-cards" in shown["trouble"]["u2"]["trouble"]
    assert len(shown["trouble"]["u2"]["trouble"]) < 300


def test_nodes_with_invalid_labels_are_shown() -> None:
    decider = knowing()
    decider.nodes.changed(node("n2", labels={"gpu.intel.com/gpu-numbers": "0.x"}))
    assert list(books(decider)["problems"]) == ["n2"]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        pytest.param(
            lambda decider: decider.pods.changed(as_pod(bound("card1"))),
            "is booked with other cards than its object names",
            id="edited",
        ),
        pytest.param(
            lambda decider: decider.pods.changed(as_pod(bound(None))), "its object names no cards", id="emptied"
        ),
        pytest.param(
            lambda decider: decider.ledger.release("u1"), "is not booked, its object names cards on n1", id="lost"
        ),
    ],
)
def test_differences_from_the_objects_are_reported(change: Any, part: str) -> None:
    decider = knowing(bound("card0"))
    change(decider)
    (sentence,) = differences(decider.pods, decider.ledger)
    assert part in sentence
    assert "default/u1" in sentence


async def test_a_reservation_is_not_a_difference() -> None:
    decider = DrivenDecider()
    asking = pod_json(container(i915=1), uid="u1")
    decider.cluster.add(asking)
    decider.follow([node("n1")])
    decider.cluster.on_change = lambda _type, _pod: None
    assert await decider.bind(asking, "n1") == ""
    shown = books(decider)
    assert shown["pods"]["u1"]["state"] == "reserved"
    assert shown["differences"] == []


async def test_refusals_show_reasons_and_numbers() -> None:
    decider = knowing(bound("card0"))
    asking = pod_json(container(i915=1), uid="u9", name="late")
    await decider.ask(asking, "n1")
    shown = json.loads(refusals_json(decider.refusals))
    assert shown["u9"]["pod"] == "default/late"
    assert list(shown["u9"]["reasons"].values()) == [1]
    assert len(shown["u9"]["details"]["n1"]) == 2
    assert shown["u9"]["time"] > 0
