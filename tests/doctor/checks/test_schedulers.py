"""The check of kube-scheduler's configuration, with its entry for the extender."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.snapshots import NOT_SEEN, configuration, entry, faults, program_pod, scheduler


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        pytest.param({"bindVerb": ""}, "problem", "bindVerb", id="no-bind-verb-means-no-cards"),
        pytest.param({"filterVerb": "filter"}, "problem", "scheduler/filter", id="another-filter-verb"),
        pytest.param({"preemptVerb": "preempt"}, "problem", "scheduler/preempt", id="another-preempt-verb"),
        pytest.param({"prioritizeVerb": "prioritize"}, "problem", "scheduler/prioritize", id="prioritize"),
        pytest.param({"ignorable": True}, "warning", "ignorable: false", id="ignorable"),
        pytest.param({"nodeCacheCapable": False}, "warning", "nodeCacheCapable: true", id="whole-nodes"),
        pytest.param({"enableHTTPS": False}, "problem", "serves TLS only", id="no-https"),
        pytest.param({"urlPrefix": "http://127.0.0.1:9001"}, "problem", "serves TLS only", id="plain-http"),
        pytest.param({"tlsConfig": None}, "problem", "certFile and keyFile", id="no-client-certificate"),
        pytest.param(
            {"tlsConfig": {"certFile": "/c/client.crt"}}, "problem", "one of them", id="a-certificate-without-a-key"
        ),
        pytest.param({"tlsConfig": {"certFile": "/c", "keyFile": "/k"}}, "warning", "no caFile", id="no-verification"),
        pytest.param(
            {"tlsConfig": {"certFile": "/c", "keyFile": "/k", "caFile": "/a", "insecure": True}},
            "warning",
            "insecure: true",
            id="insecure",
        ),
        pytest.param(
            {"managedResources": [{"name": "gpu.intel.com/xe"}]}, "problem", "nodes offer it", id="i915-is-offered"
        ),
        pytest.param(
            {"managedResources": [{"name": "gpu.intel.com/i915"}]},
            "warning",
            "gpu.intel.com/xe",
            id="xe-is-not-offered",
        ),
        pytest.param(
            {
                "managedResources": [
                    {"name": "gpu.intel.com/i915", "ignoredByScheduler": True},
                    {"name": "gpu.intel.com/xe"},
                ]
            },
            "warning",
            "ignoredByScheduler: true",
            id="ignored-by-scheduler",
        ),
    ],
)
def test_a_wrong_setting_of_the_extenders_entry_is_reported(changes: dict[str, Any], level: str, words: str) -> None:
    ((found, text),) = faults("scheduler-configuration", schedulers=(scheduler(configuration(entry(**changes))),))
    assert found == level
    assert words in text


@pytest.mark.parametrize("verb", ["", "scheduler/prioritize", "/scheduler/prioritize"])
def test_an_entry_with_and_without_scores_is_right(verb: str) -> None:
    assert faults("scheduler-configuration", schedulers=(scheduler(configuration(entry(prioritizeVerb=verb))),)) == []


@pytest.mark.parametrize(
    ("flags", "verbs", "level", "words"),
    [
        (("--preemption",), {"preemptVerb": "scheduler/preempt"}, None, ""),
        ((), {}, None, ""),
        ((), {"preemptVerb": "scheduler/preempt"}, "problem", "--preemption of gas-extender"),
        (
            ("--preemption=false",),
            {"preemptVerb": "/scheduler/preempt"},
            "problem",
            "does not serve preemptVerb",
        ),
        (("--preemption",), {}, "warning", "preemptVerb: scheduler/preempt"),
        (("--node-score=balance",), {"prioritizeVerb": "scheduler/prioritize"}, None, ""),
        (("--node-score=none",), {}, None, ""),
        ((), {"prioritizeVerb": "scheduler/prioritize"}, "warning", "--node-score of gas-extender"),
        (
            ("--node-score", "none"),
            {"prioritizeVerb": "/scheduler/prioritize"},
            "warning",
            "an error for every GPU pod",
        ),
        (("--node-score=spread",), {}, "warning", "prioritizeVerb: scheduler/prioritize"),
    ],
)
def test_a_verb_is_listed_if_the_extenders_flags_switch_it_on(
    flags: tuple[str, ...], verbs: dict[str, str], level: str | None, words: str
) -> None:
    found = faults(
        "scheduler-configuration",
        schedulers=(scheduler(configuration(entry(**verbs))),),
        pods=(program_pod("extender", "localhost/gas:1", "gas-extender", *flags),),
    )
    assert [each for each, _ in found] == ([level] if level else [])
    assert all(words in text for _, text in found)


@pytest.mark.parametrize(
    ("schedulers", "level", "words"),
    [
        pytest.param((), "unknown", "none was found", id="no-scheduler-in-sight"),
        pytest.param((scheduler(None),), "problem", "without --config", id="no-configuration"),
        pytest.param((scheduler(configuration()),), "problem", "none in", id="no-extender"),
        pytest.param(
            (scheduler(configuration({"urlPrefix": "https://other", "managedResources": [{"name": "x/y"}]})),),
            "problem",
            "none in",
            id="another-extender",
        ),
        pytest.param((scheduler(configuration(entry(), entry())),), "problem", "several extenders", id="two-entries"),
        pytest.param((scheduler(NOT_SEEN),), "unknown", "may not be seen", id="unreadable"),
        pytest.param(
            (scheduler(), scheduler(None, name="pod kube-system/kube-scheduler-b")),
            "problem",
            "kube-scheduler-b",
            id="one-of-two-control-planes-was-forgotten",
        ),
    ],
)
def test_a_scheduler_that_does_not_call_the_extender_is_reported(
    schedulers: tuple[Any, ...], level: str, words: str
) -> None:
    ((found, text),) = faults("scheduler-configuration", schedulers=schedulers)
    assert found == level
    assert words in text


def test_the_first_scheduler_needs_no_extender_beside_a_second_one_with_it() -> None:
    second = scheduler(configuration(entry(), names=("gpu-scheduler",)), name="pod gas/gpu-scheduler")
    assert faults("scheduler-configuration", schedulers=(scheduler(None), second)) == []


def test_a_scheduler_that_does_not_start_is_reported() -> None:
    broken = program_pod("kube-scheduler-cp", "k8s/kube-scheduler:v1.34.4", "kube-scheduler", ready=False)
    ((level, text),) = faults("scheduler-configuration", pods=(broken,))
    assert level == "problem"
    assert "is not ready" in text
    assert "kubectl --namespace=default logs kube-scheduler-cp" in text


def test_a_configuration_in_a_config_map_is_mended_there() -> None:
    from dataclasses import replace

    by_map = replace(scheduler(configuration(entry(ignorable=True))), config_map=("kube-system", "scheduler; rm"))
    ((_, text),) = faults("scheduler-configuration", schedulers=(by_map,))
    assert "kubectl --namespace=kube-system edit configmap 'scheduler; rm'" in text
