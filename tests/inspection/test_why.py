"""Why pods wait: the reasons, and suggestions that work when they are followed."""

from __future__ import annotations

import json
import os
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gas.inspection.cluster import Cluster
from gas.inspection.objects import InspectedNode, InspectedPod
from gas.inspection.rows import pod_report
from gas.inspection.why import Explanation, Suggestion, explain, explanation_lines
from tests.builders import container, described_node, node_json, pod_json
from tests.doctor.sandbox_cluster import doctor_server, only_admin, write_kubeconfig
from tests.inspection.conftest import Kubectl
from tests.inspection.example_cluster import (
    GB,
    cluster_of,
    create_pod,
    decoded_node,
    decoded_pod,
    example_cluster,
    example_nodes,
    example_pods,
    extender_pod,
    gpu_node_json,
    record,
    running,
    waiting,
)
from tests.inspection.steps import follow_moves, passing

WAITING_PODS = int(os.environ.get("WAITING_PODS", "50"))
"""Pods whose suggestions are followed; see docs/development.md."""

FPGA = "example.com/fpga"
DISABLED = "telemetry.aware.scheduling.p/gas-disable-card0"


def why(nodes: list[dict[str, Any]], pods: list[dict[str, Any]], pod: dict[str, Any]) -> Explanation:
    cluster = cluster_of(nodes, [*pods, pod, extender_pod("--enableAllowlist", "--enableDenylist")])
    return explain(cluster, decoded_pod(pod))


def texts(explanation: Explanation) -> list[str]:
    return [each.text for each in explanation.suggestions]


def test_reasons_are_counted_by_node_with_the_card_that_comes_closest() -> None:
    found = explain(example_cluster(), decoded_pod(waiting("p", i915=1, memory_max=14 * GB)))
    (group,) = found.groups
    assert (group.nodes, found.nodes) == (3, 3)
    assert group.nearest == "gpu-2 card0 with 10.0 GB of memory.max"


def test_the_largest_request_that_fits_is_suggested() -> None:
    found = explain(example_cluster(), decoded_pod(waiting("p", i915=1, memory_max=14 * GB)))
    first = found.suggestions[0]
    assert first.text == (
        "ask for 10000000000 (10.0 GB) of gpu.intel.com/memory.max in container main instead of 14000000000 (14.0 GB)"
    )
    assert (first.node, first.cards) == ("gpu-2", ("card0",))


def test_several_requests_are_lowered_together_if_one_alone_is_not_enough() -> None:
    nodes = [gpu_node_json("n", record(0), memory=8 * GB)]
    pods = [running("a", "n", "card0", i915=1, millicores=600, memory_max=5 * GB)]
    found = why(nodes, pods, waiting("p", i915=1, millicores=700, memory_max=6 * GB))
    (text,) = [text for text in texts(found) if text.startswith("ask")]
    assert "400 of gpu.intel.com/millicores" in text
    assert f"{3 * GB} (3.0 GB) of gpu.intel.com/memory.max" in text


def test_too_little_cpu_is_a_reason_and_less_of_it_a_suggestion() -> None:
    node = gpu_node_json("n", record(0), cpu="2")
    found = why([node], [running("a", "n", "card0", i915=1, cpu="500m")], waiting("p", i915=1, cpu="2"))
    assert [group.text for group in found.groups] == ["the node has less than 2000m of cpu free"]
    assert texts(found) == [
        "ask for 1500m of cpu in container main instead of 2000m",
        "wait for the end of pod default/a",
    ]


def test_no_pod_need_end_or_move_for_a_resource_that_its_node_does_not_offer() -> None:
    """There are FPGAs, so the request is not misspelt, but on a node without GPUs."""
    nodes = [gpu_node_json("n-1", record(0), cpu="8"), described_node("n-2", {FPGA: "1", "cpu": "8"})]
    asked = waiting("p", i915=1, memory_max=10 * GB)
    asked["spec"]["containers"][0]["resources"]["requests"][FPGA] = "1"
    assert texts(why(nodes, [running("a", "n-1", "card0", i915=1, memory_max=10 * GB)], asked)) == []


