"""New pods and templates are checked by the real API server: what ``kubectl apply`` prints, and what is created."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.helm import Helm
from tests.e2e.kube_api import Object, write_kubeconfig
from tests.e2e.kubectl import Kubectl
from tests.e2e.pods import PODS, asking, container
from tests.e2e.ports import free_port
from tests.e2e.programs import ProgramError
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import BUSY, chart_webhooks, component_webhooks, later_webhook, register, unregister

DENIED = 'admission webhook "create.pods.gas" denied the request: '
CHECKS = ("create.pods.gas", "update.pods.gas", "templates.pods.gas", "complete.pods.gas")
SETTINGS = "admission.schedulerName=gas-scheduler"
NEVER = "Warning: no node of the cluster could run the pod now, even without other pods: "


@dataclass(frozen=True, slots=True)
class Admission:
    """A cluster of one node with two cards, whose API server calls an extender's webhooks."""

    cluster: Cluster
    kubectl: Kubectl
    extender: Extender

    def apply(self, document: Object, *flags: str) -> str:
        """Return the words of ``kubectl apply``, whether the object is refused or not."""
        try:
            return self.kubectl.run("apply", *flags, "-f", "-", text=json.dumps(document))
        except ProgramError as failed:
            return str(failed)

    def exists(self, name: str) -> bool:
        return name in {each["metadata"]["name"] for each in self.cluster.api.items(PODS)}


@pytest.fixture(scope="module")
def admission(
    running_cluster: Cluster, binaries: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Admission]:
    cluster, port = running_cluster, free_port()
    kubeconfig = write_kubeconfig(tmp_path_factory.mktemp("admission") / "kubeconfig", cluster.api)
    cluster.add_gpu_node("n1", millicores="2000", memory_max="16G")
    try:
        flags = ("--admission-scheduler-name=gas-scheduler", "--vocabularies=intel,aliyun")
        extender = cluster.extender("gas", f"--admission-port={port}", *flags)
        extender.start_and_wait_until_ready()
        shipped = chart_webhooks(Helm(binaries / "helm", kubeconfig, kubeconfig.parent), *CHECKS, settings=SETTINGS)
        register(cluster.api, shipped, port, cluster.authority.certificate, failurePolicy="Fail", timeoutSeconds=BUSY)
        checked = Admission(cluster, Kubectl(binaries / "kubectl", kubeconfig), extender)
        probe = pod("probe", container(i915=1, xe=1))
        wait_for("the webhook is called", lambda: DENIED in checked.apply(probe, "--dry-run=server"))
        yield checked
    finally:
        unregister(cluster.api)
        cluster.clean()


def pod(name: str, *containers: Object, annotations: Mapping[str, str] | None = None, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "default", "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": list(containers), **spec}}


HALF = 2**62
RULES = {
    "container 'a' asks for gpu.intel.com/i915 and container 'b' for gpu.intel.com/xe; use only one of them": pod(
        "drivers", container("a", i915=1), container("b", xe=1)
    ),
    "the pod's containers ask for more than 2^63-1 of 'gpu.intel.com/millicores' in total; lower the requests": pod(
        "sum", container("a", i915=1, millicores=HALF), container("b", i915=1, millicores=HALF)
    ),
    "the pod has 65 containers that ask for cards, expected at most 64; use several pods": pod(
        "containers", *(container(f"c{number}", i915=1) for number in range(65))
    ),
    "the pod asks for GPUs in the words of intel and of aliyun; use only one of them": pod(
        "words", container(i915=1), asking({"aliyun.com/gpu-mem": 1}, "other")
    ),
    "container 'main' asks for 'aliyun.com/gpumem', which no node has; did you mean aliyun.com/gpu-mem?": pod(
        "misspelt", asking({"aliyun.com/gpumem": 1})
    ),
}
"""Why a pod is refused -> the pod. The sums and the many containers are those that the API server sends."""


def test_a_pod_that_breaks_a_rule_is_refused_and_another_is_created(admission: Admission) -> None:
    for sentence, refused in RULES.items():
        for flags in (("--dry-run=server",), ()):
            assert f"{DENIED}{sentence}" in admission.apply(refused, *flags)
        assert not admission.exists(refused["metadata"]["name"])
    three = {"gas-card-order": "sideways", "gas-card-near": "maybe", "gas-same-gpu": "main"}
    said = admission.apply(pod("three", container(i915=1), annotations=three))
    assert all(f"{name}: expected" in said for name in three), said
    accepted = pod("accepted", *(container(f"c{number}", i915=1) for number in range(64)))
    assert "pod/accepted created (server dry run)" in admission.apply(accepted, "--dry-run=server")
    assert not admission.exists("accepted")
    assert "pod/accepted created" in admission.apply(accepted)
    assert admission.exists("accepted")


