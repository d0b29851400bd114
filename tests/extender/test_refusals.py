from __future__ import annotations

from gas.extender.decisions import MOST_PODS, PodRefusal, Refusals


def refusal(**fields: object) -> PodRefusal:
    known: dict[str, object] = {"pod": "default/a", "time": 1.0, "kind": "no-room", "reasons": {"no room": 1}}
    known["details"] = {}
    return PodRefusal(**(known | fields))  # type: ignore[arg-type]  # a row shows only what differs


def test_the_summary_counts_reasons_most_frequent_first_then_lists_the_numbers() -> None:
    told = refusal(
        reasons={"no card": 1, "no room": 7},
        details={"n1": ("card0: full", "card1: full"), "n2": ()},
    )
    assert told.summary() == "7 nodes: no room; 1 node: no card. n1: card0: full, card1: full"


def test_the_summary_without_numbers_is_the_reasons() -> None:
    assert refusal().summary() == "1 node: no room"


def test_the_last_refusal_of_a_pod_is_kept_until_dropped() -> None:
    refusals = Refusals()
    refusals.keep("u1", refusal(time=1.0))
    refusals.keep("u1", refusal(time=2.0))
    assert [(uid, kept.time) for uid, kept in refusals] == [("u1", 2.0)]
    refusals.drop("u1")
    refusals.drop("u1")
    assert not list(refusals)


def test_the_oldest_go_when_there_are_too_many() -> None:
    refusals = Refusals()
    for number in range(MOST_PODS + 1):
        refusals.keep(f"u{number}", refusal())
    kept = [uid for uid, _ in refusals]
    assert len(kept) == MOST_PODS
    assert "u0" not in kept


def test_pods_may_be_dropped_while_they_are_shown() -> None:
    refusals = Refusals()
    refusals.keep("u1", refusal())
    refusals.keep("u2", refusal())
    for uid, _ in refusals:
        refusals.drop(uid)
    assert not list(refusals)