def test_fewer_cards_are_suggested() -> None:
    nodes = [gpu_node_json("n", record(0), record(1))]
    found = why(nodes, [], waiting("p", i915=3))
    assert texts(found) == ["ask for 2 of gpu.intel.com/i915 in container main instead of 3"]


def test_where_the_pods_that_hold_the_cards_could_move() -> None:
    nodes = [gpu_node_json("n", record(0)), gpu_node_json("m", record(0), memory=8 * GB)]
    pods = [running("a", "n", "card0", i915=1, memory_max=6 * GB)]
    found = why(nodes, pods, waiting("p", i915=1, memory_max=12 * GB))
    assert "move default/a to m; nothing is evicted by this command" in texts(found)
    held = [running(name, "n", card, i915=1, memory_max=5 * GB) for name, card in (("a", "card0"), ("b", "card1"))]
    found = why([gpu_node_json("n", record(0), record(1))], held, waiting("p", i915=1, memory_max=12 * GB))
    assert "move default/b to card0 of n; nothing is evicted by this command" in texts(found)


def owned(pod: dict[str, Any], owner: str, hashed: str = "pod-template-hash") -> dict[str, Any]:
    """Return the pod as one of a controller such as ``ReplicaSet/web-1``; only those of Jobs end by themselves."""
    kind, _, name = owner.partition("/")
    labels = {hashed: name.rpartition("-")[2]} if kind == "ReplicaSet" else {}
    pod["metadata"] |= {"ownerReferences": [{"kind": kind, "name": name, "controller": True}], "labels": labels}
    pod["spec"]["restartPolicy"] = "Never" if kind == "Job" else "Always"
    return pod


STAYS = "{}, whose pod default/a does not end by itself"
ROLLING = (
    "set maxSurge: 0 and maxUnavailable: 1, or type: Recreate, in the update strategy of {}, whose old pod default/a"
    " ends only once the new one runs"
)


@pytest.mark.parametrize(
    ("holders", "asking", "first"),
    [
        (["Job/j"], "Job/k", "wait for the end of pod default/a"),
        (["StatefulSet/db", "Job/j"], "Job/k", "wait for the end of pod default/b"),
        (["StatefulSet/db"], "Job/k", STAYS.format("scale down StatefulSet/db")),
        (["DaemonSet/agent"], "Job/k", STAYS.format("keep DaemonSet/agent off n0")),
        ([""], "Job/k", "delete pod default/a"),
        (["ReplicaSet/web-1"], "ReplicaSet/web-1", STAYS.format("scale down Deployment/web")),
        (["ReplicaSet/web-1", "Job/j"], "ReplicaSet/web-2", ROLLING.format("Deployment/web")),
        (["DaemonSet/d"], "DaemonSet/d", ROLLING.format("DaemonSet/d").replace(", or type: Recreate,", "")),
    ],
)
def test_only_what_ends_is_waited_for(holders: list[str], asking: str, first: str) -> None:
    nodes = [gpu_node_json(f"n{at}", record(0)) for at in range(len(holders))]
    pods = [
        owned(running("ab"[at], f"n{at}", "card0", i915=1, memory_max=16 * GB), each) for at, each in enumerate(holders)
    ]
    pod = owned(waiting("p", i915=1, memory_max=16 * GB), asking)
    assert next(each.text for each in why(nodes, pods, pod).suggestions if each.gone) == first


def test_pods_of_an_argo_rollout_wait_for_each_other_as_those_of_a_deployment_do() -> None:
    old, new = (
        owned(pod, f"ReplicaSet/web-{at}", "rollouts-pod-template-hash")
        for at, pod in enumerate((running("a", "n", "card0", i915=1, memory_max=GB), waiting("p", i915=1)))
    )
    assert decoded_pod(new).waits_for(decoded_pod(old))
    assert decoded_pod(old).owner == "Rollout/web"