def test_a_pod_without_fault_is_reviewed_once_and_no_mark_avoids_the_check(admission: Admission) -> None:
    reviews = 'gas_extender_reviews_total{webhook="validate",result="allowed"}'
    before = admission.extender.metric(reviews, 0)
    assert (
        "gas-checked" in admission.cluster.api.create(PODS, pod("once", container(i915=1)))["metadata"]["annotations"]
    )
    assert admission.extender.metric(reviews, 0) == before
    marked = {"gas-checked": "true"}
    assert DENIED in admission.apply(pod("forged", container(i915=1, xe=1), annotations=marked))

    def ask_for_both(_: Object) -> list[Object]:
        both = container(i915=1, xe=1)["resources"]
        return [{"op": "add", "path": "/spec/containers/0/resources", "value": {**both, "requests": both["limits"]}}]

    rules = component_webhooks("create.pods.gas")[0]["webhooks"][0]["rules"]
    cluster = admission.cluster
    with later_webhook(cluster.api, cluster.authority, ask_for_both, rules=rules, matchConditions=[]):
        for asked in (container(i915=1), container()):
            assert DENIED in admission.apply(pod("changed", asked, annotations=marked))


def test_a_warning_is_printed_and_the_pod_is_created(admission: Admission) -> None:
    said = admission.apply(pod("large", container(i915=1, memory_max="9G")))
    assert f"{NEVER}no card has 9.0 GB of memory.max free (1 node)" in said
    assert "pod/large created" in said


def template(**limits: Any) -> Object:
    """Return a Deployment."""
    labels = {"app": "x"}
    pod_template: Object = {"metadata": {"labels": labels}, "spec": {"containers": [container("main", **limits)]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod_template}
    metadata = {"name": "template", "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def test_faults_of_a_template_are_warnings(admission: Admission) -> None:
    try:
        said = admission.apply(template(i915=1))
        assert "Warning: a rolling update needs free cards for one more pod, because maxUnavailable is 0" in said
        assert "deployment.apps/template created" in said
        said = admission.apply(template(millicores=1))
        assert "Warning: pods of this template will be refused: container 'main' asks for 'gpu.intel.com/mill" in said
        assert "deployment.apps/template configured" in said
        labelled = template(millicores=1)
        labelled["metadata"]["labels"] = {"changed": "elsewhere"}
        assert admission.apply(labelled) == "deployment.apps/template configured\n"
    finally:
        admission.kubectl.run("delete", "deployment.apps/template", "--ignore-not-found")


LIMITS = "/api/v1/namespaces/default/limitranges"


def test_pods_that_a_limit_range_makes_gpu_pods_say_so(admission: Admission) -> None:
    names = {"gpu.intel.com/i915": "2", "gpu.intel.com/memory.max": "4G"}
    item: Object = {"type": "Container", "max": names}
    plain, api = pod("plain", container()), admission.cluster.api
    given = "a LimitRange of the namespace gave the pod its requests of 'gpu.intel.com/{}'"
    try:
        api.create(LIMITS, {"metadata": {"name": "cards"}, "spec": {"limits": [item]}})
        assert f"Warning: {given.format('i915')}" in admission.apply(plain, "--dry-run=server")
        del item["max"]["gpu.intel.com/i915"]
        api.delete(LIMITS)
        api.create(LIMITS, {"metadata": {"name": "cards"}, "spec": {"limits": [item]}})
        said = admission.apply(plain, "--dry-run=server")
        assert "but for no card; add gpu.intel.com/i915 or gpu.intel.com/xe to the container, or remove the" in said
        assert given.format("memory.max") in said
        api.delete(LIMITS)
        api.create(
            LIMITS,
            {"metadata": {"name": "cards"}, "spec": {"limits": [{**item, "default": dict.fromkeys(names, "0")}]}},
        )
        assert admission.apply(plain, "--dry-run=server") == "pod/plain created (server dry run)\n"
    finally:
        api.delete(LIMITS)


def test_an_edit_of_what_a_bound_pod_holds_is_a_warning(admission: Admission) -> None:
    admission.apply(pod("edited", container(i915=1), nodeName="n1"))
    said = admission.kubectl.run("annotate", "pod", "edited", "gas-container-cards=card1")
    assert "Warning: 'gas-container-cards' says what the bound pod holds; undo the change" in said
    assert "Warning" not in admission.kubectl.run("annotate", "pod", "edited", "note=x")
    by_status = ("patch", "pod", "edited", "--subresource=status", "--type=merge", "--patch")
    said = admission.kubectl.run(*by_status, '{"metadata":{"annotations":{"gas-container-cards":"card0"}}}')
    assert "Warning: 'gas-container-cards' says what the bound pod holds; undo the change" in said
    assert "Warning" not in admission.kubectl.run(*by_status, '{"status":{"message":"x"}}')


def test_gpu_pods_get_the_scheduler_of_the_flag_and_the_second_time_nothing_changes(admission: Admission) -> None:
    api = admission.cluster.api
    created = api.create(PODS, pod("completed", container(i915=1)))
    assert created["spec"]["schedulerName"] == "gas-scheduler"
    other = api.create(PODS, pod("chosen", container(i915=1), schedulerName="other"))
    assert other["spec"]["schedulerName"] == "other"
    again = admission.apply(pod("completed", container(i915=1)))
    assert "pod/completed" in again
    assert "Error" not in again
