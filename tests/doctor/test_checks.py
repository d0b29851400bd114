"""Every check both ways: a cluster where all is well, and each thing that can be wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.decision import names
from gas.doctor.checks.all_checks import CHECKS, all_findings
from gas.doctor.findings import Level
from gas.doctor.gather.accounts import permissions
from gas.doctor.probe import Unseen
from gas.doctor.programs import Program
from gas.doctor.report import as_json, as_text, exit_code
from gas.doctor.snapshot import Account, Clock, Permission, Reply, ServiceSeen
from gas.objects import DetailedContainer, DetailedNode, DetailedPod
from tests.doctor.snapshots import (
    NOW,
    call,
    configuration,
    entry,
    faults,
    findings,
    gpu_pod,
    intel_pod,
    lease,
    levels,
    plugin_pod,
    program_pod,
    scheduler,
    seen_node,
    seen_pod,
    snapshot,
    worst,
)

NOT_SEEN = Unseen("it may not be seen", "gas doctor --kubeconfig=FILE")


def test_a_healthy_cluster_has_only_findings_that_are_ok() -> None:
    found = [each for each in all_findings(snapshot()) if each.check != "certificates"]
    assert {each.level for each in found} == {Level.OK}
    assert {each.check for each in found} == CHECKS.keys() - {
        "certificates",
        "permissions",
        "usage-and-limits",
        "admission",
        "vocabularies",
    }
    assert exit_code(found) == 0


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
    ("flags", "verb", "level", "words"),
    [
        (("--preemption",), "scheduler/preempt", None, ""),
        ((), "", None, ""),
        ((), "scheduler/preempt", "problem", "--preemption of gas-extender"),
        (("--preemption=false",), "/scheduler/preempt", "problem", "does not serve preemptVerb"),
        (("--preemption",), "", "warning", "preemptVerb: scheduler/preempt"),
    ],
)
def test_the_preempt_verb_is_listed_if_the_extender_serves_it(
    flags: tuple[str, ...], verb: str, level: str | None, words: str
) -> None:
    changes = {"preemptVerb": verb} if verb else {}
    found = faults(
        "scheduler-configuration",
        schedulers=(scheduler(configuration(entry(**changes))),),
        pods=(program_pod("extender", "localhost/gas:1", "gas-extender", *flags),),
    )
    assert [each for each, _ in found] == ([level] if level else [])
    assert all(words in text for _, text in found)


@pytest.mark.parametrize(
    ("flags", "verb", "level", "words"),
    [
        (("--node-score=balance",), "scheduler/prioritize", None, ""),
        ((), "", None, ""),
        (("--node-score=none",), "", None, ""),
        ((), "scheduler/prioritize", "warning", "--node-score of gas-extender"),
        (("--node-score", "none"), "/scheduler/prioritize", "warning", "an error for every GPU pod"),
        (("--node-score=spread",), "", "warning", "prioritizeVerb: scheduler/prioritize"),
    ],
)
def test_the_prioritize_verb_is_listed_if_the_extender_scores_nodes(
    flags: tuple[str, ...], verb: str, level: str | None, words: str
) -> None:
    changes = {"prioritizeVerb": verb} if verb else {}
    found = faults(
        "scheduler-configuration",
        schedulers=(scheduler(configuration(entry(**changes))),),
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


EXTENDER = program_pod("gas-0", "gas:1", "gas-extender", node="cp")
ORIGINAL = program_pod("original-0", "docker.io/intel/gpu-extender", "/extender", node="cp")


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        pytest.param({"pods": (), "calls": ()}, "problem", "no pod runs an extender", id="none-runs"),
        pytest.param(
            {"pods": (program_pod("gas-0", "gas:1", "gas-extender", ready=False),)},
            "problem",
            "none is ready",
            id="not-ready",
        ),
        pytest.param({"pods": (ORIGINAL,)}, "warning", "instead of gas-extender", id="the-original-runs"),
        pytest.param({"pods": (EXTENDER, ORIGINAL)}, "warning", "beside gas-extender", id="both-run"),
        pytest.param(
            {
                "pods": (EXTENDER,),
                "calls": (call(connected="", failure="127.0.0.1:9001: Connection refused", reply=None),),
            },
            "problem",
            "Connection refused",
            id="not-reached-from-the-scheduler's-machine",
        ),
        pytest.param(
            {
                "pods": (EXTENDER,),
                "calls": (call(connected="", failure="x", reply=None, scheduler=scheduler(is_here=False)),),
            },
            "unknown",
            "from another machine",
            id="not-reached-from-elsewhere",
        ),
        pytest.param({"calls": (call(reply=Reply(error="EOF")),)}, "problem", "does not decide", id="turned-away"),
        pytest.param(
            {"calls": (call(reply=Reply(error="the ledger is not complete yet")),)}, "problem", "ledger", id="no-ledger"
        ),
        pytest.param(
            {"calls": (call(reply=None, client=NOT_SEEN, not_asked="x"),)},
            "unknown",
            "no filter request",
            id="no-certificate",
        ),
        pytest.param(
            {"calls": (call(service=ServiceSeen(name="s", namespace="n", exists=False)),)},
            "problem",
            "does not exist",
            id="no-service",
        ),
        pytest.param(
            {"calls": (call(service=ServiceSeen(name="s", namespace="n", exists=True)),)},
            "problem",
            "no ready extender",
            id="no-endpoint",
        ),
    ],
)
def test_an_extender_that_does_not_work_is_reported(changes: dict[str, Any], level: str, words: str) -> None:
    ((found, text),) = faults("extender", **changes)
    assert found == level
    assert words in text


def test_a_ready_extender_is_ok() -> None:
    assert faults("extender", pods=(EXTENDER,)) == []


def account(program: Program, allowed: bool | Unseen, permission: Permission) -> Account:
    return Account(program=program, namespace="default", name="gas", allowed={permission: allowed})


@pytest.mark.parametrize(
    ("permission", "allowed", "level", "words"),
    [
        pytest.param(
            Permission("create", "pods/binding"),
            False,
            "problem",
            "kubectl create clusterrole gas-create-pods-binding --verb=create --resource=pods/binding",
            id="cannot-bind",
        ),
        pytest.param(Permission("create", "events", needed=False), False, "warning", "reports less", id="no-events"),
        pytest.param(
            Permission("get", "leases", "coordination.k8s.io", "default"),
            False,
            "problem",
            "kubectl --namespace=default create role gas-get-leases --verb=get --resource=leases.coordination.k8s.io",
            id="no-lease",
        ),
        pytest.param(Permission("list", "pods"), NOT_SEEN, "unknown", "are unknown", id="reviews-not-allowed"),
    ],
)
def test_a_missing_permission_is_reported(
    permission: Permission, allowed: bool | Unseen, level: str, words: str
) -> None:
    ((found, text),) = faults("permissions", accounts=(account(Program.EXTENDER, allowed, permission),))
    assert found == level
    assert words in text


def test_an_account_with_every_permission_is_ok() -> None:
    accounts = (account(Program.PLUGIN, True, Permission("list", "pods")),)
    assert faults("permissions", accounts=accounts) == []


def test_the_permissions_follow_the_flags_of_the_program() -> None:
    def needed(program: Program, *flags: str) -> set[str]:
        found = permissions(program, DetailedContainer(args=list(flags)), "gas")
        return {" ".join(filter(None, (each.verb, each.resource, each.namespace, each.name))) for each in found}

    plain = needed(Program.EXTENDER)
    assert needed(Program.EXTENDER, "--leader-elect", "--lease-name=one") - plain == {
        "create leases gas",
        "get leases gas one",
        "update leases gas one",
    }
    assert needed(Program.PLUGIN) - needed(Program.PLUGIN, "--write-node=nfd") == {
        "get nodes",
        "list nodes",
        "watch nodes",
        "patch nodes/status",
    }
    assert needed(Program.PLUGIN, "--resource-manager=false") == set()


NFD = {"nfd.node.kubernetes.io/feature-labels": "gpu.intel.com/gpu-numbers,cpu-model.id"}


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        pytest.param({"nodes": NOT_SEEN}, "unknown", "may not be seen", id="nodes-not-seen"),
        pytest.param({"nodes": (), "pods": ()}, "problem", "no label and no resource is about GPUs", id="no-gpu-node"),
        pytest.param({"only_node": "other"}, "problem", "does not exist", id="no-such-node"),
        pytest.param({"nodes": (seen_node(labels={}),)}, "problem", "no label names its cards", id="no-labels"),
        pytest.param(
            {"nodes": (seen_node(labels={"gpu-numbers": "0.1", "numa-gpu-map": "0-0.7"}),)},
            "warning",
            "'card7'",
            id="a-label-about-a-card-that-is-not-there",
        ),
        pytest.param(
            {"nodes": (seen_node(writer="nfd-master"),), "pods": ()},
            "warning",
            "outdated labels",
            id="nfd-labels-without-a-source",
        ),
        pytest.param(
            {"nodes": (seen_node(writer="nfd-master"),), "pods": (intel_pod("0.34.1", "-resource-manager"),)},
            "warning",
            "outdated labels",
            id="labels-of-an-old-plugin-that-a-new-one-leaves",
        ),
        pytest.param({"nodes": (seen_node(annotations=NFD),)}, "warning", "both the plugin and", id="two-writers"),
    ],
)
def test_missing_invalid_or_outdated_labels_are_reported(changes: dict[str, Any], level: str, words: str) -> None:
    ((found, text),) = faults("node-labels", **changes)
    assert found == level
    assert words in text


@pytest.mark.parametrize(
    ("changes", "writer"),
    [
        pytest.param({}, "gas-plugin", id="by-the-plugin"),
        pytest.param(
            {"nodes": (seen_node(writer="kubectl-label"),), "pods": ()}, "kubectl-label; no program", id="by-hand"
        ),
        pytest.param(
            {"nodes": (seen_node(writer="nfd-master"),), "pods": (plugin_pod("--write-node=nfd"),)},
            "nfd-master",
            id="by-nfd-for-our-plugin",
        ),
        pytest.param(
            {"nodes": (seen_node(writer="nfd-master"),), "pods": (intel_pod("0.32.1", "-resource-manager"),)},
            "nfd-master",
            id="by-nfd-for-an-old-plugin",
        ),
        pytest.param({"nodes": (seen_node(writer="another"),)}, "another", id="by-another-program"),
    ],
)
def test_the_writer_of_the_labels_is_named(changes: dict[str, Any], writer: str) -> None:
    (well,) = findings("node-labels", **changes)
    assert well.level is Level.OK
    assert f"written by {writer}" in well.message


def without_memory(*sources: str) -> DetailedNode:
    """Build a node with two cards without memory.max, whose records state these sources."""
    records = [{"card": card, "memorySource": source} for card, source in enumerate(sources)]
    return seen_node(resources={"i915": "20", "millicores": "2000"}, annotations={"gas-cards": json.dumps(records)})


def test_integrated_gpus_are_named_without_a_warning() -> None:
    (well,) = findings("node-resources", nodes=(without_memory("shared", "shared"),))
    assert well.level is Level.OK
    assert well.message.endswith("; integrated, without memory of their own: card0, card1")


@pytest.mark.parametrize(
    ("node", "level", "words"),
    [
        pytest.param(seen_node(resources={}), "problem", "does not offer any", id="no-device-plugin"),
        pytest.param(
            seen_node(resources={"i915": "0"}, capacity={"i915": "20"}),
            "problem",
            "lost the device plugin",
            id="plugin-gone",
        ),
        pytest.param(
            seen_node(resources={"i915": "10"}, capacity={"i915": "20"}), "warning", "unhealthy", id="unhealthy-devices"
        ),
        pytest.param(seen_node(resources={"i915": "5"}), "warning", "does not divide evenly", id="five-over-two-cards"),
        pytest.param(
            seen_node(resources={"i915": "2", "millicores": "4000", "memory.max": "16G"}),
            "warning",
            "2000",
            id="two-thousand-millicores-a-card",
        ),
        pytest.param(
            seen_node(
                resources={"i915": "2", "memory.max": "30"},
                annotations={"gas-card-capacity": "card0=memory.max:10;card1=memory.max:10"},
            ),
            "warning",
            "memory.max is not the sum of its cards",
            id="unlike-cards-that-do-not-add-up",
        ),
        pytest.param(
            seen_node(
                resources={"i915": "20", "millicores": "2000", "memory.max": "16G"},
                annotations={"gas-card-capacity": "card0=memory.max:16G;card1=memory.max:0"},
            ),
            "warning",
            "do not get card1: the device plugin does not know how much",
            id="a-card-of-unknown-memory",
        ),
        pytest.param(
            seen_node(resources={"i915": "20", "millicores": "2000"}),
            "warning",
            "pods that request memory.max do not get card0, card1",
            id="no-card-of-known-memory",
        ),
        pytest.param(
            seen_node(resources={"i915": "20", "millicores": "2000"}),
            "warning",
            "or they are integrated GPUs, which have none of their own; nothing is wrong with those",
            id="integrated-gpus",
        ),
        pytest.param(
            without_memory("unknown", "shared"),
            "warning",
            "pods that request memory.max do not get card0: the device plugin does not know how much memory they have |"
            " memory.max of every card | none of card0",
            id="unknown-and-integrated",
        ),
        pytest.param(
            without_memory("sysfs", "sysfs"),
            "warning",
            "do not get card0, card1: the device plugin knows how much memory they have, but nothing of it is left",
            id="all-memory-reserved",
        ),
        pytest.param(
            seen_node(labels={"gpu-numbers": "0.1", "cards": "card0.card5"}),
            "warning",
            "disagree",
            id="two-labels-disagree",
        ),
    ],
)
def test_resources_that_disagree_with_the_labels_are_reported(node: DetailedNode, level: str, words: str) -> None:
    ((found, text),) = faults("node-resources", nodes=(node,))
    assert found == level
    assert words in text


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(
            seen_node(
                resources={"i915": "1", "xe": "1", "memory.max": "30"},
                annotations={"gas-card-capacity": "card0=i915:1,xe:0,memory.max:10;card1=i915:0,xe:1,memory.max:20"},
            ),
            id="unlike-cards-that-add-up",
        ),
        pytest.param(
            seen_node(
                resources={"i915": "2", "millicores": "1000", "memory.max": "8G"},
                annotations={
                    "gas-card-capacity": "card0=millicores:1000,memory.max:8G;card1=millicores:0,memory.max:0"
                },
            ),
            id="an-unhealthy-card",
        ),
        pytest.param(seen_node(labels={"gpu-numbers": "0.1", "cards": "card0"}), id="an-old-label-that-was-cut"),
        pytest.param(seen_node(resources={"i915": "2", "monitoring": "1"}), id="monitoring-is-not-divided"),
    ],
)
def test_resources_that_agree_with_the_labels_are_ok(node: DetailedNode) -> None:
    assert faults("node-resources", nodes=(node,)) == []


BY_NFD = seen_node(writer="nfd-master")


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        pytest.param({"pods": NOT_SEEN}, "unknown", "may not be seen", id="pods-not-seen"),
        pytest.param(
            {"pods": (intel_pod("0.34.1"),)}, "problem", "ignores annotations", id="v0.34-ignores-annotations"
        ),
        pytest.param({"pods": (intel_pod("v0.36.0-ubi"),)}, "problem", "v0.36", id="v0.36-too"),
        pytest.param({"pods": (intel_pod("0.32.1"),)}, "problem", "-resource-manager", id="without-resource-manager"),
        pytest.param({"pods": (intel_pod("latest"),)}, "unknown", "does not name the release", id="release-not-known"),
        pytest.param(
            {"pods": (plugin_pod("--resource-manager=false"),)},
            "problem",
            "does not obey",
            id="ours-switched-off",
        ),
        pytest.param({"pods": (plugin_pod(ready=False),)}, "problem", "not ready", id="ours-not-ready"),
        pytest.param({"nodes": (BY_NFD,), "pods": ()}, "unknown", "a device plugin offers", id="an-unknown-plugin"),
    ],
)
def test_a_device_plugin_that_ignores_annotations_is_reported(changes: dict[str, Any], level: str, words: str) -> None:
    ((found, text),) = faults("device-plugins", **changes)
    assert found == level
    assert words in text


def test_two_plugins_for_one_resource_on_a_node_are_reported() -> None:
    pods = (plugin_pod(), intel_pod("0.32.1", "-resource-manager"))
    ((level, text),) = faults("device-plugins", pods=pods)
    assert level == "problem"
    assert "2 device plugins serve the same cards" in text
    assert "default/gas-plugin-abcde, default/intel-gpu-plugin-abcde" in text


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param((intel_pod("v0.32.1", "-resource-manager"),), id="an-old-plugin-that-obeys"),
        pytest.param((), id="ours-as-a-service-of-the-machine"),
        pytest.param((plugin_pod(), plugin_pod(node="gpu-2", name="gas-plugin-fghij")), id="one-on-each-node"),
    ],
)
def test_a_device_plugin_that_obeys_annotations_is_ok(pods: tuple[Any, ...]) -> None:
    assert faults("device-plugins", nodes=(seen_node(), seen_node("gpu-2")), pods=pods) == []


def test_a_node_without_cards_is_skipped_even_with_a_plugin() -> None:
    bare = seen_node("cp", labels={}, resources={})
    changes = {"nodes": (seen_node(), bare), "pods": (plugin_pod(), plugin_pod(node="cp", name="gas-plugin-cp"))}
    for check in ("node-labels", "node-resources", "device-plugins", "clocks"):
        assert faults(check, **changes) == []


TWO_SOCKETS = seen_node(labels={"gpu-numbers": "0.1", "numa-gpu-map": "0-0_1-1"})
HINTING = plugin_pod("--topology-hints")
BY_INTEL = intel_pod("v0.32.1", "-resource-manager")


@pytest.mark.parametrize(
    ("pod", "policy", "level", "words"),
    [
        pytest.param(HINTING, "best-effort", "problem", "NUMA hints, and the policy best-effort", id="best-effort"),
        pytest.param(HINTING, "restricted", "problem", "other cards than are booked", id="restricted"),
        pytest.param(HINTING, "single-numa-node", "problem", "or are rejected", id="single-numa-node"),
        pytest.param(HINTING, NOT_SEEN, "unknown", "may not be seen", id="policy-not-seen"),
        pytest.param(BY_INTEL, "restricted", "problem", "Intel's GPU device plugin sends NUMA hints", id="intels"),
    ],
)
def test_numa_hints_with_which_kubelet_replaces_cards_are_reported(
    pod: DetailedPod, policy: str | Unseen, level: str, words: str
) -> None:
    seen = {"nodes": (TWO_SOCKETS,), "pods": (pod,), "topology_policies": {"gpu-1": policy}}
    ((found, text),) = faults("topology-manager", **seen)
    assert found == level
    assert words in text


@pytest.mark.parametrize(
    ("pods", "policy", "words"),
    [
        pytest.param((plugin_pod(),), "restricted", "under any policy; the policy is restricted", id="no-hints"),
        pytest.param((plugin_pod(),), NOT_SEEN, "the policy could not be read: ", id="no-hints-policy-not-seen"),
        pytest.param((), "restricted", "unless it has --topology-hints", id="plugin-outside-of-a-pod"),
        pytest.param((HINTING,), "none", "policy none ignores them", id="hints-that-are-not-used"),
    ],
)
def test_kubelet_does_not_replace_cards_without_hints_or_without_a_policy(
    pods: tuple[DetailedPod, ...], policy: str | Unseen, words: str
) -> None:
    found = findings("topology-manager", nodes=(TWO_SOCKETS,), pods=pods, topology_policies={"gpu-1": policy})
    assert levels(found) == ["ok"]
    assert words in found[0].message


def test_numa_hints_do_not_matter_if_all_cards_are_on_one_numa_node() -> None:
    node = seen_node(labels={"gpu-numbers": "0.1", "numa-gpu-map": "1-0.1"})
    found = findings("topology-manager", nodes=(node,), pods=(HINTING,), topology_policies={"gpu-1": "restricted"})
    assert levels(found) == ["ok"]


MASTER = program_pod("nfd-master", "registry/nfd/node-feature-discovery:v0.17.0", "nfd-master", node="cp")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"pods": (plugin_pod("--write-node=nfd"),)}, ["no pod of that runs"], id="needed-and-missing"),
        pytest.param(
            {"pods": (plugin_pod("--write-node=nfd"), MASTER), "feature_objects": 0},
            ["have not reported any node"],
            id="no-features",
        ),
        pytest.param(
            {"pods": (plugin_pod("--write-node=nfd"), MASTER), "feature_objects": NOT_SEEN}, ["may not"], id="not-seen"
        ),
        pytest.param(
            {"pods": (plugin_pod("--write-node=nfd"), MASTER), "feature_objects": 3}, [], id="needed-and-there"
        ),
        pytest.param({"pods": (plugin_pod(),)}, [], id="not-needed"),
    ],
)
def test_node_feature_discovery_is_checked_where_a_plugin_uses_it(changes: dict[str, Any], expected: list[str]) -> None:
    found = faults("feature-discovery", **changes)
    assert len(found) == len(expected)
    assert all(words in text for words, (_, text) in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [], id="all-agree"),
        pytest.param({"clock": NOT_SEEN}, ["may not"], id="api-server-without-a-date"),
        pytest.param(
            {"clock": Clock(before=NOW, server=NOW + 60, after=NOW), "node_leases": {}},
            ["60 s ahead"],
            id="server-ahead",
        ),
        pytest.param({"clock": Clock(before=NOW, server=NOW - 3, after=NOW)}, [], id="within-the-tolerance"),
        pytest.param(
            {"clock": Clock(before=NOW, server=NOW - 31, after=NOW), "node_leases": {}},
            ["30 s behind"],
            id="server-behind",
        ),
        pytest.param({"node_leases": NOT_SEEN}, ["may not"], id="heartbeats-not-seen"),
        pytest.param({"node_leases": {"gpu-1": lease(renewed="2027-01-15T08:01:00Z")}}, ["future"], id="node-ahead"),
        pytest.param(
            {"node_leases": {"gpu-1": lease(renewed="2027-01-15T07:50:00Z")}}, ["600 s ago"], id="node-behind"
        ),
        pytest.param({"node_leases": {"gpu-1": lease(renewed="nonsense")}}, [], id="no-time-at-all"),
        pytest.param({"node_leases": {}}, [], id="no-heartbeat"),
    ],
)
def test_clocks_that_disagree_are_reported(changes: dict[str, Any], expected: list[str]) -> None:
    found = faults("clocks", **changes)
    assert len(found) == len(expected), found
    assert all(words in text for words, (_, text) in zip(expected, found, strict=True))


UNREADABLE = {"gas-container-cards": "card0;card1"}
DAMAGED_RECEIPT = {"gas-allocated-cards": "nonsense"}


@pytest.mark.parametrize(
    ("pods", "level", "words"),
    [
        pytest.param((gpu_pod(),), "problem", "without an annotation that names its cards", id="bound-without-cards"),
        pytest.param((gpu_pod(annotations=UNREADABLE),), "problem", "cannot be read", id="unreadable"),
        pytest.param(
            (gpu_pod(cards="card0", annotations=DAMAGED_RECEIPT),), "warning", "receipt", id="damaged-receipt"
        ),
        pytest.param((gpu_pod(cards="card9"),), "warning", "'card9'", id="a-card-that-the-node-does-not-have"),
        pytest.param((gpu_pod(i915="-1"),), "problem", "is invalid", id="a-need-that-makes-no-sense"),
        pytest.param(
            (gpu_pod("a", cards="card0", millicores=600), gpu_pod("b", cards="card0", millicores=600)),
            "problem",
            "hold more than the card has",
            id="two-on-one-card",
        ),
        pytest.param(
            (gpu_pod("a", cards="card0", annotations={"gas-card-exclusion": "x"}), gpu_pod("b", cards="card0")),
            "warning",
            "the exclusion or anti-affinity of the pods default/a and default/b forbids that they share it",
            id="an-exclusion-that-is-broken",
        ),
        pytest.param(
            tuple(gpu_pod(name, cards="card0", annotations={"gas-card-anti-affinity": "x"}) for name in "ab"),
            "warning",
            "the exclusion or anti-affinity of the pods default/a and default/b forbids that they share it",
            id="an-anti-affinity-that-is-broken",
        ),
        pytest.param(
            (gpu_pod(node=None, message='Post "https://127.0.0.1:9001/scheduler/filter": EOF'),),
            "problem",
            "could not decide",
            id="waits-for-the-extender",
        ),
        pytest.param((gpu_pod(node=None, i915="-1"),), "warning", "no node can ever run it", id="never-fits"),
        pytest.param(
            (gpu_pod(node=None, i915=0, millicores=5),),
            "warning",
            "asks for 'gpu.intel.com/millicores' but for no card; add gpu.intel.com/i915",
            id="gets-no-card",
        ),
        pytest.param(
            (gpu_pod(node=None, annotations={"gas-same-gpus": "a"}),),
            "warning",
            "annotation 'gas-same-gpus' is not known and has no effect; did you mean gas-same-gpu?",
            id="unknown-annotation",
        ),
        pytest.param(
            (gpu_pod(node=None, i915=9),),
            "warning",
            "no node of the cluster could run the pod now, even without other pods: a container asks for 9 cards",
            id="no-node-could-hold-it",
        ),
        pytest.param(
            (gpu_pod(node=None, spec={"schedulerName": "other"}),), "problem", "default-scheduler", id="wrong-scheduler"
        ),
    ],
)
def test_a_pod_with_a_fault_is_reported(pods: tuple[Any, ...], level: str, words: str) -> None:
    ((found, text),) = faults("pods", pods=pods)
    assert found == level
    assert words in text


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(gpu_pod(cards="card1"), id="written-and-believed"),
        pytest.param(gpu_pod(phase="Failed"), id="ended"),
        pytest.param(gpu_pod(node=None, message="0/1 nodes: no card has 5.0 GB free"), id="waits-for-room"),
        pytest.param(seen_pod({"name": "no-gpu"}), id="no-gpu"),
    ],
)
def test_a_pod_without_a_fault_is_ok(pod: Any) -> None:
    assert faults("pods", pods=(pod,)) == []


def test_of_very_many_pods_only_some_are_reported_one_by_one() -> None:
    pods = tuple(gpu_pod(f"a-{number}") for number in range(50))
    found = faults("pods", pods=pods)
    assert len(found) == 21
    assert "30 more pods have invalid annotations" in found[-1][1]


def test_pods_of_other_nodes_are_skipped_with_one_node() -> None:
    assert faults("pods", nodes=(seen_node(), seen_node("gpu-2")), pods=(gpu_pod(),), only_node="gpu-2") == []


REFUSED = Reply(failed={"gpu-1": "no card has 1 i915 free"})


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        pytest.param({"calls": ()}, "unknown", "would fit on 1 of 1 nodes", id="not-asked"),
        pytest.param({"calls": (call(reply=REFUSED),)}, "problem", "1 have room", id="refused-though-there-is-room"),
        pytest.param(
            {
                "calls": (call(reply=REFUSED),),
                "nodes": (seen_node(resources={"i915": "2"}),),
                "pods": (gpu_pod(cards="card0", millicores=0), gpu_pod("b", cards="card1", millicores=0)),
            },
            "warning",
            "no node has room",
            id="all-cards-are-taken",
        ),
    ],
)
def test_a_dry_pod_that_is_not_placed_is_reported(changes: dict[str, Any], level: str, words: str) -> None:
    ((found, text),) = faults("dry-pod", **changes)
    assert found == level
    assert words in text


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="placed"),
        pytest.param({"dry_pod": False, "calls": ()}, id="not-wanted"),
        pytest.param({"nodes": (seen_node(resources={}),), "calls": ()}, id="no-cards-to-ask-about"),
    ],
)
def test_a_dry_pod_that_is_placed_or_not_wanted_is_ok(changes: dict[str, Any]) -> None:
    assert faults("dry-pod", **changes) == []


TEXTS = st.text(max_size=80) | st.sampled_from(
    ["0.1", "Z1", "card0", "card0=i915:1", "-1", "9" * 40, "1e400", "\x1b[2J"]
)
LABELS = ("gpu-numbers", "gpu-numbers2", "cards", "numa-gpu-map", "pci-groups", "xe-links", "gas-disable-card0")


@given(
    labels=st.dictionaries(st.sampled_from(LABELS), TEXTS),
    capacity=TEXTS,
    resources=st.dictionaries(st.sampled_from(["i915", "xe", "tiles", "millicores", "memory.max", "x"]), TEXTS),
    written=st.dictionaries(st.sampled_from([*names.WRITTEN_ANNOTATIONS]), TEXTS),
    image=TEXTS,
    arguments=st.lists(TEXTS, max_size=3),
    message=TEXTS,
)
def test_no_text_of_a_cluster_breaks_a_check_or_reaches_a_terminal(
    *,
    labels: dict[str, str],
    capacity: str,
    resources: dict[str, str],
    written: dict[str, str],
    image: str,
    arguments: list[str],
    message: str,
) -> None:
    node = seen_node(labels=labels, resources=resources, annotations={"gas-card-capacity": capacity})
    pods = (
        gpu_pod("a", annotations=written),
        gpu_pod("b", node=None, message=message),
        seen_pod({"name": "p", "image": image, "args": arguments}, node="gpu-1"),
        intel_pod("0.32.1", *arguments),
    )
    seen = snapshot(nodes=(node,), pods=pods)
    found = all_findings(seen)
    text = as_text(seen, found, show_all=True, colours=False) + as_json(seen, found)
    assert all(letter.isprintable() or letter == "\n" for letter in text)


ALIYUN = "--vocabularies=intel,aliyun"


def extender_pod(*flags: str) -> DetailedPod:
    return program_pod("gas-extender-1", "localhost/gas:1", "gas-extender", *flags, node="control-1")


def shared_node(**resources: str) -> DetailedNode:
    """Return a node whose two cards are offered as memory, too."""
    usual = {"i915": "20", "millicores": "2000", "memory.max": "2097152000"}
    return seen_node(resources=usual | {"aliyun.com/gpu-mem": "2000", "aliyun.com/gpu-count": "2"} | resources)


class TestVocabularies:
    """The check ``vocabularies``, and the others in a cluster with more than the default vocabulary."""

    def test_the_default_vocabulary_needs_no_finding(self) -> None:
        assert findings("vocabularies") == []

    def test_the_same_flags_everywhere_are_ok(self) -> None:
        pods = (extender_pod(ALIYUN), plugin_pod("--vocabularies", "aliyun,intel"))
        (found,) = findings("vocabularies", pods=pods, nodes=(shared_node(),))
        assert (found.level.value, found.message) == ("ok", "all speak intel, aliyun")

    @pytest.mark.parametrize(
        ("extender", "plugin", "expected", "found"),
        [
            ([ALIYUN], [], "intel,aliyun", "intel"),
            ([], [ALIYUN], "intel", "intel,aliyun"),
            ([ALIYUN], [ALIYUN, "--aliyun-unit=GiB"], "MiB", "GiB"),
        ],
    )
    def test_a_plugin_with_other_flags_is_a_problem(
        self, extender: list[str], plugin: list[str], expected: str, found: str
    ) -> None:
        pods = (extender_pod(*extender), plugin_pod(*plugin), plugin_pod(*plugin, node="gpu-2", name="another"))
        (fault,) = worst(findings("vocabularies", pods=pods))
        assert (fault.level.value, fault.expected, fault.found) == ("problem", expected, found)

    def test_a_vendors_plugin_on_shared_cards_is_a_problem(self) -> None:
        pods = (extender_pod(f"{ALIYUN},vendor"), plugin_pod(f"{ALIYUN},vendor"))
        alone = seen_node(name="gpu-2", labels={}, resources={"nvidia.com/gpu": "2"})
        nodes = (shared_node(**{"nvidia.com/gpu": "2"}), alone)
        (fault,) = worst(findings("vocabularies", pods=pods, nodes=nodes))
        assert (fault.level.value, fault.where) == ("problem", "node gpu-1")
        assert fault.found == "nvidia.com/gpu and shares on card0, card1"
        assert findings("vocabularies", pods=pods, nodes=nodes, only_node="gpu-2")[0].level.value == "ok"

    def test_a_resource_that_kube_scheduler_does_not_manage_is_a_problem(self) -> None:
        found = findings("scheduler-configuration", pods=(extender_pod(ALIYUN),), nodes=(shared_node(),))
        (fault,) = [each for each in worst(found) if "aliyun.com/gpu-mem" in each.message]
        assert fault.level.value == "problem"
        assert fault.expected == "aliyun.com/gpu-mem among managedResources"

    def test_pods_of_the_other_vocabulary_are_booked(self) -> None:
        asked = {"name": "main", "resources": {"requests": {"aliyun.com/gpu-mem": "900"}}}
        pods = [
            seen_pod(asked, name=name, node="gpu-1", annotations={"ALIYUN_COM_GPU_MEM_IDX": "0"}) for name in ("a", "b")
        ]
        found = findings("pods", pods=(extender_pod(ALIYUN), *pods), nodes=(shared_node(),))
        (fault,) = worst(found)
        assert (fault.where, fault.message) == ("card0 of node gpu-1", "pods hold more than the card has")
        assert worst(findings("pods", pods=(extender_pod(), *pods), nodes=(shared_node(),))) == []

    @pytest.mark.parametrize("flags", [["--vocabularies=klingon"], ["--vocabularies=aliyun", "--aliyun-unit=GB"]])
    def test_flags_that_the_extender_refuses_count_as_the_default(self, flags: list[str]) -> None:
        assert worst(findings("pods", pods=(extender_pod(*flags), gpu_pod(cards="card0")))) == []
