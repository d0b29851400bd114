"""The records of the last decisions and refusals: what is reported to them, and that they stay small."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gas.extender.debug import decisions_json
from gas.extender.decider import Decider
from gas.extender.decisions import (
    MOST_ALTERNATIVES,
    MOST_DECISIONS,
    MOST_PENDING,
    MOST_PODS,
    Decisions,
    PodRefusal,
)
from gas.extender.readiness import NotReady
from tests.extender.binding import following, gpu_pod
from tests.extender.cluster import Outcome


def shown(decider: Decider) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(decisions_json(decider.decisions))
    return found


async def test_a_bind_is_recorded_with_its_cards_and_the_nodes_that_had_room() -> None:
    decider = following(gpu_pod())
    await decider.ask(gpu_pod(), "n1", "n2", "absent")
    assert shown(decider) == []
    assert await decider.bind(gpu_pod(), "n2") == ""
    (decision,) = shown(decider)
    milliseconds = decision.pop("milliseconds")
    assert decision.pop("time") > 1.7e9
    assert decision == {
        "uid": "u1",
        "pod": "default/pod",
        "node": "n2",
        "cards": "card0",
        "verb": "bind",
        "passing": 2,
        "score": None,
        "alternatives": [{"node": "n1", "score": None}],
        "error": "",
    }
    assert milliseconds.keys() == {"filter", "bind"}
    assert all(0 < amount < 60_000 for amount in milliseconds.values())


async def test_a_failed_bind_is_recorded_with_its_reason_and_the_next_one_as_well() -> None:
    decider = following(gpu_pod())
    await decider.ask(gpu_pod(), "n1", "n2")
    decider.cluster.outcome = Outcome.REFUSED
    error = await decider.bind(gpu_pod(), "n1")
    decider.cluster.outcome = Outcome.WRITTEN
    await decider.bind(gpu_pod(), "n1")
    last, first = shown(decider)
    assert (first["error"], first["cards"]) == (error, "")
    assert (last["error"], last["cards"]) == ("", "card0")
    assert last["passing"] == 2


async def test_a_pod_without_cards_and_a_replica_that_may_not_decide_record_nothing() -> None:
    plain = gpu_pod()
    plain["spec"]["containers"][0]["resources"] = {}
    decider = following(plain)
    assert await decider.bind(plain, "n1") == ""
    decider.not_ready = "the first list of pods is still being read"
    with pytest.raises(NotReady):
        await decider.bind(gpu_pod(uid="u2"), "n1")
    assert shown(decider) == []


def test_only_the_last_decisions_are_kept_the_newest_first() -> None:
    decisions = Decisions()
    for number in range(MOST_DECISIONS + 2):
        decisions.made(f"u{number}", "p", "n", "card0", verb="bind", seconds=0.001, now=float(number))
    assert [each.uid for each in decisions] == [f"u{number}" for number in range(MOST_DECISIONS + 1, 1, -1)]


def test_what_is_kept_of_a_question_does_not_grow_with_the_cluster() -> None:
    decisions = Decisions()
    passing = [f"n{node}" for node in range(5000)]
    for number in range(MOST_PENDING + 10):
        decisions.filtered(f"u{number}", passing, 0.001)
        decisions.scored(f"u{number}", [(f"n{node}", node) for node in range(99, -1, -1)], 0.001)
    decisions.made("u0", "p", "n1", "card0", verb="bind", seconds=0.001, now=0.0)
    decisions.made(f"u{MOST_PENDING}", "p", "n1", "card0", verb="bind", seconds=0.001, now=0.0)
    last, forgotten = decisions
    assert (forgotten.passing, forgotten.alternatives) == (None, ())
    assert last.passing == 5000
    assert [each.node for each in last.alternatives] == [f"n{node}" for node in range(99, 99 - MOST_ALTERNATIVES, -1)]
    assert last.score is None


def refusal(**fields: object) -> PodRefusal:
    known: dict[str, object] = {"pod": "default/a", "time": 1.0, "kind": "no-room", "reasons": {"no room": 1}}
    known["details"] = {}
    return PodRefusal(**(known | fields))  # type: ignore[arg-type]  # a row shows only what differs


def test_the_summary_counts_reasons_most_frequent_first_then_lists_the_numbers() -> None:
    details = {"n1": ("card0: full", "card1: full"), "n2": ()}
    assert (
        refusal(reasons={"no card": 1, "no room": 7}, details=details).summary()
        == "7 nodes: no room; 1 node: no card. n1: card0: full, card1: full"
    )


def test_the_summary_without_numbers_is_the_reasons() -> None:
    assert refusal().summary() == "1 node: no room"


def test_the_oldest_refusals_go_when_there_are_too_many() -> None:
    refusals = following(gpu_pod()).refusals
    for number in range(MOST_PODS + 1):
        refusals[f"u{number}"] = refusal()
    assert len(refusals) == MOST_PODS
    assert "u0" not in refusals
