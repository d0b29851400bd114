"""New pods and templates are checked by the real API server: what ``kubectl apply`` prints, and what is created."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gas.extender.admission.app import LARGE, LARGEST_REVIEW, MOST_LARGE
from tests.e2e.callers import Caller, status
from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.helm import Helm
from tests.e2e.kube_api import Object, write_kubeconfig
from tests.e2e.kubectl import Kubectl
from tests.e2e.pods import PODS, container
from tests.e2e.ports import free_port
from tests.e2e.programs import ProgramError
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import BUSY, chart_webhooks, register, unregister
from tests.extender.admission.reviews import review_json

DENIED = 'admission webhook "create.pods.gas" denied the request: '
CHECKS = ("create.pods.gas", "update.pods.gas", "templates.pods.gas", "complete.pods.gas")
SETTINGS = "admission.schedulerName=gas-scheduler"
NEVER = "Warning: no node of the cluster could run the pod now, even without other pods: "


@dataclass(frozen=True, slots=True)
class Admission:
    """A cluster of one node with two cards, whose API server calls an extender's webhooks."""

    cluster: Cluster
    extender: Extender
    port: int
    kubectl: Kubectl

    def apply(self, document: Object, *flags: str) -> str:
        """Return the words of ``kubectl apply``, whether the object is refused or not."""
        try:
            return self.kubectl.run("apply", *flags, "-f", "-", text=json.dumps(document))
        except ProgramError as failed:
            return str(failed)

    def exists(self, name: str) -> bool:
        return name in {each["metadata"]["name"] for each in self.cluster.api.items(PODS)}

    @property
    def caller(self) -> Caller:
        return Caller(self.port, self.cluster.authority.certificate)

    def post(self, body: bytes, path: str = "/validate") -> tuple[int, bytes]:
        """Send a body as any program of the network could."""
        return self.caller.post(path, body)


@pytest.fixture(scope="module")
def admission(
    running_cluster: Cluster, binaries: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Admission]:
    cluster, port = running_cluster, free_port()
    kubeconfig = write_kubeconfig(tmp_path_factory.mktemp("admission") / "kubeconfig", cluster.api)
    resources = {"i915": "20", "millicores": "2000", "memory.max": "16G"}
    cluster.add_node(
        "n1",
        labels={"gpu.intel.com/gpu-numbers": "0.1"},
        resources={f"gpu.intel.com/{name}": amount for name, amount in resources.items()},
    )
    try:
        flags = ("--admission-scheduler-name=gas-scheduler", "--vocabularies=intel,aliyun")
        extender = cluster.extender("gas", f"--admission-port={port}", *flags)
        extender.start_and_wait_until_ready()
        shipped = chart_webhooks(Helm(binaries / "helm", kubeconfig, kubeconfig.parent), *CHECKS, settings=SETTINGS)
        register(cluster.api, shipped, port, cluster.authority.certificate, failurePolicy="Fail", timeoutSeconds=BUSY)
        checked = Admission(cluster, extender, port, Kubectl(binaries / "kubectl", kubeconfig))
        probe = pod("probe", container(i915=1, xe=1))
        wait_for("the webhook is called", lambda: DENIED in checked.apply(probe, "--dry-run=server"))
        yield checked
    finally:
        unregister(cluster.api)
        cluster.clean()


def pod(name: str, *containers: Object, annotations: Mapping[str, str] | None = None, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "default", "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": list(containers), **spec}}


def asking(name: str, resource: str, amount: int) -> Object:
    """Return a container that requests a resource with this full name."""
    return {"name": name, "image": "none", "resources": {"limits": {resource: str(amount)}}}


def with_resources(number: int) -> Object:
    """Return a container that requests a card and so many resources in all."""
    written = container(i915=1)
    written["resources"]["limits"] |= {f"gpu.intel.com/r{each}": "0" for each in range(number - 1)}
    return written


