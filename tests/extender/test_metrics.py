from __future__ import annotations

import re
from dataclasses import dataclass
from time import monotonic

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from gas.extender.metrics import Metrics


@dataclass
class Watch:
    last_contact: float = 0.0
    relists: int = 0
    broken: int = 0
    undecodable: int = 0


def test_watches_are_read_at_the_moment_of_a_scrape() -> None:
    metrics = Metrics("1")
    watch = Watch()
    metrics.watches.follow("pods", watch)

    def value(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"gas_extender_{name}", {"kind": "pods"})

    assert value("relists_total") == 0
    watch.last_contact, watch.relists, watch.broken, watch.undecodable = monotonic() - 100, 1, 2, 3
    assert value("watch_age_seconds") == pytest.approx(100, abs=30)
    assert value("relists_total") == 1
    assert value("broken_watches_total") == 2
    assert value("undecodable_objects_total") == 3


def test_two_sets_of_metrics_do_not_share_anything() -> None:
    one, other = Metrics("1"), Metrics("1")
    one.corrections.inc()
    assert one.registry.get_sample_value("gas_extender_corrections_total") == 1
    assert other.registry.get_sample_value("gas_extender_corrections_total") == 0


def test_build_info_has_the_version() -> None:
    assert Metrics("1.2.3").registry.get_sample_value("gas_extender_build_info", {"version": "1.2.3"}) == 1


@pytest.mark.parametrize("encode", [generate_latest, generate_openmetrics], ids=["prometheus", "openmetrics"])
def test_every_metric_is_documented_and_named_by_the_conventions(encode: object) -> None:
    metrics = Metrics("1")
    metrics.watches.follow("pods", Watch())
    text = encode(metrics.registry).decode()  # type: ignore[operator]
    helps = dict(re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE))
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    documented = {name: line for name, line in helps.items() if not name.endswith("_created")}
    assert documented.keys() >= {"gas_extender_ready", "gas_extender_request_seconds"}
    for name, line in documented.items():
        assert name.startswith("gas_extender_")
        assert line.endswith(".")
        if types[name] == "counter" and encode is generate_latest:
            assert name.endswith("_total")


def test_request_seconds_reach_from_half_a_millisecond_to_ten_seconds() -> None:
    metrics = Metrics("1")
    metrics.request_seconds.labels("filter").observe(0.0004)
    bound = {"verb": "filter", "le": "0.0005"}
    assert metrics.registry.get_sample_value("gas_extender_request_seconds_bucket", bound) == 1
    assert metrics.registry.get_sample_value("gas_extender_request_seconds_bucket", {**bound, "le": "10.0"}) == 1


@pytest.mark.parametrize("verb", ["filter", "bind", "prioritize", "preempt"])
def test_the_help_lists_the_results_of_every_verb(verb: str) -> None:
    (text,) = (each.documentation for each in Metrics("1").registry.collect() if each.name == "gas_extender_requests")
    assert f" {verb}: " in text