@pytest.mark.parametrize(
    ("annotations", "removed"),
    [
        pytest.param({"gas-deny": "card0"}, "gas-deny", id="deny-list"),
        pytest.param({"gas-allow": "card5"}, "gas-allow", id="allow-list"),
        pytest.param({"gas-card-order": "nonsense"}, "gas-card-order", id="unreadable"),
        pytest.param({"gas-card-exclusion": "mine"}, "gas-card-exclusion", id="company"),
    ],
)
def test_annotations_that_exclude_the_pod(annotations: dict[str, str], removed: str) -> None:
    pod = waiting("p", i915=1, memory_max=GB)
    pod["metadata"]["annotations"] = annotations
    nodes = [gpu_node_json("n", record(0))]
    found = why(nodes, [running("a", "n", "card0", i915=1, memory_max=GB)], pod)
    assert f"remove the annotation {removed}" in texts(found)


def test_rules_of_kubernetes_that_exclude_the_nodes_with_room() -> None:
    pod = waiting("p", i915=1)
    pod["spec"]["nodeSelector"] = {"zone": "c"}
    found = why(example_nodes(), example_pods(), pod)
    assert texts(found) == ["remove its node selector"]
    assert [(group.text, group.nodes) for group in found.groups] == [
        ("the pod's node selector does not match the node", 3)
    ]
    tainted = example_nodes()
    for node in tainted:
        node["spec"] = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    assert texts(why(tainted, [], waiting("p", i915=1))) == ["let it tolerate the taint gpu"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        pytest.param({"i915": 2}, "ask for 1 of gpu.intel.com/i915 in container main instead of 2", id="request"),
        pytest.param({"i915": 1, "deny": "card0"}, "remove the annotation gas-deny", id="annotation"),
    ],
)
def test_a_changed_pod_is_said_to_fit_where_its_preferred_card_is(fields: dict[str, Any], text: str) -> None:
    prefer = {"telemetry.aware.scheduling.p/gas-prefer-gpu": "card0"}
    nodes = [gpu_node_json("a", record(0)), gpu_node_json("b", record(0), labels=prefer), gpu_node_json("c", record(0))]
    pod = waiting("p", i915=fields["i915"])
    pod["metadata"]["annotations"] = {"gas-deny": fields["deny"]} if "deny" in fields else {}
    found = why(nodes, [], pod)
    assert [(each.text, each.node) for each in found.suggestions] == [(text, "b")]


def test_telemetry_labels_that_close_the_cards() -> None:
    nodes = [gpu_node_json("n", record(0), labels={DISABLED: "true"})]
    found = why(nodes, [], waiting("p", i915=1))
    assert texts(found) == ["open the closed cards of n, if they are well; gas inspect n shows what closes them"]


def test_a_pod_that_fits_gets_no_suggestions() -> None:
    found = explain(example_cluster(), decoded_pod(waiting("p", i915=1)))
    assert found.line.startswith("fits on 3 of 3 nodes")
    assert found.suggestions == ()


NO_CLAIM = '0/3 nodes are available: persistentvolumeclaim "data" not found.'