HALF = 2**62
RULES = [
    pytest.param(
        pod("drivers", container(i915=1)),
        pod("drivers", container("a", i915=1), container("b", xe=1)),
        "container 'a' asks for gpu.intel.com/i915 and container 'b' for gpu.intel.com/xe; use only one of them in the"
        " whole pod",
        id="both-drivers",
    ),
    pytest.param(
        pod("amount", container(i915=1, millicores=100)),
        pod("amount", container(millicores=100)),
        "container 'main' asks for 'gpu.intel.com/millicores' but for no card; add gpu.intel.com/i915 or"
        " gpu.intel.com/xe to the container, or remove the request",
        id="millicores-without-a-card",
    ),
    pytest.param(
        pod("memory", container(i915=1, memory_max="1G")),
        pod("memory", container("a", i915=1), container("b", memory_max="1G")),
        "container 'b' asks for 'gpu.intel.com/memory.max' but for no card; add gpu.intel.com/i915 or"
        " gpu.intel.com/xe to the container, or remove the request",
        id="memory-without-a-card",
    ),
    pytest.param(
        pod("sum", container("a", i915=1, millicores=1), container("b", i915=1, millicores=1)),
        pod("sum", container("a", i915=1, millicores=HALF), container("b", i915=1, millicores=HALF)),
        "the pod's containers ask for more than 2^63-1 of 'gpu.intel.com/millicores' in total; lower the requests",
        id="overflow",
    ),
    pytest.param(
        pod("same", container("a", i915=1), container("b", i915=1), annotations={"gas-same-gpu": "a,b"}),
        pod("same", container("a", i915=1), container("b", i915=1), annotations={"gas-same-gpu": "a,c"}),
        "gas-same-gpu: 'c' is not an app container of the pod; it has 'a', 'b'",
        id="same-gpu",
    ),
    pytest.param(
        pod("links", container(i915=2, tiles=2), annotations={"gas-allocate-xelink": ""}),
        pod("links", container(i915=1, tiles=1), annotations={"gas-allocate-xelink": ""}),
        "gas-allocate-xelink: container 'main' asks for 1 card(s), expected an even number",
        id="odd-links",
    ),
    pytest.param(
        pod("order", container(i915=1), annotations={"gas-card-order": "used-first"}),
        pod("order", container(i915=1), annotations={"gas-card-order": "best"}),
        "gas-card-order: ",
        id="order-of-cards",
    ),
    pytest.param(
        pod("near", container(i915=1), annotations={"gas-card-near": "true"}),
        pod("near", container(i915=1), annotations={"gas-card-near": "maybe"}),
        "gas-card-near: expected true or false, found 'maybe'",
        id="nearness",
    ),
    pytest.param(
        pod("score", container(i915=1), annotations={"gas-node-score": "spread"}),
        pod("score", container(i915=1), annotations={"gas-node-score": "high"}),
        "gas-node-score: ",
        id="node-score",
    ),
    pytest.param(
        pod("label", container(i915=1), annotations={"gas-card-exclusion": "blue"}),
        pod("label", container(i915=1), annotations={"gas-card-exclusion": "not a label"}),
        "gas-card-exclusion: expected at most 63 letters",
        id="company",
    ),
    pytest.param(
        pod("named", container(i915=1), annotations={"gas-card-name": "red"}),
        pod("named", container(i915=2), annotations={"gas-card-name": "red"}),
        "gas-card-name: container 'main' asks for 2 cards, expected at most 1",
        id="named-card",
    ),
    pytest.param(
        pod("misspelt", container(i915=1)),
        pod("misspelt", container(i916=1)),
        "container 'main' asks for 'gpu.intel.com/i916' but for no card; did you mean gpu.intel.com/i915?",
        id="misspelt-count",
    ),
    pytest.param(
        pod("resources", with_resources(32)),
        pod("resources", with_resources(33)),
        "container 'main': expected requests of at most 32 resources, found 33; remove some",
        id="many-resources",
    ),
    pytest.param(
        pod("containers", *(container(f"c{number}", i915=1) for number in range(64))),
        pod("containers", *(container(f"c{number}", i915=1) for number in range(65))),
        "the pod has 65 containers that ask for cards, expected at most 64; use several pods",
        id="many-containers",
    ),
    pytest.param(
        pod("long", container(i915=1), annotations={"gas-deny": "card0"}),
        pod("long", container(i915=1), annotations={"gas-deny": "x" * 32_769}),
        "gas-deny: expected at most 32768 characters, found 32769; shorten it",
        id="long-annotation",
    ),
    pytest.param(
        pod("words", container(i915=1)),
        pod("words", container(i915=1), asking("other", "aliyun.com/gpu-mem", 1)),
        "the pod asks for GPUs in the words of intel and of aliyun; use only one of them",
        id="two-vocabularies",
    ),
]


