"""Conclusions of a long run, and its reading of etcd's history. The run itself is `make soak`."""

from __future__ import annotations

import base64
import json
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import pytest

from simulation import objects
from simulation.observed import LawBroken
from tests.e2e.gpu_node import GpuNode
from tests.e2e.growth import BOUNDS, Outcome, Sample, growth
from tests.e2e.soak import Soak, endless_pods

MEMORY = "MB of memory"
FLAT = dict.fromkeys(BOUNDS, 50.0)


def samples(*memory: float) -> list[Sample]:
    """Return samples of one hour."""
    return [(index / (len(memory) - 1), {**FLAT, MEMORY: found}) for index, found in enumerate(memory)]


@pytest.mark.parametrize(
    ("memory", "an_hour", "is_endless"),
    [
        pytest.param([10, 60] + [90.0] * 30, 0.0, False, id="a start is not growth"),
        pytest.param([90.0 + min(each, 30) for each in range(61)], 0.0, False, id="what has a limit is filled"),
        pytest.param([90.0 + each % 2 for each in range(61)], 0.0, False, id="up and down"),
        pytest.param([90.0 + each / 3 for each in range(61)], 20.0, False, id="too little in all"),
        pytest.param([90.0 + each for each in range(61)], 60.0, True, id="a leak"),
        pytest.param([90.0, 190.0], 0.0, False, id="too few to fit a line"),
    ],
)
def test_the_line_through_the_samples_of_the_second_half(memory: list[float], an_hour: float, is_endless: bool) -> None:
    found = growth(samples(*memory), MEMORY)
    assert found.an_hour == pytest.approx(an_hour, abs=0.1)
    assert found.is_endless is is_endless


def test_many_hours_with_a_slope_below_the_bound_are_not_growth() -> None:
    night = [(float(hour), {**FLAT, MEMORY: 90.0 + 3 * hour}) for hour in range(12)]
    assert not growth(night, MEMORY).is_endless


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({}, 0, "| laws broken | none |"),
        ({"broken": "capacity: card0"}, 1, "| laws broken | capacity: card0 |"),
        (
            {"plugin": 1.0},
            1,
            "147 at the end, +60.0 an hour in the second half, **grows without end** |",
        ),
    ],
)
def test_the_table_and_the_exit_code(changes: dict[str, Any], code: int, says: str) -> None:
    outcome = Outcome(7, "v1.37.1", hours=1.0, broken=changes.get("broken", ""))
    outcome.figures["pods"] = 4321
    outcome.log_bytes["extender-a"] = 2_500_000
    outcome.samples["plugin"] = samples(*(90.0 + each * changes.get("plugin", 0) for each in range(61)))
    table = outcome.table()
    assert says in table
    assert outcome.exit_code == code
    assert "| pods | 4,321 |" in table
    assert "| extender-a: MB of log an hour | 2.5 |" in table


@pytest.fixture
def soak() -> Soak:
    node = SimpleNamespace(cluster=None, node=SimpleNamespace(name="real"), plugin=SimpleNamespace(program=None))
    return Soak(cast(GpuNode, node), Outcome(1, "v1.37.1"), 1.0)


def event(revision: int, path: str, value: dict[str, Any] | None) -> dict[str, Any]:
    stored = {"key": path, **({} if value is None else {"value": json.dumps(value)})}
    kv = {name: base64.b64encode(text.encode()).decode() for name, text in stored.items()}
    return {"kv": {**kv, "mod_revision": str(revision)}, **({"type": "DELETE"} if value is None else {})}


def bound(revision: int, name: str) -> dict[str, Any]:
    metadata = {"uid": name, "namespace": "default", "annotations": {objects.CARDS: "card0", "gas-ts": str(revision)}}
    pod = objects.pod(name, [{"i915": 1, "millicores": 1000}], [], metadata)
    value = {**pod, "spec": pod["spec"] | {"nodeName": "n0"}, "status": {"phase": "Pending"}}
    return event(revision, f"/registry/pods/default/{name}", value)


def test_a_card_that_etcd_says_two_pods_have_is_found(soak: Soak) -> None:
    soak.see_event(event(2, "/registry/minions/n0", objects.node("n0", (0,))))
    soak.see_event(bound(3, "p0"))
    soak.see_event(event(4, "/registry/pods/default/p0", None))
    soak.see_event(bound(5, "p1"))
    with pytest.raises(LawBroken, match=r"2000 of millicores given.*; revision 6 of etcd"):
        soak.see_event(bound(6, "p2"))


def test_a_revision_that_is_missing_is_found(soak: Soak) -> None:
    soak.see_event(event(2, "/registry/leases/a", {}))
    soak.see_event(event(2, "/registry/leases/b", {}))
    with pytest.raises(LawBroken, match="revision 4 comes after 2"):
        soak.see_event(event(4, "/registry/leases/a", {}))


def test_pods_never_end_and_some_select_their_cards() -> None:
    found = list(islice(endless_pods(31), 2000))
    assert {words for words, _ in found} == {"Intel's", "KubeShare's", "other"}
    assert any(words == "Intel's" and objects.annotations_of(pod) for words, pod in found)
