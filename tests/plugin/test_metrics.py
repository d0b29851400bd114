from __future__ import annotations

import re

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from gas.plugin.metrics import Metrics
from gas.plugin.parts import PARTS


@pytest.mark.parametrize("encode", [generate_latest, generate_openmetrics], ids=["prometheus", "openmetrics"])
def test_every_metric_is_documented_and_named_by_the_conventions(encode: object) -> None:
    text = encode(Metrics("1", [row for part in PARTS for row in part.metrics]).registry).decode()  # type: ignore[operator]
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
    value = metrics.registry.get_sample_value
    for count in (3, 4):
        metrics.read(
            lambda count=count: [  # type: ignore[misc]
                ("gas_plugin_scans_total", (), count),
                ("gas_plugin_registrations_total", ("i915",), 2 * count),
            ]
        )
        assert value("gas_plugin_scans_total") == count
        assert value("gas_plugin_registrations_total", {"resource": "i915"}) == 2 * count


def test_build_info_states_the_version() -> None:
    assert Metrics("1.2.3").registry.get_sample_value("gas_plugin_build_info", {"version": "1.2.3"}) == 1
