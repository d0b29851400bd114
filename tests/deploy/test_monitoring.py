"""Alerts and dashboard ask for metrics and labels that the programs have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from gas.extender.gauges import GAUGES
from gas.plugin.metrics import Metrics as PluginMetrics
from gas.plugin.parts import PARTS
from scripts.reference import extender_metrics
from tests.deploy.manifests import COMPONENTS, ROOT, read

PART_ROWS = [row for part in PARTS for row in part.metrics]
PLUGIN = PluginMetrics("1", PART_ROWS)
ALERTS = COMPONENTS / "monitoring/alerts.yaml"
DASHBOARD = json.loads((COMPONENTS / "monitoring/dashboard.json").read_text(encoding="utf-8"))
TARGET_LABELS = {"pod", "node", "job", "instance", "namespace"}
"""What Prometheus and the PodMonitors put beside the programs' own labels."""

_SAMPLES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def _names(registry: CollectorRegistry) -> Iterator[str]:
    for family in registry.collect():
        for suffix in _SAMPLES.get(family.type, ("",)):
            yield family.name + suffix


def _series() -> set[str]:
    return {gauge.name for gauge in GAUGES} | {
        name for metrics in (extender_metrics(), PLUGIN) for name in _names(metrics.registry)
    }


def _labels() -> set[str]:
    own = {
        label
        for metrics in (extender_metrics(), PLUGIN)
        for metric in metrics.registry._collector_to_names
        if isinstance(metric, MetricWrapperBase)
        for label in metric._labelnames
    }
    of_gauges = {label for gauge in GAUGES for label in gauge.labels}
    sampled = {label for row in PLUGIN.rows for label in row.labels}
    return own | of_gauges | sampled | {"__name__", "kind", "version", "le"} | TARGET_LABELS


def _rules() -> list[dict[str, str]]:
    (rule,) = read(ALERTS)
    return [each for group in rule["spec"]["groups"] for each in group["rules"]]


def _queries() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in _rules()] + list(_queries())


@pytest.mark.parametrize("expression", [pytest.param(text, id=name) for name, text in EXPRESSIONS])
def test_an_expression_asks_for_series_that_there_are(expression: str) -> None:
    asked = set(re.findall(r"\bgas_\w+", expression))
    assert asked
    assert asked <= _series()


@pytest.mark.parametrize("expression", [pytest.param(text, id=name) for name, text in EXPRESSIONS])
def test_an_expression_asks_for_labels_that_there_are(expression: str) -> None:
    grouped = {name for group in re.findall(r"\bby \(([^)]*)\)", expression) for name in re.split(r"\s*,\s*", group)}
    matched = set(re.findall(r"(\w+)(?:=~|!=|=)\"", expression))
    assert grouped | matched <= _labels()


def test_every_alert_says_what_is_wrong_and_where_to_look() -> None:
    for rule in read(ALERTS)[0]["spec"]["groups"]:
        for alert in rule["rules"]:
            assert alert["labels"]["severity"] in ("critical", "warning", "info")
            assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}


def test_the_page_on_operation_has_exactly_the_alerts_and_their_runbooks() -> None:
    page = (ROOT / "docs/operate.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(GAS\w+)` \|.*\|(.*)\|$", page, re.MULTILINE))
    links = {name: re.search(r"\]\((.*)\)", cell) for name, cell in rows.items()}
    runbooks = {name: f"docs/{link[1] if link else 'operate.md#alerts'}" for name, link in links.items()}
    (rule,) = read(ALERTS)
    alerts = [alert for group in rule["spec"]["groups"] for alert in group["rules"]]
    assert {alert["alert"]: alert["annotations"]["runbook_url"] for alert in alerts} == runbooks


def test_panels_do_not_cover_each_other() -> None:
    covered: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert covered.setdefault((x, y), panel["title"]) == panel["title"]
