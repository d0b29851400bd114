"""The check of kube-scheduler's configuration, with its entry for the extender."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.snapshots import (
    CASE,
    NOT_SEEN,
    assert_case,
    case,
    configuration,
    entry,
    extender_pod,
    faults,
    findings,
    fine,
    program_pod,
    scheduler,
    shared_node,
    worst,
)


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        case("no-bind-verb-means-no-cards", "problem", "bindVerb", bindVerb=""),
        case("another-filter-verb", "problem", "scheduler/filter", filterVerb="filter"),
        case("prioritize", "problem", "scheduler/prioritize", prioritizeVerb="prioritize"),
        case("ignorable", "warning", "ignorable: false", ignorable=True),
        case("whole-nodes", "warning", "nodeCacheCapable: true", nodeCacheCapable=False),
        case("no-https", "problem", "serves TLS only", enableHTTPS=False),
        case("plain-http", "problem", "serves TLS only", urlPrefix="http://127.0.0.1:9001"),
        case("no-client-certificate", "problem", "certFile and keyFile", tlsConfig=None),
        case("a-certificate-without-a-key", "problem", "one of them", tlsConfig={"certFile": "/c/client.crt"}),
        case("no-verification", "warning", "no caFile", tlsConfig={"certFile": "/c", "keyFile": "/k"}),
        case(
            "insecure",
            "warning",
            "insecure: true",
            tlsConfig={"certFile": "/c", "keyFile": "/k", "caFile": "/a", "insecure": True},
        ),
        case("i915-is-offered", "problem", "nodes offer it", managedResources=[{"name": "gpu.intel.com/xe"}]),
        case("xe-is-not-offered", "warning", "gpu.intel.com/xe", managedResources=[{"name": "gpu.intel.com/i915"}]),
        case(
            "ignored-by-scheduler",
            "warning",
            "ignoredByScheduler: true",
            managedResources=[{"name": "gpu.intel.com/i915", "ignoredByScheduler": True}, {"name": "gpu.intel.com/xe"}],
        ),
    ],
)
def test_a_wrong_setting_of_the_extenders_entry_is_reported(changes: dict[str, Any], level: str, words: str) -> None:
    ((found, text),) = faults("scheduler-configuration", schedulers=(scheduler(configuration(entry(**changes))),))
    assert found == level
    assert words in text


@pytest.mark.parametrize(
    CASE,
    [
        case("no-scheduler-in-sight", "unknown", "none was found", schedulers=()),
        case("no-configuration", "problem", "without --config", schedulers=(scheduler(None),)),
        case("no-extender", "problem", "none in", schedulers=(scheduler(configuration()),)),
        case(
            "another-extender",
            "problem",
            "none in",
            schedulers=(
                scheduler(configuration({"urlPrefix": "https://other", "managedResources": [{"name": "x/y"}]})),
            ),
        ),
        case("two-entries", "problem", "several extenders", schedulers=(scheduler(configuration(entry(), entry())),)),
        case("unreadable", "unknown", "may not be seen", schedulers=(scheduler(NOT_SEEN),)),
        case(
            "one-of-two-control-planes-was-forgotten",
            "problem",
            "kube-scheduler-b",
            schedulers=(scheduler(), scheduler(None, name="pod kube-system/kube-scheduler-b")),
        ),
        fine(
            "the-first-needs-none-beside-a-second-one-with-it",
            schedulers=(
                scheduler(None),
                scheduler(configuration(entry(), names=("gpu-scheduler",)), name="pod gas/gpu-scheduler"),
            ),
        ),
    ],
)
def test_a_scheduler_calls_the_extender_or_another_one_does(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("scheduler-configuration", changes, level, words)


def test_a_scheduler_that_does_not_start_is_reported() -> None:
    broken = program_pod("kube-scheduler-cp", "k8s/kube-scheduler:v1.35.4", "kube-scheduler", ready=False)
    ((level, text),) = faults("scheduler-configuration", pods=(broken,))
    assert level == "problem"
    assert "is not ready" in text
    assert "kubectl --namespace=default logs kube-scheduler-cp" in text


def test_a_configuration_in_a_config_map_is_mended_there() -> None:
    from dataclasses import replace

    by_map = replace(scheduler(configuration(entry(ignorable=True))), config_map=("kube-system", "scheduler; rm"))
    ((_, text),) = faults("scheduler-configuration", schedulers=(by_map,))
    assert "kubectl --namespace=kube-system edit configmap 'scheduler; rm'" in text


def test_a_resource_that_kube_scheduler_does_not_manage_is_a_problem() -> None:
    found = findings(
        "scheduler-configuration", pods=(extender_pod("--vocabularies=intel,aliyun"),), nodes=(shared_node(),)
    )
    (fault,) = [each for each in worst(found) if "aliyun.com/gpu-mem" in each.message]
    assert fault.level.value == "problem"
    assert fault.expected == "aliyun.com/gpu-mem among managedResources"
