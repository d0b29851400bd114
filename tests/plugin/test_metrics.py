from __future__ import annotations

import re

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from gas.plugin.metrics import Metrics


@pytest.mark.parametrize("encode", [generate_latest, generate_openmetrics], ids=["prometheus", "openmetrics"])
def test_every_metric_is_documented_and_named_by_the_conventions(encode: object) -> None:
    text = encode(Metrics("1").registry).decode()  # type: ignore[operator]
    helps = dict(re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE))
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    documented = {name: line for name, line in helps.items() if not name.endswith("_created")}
    assert documented.keys() >= {"gas_plugin_ready", "gas_plugin_answer_seconds"}
    for name, line in documented.items():
        assert name.startswith("gas_plugin_")
        assert line.endswith(".")
        assert name in types


def test_counters_kept_elsewhere_are_read_at_each_scrape() -> None:
    metrics = Metrics("1")
    metrics.totals.follow_devices(cards=tuple, scans=lambda: 3, registrations=lambda: {"i915": 6})
    metrics.totals.follow_writes(receipts_written=lambda: 4, node_writes=lambda: 5)
    value = metrics.registry.get_sample_value
    assert value("gas_plugin_scans_total") == 3
    assert value("gas_plugin_receipts_written_total") == 4
    assert value("gas_plugin_node_writes_total") == 5
    assert value("gas_plugin_registrations_total", {"resource": "i915"}) == 6


def test_build_info_states_the_version() -> None:
    assert Metrics("1.2.3").registry.get_sample_value("gas_plugin_build_info", {"version": "1.2.3"}) == 1