def refused(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with a claim that does not exist, as kube-scheduler refuses it."""
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": f"{NO_CLAIM}\n"}
    pod["status"] = {"phase": "Pending", "conditions": [condition]}
    return pod


def test_what_the_scheduler_refuses_for_other_reasons_quotes_it_and_says_what_was_not_looked_at() -> None:
    """Also where cards are short as well: who frees them meets the other reason next."""
    fits, large = refused(waiting("fits", i915=1)), refused(waiting("large", i915=1, memory_max=99 * GB))
    cluster = cluster_of(example_nodes(), [fits, large])
    failed = f"the last attempt of kube-scheduler failed: {NO_CLAIM}"
    line = f"fits on 3 of 3 nodes; {failed}; not looked at here: volumes"
    assert [explain(cluster, decoded_pod(fits)).line, pod_report(cluster).rows[0]["note"]] == [line, line]
    assert explain(cluster, decoded_pod(large)).details == (failed,)


def test_a_pod_that_no_scheduler_looks_at_yet_says_so() -> None:
    gated, other = waiting("gated", i915=1), waiting("other", i915=1)
    gated["spec"]["schedulingGates"] = [{"name": "queue"}]
    other["spec"]["schedulerName"] = "gas-scheduler"
    gate = "it is scheduled only when its scheduling gates have been removed: queue"
    cluster = cluster_of(example_nodes(), [gated, other])
    assert [row["note"] for row in pod_report(cluster).rows] == [
        f"fits on 3 of 3 nodes; {gate}",
        "fits on 3 of 3 nodes; scheduler gas-scheduler has not reported on it yet; check that a scheduler of this name"
        " runs",
    ]
    assert explain(cluster, decoded_pod(gated)).line == f"fits on 3 of 3 nodes; {gate}"
    large = waiting("large", i915=1, memory_max=99 * GB)
    large["spec"]["schedulingGates"] = gated["spec"]["schedulingGates"]
    explained = explain(cluster, decoded_pod(large))
    assert (explained.details, explained.suggestions) == ((gate,), ())
    deleted = waiting("deleted", i915=1)
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert "it is being deleted" in explain(cluster, decoded_pod(deleted)).line


def test_a_pod_that_has_ended_waits_for_nothing_even_if_it_never_had_a_node() -> None:
    ended = waiting("ended", i915=1)
    ended["status"] = {"phase": "Failed"}
    assert explain(example_cluster(), decoded_pod(ended)).line == "the pod has ended, so it holds no cards"


def test_a_pod_that_can_never_fit_says_so() -> None:
    found = why([gpu_node_json("n", record(0))], [], waiting("p", tiles=4, i915=1))
    assert found.groups[0].text.startswith("no card of the node has any tiles")
    assert list(explanation_lines("default/p", found))[-1] == "No single change was found that would let it run."


def test_a_pod_that_runs_shows_its_cards_and_what_it_would_get_now() -> None:
    cluster = example_cluster()
    found = explain(cluster, cluster.pod("default", "train-1"))
    assert found.line == "has card1 of node gpu-1"
    assert "of card1 it holds 1 i915, 10.0 GB of memory.max, 500 millicores" in found.details
    assert "placed on this node again now, without itself, it would get the same cards" in found.details
    (other,) = [detail for detail in found.details if detail.startswith("now, without it, card0: ")]
    assert "200 of 1000 millicores free, 500 needed" in other


def test_the_search_ends_when_time_is_up_and_says_so() -> None:
    found = explain(example_cluster(), decoded_pod(waiting("p", i915=1, memory_max=14 * GB)), lambda: True)
    assert not found.is_complete
    assert found.line.startswith("no card has 14.0 GB of memory.max free; nearest: gpu-2 card0")


def follow(
    suggestion: Suggestion, nodes: list[dict[str, Any]], pods: list[dict[str, Any]], pod: InspectedPod
) -> tuple[Cluster, InspectedPod]:
    """Return the cluster and the pod after a suggestion was followed."""
    stay = [each for each in pods if each["metadata"]["uid"] not in suggestion.gone]
    changed_nodes: list[InspectedNode] = []
    for node in nodes:
        labels = dict(node["metadata"]["labels"])
        if suggestion.text.startswith("open the closed cards") and node["metadata"]["name"] == suggestion.node:
            labels.pop(DISABLED, None)
        changed_nodes.append(decoded_node({**node, "metadata": {**node["metadata"], "labels": labels}}))
    changed = suggestion.pod or pod
    cluster = Cluster.of(changed_nodes, [decoded_pod(each) for each in stay], counts_hosts=True)
    follow_moves(cluster, suggestion.moves)
    assert suggestion.node in passing(cluster, changed), suggestion.text
    return cluster, changed


SIZES = st.integers(1, 8)
PODS = st.lists(st.tuples(SIZES, st.integers(0, 1), st.sampled_from([100, 300, 700])), max_size=3)


@settings(max_examples=WAITING_PODS)
@given(
    built=st.lists(st.tuples(PODS, st.booleans(), st.sampled_from(["", "a", "b"])), min_size=1, max_size=4),
    cpu=st.tuples(st.sampled_from(["1", "2", "8"]), st.sampled_from(["100m", "1500m", "9"])),
    cards=st.integers(1, 3),
    memory=st.integers(1, 10),
    millicores=st.sampled_from([100, 500, 900]),
    annotations=st.sampled_from([{}, {"gas-deny": "card0"}, {"gas-allow": "card1"}, {"gas-card-exclusion": "x"}]),
    selector=st.sampled_from([{}, {"zone": "a"}]),
    fpgas=st.sampled_from([None, 0, 1, 4]),
)
def test_every_suggestion_makes_the_pod_fit_when_it_is_followed(
    *,
    built: list[tuple[list[tuple[int, int, int]], bool, str]],
    cpu: tuple[str, str],
    cards: int,
    memory: int,
    millicores: int,
    annotations: dict[str, str],
    selector: dict[str, str],
    fpgas: int | None,
) -> None:
    """The pod asks for an FPGA as well if `fpgas` is the number of nodes that offer one."""
    nodes, pods = [], [extender_pod("--enableAllowlist", "--enableDenylist")]
    for at, (booked, disabled, zone) in enumerate(built):
        labels = {**({DISABLED: "true"} if disabled else {}), **({"zone": zone} if zone else {})}
        others = {"cpu": cpu[0]} | ({FPGA: "1"} if at < (fpgas or 0) else {})
        nodes.append(gpu_node_json(f"n-{at}", record(0), record(1), memory=8 * GB, labels=labels, **others))
        for each, (size, card, share) in enumerate(booked):
            asks: dict[str, Any] = {"i915": 1, "millicores": share, "memory_max": size * GB, "cpu": "300m"}
            pods.append(running(f"p-{at}-{each}", f"n-{at}", f"card{card}", **asks))
    asked = waiting("asked", i915=cards, millicores=millicores * cards, memory_max=memory * GB * cards, cpu=cpu[1])
    asked["metadata"]["annotations"] = annotations
    asked["spec"]["nodeSelector"] = selector
    if fpgas is not None:
        asked["spec"]["containers"][0]["resources"]["requests"][FPGA] = "1"
    cluster, waits = cluster_of(nodes, [*pods, asked]), decoded_pod(asked)
    found = explain(cluster, waits)
    assert found.is_complete
    assert sum(group.nodes for group in found.groups) == (0 if found.line.startswith("fits on") else len(nodes))
    if passing(cluster, waits):
        assert found.suggestions == ()
        return
    for suggestion in found.suggestions:
        follow(suggestion, nodes, pods, waits)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 10)), min_size=1, max_size=4), st.integers(2, 10))
def test_the_request_that_is_suggested_is_the_largest_that_fits(booked: list[tuple[int, int]], memory: int) -> None:
    nodes = [gpu_node_json(f"n-{at}", record(0), memory=8 * GB) for at in range(len(booked))]
    pods = [
        running(f"p-{at}", f"n-{at}", "card0", i915=1, millicores=share * 100, memory_max=size * GB)
        for at, (size, share) in enumerate(booked)
    ]
    free = [(8 - size, 10 - share) for size, share in booked]
    most = max((size for size, share in free if share >= 5), default=0)
    assume(most < memory)
    pod = waiting("asked", i915=1, millicores=500, memory_max=memory * GB)
    suggested = [
        text for text in texts(why(nodes, pods, pod)) if "of gpu.intel.com/memory.max" in text and " and " not in text
    ]
    expected = f"ask for {most * GB} ({most}.0 GB) of gpu.intel.com/memory.max in container main"
    assert [text.partition(" instead")[0] for text in suggested] == ([expected] if most else [])


@given(st.lists(SIZES, min_size=1, max_size=6), SIZES)
def test_the_fewest_pods_are_named_that_must_end(sizes: list[int], memory: int) -> None:
    """Compare with every subset of the pods, on one card."""
    total = sum(sizes) + 1
    nodes = [gpu_node_json("n", record(0), memory=total * GB)]
    pods = [running(f"p-{at}", "n", "card0", i915=1, memory_max=size * GB) for at, size in enumerate(sizes)]
    wanted = min(memory + 1, total)
    fewest = min(
        count
        for count in range(len(sizes) + 1)
        for gone in combinations(sizes, count)
        if total - (sum(sizes) - sum(gone)) >= wanted
    )
    ends = [each for each in why(nodes, pods, waiting("w", i915=1, memory_max=wanted * GB)).suggestions if each.gone]
    assert [len(each.gone) for each in ends] == ([fewest] if fewest else [])


async def test_why_prints_reasons_and_suggestions(kubectl: Kubectl) -> None:
    result = await kubectl("why", "big")
    assert result.code == 0
    assert result.out.startswith("default/big: no card has 14.0 GB of memory.max free; nearest: ")
    assert "on 3 of 3 nodes: no card has 14.0 GB of memory.max free; nearest: gpu-2 card0 with 10.0 GB" in result.out
    data = json.loads((await kubectl("why", "big", "-o", "json")).out)
    assert data["complete"] is True
    assert yaml.safe_load((await kubectl("why", "big", "-o", "yaml")).out) == data


async def test_why_of_a_pod_with_a_misspelt_resource_names_a_similar_one(kubectl: Kubectl) -> None:
    pod = waiting("typo", i915=1)
    pod["spec"]["containers"][0]["resources"]["requests"]["gpu.intel.com/milicores"] = "100"
    create_pod(kubectl.server, pod)
    result = await kubectl("why", "typo")
    assert "no node has gpu.intel.com/milicores; did you mean gpu.intel.com/millicores?\n" in result.err
    assert "no node has" not in (await kubectl("why", "big")).err


async def test_why_of_a_pod_that_does_not_exist_ends_with_1(kubectl: Kubectl) -> None:
    result = await kubectl("why", "web-7d")
    assert result.code == 1
    assert "expected a pod that asks for GPUs" in result.err
    assert (await kubectl("why", "shop/web-7d")).code == 0
    assert (await kubectl("why", "web-7d", "-n", "shop")).code == 0


def test_pods_without_cards_on_their_node() -> None:
    bare = pod_json(container(i915=1), name="bare", node="gpu-1", phase="Running")
    cluster = cluster_of([*example_nodes(), node_json("other")], [bare])
    found = explain(cluster, decoded_pod(bare))
    assert found.line.startswith("is on node gpu-1 without booked cards: it is bound without cards written on it")


NUMBERS = {
    "nodes": 56,
    "passing": 0,
    "groups": [
        {"reason": "no card has 9.0 GB of memory.max free", "nodes": 4, "hasCards": True},
        {"reason": "the node has no known GPU card", "nodes": 52, "hasCards": False},
    ],
}


@pytest.mark.parametrize(
    ("document", "code", "words"),
    [
        pytest.param(
            NUMBERS,
            0,
            "shop/a: no card has 9.0 GB of memory.max free"
            " (4 of 56 nodes; excluded or without what it asks for: 52)\n\n"
            "on 4 of 56 nodes: no card has 9.0 GB of memory.max free\n"
            "on 52 of 56 nodes: the node has no known GPU card\n",
            id="waits",
        ),
        pytest.param(
            NUMBERS | {"passing": 2},
            0,
            "shop/a: has room on the cards of 2 of 56 nodes;"
            " selectors, taints, CPU and memory of nodes were not looked at;"
            f" the last attempt of kube-scheduler failed: {NO_CLAIM}; not looked at here: volumes\n",
            id="has-room",
        ),
        pytest.param(
            NUMBERS | {"passing": 2, "faults": "asks for i951"},
            0,
            "shop/a: has room on the cards of 2 of 56 nodes; asks for i951\n",
            id="misspelt",
        ),
        pytest.param(
            {"reason": "the pod asks for no card"}, 0, "shop/a: the pod asks for no card\n", id="other-reason"
        ),
        pytest.param([], 3, "expected the document of gas-extender about a pod", id="another-document"),
        pytest.param(None, 3, "nor does the extender explain the pod", id="not-served"),
    ],
)
async def test_a_user_who_may_not_read_nodes_gets_the_extenders_reasons(
    kubectl: Kubectl, tmp_path: Path, document: object, code: int, words: str
) -> None:
    if document is not None:
        kubectl.beside.objects["/apis/explain.gas/v1alpha1/namespaces/shop/pods/a"] = document
    kubectl.beside.objects["/api/v1/namespaces/shop/pods/a"] = refused(waiting("a", i915=1))
    async with doctor_server(kubectl.beside, authorize=only_admin) as server:
        kubeconfig = write_kubeconfig(tmp_path / "viewer", server.url, token="viewer")
        result = await kubectl("why", "a", "-n", "shop", "--kubeconfig", str(kubeconfig))
    assert result.code == code
    assert (result.out == words) if code == 0 else (words in result.err), result.err
    assert ("only the extender's reasons are shown" in result.err) == (code == 0)
