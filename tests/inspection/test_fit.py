"""Where the pods of manifests would land, compared with the extender that then gets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gas.inspection.fit import fit_all, more_of
from gas.inspection.manifests import LARGEST, UnreadableManifest, WantedPods, read_manifests
from gas.inspection.reasons import Diagnosis, Reason
from sandbox.api.kinds import NODES
from tests.builders import container, node_json, pod_json
from tests.inspection.conftest import Kubectl
from tests.inspection.example_cluster import (
    GB,
    cluster_of,
    create_pod,
    decoded_pod,
    example_cluster,
    gpu_node_json,
    record,
    running,
    waiting,
)


def template(**requests: Any) -> dict[str, Any]:
    """Return a pod template that states only limits, as people write them."""
    limits = {f"gpu.intel.com/{name.replace('_', '.')}": value for name, value in requests.items()}
    return {"spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}


def owner(kind: str, name: str = "web", pod: Any = None, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name}, "spec": {"template": pod or template(i915=1), **spec}}


def read(*objects: Any) -> list[WantedPods]:
    return read_manifests("f.yaml", yaml.safe_dump_all(objects, encoding="utf-8"), "default")[0]


I915 = "gpu.intel.com/i915"

# TEMPLATE stands for a pod template.
KINDS: list[tuple[str, str, dict[str, int]]] = [
    ("Deployment", "{replicas: 3, template: TEMPLATE}", {"": 3}),
    ("Deployment", "{template: TEMPLATE}", {"": 1}),
    ("StatefulSet", "{replicas: 0, template: TEMPLATE}", {"": 0}),
    ("Job", "{parallelism: 4, completions: 3, template: TEMPLATE}", {"": 3}),
    ("Job", "{parallelism: 4, template: TEMPLATE}", {"": 4}),
    ("CronJob", "{jobTemplate: {spec: {parallelism: 2, template: TEMPLATE}}}", {"": 2}),
    (
        "PyTorchJob",
        "{specs: {Worker: {replicas: 3, template: TEMPLATE}, Master: {template: TEMPLATE}}}",
        {"Worker": 3, "Master": 1},
    ),
    (
        "RayCluster",
        "{head: {template: TEMPLATE}, groups: [{groupName: gpu, numOfHosts: 4, template: TEMPLATE}]}",
        {"head": 1, "gpu": 4},
    ),
    (
        "JobSet",
        "{jobs: [{name: w, replicas: 2, template: {spec: {parallelism: 3, template: TEMPLATE}}}]}",
        {"jobs.w": 6},
    ),
    (
        "LeaderWorkerSet",
        "{replicas: 2, l: {size: 4, leaderTemplate: TEMPLATE, workerTemplate: TEMPLATE}}",
        {"leader": 2, "worker": 6},
    ),
    ("LeaderWorkerSet", "{l: {size: 4, workerTemplate: TEMPLATE}}", {"worker": 4}),
    ("Rollout", "{replicas: 5, template: TEMPLATE}", {"": 5}),
    ("InferenceService", "{predictor: {minReplicas: 2, containers: [{name: main}]}}", {"predictor": 2}),
    ("InferenceService", "{predictor: {model: {resources: {}}}}", {}),
    ("CustomResourceDefinition", "{properties: {containers: {type: array}}}", {}),
    ("Odd", "{replicas: many, template: TEMPLATE}", {}),
    ("Odd", "{a: {replicas: 1000, b: {replicas: 1000, template: TEMPLATE}}}", {}),
    ("Odd", "&a {itself: *a}", {}),
]


@pytest.mark.parametrize(("kind", "spec", "counts"), KINDS)
def test_pods_are_found_in_objects_of_any_project(kind: str, spec: str, counts: dict[str, int]) -> None:
    """Or else the object is named."""
    text = spec.replace("TEMPLATE", json.dumps(template(i915=1)))
    built = f"{{kind: {kind}, metadata: {{name: web, namespace: team}}, spec: {text}}}"
    wanted, others = read_manifests("f.yaml", built.encode(), "default")
    assert [each.count for each in wanted] == list(counts.values())
    for each, part in zip(wanted, counts, strict=True):
        assert each.name.startswith(f"{kind} team/web")
        assert part in each.name
        assert (each.pod.spec.containers or ())[0].requests == ({I915: 1} if "TEMPLATE" in spec else {})
    assert others == ([] if counts else [f"{kind} team/web"])


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (f"{{limits: {{{I915}: null}}}}", ""),
        (f"{{requests: {{{I915}: 1}}}}", "expected a limit, found only a request; write it under limits"),
        (f"{{limits: {{{I915}: 1}}, requests: {{{I915}: 0}}}}", "expected a request equal to the limit, 1, found 0"),
        (f"{{limits: {{{I915}: 1}}, requests: {{{I915}: null}}}}", "expected a request equal to the limit, 1, found 0"),
        (f"{{limits: {{{I915}: 1000m}}, requests: {{{I915}: 1}}}}", ""),
        (f"{{limits: {{{I915}: 1.5}}}}", "expected a whole number, found '1.5'"),
        ("{limits: {cpu: 1}, requests: {cpu: 2}}", "expected a request up to the limit, 1, found 2"),
        ("{limits: {kubernetes.io/x: 1}, requests: {kubernetes.io/x: 0}}", ""),
        ("{limits: {hugepages-2Mi: 4Mi}, requests: {hugepages-2Mi: 2Mi}}", "expected a request equal to the limit"),
    ],
)
def test_pods_that_the_api_server_refuses_do_not_fit(resources: str, words: str) -> None:
    """As tests/e2e/test_inspection.py shows."""
    pod: dict[str, Any] = {"spec": {"containers": [{"name": "main", "resources": yaml.safe_load(resources)}]}}
    pod["metadata"] = {"annotations": {"empty": None}}
    (wanted,) = read(owner("Job", pod=pod))
    assert wanted.pod.annotations == {"empty": ""}
    assert words in wanted.fault
    assert bool(wanted.fault) == bool(words)
    (fitted,) = fit_all(example_cluster(), [wanted])
    if words:
        assert (fitted.fitting, fitted.count) == (0, 1)
        assert str(fitted.refusal and fitted.refusal.line) == f"the API server refuses it: {wanted.fault}"


def test_cards_under_the_resources_of_a_whole_pod_do_not_fit() -> None:
    spec = {"containers": [{"name": "main"}], "resources": {"limits": {I915: 1}}}
    (wanted,) = read(owner("Job", pod={"spec": spec}))
    assert wanted.fault == "spec.resources cannot have 'gpu.intel.com/i915'; move it into a container"


def test_lists_empty_documents_and_other_kinds() -> None:
    service = {"kind": "Service", "metadata": {"name": "s"}}
    text = yaml.safe_dump_all([None, {"kind": "List", "items": [owner("Job"), service]}], encoding="utf-8")
    wanted, others = read_manifests("f.yaml", text, "team")
    assert [each.name for each in wanted] == ["Job team/web"]
    assert others == ["Service team/s"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: [", "it is not valid YAML", id="not-yaml"),
        pytest.param("a: !!bool x", "it is not valid YAML", id="no-truth"),
        pytest.param("&a {kind: List, items: [*a]}", "maximum recursion depth exceeded", id="itself"),
        pytest.param(f"a: &a {{}}\nb: &b [{'*a, ' * 9}]\nc: [{'*b, ' * 10}]", "at most 100 times", id="bomb"),
        pytest.param("- &a 1\n- &a 2", "expected a Kubernetes object with a kind", id="an-anchor-twice"),
        pytest.param(
            "kind: Deployment",
            "Deployment default/without-name: expected a pod with a list of containers",
            id="no-spec",
        ),
        pytest.param(
            json.dumps(owner("Deployment", replicas=-1)), "from 0 to 100000 at replicas, found '-1'", id="count"
        ),
        pytest.param(json.dumps(owner("Deployment", replicas=True)), "at replicas, found 'True'", id="no-number"),
        pytest.param(
            json.dumps(owner("Job", pod={"spec": {"containers": 3}})), "expected maps at metadata, resources", id="pod"
        ),
        pytest.param(
            json.dumps(owner("Job", pod={"spec": {"containers": ["x"]}})),
            "expected maps at metadata, resources",
            id="text",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_in_a_sentence(text: str, words: str) -> None:
    with pytest.raises(UnreadableManifest) as found:
        read_manifests("f.yaml", text.encode(), "default")
    assert str(found.value).startswith("file 'f.yaml'")
    assert words in str(found.value)


def test_a_sharepod_is_its_pod() -> None:
    annotations = {"kubeshare/gpu_request": "0.5"}
    metadata = {"name": "train", "namespace": "team", "annotations": annotations}
    (wanted,) = read(
        {"kind": "SharePod", "metadata": metadata, "spec": {"nodeName": "n1", "containers": [{"name": "c"}]}}
    )
    assert (wanted.name, wanted.count) == ("SharePod team/train", 1)
    assert (wanted.pod.node_name, wanted.pod.annotations) == ("n1", annotations)


def test_replicas_fill_the_cards_that_are_free() -> None:
    (fitted,) = fit_all(
        example_cluster(), read(owner("Deployment", replicas=5, pod=template(i915=1, memory_max=5 * GB)))
    )
    assert [(place.node, place.cards) for place in fitted.places] == [
        ("gpu-1", ("card1",)),
        ("gpu-2", ("card0",)),
        ("gpu-2", ("card0",)),
        ("gpu-10", ("card0",)),
        ("gpu-10", ("card1",)),
    ]
    assert (fitted.fitting, fitted.more, fitted.refusal) == (5, 0, None)


def test_the_first_pod_that_does_not_fit_has_the_reasons_of_all_nodes() -> None:
    big = owner("Deployment", replicas=3, pod=template(i915=1, memory_max=9 * GB))
    big["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "a"}
    (fitted,) = fit_all(example_cluster(), read(big))
    assert (fitted.fitting, fitted.count) == (0, 3)
    assert fitted.refusal is not None
    assert {each.text: each.nodes for each in fitted.refusal.reasons} == {
        "no card has 9.0 GB of memory.max free": 1,
        "the pod's node selector does not match the node": 2,
    }


def test_pods_that_name_their_node_are_counted_on_that_node_only() -> None:
    pinned, lost = template(i915=1, memory_max=4 * GB), template(i915=1)
    pinned["spec"]["nodeName"], lost["spec"]["nodeName"] = "gpu-10", "gpu-11"
    here, nowhere = fit_all(example_cluster(), read(owner("Job", "a", pinned), owner("Job", "b", lost)))
    assert ([place.node for place in here.places], here.more) == (["gpu-10"], 2)
    assert (nowhere.fitting, nowhere.more, nowhere.refusal) == (
        0,
        0,
        Diagnosis("the cluster has no node gpu-11", reasons=(Reason("the cluster has no node gpu-11", 0),)),
    )


def test_what_comes_first_takes_the_room_of_what_comes_later() -> None:
    pods = [owner("Deployment", name, pod=template(i915=1, memory_max=8 * GB)) for name in ("a", "b", "c")]
    assert [each.fitting for each in fit_all(example_cluster(), read(*pods))] == [1, 1, 0]


def test_a_daemon_set_has_one_pod_on_each_node_that_its_rules_allow() -> None:
    cluster = example_cluster()
    (fitted,) = fit_all(cluster, read(owner("DaemonSet", pod=template(i915=1, memory_max=5 * GB))))
    assert [(place.node, fitted.count) for place in fitted.places] == [("gpu-1", 3), ("gpu-2", 3), ("gpu-10", 3)]


def test_pods_without_gpus() -> None:
    (plain,) = fit_all(example_cluster(), read(owner("Job", "a", {"spec": {"containers": [{"name": "main"}]}})))
    assert (plain.fitting, plain.places[0].cards, plain.more) == (1, (), None)


AMOUNTS = st.integers(1, 8).map(lambda gigabytes: gigabytes * GB)


@given(
    st.lists(st.lists(AMOUNTS, max_size=3), min_size=1, max_size=4),
    st.integers(1, 2),
    AMOUNTS,
    st.integers(0, 6),
)
def test_what_is_said_to_fit_is_bound_by_the_extender_and_no_more(
    booked: list[list[int]], cards: int, amount: int, count: int
) -> None:
    nodes = [gpu_node_json(f"n-{at}", record(0), record(1), memory=16 * GB) for at in range(len(booked))]
    pods = [
        running(f"p-{at}-{each}", f"n-{at}", f"card{each % 2}", i915=1, memory_max=size)
        for at, sizes in enumerate(booked)
        for each, size in enumerate(sizes)
    ]
    wanted = WantedPods("Deployment default/d", decoded_pod(pod_json(container(i915=cards, memory_max=amount))), count)
    (fitted,) = fit_all(cluster_of(nodes, pods), [wanted])
    # The same pods, one by one, each seen bound by a new extender with the cards that were promised.
    asked = pod_json(container(i915=cards, memory_max=amount))
    for number, promised in enumerate(fitted.places):
        cluster = cluster_of(nodes, pods)
        passing = cluster.filter(decoded_pod(asked), cluster.node_names).passing
        assert len(passing) == promised.passing
        assert (promised.node in passing) if promised.node else not passing
        if promised.node:
            written = ",".join(promised.cards)
            pods.append(running(f"new-{number}", promised.node, written, i915=cards, memory_max=amount))
    cluster = cluster_of(nodes, pods)
    assert fitted.more == more_of(cluster, decoded_pod(asked))
    assert (fitted.more == 0) == (not cluster.filter(decoded_pod(asked), cluster.node_names).passing)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=5), st.integers(1, 9))
def test_the_number_of_further_pods_is_that_of_counting_card_by_card(booked: list[int], amount: int) -> None:
    nodes = [gpu_node_json(f"n-{at}", record(0), memory=8 * GB) for at in range(len(booked))]
    pods = [
        running(f"p-{at}", f"n-{at}", "card0", i915=1, memory_max=size * GB) for at, size in enumerate(booked) if size
    ]
    pod = decoded_pod(pod_json(container(i915=1, memory_max=amount * GB)))
    free_ids = 10
    expected = sum(min((8 - size) // amount, free_ids - (size > 0)) for size in booked)
    assert more_of(cluster_of(nodes, pods), pod) == expected


async def test_the_exit_code_says_whether_all_fit(kubectl: Kubectl, tmp_path: Path) -> None:
    file = tmp_path / "deployment.yaml"
    file.write_text(yaml.safe_dump(owner("Deployment", replicas=2, pod=template(i915=1, memory_max=5 * GB))))
    result = await kubectl("fit", str(file), "-o", "json")
    assert result.code == 0
    (row,) = json.loads(result.out)
    assert (row["pods"], row["fit"], row["more"], row["nodes"]) == (2, 2, 3, ["gpu-1", "gpu-2"])
    file.write_text(yaml.safe_dump(owner("Deployment", replicas=9, pod=template(i915=1, memory_max=5 * GB))))
    result = await kubectl("fit", str(file))
    assert result.code == 1
    assert "no card has 5.0 GB of memory.max free" in result.out
    assert "not looked at" not in result.err
    explained = await kubectl("fit", str(file), "--explain", "-o", "json")
    assert [row["node"] for row in json.loads(explained.out)][-1] is None


async def test_a_resource_that_no_node_has_is_named_once_with_a_similar_one(kubectl: Kubectl, tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    pods = [waiting(name, i915=1) for name in ("a", "b")]
    for pod in pods:
        pod["spec"]["containers"][0]["resources"]["requests"]["milicores"] = "100"
    file.write_text(yaml.safe_dump_all([{"kind": "Pod", **pod} for pod in pods]))
    result = await kubectl("fit", str(file), "-o", "json")
    assert result.code == 1
    assert [row["reason"] for row in json.loads(result.out)] == ["no node has milicores"] * 2
    assert result.err.count("no node has milicores; did you mean gpu.intel.com/millicores?\n") == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "cannot be read: No such file or directory", id="missing"),
        pytest.param(b"\xff\xfe\x00", "it is not valid YAML", id="binary"),
        pytest.param(b" " * (LARGEST + 1), f"it has more than {LARGEST} bytes", id="long"),
        pytest.param(b"kind: Service", "expected pods or objects that create pods, found none", id="no-pods"),
    ],
)
async def test_a_file_that_is_of_no_use_ends_with_2(
    kubectl: Kubectl, tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "f.yaml"
    if content is not None:
        file.write_bytes(content)
    result = await kubectl("fit", str(file))
    assert (result.code, result.out) == (2, "")
    assert words in result.err


def test_nodes_without_cards_are_no_place() -> None:
    plain = node_json("plain", cards="")
    cluster = cluster_of([plain], [])
    (fitted,) = fit_all(cluster, read(owner("Deployment")))
    assert fitted.fitting == 0


def other_pod(node: str, **requests: str) -> dict[str, Any]:
    """Return a pod without cards that runs on a node."""
    return pod_json({"name": "main", "resources": {"requests": requests}}, node=node, phase="Running")


@pytest.mark.parametrize(
    ("offered", "asked", "fitting", "reason"),
    [
        pytest.param({"cpu": "4"}, {"cpu": "1"}, 3, "the node has less than 1000m of cpu free", id="cpu"),
        pytest.param(
            {"memory": "4Gi"}, {"memory": "2Gi"}, 1, "the node has less than 2.1 GB of memory free", id="memory"
        ),
        pytest.param({"pods": "3"}, {}, 2, "the node has no free pod slot", id="pod-slots"),
        pytest.param({}, {"example.com/fpga": "1"}, 0, "the node has no example.com/fpga", id="unknown-resource"),
        pytest.param({}, {"cpu": "1"}, 5, "", id="not-stated"),
    ],
)
def test_cpu_memory_and_pod_slots_of_all_pods_count(
    offered: dict[str, str], asked: dict[str, str], fitting: int, reason: str
) -> None:
    node = gpu_node_json("n", record(0))
    node["status"]["allocatable"] |= offered
    pod = template(i915=1)
    pod["spec"]["containers"][0]["resources"]["limits"] |= asked
    cluster = cluster_of([node], [other_pod("n", cpu="1", memory="1Gi")])
    more = more_of(cluster, read(owner("Deployment", pod=pod))[0].pod)
    (fitted,) = fit_all(cluster, read(owner("Deployment", replicas=5, pod=pod)))
    reasons = fitted.refusal.reasons if fitted.refusal is not None else ()
    assert (fitted.fitting, [(each.text, each.nodes) for each in reasons]) == (fitting, [(reason, 1)] if reason else [])
    assert more == (fitting if reason else 10)


def test_requests_of_a_pod_as_a_whole_count() -> None:
    pod = template(i915=1)
    pod["spec"]["resources"] = {"limits": {"cpu": "3"}}
    cluster = cluster_of([gpu_node_json("n", record(0), cpu="4")], [])
    (fitted,) = fit_all(cluster, read(owner("Deployment", replicas=2, pod=pod)))
    assert fitted.fitting == 1
    assert fitted.refusal is not None
    assert fitted.refusal.line == "the node has less than 3000m of cpu free; nearest: n with 1000m of cpu"


async def test_the_command_counts_pods_without_cards(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl.server.api.create(NODES, None, gpu_node_json("gpu-20", record(0), labels={"z": "c"}, cpu="2"))
    create_pod(kubectl.server, {**other_pod("gpu-20", cpu="1500m"), "metadata": {"name": "o", "namespace": "default"}})
    file = tmp_path / "pod.yaml"
    pod = template(i915=1)
    pod["spec"] |= {"nodeSelector": {"z": "c"}}
    pod["spec"]["containers"][0]["resources"]["limits"] |= {"cpu": "1"}
    file.write_text(yaml.safe_dump(owner("Job", pod=pod)))
    result = await kubectl("fit", "--explain", str(file))
    assert result.code == 1
    assert "the node has less than 1000m of cpu free; nearest: gpu-20 with 500m of cpu" in result.out
