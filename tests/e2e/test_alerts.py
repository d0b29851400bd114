"""Prometheus' own checker accepts the alerts, and its unit tests make them fire."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.deployed import DEPLOY
from tests.e2e.fake_nvml import FakeNvml, card
from tests.e2e.plain_port import PlainPort
from tests.e2e.ports import free_port
from tests.e2e.programs import Program
from tests.e2e.waiting import wait_for

MONITORING = DEPLOY / "components/monitoring"
ALERTS = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]
NAMES = {rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(ALERTS))
    return file


def promtool(binaries: Path, *arguments: str | Path) -> str:
    done = subprocess.run(
        [binaries / "promtool", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_rules_are_valid(binaries: Path, rules: Path) -> None:
    count = sum(len(group["rules"]) for group in ALERTS["groups"])
    assert f"{count} rules found" in promtool(binaries, "check", "rules", rules)


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    written = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{written}}}", "values": values}


HEALTHY = [
    series("gas_extender_ready", "1x120", pod="a"),
    series("gas_extender_ready", "0x120", pod="b"),
    series("gas_extender_leader", "1x120", pod="a"),
    series("gas_extender_leader", "0x120", pod="b"),
    series("gas_extender_longest_wait_seconds", "0+30x120", namespace="a", reason="amount-does-not-fit"),
    series("gas_extender_unannotated_gpu_pods", "0x120", pod="a"),
    series("gas_extender_unreadable_annotations", "0x120", pod="a"),
    series("gas_extender_search_limit_hits_total", "5x120", pod="a"),
    series("gas_extender_certificate_expiry_timestamp_seconds", "9999999x120", pod="a", flag="cert"),
    series("gas_extender_refused_clients_total", "3x120", pod="a", reason="name"),
    series("gas_extender_watch_age_seconds", "40x120", pod="a", kind="pods"),
    series("gas_extender_requests_total", "0+10x120", pod="a", verb="filter", result="fits"),
    series("gas_extender_requests_total", "0x120", pod="a", verb="filter", result="internal-error"),
    series("gas_extender_request_seconds_bucket", "0+10x120", pod="a", verb="filter", le="0.01"),
    series("gas_extender_request_seconds_bucket", "0+10x120", pod="a", verb="filter", le="10.0"),
    series("gas_extender_request_seconds_bucket", "0+10x120", pod="a", verb="filter", le="+Inf"),
    series("gas_plugin_ready", "1x120", node="n1"),
    series("gas_plugin_cards", "0x120", node="n1", driver="i915", state="unhealthy"),
    series("gas_plugin_cards", "8x120", node="n1", driver="i915", state="healthy"),
    series("gas_plugin_card_losses_total", "2x120", node="n1", driver="i915"),
    series("gas_plugin_container_fault", "0x40 1x3 0x80", node="n1"),  # a new container helped
    series("gas_plugin_mismatches_total", "0x120", node="n1"),
    series("gas_plugin_tile_mismatches_total", "0x120", node="n1"),
    series("gas_plugin_card_memory_bytes", "8000000000x120", node="n1", card="card0", source="query"),
    series("gas_plugin_pods_over_memory_request", "0x120", node="n1"),
    series("gas_plugin_usage_walks_total", "0+6x120", node="n1"),
    series("gas_plugin_usage_walks_total", "0x120", node="n2"),  # without --usage
    series("gas_plugin_usage_problems", "0x120", node="n1"),
    series("gas_plugin_memory_limits_missing", "0x120", node="n1"),
]
"""A value each minute, for two hours."""

FAULTS: list[tuple[str, dict[str, str]]] = [
    ("GASExtenderDecidesNothing", series("gas_extender_ready", "0x120", pod="a")),
    (
        "GASPodsWaitLong",
        series("gas_extender_longest_wait_seconds", "3590+60x120", namespace="a", reason="amount-does-not-fit"),
    ),
    ("GASTwoExtendersDecide", series("gas_extender_leader", "1x120", pod="b")),
    ("GASPodsWithoutCards", series("gas_extender_unannotated_gpu_pods", "2x120", pod="a")),
    ("GASBooksAndAnnotationsDiffer", series("gas_extender_unreadable_annotations", "1x120", pod="a")),
    ("GASSearchesGivenUp", series("gas_extender_search_limit_hits_total", "5+1x120", pod="a")),
    (
        "GASCertificateEnds",
        series("gas_extender_certificate_expiry_timestamp_seconds", "9000x120", pod="a", flag="cert"),
    ),
    ("GASClientsTurnedAway", series("gas_extender_refused_clients_total", "0+3x120", pod="a", reason="name")),
    ("GASExtenderHearsNothing", series("gas_extender_watch_age_seconds", "900x120", pod="a", kind="pods")),
    (
        "GASExtenderFails",
        series("gas_extender_requests_total", "0+1x120", pod="a", verb="filter", result="internal-error"),
    ),
    ("GASFilterIsSlow", series("gas_extender_request_seconds_bucket", "0x120", pod="a", verb="filter", le="0.01")),
    ("GASPluginNotReady", series("gas_plugin_ready", "0x120", node="n1")),
    ("GASCardUnhealthy", series("gas_plugin_cards", "1x120", node="n1", driver="i915", state="unhealthy")),
    ("GASFewerCards", series("gas_plugin_cards", "8x40 7x80", node="n1", driver="i915", state="healthy")),
    ("GASCardsComeAndGo", series("gas_plugin_card_losses_total", "0+1x120", node="n1", driver="i915")),
    ("GASContainerFault", series("gas_plugin_container_fault", "0x40 1x80", node="n1")),
    ("GASOtherCardsThanDecided", series("gas_plugin_mismatches_total", "0+1x120", node="n1")),
    (
        "GASCardMemoryUnknown",
        series("gas_plugin_card_memory_bytes", "0x120", node="n1", card="card1", source="unknown"),
    ),
    ("GASPodsUseMoreMemoryThanRequested", series("gas_plugin_pods_over_memory_request", "2x120", node="n1")),
    ("GASUseNotMeasured", series("gas_plugin_usage_walks_total", "0+6x20 120x100", node="n1")),
    ("GASMemoryLimitsMissing", series("gas_plugin_memory_limits_missing", "1x120", node="n1")),
    ("GASOtherCardsThanDecided", series("gas_plugin_tile_mismatches_total", "0+1x120", node="n1")),
    ("GASUseNotMeasured", series("gas_plugin_usage_problems", "1x120", node="n1")),
]


def test_every_alert_has_a_fault_here() -> None:
    """A fault may be of a part that was removed with its alerts."""
    assert {alert for alert, _ in FAULTS} >= NAMES


def firing(binaries: Path, rules: Path, found: list[dict[str, str]], tmp_path: Path) -> set[str]:
    """Return the names of the alerts that fire after one hour of these series."""
    test: dict[str, Any] = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": found,
                # No such sample is expected, so promtool lists all that there are.
                "promql_expr_test": [{"expr": 'ALERTS{alertstate="firing"}', "eval_time": "1h", "exp_samples": []}],
            }
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(test))
    done = subprocess.run([binaries / "promtool", "test", "rules", file], capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0 or "got:" in said, said
    return set(re.findall(r'alertname="(\w+)"', said))


def test_a_fault_makes_its_alert_fire_and_no_other(binaries: Path, rules: Path, tmp_path: Path) -> None:
    assert firing(binaries, rules, HEALTHY, tmp_path) == set()
    for alert, fault in [each for each in FAULTS if each[0] in NAMES]:
        others = [healthy for healthy in HEALTHY if healthy["series"] != fault["series"]]
        assert firing(binaries, rules, [*others, fault], tmp_path) == {alert}, fault["series"]
    without = [each for each in HEALTHY if not each["series"].startswith("gas_extender")]
    assert firing(binaries, rules, without, tmp_path) == {"GASExtenderDecidesNothing"}


RECORDED = ("gas_plugin_cards", "gas_plugin_card_losses_total", "gas_plugin_container_fault")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_what_a_plugin_reports_of_a_lost_driver_and_a_lost_card_fires(
    binaries: Path, rules: Path, tmp_path: Path
) -> None:
    """The metrics of a real plugin in each state, as if each state had lasted for a while."""
    library, plain = FakeNvml(tmp_path / "nvml"), PlainPort(free_port())
    flags = ["--card-sources=nvml", "--resource-manager=false", "--node-name=n1", f"--kubelet-dir={tmp_path}"]
    command = [sys.executable, "-m", "gas.plugin", *flags, f"--metrics-port={plain.port}"]
    plugin = Program("plugin", command, log=tmp_path / "plugin.log", env=library.environment)

    def state(**wanted: int) -> dict[str, float]:
        """Wait until so many cards are in each state, and return the samples."""

        def look() -> dict[str, float] | None:
            with suppress(OSError):
                seen = plain.samples()
                counts = {name: seen.get(f'gas_plugin_cards{{driver="nvidia",state="{name}"}}') for name in wanted}
                return seen if counts == wanted else None
            return None

        found = wait_for(f"{wanted} cards", look, seconds=120)
        return {name: value for name, value in found.items() if name.partition("{")[0] in RECORDED}

    library.write([card(0), card(1)])
    plugin.start()
    try:
        well = state(healthy=2, unhealthy=0)
        library.write(["init 9", "count 999"])
        blind = state(healthy=0, unhealthy=2)
        library.write([card(0), card(1)])
        again = state(healthy=2, unhealthy=0)
        library.write([card(0)])
        fewer = state(healthy=1, unhealthy=0)
    finally:
        plugin.kill()

    def fired(*minutes: tuple[dict[str, float], int]) -> set[str]:
        """Return the alerts of a node whose plugin is in each state for some minutes."""
        found = []
        for name in well:
            labels = dict(re.findall(r'(\w+)="(\w+)"', name))
            values = " ".join(f"{seen[name]:g}x{count}" for seen, count in minutes)
            found.append(series(name.partition("{")[0], values, node="n1", **labels))
        names = {each["series"] for each in found}
        return firing(binaries, rules, [*(each for each in HEALTHY if each["series"] not in names), *found], tmp_path)

    assert fired((well, 120)) == set()
    assert fired((well, 30), (blind, 90)) == {"GASCardUnhealthy", "GASContainerFault"}
    assert fired((well, 30), (blind, 2), (again, 88)) == set()
    assert fired((again, 30), (fewer, 90)) == {"GASFewerCards"}
