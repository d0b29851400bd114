"""Flags in deploy/ agree with their declarations: their names, and their defaults where they are stated again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gas.daemon.flags import CommandLine, flags_of
from gas.extender.command_line import COMMAND_LINE, parse_flags
from gas.extender.flags import Flags as ExtenderFlags
from gas.extender.scoring.part import ScoringFlags
from gas.inspection.page.flags import Flags as PageFlags
from gas.placement.order import NodeScore
from gas.plugin.flags import COMMAND_LINE as PLUGIN_LINE
from gas.plugin.flags import Flags as PluginFlags
from tests.deploy.manifests import COMPONENTS, DEPLOY, ROOT

CHART = DEPLOY / "chart"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
EXTENDER, PLUGIN = ExtenderFlags(), PluginFlags()
EXTENDER_TEMPLATE, PAGE_TEMPLATE, PLUGIN_TEMPLATE = (
    CHART / "templates/extender-deployment.yaml",
    CHART / "templates/_page.tpl",
    CHART / "templates/plugin-daemonset.yaml",
)


def numbers(file: Path, pattern: str) -> list[int]:
    found = re.findall(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)
    return [int(each) for each in found]


@pytest.mark.parametrize(
    ("template", "program"),
    [
        pytest.param(EXTENDER_TEMPLATE, COMMAND_LINE, id="extender"),
        pytest.param(PAGE_TEMPLATE, CommandLine(PageFlags), id="page"),
        pytest.param(PLUGIN_TEMPLATE, PLUGIN_LINE, id="plugin"),
    ],
)
def test_the_charts_templates_pass_only_flags_that_exist(template: Path, program: CommandLine[Any]) -> None:
    used = set(re.findall(r"(?<![\w-])--([A-Za-z][A-Za-z-]*)", template.read_text(encoding="utf-8")))
    assert used
    assert used <= {flag.name for flag in flags_of(program)}


def test_manifests_and_chart_switch_balance_on() -> None:
    deployment = yaml.safe_load((DEPLOY / "base/extender/deployment.yaml").read_text(encoding="utf-8"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert parse_flags(container["args"]).of(ScoringFlags).node_score is NodeScore.BALANCE
    assert "- --node-score=balance" in EXTENDER_TEMPLATE.read_text(encoding="utf-8")
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert schema["properties"]["extender"]["properties"]["flags"]["properties"]["node-score"] == {
        "enum": list(NodeScore)
    }


def test_the_charts_values_are_the_defaults_of_the_flags() -> None:
    extender, plugin = VALUES["extender"], VALUES["plugin"]
    assert (extender["port"], extender["service"]["port"]) == (EXTENDER.port, EXTENDER.port)
    assert extender["metricsPort"] == EXTENDER.metrics_port
    assert plugin["metricsPort"] == PLUGIN.metrics_port
    assert plugin["kubeletDir"] == str(PLUGIN.kubelet_dir)
    assert plugin["devicePluginsDir"] == str(PLUGIN.kubelet_dir / "device-plugins")


def test_the_chart_leaves_out_only_ports_that_are_the_defaults() -> None:
    left_out = r"ne \(int \$\w+\.{}\) (\d+)"
    assert numbers(EXTENDER_TEMPLATE, left_out.format("port")) == [EXTENDER.port]
    assert numbers(EXTENDER_TEMPLATE, left_out.format("metricsPort")) == [EXTENDER.metrics_port]
    assert numbers(PLUGIN_TEMPLATE, left_out.format("metricsPort")) == [PLUGIN.metrics_port]


def test_comments_of_the_charts_values_state_the_defaults() -> None:
    comments = (CHART / "values.yaml").read_text(encoding="utf-8")
    stated = dict(re.findall(r"\b(shutdown-timeout)\s+\(([^)]*)\)", comments))
    assert stated == {flag.name: flag.default for flag in flags_of(ExtenderFlags) if flag.name == "shutdown-timeout"}


def test_the_pods_have_time_to_finish() -> None:
    """Requests in progress and binds whose outcome is unknown each get the shutdown timeout."""
    assert VALUES["extender"]["terminationGracePeriodSeconds"] > 2 * EXTENDER.shutdown_timeout


def test_the_image_and_the_scrape_annotations_have_the_ports() -> None:
    plain = [EXTENDER.metrics_port, PLUGIN.metrics_port]
    assert re.findall(r"^EXPOSE (.*)$", (ROOT / "Containerfile").read_text(encoding="utf-8"), re.MULTILINE) == [
        " ".join(map(str, [EXTENDER.port, *plain]))
    ]
    assert (DEPLOY / "image/health-check").read_text(encoding="utf-8").count(f"= {plain[0]}, {plain[1]}\n") == 1
    assert numbers(COMPONENTS / "scrape-annotations/kustomization.yaml", r'prometheus\.io/port: "(\d+)"') == plain
