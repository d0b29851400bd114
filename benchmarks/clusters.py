"""Clusters made from a seed: nodes with cards, and pods that hold some of them."""

import json
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gas.decision import names as decision
from gas.vocabularies.intel import names

Object = dict[str, Any]

CARDS = 8
SHARES = 10
"""Containers that may share one card."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a cluster: its nodes, and the GPU pods placed on them."""

    nodes: int
    pods: int


def node_names(size: Size) -> list[str]:
    return [f"node-{number:05}" for number in range(size.nodes)]


def nodes(size: Size, *, cards: int = CARDS, less_memory: int = 0) -> list[Object]:
    """Return nodes of cards with two tiles, 16 GB and 1000 millicores each, half of them on each of two NUMA nodes.

    less_memory  bytes that each card has less than that
    """
    amounts = {
        "cpu": "64",
        "pods": "110",
        names.PREFIX + "i915": str(cards * SHARES),
        names.PREFIX + "millicores": str(cards * 1000),
        names.PREFIX + "memory.max": str(cards * (16 * 10**9 - less_memory)),
        names.PREFIX + names.TILES: str(cards * 2),
    }
    numbers = ".".join(str(number) for number in range(cards))
    low, high = (
        ".".join(str(number) for number in half) for half in (range((cards + 1) // 2), range((cards + 1) // 2, cards))
    )
    halves = f"0-{low}_1-{high}" if high else f"0-{low}"
    return [
        {
            "metadata": {"name": name, "labels": {names.GPU_NUMBERS: numbers, names.NUMA_GPU_MAP: halves}},
            "status": {"allocatable": amounts, "capacity": amounts},
        }
        for name in node_names(size)
    ]


def placed_pods(size: Size, seed: int, *, cards: int = CARDS) -> list[Object]:
    """Return pods that run, spread over the nodes, each on one card of its node. No card is over its capacity."""
    chance = random.Random(seed)
    placed = []
    for number in range(size.pods):
        amounts = {"i915": 1, "millicores": chance.choice((100, 200, 300)), "memory.max": 10**9}
        turn, node = divmod(number, size.nodes)
        placed.append(
            pod(f"placed-{number:06}", amounts)
            | {
                "status": {"phase": "Running"},
                "spec": {
                    "nodeName": f"node-{node:05}",
                    "containers": [_container(amounts)],
                },
            }
        )
        placed[-1]["metadata"]["annotations"] = {
            decision.TIMESTAMP: str(number),
            decision.CONTAINER_CARDS: f"card{turn % cards}",
        }
    return placed


def other_pods(number: int, size: Size) -> Iterator[Object]:
    """Yield pods without GPUs as in real clusters, about 4 kB each: owner, volumes, probes, conditions, managers."""
    for each in range(number):
        yield {
            "metadata": _OTHER["metadata"] | {"name": f"other-{each:06}"},
            "spec": _OTHER["spec"] | {"nodeName": f"node-{each % size.nodes:05}"},
            "status": _OTHER["status"],
        }


def pod(name: str, amounts: dict[str, int]) -> Object:
    """Return a pod with one container that asks for these amounts, by names without prefix."""
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "benchmark"}},
        "spec": {"containers": [_container(amounts)]},
    }


def ordinary_pod(name: str) -> Object:
    """Return a pod that requests no GPU."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "10m"}}}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "benchmark"}},
        "spec": {"containers": [container]},
    }


def _container(amounts: dict[str, int]) -> Object:
    resources = {names.PREFIX + name: str(amount) for name, amount in amounts.items()}
    return {"name": "main", "image": "none", "resources": {"limits": resources, "requests": resources}}


def stored(body: Object) -> tuple[str, bytes]:
    """Return key and value of a pod or node as an API server could have stored it in etcd."""
    is_pod = "spec" in body
    metadata = {"uid": str(uuid.uuid4()), "creationTimestamp": "2025-01-01T00:00:00Z"} | body["metadata"]
    value = {"apiVersion": "v1", "kind": "Pod" if is_pod else "Node"} | body | {"metadata": metadata}
    folder = f"pods/{metadata['namespace']}" if is_pod else "minions"
    return f"/registry/{folder}/{metadata['name']}", json.dumps(value).encode()


_STARTED = "2025-01-01T00:00:00Z"
_OTHER: Object = {
    "metadata": {
        "namespace": "default",
        "generateName": "other-7c5d8f6b9-",
        "labels": {"app": "other", "pod-template-hash": "7c5d8f6b9", "team": "platform", "version": "1.27"},
        "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "other-7c5d8f6b9",
                "uid": "4f1b2a9e-24b0-4cb9-a6a0-0c5d3a3f1d55",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": [
            {
                "manager": manager,
                "operation": "Update",
                "apiVersion": "v1",
                "time": _STARTED,
                "fieldsType": "FieldsV1",
                "fieldsV1": {
                    f"f:{part}": {f"f:{field}": {".": {}, f'k:{{"type":"{field}"}}': {}} for field in fields}
                    for part, fields in parts.items()
                },
            }
            for manager, parts in (
                ("kube-controller-manager", {"spec": ("containers", "dnsPolicy", "restartPolicy", "tolerations")}),
                ("kubelet", {"status": ("conditions", "containerStatuses", "hostIP", "podIP", "startTime")}),
            )
        ],
    },
    "spec": {
        "serviceAccountName": "default",
        "containers": [
            {
                "name": name,
                "image": f"registry.example/team/{name}:1.27.3",
                "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
                "env": [{"name": f"SETTING_{number}", "value": "a value"} for number in range(5)],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 10},
                "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/token", "readOnly": True}],
            }
            for name in ("server", "sidecar")
        ],
        "volumes": [{"name": "token", "secret": {"secretName": "token", "defaultMode": 420}}],
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ],
    },
    "status": {
        "phase": "Running",
        "hostIP": "192.0.2.1",
        "podIP": "198.51.100.1",
        "startTime": _STARTED,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": _STARTED}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [
            {
                "name": name,
                "ready": True,
                "restartCount": 0,
                "image": f"registry.example/team/{name}:1.27.3",
                "imageID": f"registry.example/team/{name}@sha256:{'0' * 64}",
                "containerID": f"containerd://{'1' * 64}",
                "state": {"running": {"startedAt": _STARTED}},
            }
            for name in ("server", "sidecar")
        ],
    },
}