@pytest.mark.parametrize(("accepted", "refused", "sentence"), RULES)
def test_each_rule_accepts_one_pod_and_refuses_another(
    admission: Admission, accepted: Object, refused: Object, sentence: str
) -> None:
    name = accepted["metadata"]["name"]
    for flags in (("--dry-run=server",), ()):
        assert f"{DENIED}{sentence}" in admission.apply(refused, *flags)
        assert not admission.exists(name)
    said = admission.apply(accepted, "--dry-run=server")
    assert f"pod/{name} created (server dry run)" in said
    assert not admission.exists(name)
    assert f"pod/{name} created" in admission.apply(accepted)
    assert admission.exists(name)


@pytest.mark.parametrize("amount", ["1500m", "-1"])
def test_fractions_and_negative_amounts_are_refused_by_the_api_server_itself(admission: Admission, amount: str) -> None:
    said = admission.apply(pod("fraction", container(i915=amount)))
    assert 'The Pod "fraction" is invalid' in said


WARNINGS = [
    pytest.param(
        pod("w-unknown", container(i915=1), annotations={"gas-same-gpus": "a"}),
        "Warning: annotation 'gas-same-gpus' is not known and has no effect; did you mean gas-same-gpu?",
        id="unknown-annotation",
    ),
    pytest.param(
        pod("w-copied", container(i915=1), annotations={"gas-container-cards": "card0"}),
        "Warning: annotation gas-container-cards is written when the pod is bound; remove it, it seems to be another"
        " pod's",
        id="copied-decision",
    ),
    pytest.param(
        pod("w-list", container(i915=1), annotations={"gas-allow": "card0"}),
        "Warning: annotation gas-allow has no effect, because the extender runs without --enableAllowlist",
        id="list-without-effect",
    ),
    pytest.param(
        pod("w-switch", container(i915=1), annotations={"gas-allocate-single-numa": "false"}),
        "Warning: annotation gas-allocate-single-numa is in force with every value, also 'false'; remove it to switch"
        " it off",
        id="switch",
    ),
    pytest.param(
        pod("w-order", container(i915=1), annotations={"gas-card-order": "least-used=milicores"}),
        "Warning: order of cards 'least-used=milicores' has no effect: no card has 'milicores'; did you mean"
        " millicores?",
        id="misspelt-resource-of-an-order",
    ),
    pytest.param(
        pod("w-large", container(i915=1, memory_max="9G")),
        f"{NEVER}no card has 9.0 GB of memory.max free (1 node)",
        id="too-large",
    ),
    pytest.param(
        pod("w-many", container(i915=3)),
        f"{NEVER}container 'main' asks for 3 cards, but the node has 2 (1 node)",
        id="too-many",
    ),
    pytest.param(
        pod("w-node", container(i915=1), nodeName="n1"),
        "Warning: the pod names its node itself, 'n1', so no cards are chosen for it; use a nodeSelector instead",
        id="names-its-node",
    ),
    pytest.param(
        pod("w-words", asking("main", "aliyun.com/gpu-mem", 1), annotations={"gas-same-gpu": "main"}),
        "Warning: annotation gas-same-gpu has no effect on a pod in the words of aliyun",
        id="annotation-of-another-vocabulary",
    ),
]


@pytest.mark.parametrize(("warned", "sentence"), WARNINGS)
def test_a_warning_is_printed_and_the_pod_is_created(admission: Admission, warned: Object, sentence: str) -> None:
    said = admission.apply(warned)
    assert sentence in said
    assert f"pod/{warned['metadata']['name']} created" in said


def test_a_pod_without_gpus_is_created_in_silence(admission: Admission) -> None:
    plain = pod("plain", container(), annotations={"gas-same-gpus": "x"})
    assert admission.apply(plain) == "pod/plain created\n"
    assert admission.cluster.api.get(f"{PODS}/plain")["spec"]["schedulerName"] == "default-scheduler"


def test_every_pod_of_the_system_is_created(admission: Admission) -> None:
    broken = pod("broken", container(i915=1, xe=1))
    broken["metadata"]["namespace"] = "kube-system"
    admission.cluster.control_plane.add_namespace("kube-system")
    assert admission.apply(broken) == "pod/broken created\n"


def template(kind: str, group: str, **limits: Any) -> Object:
    """Return a workload of this kind; the core group has no name."""
    labels = {"app": kind.lower()}
    pod_template: Object = {"metadata": {"labels": labels}, "spec": {"containers": [container("main", **limits)]}}
    spec: Object = {"template": pod_template}
    if group == "apps":
        spec["selector"] = {"matchLabels": labels}
    elif kind == "ReplicationController":
        spec["selector"] = labels
    elif group:
        pod_template["spec"]["restartPolicy"] = "Never"
        pod_template["metadata"].pop("labels")
    if kind == "StatefulSet":
        spec["serviceName"] = "x"
    if kind == "CronJob":
        spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": spec}}
    metadata = {"name": "template", "namespace": "default"}
    fields = spec if kind == "PodTemplate" else {"spec": spec}
    return {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, "metadata": metadata, **fields}


