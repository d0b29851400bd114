"""The rules of Kubernetes that keep a pod off a node."""

from __future__ import annotations

from typing import Any

import pytest

from gas.inspection.objects import exclusion, not_checked
from tests.builders import container, node_json, pod_json
from tests.inspection.example_cluster import decoded_node, decoded_pod


def excluded(spec: dict[str, Any], node_spec: dict[str, Any] | None = None) -> str:
    pod = pod_json(container(i915=1))
    pod["spec"] |= spec
    node = node_json("gpu-1", labels={"zone": "a", "rank": "5"})
    node["spec"] = node_spec or {}
    return exclusion(decoded_pod(pod), decoded_node(node))


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str, field: bool = False) -> dict[str, Any]:
    found = {"key": key, "operator": operator, "values": list(values)}
    return {"matchFields" if field else "matchExpressions": [found]}


@pytest.mark.parametrize(
    ("spec", "excludes"),
    [
        pytest.param({}, False, id="no-rule"),
        pytest.param({"nodeSelector": {"zone": "a"}}, False, id="selector-matches"),
        pytest.param({"nodeSelector": {"zone": "b"}}, True, id="selector-differs"),
        pytest.param({"nodeSelector": {"missing": ""}}, True, id="label-missing"),
        pytest.param(affinity(expression("zone", "In", "a", "b")), False, id="in"),
        pytest.param(affinity(expression("zone", "NotIn", "a")), True, id="not-in"),
        pytest.param(affinity(expression("missing", "NotIn", "a")), False, id="not-in-without-label"),
        pytest.param(affinity(expression("zone", "Exists")), False, id="exists"),
        pytest.param(affinity(expression("zone", "DoesNotExist")), True, id="does-not-exist"),
        pytest.param(affinity(expression("rank", "Gt", "4")), False, id="greater"),
        pytest.param(affinity(expression("rank", "Lt", "5")), True, id="not-less"),
        pytest.param(affinity(expression("zone", "Gt", "4")), True, id="not-a-number"),
        pytest.param(affinity(expression("metadata.name", "In", "gpu-1", field=True)), False, id="name"),
        pytest.param(affinity(expression("metadata.name", "In", "gpu-2", field=True)), True, id="another-name"),
        pytest.param(affinity(expression("zone", "In", "b"), expression("zone", "In", "a")), False, id="second-term"),
        pytest.param(affinity({}), True, id="an-empty-term-selects-nothing"),
        pytest.param(affinity(expression("zone", "Near", "a")), True, id="unknown-operator"),
    ],
)
def test_selector_and_affinity(spec: dict[str, Any], excludes: bool) -> None:
    assert bool(excluded(spec)) is excludes


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        pytest.param({"key": "gpu", "operator": "Exists"}, True, id="exists"),
        pytest.param({"operator": "Exists"}, True, id="everything"),
        pytest.param({"key": "gpu", "value": "yes"}, True, id="equal"),
        pytest.param({"key": "gpu", "value": "no"}, False, id="another-value"),
        pytest.param({"key": "cpu", "operator": "Exists"}, False, id="another-key"),
        pytest.param({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False, id="another-effect"),
        pytest.param({"key": "gpu", "value": "yes", "effect": "NoSchedule"}, True, id="this-effect"),
    ],
)
def test_taints_and_tolerations(toleration: dict[str, Any], tolerates: bool) -> None:
    sentence = "" if tolerates else "the pod does not tolerate the taint gpu"
    assert excluded({"tolerations": [toleration]}, {"taints": [TAINT]}) == sentence


def test_a_taint_that_is_only_a_wish_excludes_nothing() -> None:
    assert excluded({}, {"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}) == ""


def test_a_cordoned_node_takes_only_pods_that_tolerate_it() -> None:
    assert excluded({}, {"unschedulable": True}) == "the node is cordoned"
    tolerates = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}
    assert excluded(tolerates, {"unschedulable": True}) == ""


def test_rules_that_are_not_modelled_are_named() -> None:
    pod = pod_json(container(i915=1))
    assert not_checked(decoded_pod(pod)) == ()
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    pod["spec"] |= {
        "affinity": {"podAffinity": required, "podAntiAffinity": required},
        "topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}],
    }
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    assert not_checked(decoded_pod(pod)) == (
        "pod affinity",
        "pod anti-affinity",
        "topology spread constraints",
        "volumes",
        "resource claims",
        "host ports",
    )


def test_volumes_and_ports_that_every_node_has_are_not_named() -> None:
    pod = pod_json(container(i915=1))
    pod["spec"]["volumes"] = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "kube-api-access-x", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
    ]
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80}]
    assert not_checked(decoded_pod(pod)) == ()
    pod["spec"]["hostNetwork"] = True
    assert not_checked(decoded_pod(pod)) == ("host ports",)
