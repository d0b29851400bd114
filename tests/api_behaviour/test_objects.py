"""Creating, reading and replacing objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api_behaviour.client import KubeApi, pod


async def test_a_created_pod_has_the_servers_defaults(api: KubeApi) -> None:
    response = await api.post(api.pods, pod("p", metadata={"labels": {"a": "b"}}))
    assert response.code == 201
    assert (response["kind"], response["apiVersion"]) == ("Pod", "v1")
    assert response.metadata["namespace"] == api.namespace
    assert response.metadata["labels"] == {"a": "b"}
    assert response.metadata["uid"]
    assert int(response.version) > 0
    assert response.metadata["creationTimestamp"].endswith("Z")
    assert response["status"]["phase"] == "Pending"
    assert "conditions" not in response["status"]
    spec = response["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["restartPolicy"] == "Always"
    assert spec["serviceAccountName"] == "default"
    assert "nodeName" not in spec


async def test_reading_returns_the_same_as_creating(api: KubeApi) -> None:
    created = await api.create_pod("p")
    assert (await api.get(f"{api.pods}/p")).body == created.body


async def test_a_status_sent_with_a_new_pod_is_dropped(api: KubeApi) -> None:
    created = await api.post(api.pods, pod("p") | {"status": {"phase": "Running"}})
    assert created["status"]["phase"] == "Pending"


async def test_a_name_can_be_used_only_once(api: KubeApi) -> None:
    await api.create_pod("p")
    response = await api.post(api.pods, pod("p"))
    assert response.refusal == (409, "AlreadyExists")
    assert response["message"] == 'pods "p" already exists'
    assert response["details"] == {"name": "p", "kind": "pods"}


async def test_a_recreated_pod_is_another_pod(api: KubeApi) -> None:
    first = await api.create_pod("p")
    await api.delete(f"{api.pods}/p")
    second = await api.create_pod("p")
    assert second.metadata["uid"] != first.metadata["uid"]
    assert int(second.version) > int(first.version)


async def test_a_missing_object_is_not_found(api: KubeApi) -> None:
    response = await api.get(f"{api.pods}/missing")
    assert response.refusal == (404, "NotFound")
    assert response["message"] == 'pods "missing" not found'
    assert (await api.get("/api/v1/nodes/no-such-node"))["message"] == 'nodes "no-such-node" not found'
    lease = await api.get(f"{api.leases}/missing")
    assert lease["message"] == 'leases.coordination.k8s.io "missing" not found'


async def test_a_namespace_must_exist(api: KubeApi) -> None:
    response = await api.post("/api/v1/namespaces/no-such-namespace/pods", pod("p"))
    assert response.refusal == (404, "NotFound")
    assert response["message"] == 'namespaces "no-such-namespace" not found'


async def test_body_and_path_must_name_the_same_namespace(api: KubeApi) -> None:
    response = await api.post(api.pods, pod("p", metadata={"namespace": "other"}))
    assert response.refusal == (400, "BadRequest")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"metadata":{"name":"p"', id="broken-json"),
        pytest.param(pod("p", metadata={"annotations": {"number": 1}}), id="an-annotation-is-a-text"),
        pytest.param(pod("p") | {"kind": "Node", "apiVersion": "v1"}, id="another-kind"),
    ],
)
async def test_an_unreadable_object_is_a_bad_request(api: KubeApi, body: Any) -> None:
    assert (await api.post(api.pods, body)).refusal == (400, "BadRequest")


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        pytest.param(pod("Upper_Case"), "metadata.name", id="name-with-capitals"),
        pytest.param(pod("") | {"metadata": {}}, "metadata.name", id="no-name"),
        pytest.param(pod("p", metadata={"labels": {"a": "b c"}}), "metadata.labels", id="label-with-blank"),
        pytest.param(pod("p", metadata={"labels": {"a": "b" * 64}}), "metadata.labels", id="label-of-64"),
        pytest.param(pod("p", metadata={"annotations": {"a b": ""}}), "metadata.annotations", id="annotation-key"),
        pytest.param(
            pod("p", metadata={"annotations": {"a": "b" * 262_144}}), "metadata.annotations", id="annotations-too-long"
        ),
        pytest.param(pod("p", containers=[]), "spec.containers", id="no-containers"),
        pytest.param(pod("p", containers=[{"name": "c"}]), "spec.containers[0].image", id="no-image"),
        pytest.param(
            pod("p", containers=[{"name": "c", "image": "x"}, {"name": "c", "image": "x"}]),
            "spec.containers[1].name",
            id="two-containers-of-one-name",
        ),
    ],
)
async def test_an_invalid_pod_is_refused_with_the_field(api: KubeApi, sent: Any, field: str) -> None:
    response = await api.post(api.pods, sent)
    assert response.refusal == (422, "Invalid")
    assert field in {cause["field"] for cause in response["details"]["causes"]}
    assert field in response["message"]


async def test_annotations_may_hold_256_kib(api: KubeApi) -> None:
    response = await api.post(api.pods, pod("p", metadata={"annotations": {"a": "b" * (262_144 - 1)}}))
    assert response.code == 201


async def test_replacing_requires_the_newest_version_if_it_names_one(api: KubeApi) -> None:
    stale = (await api.create_pod("p")).body
    replaced = await api.put(f"{api.pods}/p", stale | {"metadata": stale["metadata"] | {"labels": {"a": "1"}}})
    assert replaced.code == 200
    assert int(replaced.version) > int(stale["metadata"]["resourceVersion"])

    response = await api.put(f"{api.pods}/p", stale)
    assert response.refusal == (409, "Conflict")
    assert response["message"] == (
        'Operation cannot be fulfilled on pods "p": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    blind = stale | {"metadata": {"name": "p", "labels": {"a": "2"}}}
    assert (await api.put(f"{api.pods}/p", blind)).metadata["labels"] == {"a": "2"}


async def test_replacing_another_uid_is_a_conflict(api: KubeApi) -> None:
    created = (await api.create_pod("p")).body
    other = created | {"metadata": {"name": "p", "uid": "7f3c6a2e-0000-4000-8000-000000000000"}}
    assert (await api.put(f"{api.pods}/p", other)).refusal == (409, "Conflict")


async def test_replacing_a_missing_pod_creates_nothing(api: KubeApi) -> None:
    assert (await api.put(f"{api.pods}/p", pod("p"))).refusal == (404, "NotFound")


async def test_an_equal_object_gets_no_new_version(api: KubeApi) -> None:
    created = await api.create_pod("p", metadata={"annotations": {"a": "1"}})
    same = await api.patch(f"{api.pods}/p", {"metadata": {"annotations": {"a": "1"}}})
    assert same.version == created.version


async def test_unknown_paths_and_wrong_methods(api: KubeApi) -> None:
    assert (await api.put(api.pods, pod("p"))).refusal == (405, "MethodNotAllowed")
    async with api.session.get("/api/v1/no-such-things") as response:
        assert response.status == 404


async def test_pods_of_the_same_name_can_exist_in_different_namespaces(api: KubeApi) -> None:
    mine = await api.create_pod("same")
    other = f"{api.namespace}-2"
    await api.post("/api/v1/namespaces", {"metadata": {"name": other}})
    await api.send("POST", f"/api/v1/namespaces/{other}/serviceaccounts", {"metadata": {"name": "default"}})
    theirs = await api.post(f"/api/v1/namespaces/{other}/pods", pod("same"))
    assert theirs.code == 201
    assert theirs.metadata["uid"] != mine.metadata["uid"]
    everywhere = await api.get("/api/v1/pods", fieldSelector="metadata.name=same")
    found = {item["metadata"]["namespace"] for item in everywhere["items"]}
    assert {api.namespace, other} <= found
    assert (await api.get(api.pods)).names == ["same"]
    await api.delete(f"/api/v1/namespaces/{other}/pods/same")


async def test_a_nodes_allocatable_defaults_to_its_capacity(api: KubeApi) -> None:
    name = f"{api.namespace}-node"
    node = {"metadata": {"name": name}, "status": {"capacity": {"gpu.intel.com/i915": 2, "memory": "5Gi"}}}
    created = await api.post("/api/v1/nodes", node)
    assert created["status"]["allocatable"] == {"gpu.intel.com/i915": "2", "memory": "5Gi"}

    change = {"status": {"allocatable": {"gpu.intel.com/i915": "1"}}}
    unchanged = await api.patch(f"/api/v1/nodes/{name}", change)
    assert unchanged["status"]["allocatable"]["gpu.intel.com/i915"] == "2"
    changed = await api.patch(f"/api/v1/nodes/{name}/status", change)
    assert changed["status"]["allocatable"] == {"gpu.intel.com/i915": "1", "memory": "5Gi"}

    deleted = await api.delete(f"/api/v1/nodes/{name}")
    assert (deleted.code, deleted["kind"], deleted["status"]) == (200, "Status", "Success")
    assert deleted["details"]["uid"] == created.metadata["uid"]
    assert (await api.get(f"/api/v1/nodes/{name}")).code == 404


async def test_the_health_paths_return_ok(api: KubeApi) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        async with api.session.get(path) as response:
            assert (response.status, await response.text()) == (200, "ok")
