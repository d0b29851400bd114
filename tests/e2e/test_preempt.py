"""Pods of higher priority make room for themselves under the real kube-scheduler, card by card."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.deploy.manifests import BASE, DEPLOY, one
from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.kube_api import KubeApi, Object, write_kubeconfig
from tests.e2e.kubectl import Kubectl
from tests.e2e.pods import PODS, cards_by_pod, container, delete_now, event_messages, get_pod, is_refused, node_of, pod
from tests.e2e.release import selected_release
from tests.e2e.repeated import Repeated
from tests.e2e.waiting import wait_for

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
CLASSES = {"low": 10, "middle": 15, "high": 20, "highest": 100, "patient": 100}

FIVE = (
    # name, millicores, priority class, card, when it started
    ("b", 800, "high", "card0", "2026-01-01T00:00:00Z"),
    ("x", 200, "low", "card0", "2026-01-03T00:00:00Z"),
    ("d", 400, "high", "card1", "2026-01-01T12:00:00Z"),
    ("z", 400, "low", "card1", "2026-01-02T00:00:00Z"),
    ("y", 200, "low", "card1", "2026-01-04T00:00:00Z"),
)
"""By the sums of the node, 400 millicores are free without the two youngest pods of low priority, x and y. But these
are on different cards: the one right pod is z."""


class SlowEnds(Repeated):
    """Let each deleted pod of the namespace `default` end after two seconds, as kubelets do."""

    def __init__(self, api: KubeApi) -> None:
        super().__init__("slow-ends", every=0.25)
        self._api = api
        self._since: dict[str, float] = {}

    def step(self) -> None:
        for each in self._api.items(PODS):
            metadata = each["metadata"]
            if "deletionTimestamp" in metadata:
                now = time.monotonic()
                if now - self._since.setdefault(metadata["uid"], now) >= 2:
                    delete_now(self._api, metadata["name"])


@pytest.fixture
def extender(cluster: Cluster) -> Iterator[Extender]:
    """Provide an extender and a node with two idle cards."""
    api = cluster.api
    for name, value in CLASSES.items():
        policy = "Never" if name == "patient" else "PreemptLowerPriority"
        api.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy})
    cluster.restart_scheduler(ignorable=False, preempts=True)
    cluster.add_gpu_node("n1")
    extender = cluster.extender("gas", "-v=4", "--preemption", account=cluster.full_account)
    extender.start_and_wait_until_ready()
    try:
        with SlowEnds(api):
            yield extender
    finally:
        for name in CLASSES:
            api.delete(f"{PRIORITY_CLASSES}/{name}")
        api.delete(BUDGETS)


@pytest.fixture
def five(cluster: Cluster, extender: Extender) -> None:
    """Fill the two cards of the node with five pods."""
    api = cluster.api
    for name, millicores, priority, card, started in FIVE:
        add(api, name, millicores, priority, labels={"app": name})
        assert wait_for(f"{name} is bound", partial(bound_card, api, name)) == card
        api.merge(f"{PODS}/{name}/status", {"status": {"phase": "Running", "startTime": started}})


def add(
    api: KubeApi, name: str, millicores: int, priority: str, *, cpu: str = "0", labels: dict[str, str] | None = None
) -> Object:
    """Create a pod; without millicores it asks for no card."""
    main = container(i915=1, millicores=millicores) if millicores else container()
    main["resources"]["requests"] = {"cpu": cpu}
    written = pod(name, main, labels=labels)
    written["spec"]["priorityClassName"] = priority
    return api.create(PODS, written)


def bound_card(api: KubeApi, name: str) -> str | None:
    return cards_by_pod(api).get(name)


def responses(extender: Extender, result: str) -> float:
    """Return how many requests of the verb preempt had this result."""
    return extender.metric(f'gas_extender_requests_total{{result="{result}",verb="preempt"}}', 0)


def evicted(api: KubeApi) -> set[str]:
    """Return the pods of the five that are gone or leave."""
    staying = {each["metadata"]["name"] for each in api.items(PODS) if "deletionTimestamp" not in each["metadata"]}
    return {name for name, *_ in FIVE} - staying


@pytest.mark.usefixtures("five")
def test_the_one_right_pod_of_five_is_evicted_and_its_card_is_kept(cluster: Cluster, extender: Extender) -> None:
    api = cluster.api
    # Without the pods of low priority 800 millicores are free on the node, but at most 600 on one card.
    add(api, "greedy", 700, "middle")
    wait_for("kube-scheduler asks the extender", lambda: responses(extender, "no-victims"))
    wait_for("the pod waits", lambda: is_refused(api, "greedy"))
    add(api, "too-large", 1001, "highest")
    wait_for("the pod that no card could hold waits", lambda: is_refused(api, "too-large"))
    assert "nominatedNodeName" not in get_pod(api, "greedy")["status"]
    # Of pods without managed resources kube-scheduler decides without the extender.
    add(api, "plain", 0, "highest", cpu="999")
    wait_for("the pod without cards is bound", lambda: "plain" in cards_by_pod(api))
    assert evicted(api) == set()

    add(api, "important", 400, "highest")
    wait_for("a node is nominated", lambda: get_pod(api, "important")["status"].get("nominatedNodeName") == "n1")
    add(api, "equal", 400, "patient")  # z has not ended yet, and this one evicts no pod itself
    wait_for("the important pod is bound", lambda: "important" in cards_by_pod(api), seconds=20)
    assert cards_by_pod(api)["important"] == "card1"
    assert evicted(api) == {"z"}
    assert "equal" not in cards_by_pod(api)
    assert event_messages(api, "z", "Preempted")
    assert responses(extender, "victims")
    assert extender.books()["differences"] == []


@pytest.mark.usefixtures("five")
def test_a_pod_that_a_budget_covers_is_evicted_last(cluster: Cluster, extender: Extender) -> None:
    api = cluster.api
    budget = api.create(
        BUDGETS,
        {
            "metadata": {"name": "guard"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "z"}}},
        },
    )
    status = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    api.merge(f"{BUDGETS}/{budget['metadata']['name']}/status", {"status": status})
    time.sleep(1)  # until every watch has shown the budget
    add(api, "important", 400, "highest")
    wait_for("the important pod is bound", lambda: "important" in cards_by_pod(api), seconds=20)
    assert evicted(api) == {"d"}
    assert cards_by_pod(api)["important"] == "card1"


@pytest.mark.parametrize("keeps", [True, False], ids=["as-in-the-manifest", "without-a-class"])
def test_a_pod_of_higher_priority_does_not_evict_the_plugin(cluster: Cluster, *, keeps: bool) -> None:
    api = cluster.api
    node = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    cluster.add_node("n1", labels=node, resources={"memory": "100Mi"})
    spec = one(BASE / "plugin", "DaemonSet")["spec"]["template"]["spec"]
    del spec["serviceAccountName"]
    if not keeps:
        del spec["priorityClassName"]
    api.create(PODS, {"metadata": {"name": "plugin"}, "spec": spec})
    wait_for("the plugin is bound", lambda: node_of(api, "plugin"))
    eager = pod("eager", {"name": "main", "image": "none", "resources": {"requests": {"memory": "50Mi"}}})
    api.create(PRIORITY_CLASSES, {"metadata": {"name": "eager"}, "value": 1000})
    api.create(PODS, eager | {"spec": eager["spec"] | {"priorityClassName": "eager"}})
    wait_for("kube-scheduler refuses the other pod at first", lambda: is_refused(api, "eager"))
    nominated = get_pod(api, "eager")["status"].get("nominatedNodeName")
    api.delete(f"{PRIORITY_CLASSES}/eager")
    evicted = "deletionTimestamp" in get_pod(api, "plugin")["metadata"]
    assert (nominated, evicted) == ((None, False) if keeps else ("n1", True))


def test_the_plugins_pods_are_created_where_the_cluster_limits_priorities_and_pods(
    cluster: Cluster, binaries: Path, tmp_path: Path
) -> None:
    """As GKE and Talos do: no pod has that priority without a quota, and none sees the node without a label."""
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
    quota = {"limitedResources": [{"resource": "pods", "matchScopes": [scope]}]}
    limits = {
        "ResourceQuota": {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration", **quota},
        "PodSecurity": {
            "apiVersion": "pod-security.admission.config.k8s.io/v1",
            "kind": "PodSecurityConfiguration",
            "defaults": {"enforce": "baseline", "enforce-version": "latest"},
        },
    }
    plugins = [{"name": name, "configuration": limit} for name, limit in limits.items()]
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    (tmp_path / "admission.json").write_text(json.dumps(kind | {"plugins": plugins}))
    (tmp_path / "deploy").symlink_to(DEPLOY)
    lines = "resources: [deploy/overlays/plugin]\ncomponents: [deploy/components/own-namespace]\n"
    (tmp_path / "kustomization.yaml").write_text(lines)
    api, kubectl = cluster.api, Kubectl(binaries / "kubectl", write_kubeconfig(tmp_path / "kubeconfig", cluster.api))

    def created(namespace: str) -> int:
        return len(api.items(f"/api/v1/namespaces/{namespace}/pods"))

    cluster.add_node("n1", labels={"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"})
    cluster.control_plane.restart_api_server(f"--admission-control-config-file={tmp_path}/admission.json")
    try:
        cluster.controller_manager.start("daemonset-controller", "resourcequota-controller", "namespace-controller")
        kubectl.run("apply", "-k", DEPLOY / "overlays/plugin")
        refused = ("gas-plugin", "FailedCreate")
        wait_for("PodSecurity", lambda: any("violates PodSecurity" in each for each in event_messages(api, *refused)))
        assert created("default") == 0
        kubectl.run("delete", "-k", DEPLOY / "overlays/plugin")
        kubectl.run("apply", "-k", tmp_path)
        wait_for("the plugin's pod", lambda: created("gas-system"))
        kubectl.run("delete", "resourcequota", "gas-plugin", "--namespace=gas-system")
        kubectl.run("delete", "pods", "--all", "--namespace=gas-system", "--force")
        messages = "/api/v1/namespaces/gas-system/events"
        wait_for("the quota", lambda: any("insufficient quota" in each["message"] for each in api.items(messages)))
        kubectl.run("delete", "--ignore-not-found", "-k", tmp_path)
    finally:
        cluster.control_plane.restart_api_server()


@pytest.mark.skipif(selected_release().minor < 37, reason="kube-scheduler makes no room for resized pods before 1.37")
def test_a_pod_with_a_card_gets_more_cpu_where_it_runs(cluster: Cluster, extender: Extender) -> None:
    """kube-scheduler asks about a pod that is bound, and evicts others for it. kubelet would then resize it."""
    api = cluster.api
    cluster.restart_scheduler(
        ignorable=False, preempts=True, feature_gates="InPlacePodVerticalScalingSchedulerPreemption=true"
    )
    for name, millicores, priority, cpu in (("growing", 800, "high", "400"), ("x", 0, "low", "500")):
        add(api, name, millicores, priority, cpu=cpu)
        wait_for(f"{name} is bound", partial(node_of, api, name))
    card, asked = cards_by_pod(api)["growing"], filtered(extender)
    (main,) = get_pod(api, "growing")["spec"]["containers"]
    main["resources"]["requests"]["cpu"] = "700"
    api.merge(f"{PODS}/growing/resize", {"spec": {"containers": [main]}})
    deferred = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    api.merge(f"{PODS}/growing/status", {"status": {"phase": "Running", "conditions": [deferred]}})
    wait_for("the pod of low priority is gone", lambda: api.find(f"{PODS}/x") is None, seconds=20)
    wait_for("the extender lets the pod stay", lambda: filtered(extender) > asked, seconds=20)
    assert cards_by_pod(api) == {"growing": card}
    assert extender.booked() == {"n1": {card: {"i915": 1, "millicores": 800}}}
    add(api, "other", 1800, "low")
    wait_for("a pod that needs the rest of both cards waits", lambda: is_refused(api, "other"))


def filtered(extender: Extender) -> float:
    """Return the number of requests of the verb filter that left a node."""
    return extender.metric('gas_extender_requests_total{result="fits",verb="filter"}', 0)
