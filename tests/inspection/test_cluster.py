"""The cluster that the commands look at is the one that the extender sees."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gas.extender.decider import options_of
from gas.extender.flags import Flags
from gas.inspection.cluster import matters, natural, settings_of
from gas.inspection.node_view import node_data
from gas.inspection.objects import InspectedPod
from gas.inspection.report import Booked
from gas.inspection.rows import card_report, node_report, pod_report
from gas.placement.order import LeastUsed
from gas.values.cards import Card
from tests.builders import node_json, pod_json
from tests.inspection.example_cluster import (
    GB,
    cluster_of,
    decoded_pod,
    example_cluster,
    example_nodes,
    example_pods,
    extender_pod,
    gpu_node_json,
    record,
    running,
    waiting,
)
from tests.kubeshare_words import of_the_original, share, sharing_node
from tests.other_words import asking


def test_the_settings_are_those_of_the_extenders_command_line() -> None:
    pod = extender_pod(
        "--enableDenylist", "--balancedResource=millicores", "--search-steps", "77", "--card-near", "--cert=/x"
    )
    options, notes = settings_of([decoded_pod(pod)])
    assert (options.need.allowlist, options.need.denylist, options.need.card_near) == (False, True, True)
    assert options.need.card_order == LeastUsed("millicores")
    assert options.step_limit == 77
    assert notes == ()


@pytest.mark.parametrize("name", ["aliyun-unit", "memory-unit"])
def test_pods_in_all_words_of_the_extender_are_looked_at(name: str) -> None:
    asked = msgspec.convert(pod_json(asking(gpu_mem=8), name="other", node="n1"), InspectedPod)
    assert matters(asked)
    flags = ("--vocabularies=intel,aliyun", f"--{name}=GiB", "--vocabularies=intel,vendor")
    options, _ = settings_of([decoded_pod(extender_pod(*flags))])
    assert dict(options.vocabularies.booked_need(asked).containers[0].per_card)["memory.max"] == 8 * 2**30


# contract S1.24
def test_a_pod_that_kubeshare_runs_is_shown_on_its_card() -> None:
    node = sharing_node("n", uuids=("GPU-of-card0", "GPU-of-card1"))
    old = of_the_original("old", share("0.5", gpuid="abcde"), "GPU-of-card1", "n")
    cluster = cluster_of([node], [extender_pod("--vocabularies=intel,kubeshare"), old])
    assert [(row["name"], row["cards"]) for row in pod_report(cluster).rows] == [("old", ("card1",))]
    assert [row["millicores"] for row in card_report(cluster).rows] == [Booked(0, 1000), Booked(500, 1000)]


def test_an_extender_without_flags_has_the_defaults_of_the_flags() -> None:
    options, _ = settings_of([decoded_pod(extender_pod())])
    defaults = options_of(Flags())
    assert (options.need, options.step_limit) == (defaults.need, defaults.step_limit)
    assert list(options.vocabularies) == list(defaults.vocabularies)


def test_without_an_extender_its_defaults_are_assumed_and_a_note_says_so() -> None:
    (note,) = settings_of([]).notes
    assert note == "no extender was found in a pod; its default flags are assumed"
    (note,) = settings_of([decoded_pod(extender_pod("--card-order=alphabetic"))]).notes
    assert "the flags of the extender's pod kube-system/gas-extender-0 are ignored: flag --card-order" in note


def test_the_ledger_is_that_of_the_extender() -> None:
    cluster = example_cluster()
    booking = cluster.decider.ledger.booking("uid-default-train-0")
    assert booking is not None
    assert booking.node == "gpu-1"
    assert dict(booking.footprint.amounts[Card(0)]) == {"i915": 1, "memory.max": 12 * GB, "millicores": 800}


def test_sums_of_nodes_are_the_sums_of_their_cards() -> None:
    cluster = example_cluster()
    cards, nodes = card_report(cluster), node_report(cluster)
    for name in ("memory.max", "millicores", "i915"):
        for node in nodes.rows:
            gauges = [
                gauge
                for row in cards.rows
                if row["node"] == node["node"] and isinstance(gauge := row.get(name), Booked)
            ]
            assert node[name] == Booked(sum(each.booked for each in gauges), sum(each.capacity for each in gauges))


def test_waiting_pods_share_a_reason_only_if_they_ask_for_the_same_beside_cards_as_well() -> None:
    nodes = [gpu_node_json(name, record(0), cpu="4") for name in ("n", "o", "p")]
    pods = [waiting(name, i915=1, memory_max=GB, cpu=cpu) for name, cpu in (("a", "1"), ("b", "1"), ("c", "8"))]
    notes = [row["note"] for row in pod_report(cluster_of(nodes, pods)).rows]
    fits = "fits on 3 of 3 nodes; kube-scheduler has yet to bind it"
    assert notes == [fits, fits, "the node has less than 8000m of cpu free; nearest: n with 4000m of cpu"]


def test_numbers_in_names_are_compared_by_value() -> None:
    texts = ["", "0", "9", "10", "gpu-", "gpu-1", "gpu-1a", "gpu-2", "gpu-2-1", "gpu-10", "gpu-10b2", "x" + "9" * 5000]
    assert sorted(set(texts), key=natural) == texts


@pytest.mark.parametrize(
    ("labels", "health"),
    [
        pytest.param({}, "ok", id="ok"),
        pytest.param({"telemetry.aware.scheduling.p/gas-disable-card0": "true"}, "disabled", id="disabled"),
        pytest.param(
            {"telemetry.aware.scheduling.p/gas-deschedule-pods-card0": "true"}, "descheduled", id="descheduled"
        ),
    ],
)
def test_the_health_of_a_card(labels: dict[str, str], health: str) -> None:
    cluster = cluster_of([gpu_node_json("n", record(0), labels=labels)], [])
    assert [row["health"] for row in card_report(cluster).rows] == [health]


def test_a_card_that_is_gone_is_shown_while_something_is_booked_on_it() -> None:
    pods = [running("p", "n", "card3", i915=1, memory_max=GB)]
    cluster = cluster_of([gpu_node_json("n", record(0))], pods)
    row = card_report(cluster).rows[-1]
    assert (row["card"], row["health"], row["memory.max"]) == ("card3", "gone", Booked(GB, 0))


def test_nodes_without_cards_are_left_out() -> None:
    plain = node_json("plain", cards="", cpu=1)
    plain["metadata"]["labels"] = {}
    plain["status"] = {}
    cluster = cluster_of([plain, *example_nodes()], example_pods())
    assert "plain" not in {row["node"] for row in card_report(cluster).rows}


def test_watched_changes_give_the_same_as_a_new_list() -> None:
    nodes, pods = example_nodes(), example_pods()
    watched = cluster_of(nodes, pods)
    gone, new = decoded_pod(pods[0]), decoded_pod(running("new", "gpu-10", "card1", i915=1, memory_max=GB))
    version = watched.pods.version
    watched.watched_pods.deleted(gone)
    watched.watched_pods.changed(new)
    assert watched.pods.version == version + 2
    listed = cluster_of(nodes, [*pods[1:], running("new", "gpu-10", "card1", i915=1, memory_max=GB)])
    assert card_report(watched) == card_report(listed)


def test_a_pod_that_has_ended_holds_nothing() -> None:
    ended = running("p", "gpu-1", "card0", i915=1)
    ended["status"]["phase"] = "Succeeded"
    cluster = cluster_of(example_nodes(), [ended, waiting("w", i915=1)])
    assert [pod.metadata.name for pod in cluster.gpu_pods] == ["w"]


def test_booked_tiles_and_the_number_of_tiles_have_columns_of_their_own() -> None:
    node = gpu_node_json("n", record(0, tiles=2), record(1, tiles=2))
    node["status"]["allocatable"]["gpu.intel.com/tiles"] = "4"
    pod = running("p", "n", "card0", i915=1, tiles=1)
    pod["metadata"]["annotations"]["gas-container-tiles"] = "card0:gt1"
    cluster = cluster_of([node], [pod])
    report = card_report(cluster)
    names = [column.name for column in report.columns]
    assert len(set(names)) == len(names)
    assert [(row["tiles"], row["tileCount"]) for row in report.rows] == [(Booked(1, 2), 2), (Booked(0, 2), 2)]
    cards: Any = node_data(cluster, "n")["cards"]
    first, second = cards
    assert (first["tiles"], first["freeTiles"], first["held"][0]["tiles"]) == (Booked(1, 2), (0,), [1])
    assert (second["tiles"], second["freeTiles"]) == (Booked(0, 2), (0, 1))
