"""The fields of Kubernetes objects as the API server sends them."""

from __future__ import annotations

import msgspec
import pytest

from gas.objects.stored import HIERARCHY, VISIBLE_CARDS, DetailedNode, DetailedPod, Node, Pod


def test_a_pod_as_the_api_server_writes_it() -> None:
    pod = msgspec.json.decode(
        b"""{"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "uid": "u-1", "resourceVersion": "7",
                     "labels": {"a": "b"}, "annotations": {"gas-ts": "1"},
                     "deletionTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"manager": "kubectl"}]},
        "spec": {"nodeName": "n", "initContainers": [{"name": "side", "restartPolicy": "Always"}],
                 "containers": [{"name": "main", "image": "x", "resources":
                                 {"requests": {"gpu.intel.com/i915": "1", "gpu.intel.com/tiles": 500}}}]},
        "status": {"phase": "Running"}}""",
        type=Pod,
    )
    assert (pod.key, pod.uid, pod.node_name, pod.is_over) == ("ns/p", "u-1", "n", False)
    assert pod.metadata.resource_version == "7"
    assert pod.metadata.deletion_timestamp == "2026-01-01T00:00:00Z"
    assert pod.annotations == {"gas-ts": "1"}
    assert pod.spec.init_containers is not None
    assert pod.spec.init_containers[0].restart_policy == "Always"
    assert pod.spec.containers is not None
    resources = pod.spec.containers[0].resources
    assert resources is not None
    assert resources.requests == {"gpu.intel.com/i915": "1", "gpu.intel.com/tiles": 500}


def test_a_pod_has_its_times_and_only_the_variables_about_cards() -> None:
    pod = msgspec.json.decode(
        b"""{"metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "main", "image": "x", "restartPolicy": null,
                                 "env": [{"name": "A", "value": "1"},
                                         {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
                                         {"name": "ZE_FLAT_DEVICE_HIERARCHY", "valueFrom": {}}]}]},
        "status": {"phase": "Pending", "startTime": "2026-01-01T00:00:01Z"}}""",
        type=Pod,
    )
    assert pod.metadata.creation_timestamp == "2026-01-01T00:00:00Z"
    assert pod.status is not None
    assert pod.status.start_time == "2026-01-01T00:00:01Z"
    assert pod.spec.containers is not None
    container = pod.spec.containers[0]
    assert [container.variable(name) for name in (VISIBLE_CARDS, HIERARCHY, "A")] == ["all", None, None]
    assert len(container.env or ()) == 2


def test_the_detailed_view_has_commands_mounts_and_conditions() -> None:
    pod = msgspec.json.decode(
        b"""{"kind": "Pod", "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "account", "schedulerName": "gpu",
                 "containers": [{"name": "main", "image": "x", "command": ["run"], "args": ["-v"],
                                 "resources": {"requests": {"gpu.intel.com/xe": 1}},
                                 "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "s"}]}],
                 "volumes": [{"name": "v", "hostPath": {"path": "/host"}},
                             {"name": "w", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
                                  {"type": "Ready", "status": "True"}]}}""",
        type=DetailedPod,
    )
    assert (pod.kind, pod.spec.service_account_name, pod.spec.scheduler_name) == ("Pod", "account", "gpu")
    assert pod.spec.containers is not None
    container = pod.spec.containers[0]
    assert (container.image, container.command, container.args) == ("x", ["run"], ["-v"])
    assert container.resources is not None
    assert [(each.mount_path, each.sub_path) for each in container.volume_mounts or ()] == [("/v", "s")]
    assert pod.spec.volumes is not None
    host, config = pod.spec.volumes
    assert host.host_path is not None
    assert host.host_path.path == "/host"
    assert config.config_map is not None
    assert [(item.key, item.path) for item in config.config_map.items or ()] == [("k", "p")]
    scheduled = pod.condition("PodScheduled")
    assert scheduled is not None
    assert scheduled.reason == "Unschedulable"
    assert pod.is_ready


def test_a_static_pods_manifest_may_lack_everything() -> None:
    pod = msgspec.json.decode(b"{}", type=DetailedPod)
    assert (pod.kind, pod.is_ready, pod.condition("Ready")) == (None, False, None)


def test_a_detailed_node_names_the_writers_of_its_fields() -> None:
    node = msgspec.json.decode(
        b"""{"metadata": {"name": "n", "managedFields": [
            {"manager": "gas-plugin", "operation": "Update", "fieldsV1": {"f:metadata": {}}}]}}""",
        type=DetailedNode,
    )
    assert node.name == "n"
    fields = (node.metadata.managed_fields or ())[0]
    assert (fields.manager, fields.operation, fields.fields) == ("gas-plugin", "Update", {"f:metadata": {}})


def test_null_stands_for_an_absent_map_or_list() -> None:
    pod = msgspec.json.decode(
        b'{"metadata": {"name": "p", "labels": null, "annotations": null},'
        b' "spec": {"containers": null, "initContainers": null}, "status": null}',
        type=Pod,
    )
    assert (pod.annotations, pod.spec.containers, pod.uid, pod.node_name) == ({}, None, "", "")
    node = msgspec.json.decode(
        b'{"metadata": {"name": "n", "labels": null}, "status": {"allocatable": null}}', type=Node
    )
    assert (node.name, node.labels, node.annotations) == ("n", {}, {})


def test_a_pod_without_namespace_is_in_default() -> None:
    assert msgspec.json.decode(b'{"metadata": {"name": "p"}}', type=Pod).key == "default/p"


@pytest.mark.parametrize(
    ("phase", "over"),
    [("Pending", False), ("Running", False), ("Unknown", False), ("Succeeded", True), ("Failed", True)],
)
def test_a_pod_is_over_when_its_containers_have_ended_for_good(phase: str, over: bool) -> None:
    body = msgspec.json.encode({"metadata": {"name": "p"}, "status": {"phase": phase}})
    assert msgspec.json.decode(body, type=Pod).is_over is over