@pytest.mark.parametrize(
    ("kind", "group"),
    [
        ("Deployment", "apps"),
        ("StatefulSet", "apps"),
        ("DaemonSet", "apps"),
        ("ReplicaSet", "apps"),
        ("Job", "batch"),
        ("CronJob", "batch"),
        ("ReplicationController", ""),
        ("PodTemplate", ""),
    ],
)
def test_faults_of_a_template_are_warnings(admission: Admission, kind: str, group: str) -> None:
    resource = f"{kind.lower()}.{group}/template" if group else f"{kind.lower()}/template"
    try:
        said = admission.apply(template(kind, group, i915=1, xe=1))
        assert (
            "Warning: pods of this template will be refused: container 'main' asks for both gpu.intel.com/i915 and"
            " gpu.intel.com/xe; use only one of them in the whole pod" in said
        )
        assert f"{resource} created" in said
        labelled = template(kind, group, i915=1, xe=1)
        labelled["metadata"]["labels"] = {"changed": "elsewhere"}
        assert admission.apply(labelled) == f"{resource} configured\n"
    finally:
        admission.kubectl.run("delete", resource, "--ignore-not-found")
    assert admission.apply(template(kind, group, i915=1)) == f"{resource} created\n"
    admission.kubectl.run("delete", resource)


def test_an_update_of_a_template_that_adds_a_fault_is_a_warning(admission: Admission) -> None:
    good, bad = template("Deployment", "apps", i915=1), template("Deployment", "apps", millicores=1)
    try:
        admission.apply(good)
        said = admission.apply(bad)
        assert "Warning: pods of this template will be refused: container 'main' asks for 'gpu.intel.com/mill" in said
        assert "deployment.apps/template configured" in said
    finally:
        admission.kubectl.run("delete", "deployment.apps/template", "--ignore-not-found")


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


class TestBadReviews:
    """The port as a program in the network sees it that is not the API server."""

    def test_a_forged_review_books_nothing(self, admission: Admission) -> None:
        books = admission.extender.books()
        forged = pod("forged", container(i915=2, millicores=2000), nodeName="n1", schedulerName="x")
        for path in ("/validate", "/complete"):
            status, _ = admission.post(json.dumps(review_json(forged)).encode(), path)
            assert status == 200
        assert admission.extender.books()["nodes"] == books["nodes"]
        assert not admission.exists("forged")

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            pytest.param(b"", 400, id="empty"),
            pytest.param(b"{", 400, id="truncated"),
            pytest.param(b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}', 400, id="version"),
            pytest.param(json.dumps(review_json(5)).encode(), 400, id="no-pod"),
            pytest.param(b'{"request": ' + b"[" * 10**6, 400, id="nested"),
        ],
    )
    def test_a_bad_review_gets_its_status(self, admission: Admission, body: bytes, status: int) -> None:
        assert admission.post(body)[0] == status

    def test_repeated_reviews_get_the_same_response(self, admission: Admission) -> None:
        body = json.dumps(review_json(pod("repeated", container(i915=1, xe=1)))).encode()
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(lambda _: admission.post(body), range(200)))) == 1

    def test_pods_are_created_in_time_while_slow_and_huge_reviews_arrive(self, admission: Admission) -> None:
        with ExitStack() as opened:
            too_large = opened.enter_context(admission.caller.begun("/validate", size=10**7))
            huge = [
                opened.enter_context(admission.caller.begun("/validate", size=LARGEST_REVIEW))
                for _ in range(MOST_LARGE + 10)
            ]
            slow = [opened.enter_context(admission.caller.begun("/validate", size=LARGE)) for _ in range(50)]
            for number in range(10):
                said = admission.cluster.api.create(PODS, pod(f"in-time-{number}", container(i915=1)))
                assert said["spec"]["schedulerName"] == "gas-scheduler"
            assert status(too_large) == 413
            assert {status(client) for client in slow} == {408}
            statuses = [status(client) for client in huge]
            assert (statuses.count(408), statuses.count(503)) == (MOST_LARGE, 10)
