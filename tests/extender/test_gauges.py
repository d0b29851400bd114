"""The gauges of cards and waiting pods: valid for Prometheus, complete, and written without long pauses of others."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gas.extender.debug import CardSummary
from gas.extender.gauges import CARDS_A_PIECE, GAUGES, ClusterGauges, card_series
from gas.extender.verdicts import at_once
from gas.extender.wire import FilterArgs
from gas.objects.stored import Pod
from gas.values.cards import Card
from tests.builders import container, node, pod_json
from tests.extender.decider import DrivenDecider, as_pod
from tests.listed import list_all

GB = 10**9
NOW = 1767225660.0
"""A minute after 2026-01-01T00:00:00Z."""
ALWAYS = {"gas_extender_card_capacity", "gas_extender_card_booked", "gas_extender_card_pods"}

BOOKS = [
    CardSummary("n1", Card(0), {"memory.max": 8_000_000_000, "i915": 1}, {"memory.max": 5_000_000_000}, 1),
    CardSummary("n1", Card(10), {'odd"\\\n': 1}, {}, 0),
]


async def series(books: list[CardSummary]) -> str:
    return "".join([piece async for piece in card_series(lambda: books)])


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


async def test_each_card_has_its_capacity_what_is_booked_and_its_pods() -> None:
    assert samples(await series(BOOKS)) == {
        ("gas_extender_card_capacity", "card0", "n1", "memory.max"): 8e9,
        ("gas_extender_card_capacity", "card0", "n1", "i915"): 1,
        ("gas_extender_card_capacity", "card10", "n1", 'odd"\\\n'): 1,
        ("gas_extender_card_booked", "card0", "n1", "memory.max"): 5e9,
        ("gas_extender_card_pods", "card0", "n1"): 1,
        ("gas_extender_card_pods", "card10", "n1"): 0,
    }


async def test_the_same_lines_are_valid_openmetrics() -> None:
    parsed = parse_openmetrics(await series(BOOKS) + "# EOF\n")  # type: ignore[no-untyped-call]
    families = {family.name: family for family in parsed}
    assert families["gas_extender_card_pods"].type == "gauge"
    assert len(families["gas_extender_card_capacity"].samples) == 3


async def test_other_work_gets_its_turn_while_many_cards_are_written() -> None:
    many = [CardSummary(f"n{number}", Card(0), {"i915": 1}, {}, 0) for number in range(4 * CARDS_A_PIECE)]
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    text = await series(many)
    task.cancel()
    assert turns >= 3 * 4
    assert len(samples(text)) == 2 * len(many)


def cluster() -> DrivenDecider:
    """Return a node with two cards, one of which a pod holds, which uses the count resource up."""
    decider = DrivenDecider()
    list_all(decider.nodes, [node("n1")])
    holder = pod_json(
        container(i915=1, memory_max=6 * GB), node="n1", annotations={"gas-container-cards": "card0"}, phase="Running"
    )
    list_all(decider.pods, [as_pod(holder)])
    return decider


def waiting(decider: DrivenDecider, created: str, memory: int = 9 * GB, *, namespace: str = "default") -> Pod:
    written = pod_json(container(i915=1, memory_max=memory), namespace=namespace)
    written["metadata"]["creationTimestamp"] = created
    decider.pods.changed(as_pod(written))
    return as_pod(written)


async def shown(gauges: ClusterGauges) -> dict[tuple[str, ...], float]:
    text = "".join([piece async for piece in gauges()])
    return {key: value for key, value in samples(text).items() if key[0] not in ALWAYS}


def gauges_of(decider: DrivenDecider, *, decides: bool = True) -> ClusterGauges:
    return ClusterGauges(decider, decides=lambda: decides, now=lambda: NOW)


async def test_what_no_pod_can_take_of_a_card_in_use_is_stranded_until_a_pod_asks_for_it() -> None:
    decider = cluster()
    gauges = gauges_of(decider)
    stranded = "gas_extender_card_stranded", "card0", "n1"
    assert await shown(gauges) == {(*stranded, "memory.max"): 2 * GB, (*stranded, "millicores"): 1000}
    decider.nodes.changed(node("n1", i915=4, memory_max=16 * GB, millicores=2000))
    assert await shown(gauges) == {
        (*stranded, "memory.max"): 2 * GB,
        (*stranded, "millicores"): 1000,
        (*stranded, "i915"): 1,
    }
    waiting(decider, "2026-01-01T00:00:00Z", memory=-1, namespace="invalid")
    asks = waiting(decider, "2026-01-01T00:00:00Z", memory=GB)
    waiting(decider, "2026-01-01T00:00:00Z")
    assert not [key for key in await shown(gauges) if key[0] == stranded[0]]
    decider.pods.deleted(asks)
    assert (*stranded, "i915") in await shown(gauges)


def test_other_work_gets_its_turn_while_the_needs_of_many_pods_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for pods in ("PODS_A_TURN", "BOUND_A_TURN"):
        monkeypatch.setattr(f"gas.extender.decider.{pods}", 2)
    decider = cluster()  # with one bound pod
    for _ in range(3):
        waiting(decider, "2026-01-01T00:00:00Z")
    assert len(list(decider.shapes())) == 1


async def test_pods_that_wait_are_counted_by_namespace_and_reason_with_the_age_of_the_oldest() -> None:
    decider = cluster()
    for pod in (
        waiting(decider, "2026-01-01T00:00:40Z"),
        waiting(decider, "2026-01-01T00:00:10Z"),
        waiting(decider, "2026-01-01T00:00:20Z", namespace="shop"),
    ):
        assert at_once(decider.filter(FilterArgs(pod=pod, nodes=None, node_names=["n1"]), now=NOW)).refusal is not None
    waiting(decider, "2026-01-01T00:00:50Z", namespace="shop")
    found = {key: value for key, value in (await shown(gauges_of(decider))).items() if "wait" in key[0]}
    assert found == {
        ("gas_extender_waiting_pods", "default", "no-room"): 2,
        ("gas_extender_waiting_pods", "shop", "no-room"): 1,
        ("gas_extender_waiting_pods", "shop", "not-refused"): 1,
        ("gas_extender_longest_wait_seconds", "default", "no-room"): 50,
        ("gas_extender_longest_wait_seconds", "shop", "no-room"): 40,
        ("gas_extender_longest_wait_seconds", "shop", "not-refused"): 10,
    }
    of_another_replica = await shown(gauges_of(decider, decides=False))
    assert not [key for key in of_another_replica if "wait" in key[0]]


async def test_every_gauge_is_written_with_its_help() -> None:
    text = "".join([piece async for piece in gauges_of(cluster())()])
    assert [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")] == [
        gauge.name for gauge in GAUGES
    ]
    parsed = parse_openmetrics(text + "# EOF\n")  # type: ignore[no-untyped-call]
    assert {(family.name, family.documentation) for family in parsed} == {
        (each.name, each.description) for each in GAUGES
    }


async def test_pods_that_kube_scheduler_does_not_look_at_are_counted_apart() -> None:
    decider = cluster()
    for number, (deleting, gates) in enumerate(((False, []), (True, []), (False, [{"name": "kueue"}]))):
        written = pod_json(container(i915=1, memory_max=9 * GB), uid=f"u{number}", deleting=deleting)
        written["spec"]["schedulingGates"] = gates
        written["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        decider.pods.changed(as_pod(written))
    found = await shown(gauges_of(decider))
    assert {key[1:]: value for key, value in found.items() if key[0] == "gas_extender_suspended_pods"} == {
        ("default", "Terminating"): 1,
        ("default", "Gated"): 1,
    }
    assert {key[2] for key in found if key[0] == "gas_extender_longest_wait_seconds"} == {"not-refused"}
    assert found["gas_extender_waiting_pods", "default", "not-refused"] == 1
