"""Pods of a node for the plugin's tests, and their device ids."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from gas.objects.stored import Pod
from gas.plugin.devices.device_ids import NO_IDS, DeviceId, Ids, PreferredRequest, known_ids
from gas.plugin.kubelet.pod_resources import ContainerIds
from gas.plugin.matching.gpu_pods import GpuPod, gpu_pod
from gas.values.cards import Card
from gas.vocabularies.known import DEFAULT
from tests.builders import pod_json

I915 = "gpu.intel.com/i915"
XE = "gpu.intel.com/xe"


def node_pod(*containers: Any, created: str = "", started: bool = False, **fields: Any) -> Pod:
    """Return a pod on a node as the plugin decodes it; ``started``: kubelet has written its status."""
    built = pod_json(*containers, node="node-1", **fields)
    if created:
        built["metadata"]["creationTimestamp"] = created
    if started:
        built["status"]["startTime"] = "2026-01-01T00:00:01Z"
    return msgspec.json.decode(msgspec.json.encode(built), type=Pod)


def seen(*containers: Any, **fields: Any) -> GpuPod:
    """Return the pod as the plugin keeps it."""
    pod = gpu_pod(node_pod(*containers, **fields), DEFAULT)
    assert pod is not None
    return pod


def ids(*texts: str) -> frozenset[DeviceId]:
    """Parse device ids: ``ids("card0-0", "card1-0")``."""
    parsed = frozenset(known_ids(texts))
    assert len(parsed) == len(texts)
    return parsed


def slots(cards: int, shared: int = 1) -> frozenset[DeviceId]:
    """Return all ids of a node with so many cards."""
    return frozenset(DeviceId(Card(card), slot) for card in range(cards) for slot in range(shared))


def question(offered: Ids, size: int = 1, must_include: Ids = NO_IDS, resource: str = I915) -> PreferredRequest:
    """Return kubelet's question which of these ids a container should get, in natural order."""
    return PreferredRequest(resource=resource, offered=sorted(offered), must_include=must_include, size=size)


def decided(cards: str, *, init: str = "", tiles: str = "", ts: int | str = 1) -> dict[str, str]:
    """Return the annotations of a decision."""
    texts = {
        "gas-ts": str(ts),
        "gas-container-cards": cards,
        "gas-init-container-cards": init,
        "gas-container-tiles": tiles,
    }
    return {name: text for name, text in texts.items() if text}


WITHOUT_DEVICES: ContainerIds = {"c": {}}
"""What kubelet lists of a pod with one container ``c`` that it has just taken up."""


def pod_uid(number: int) -> str:
    """Return a UID in the form of kube-apiserver's."""
    return str(UUID(int=number))


STATIC_HASH = "0123456789abcdef0123456789abcdef"
"""kubelet's UID of a static pod; the mirror pod of the API server has another."""


def mirror_of(config_hash: str) -> dict[str, str]:
    """Return the annotations of the mirror pod of a static pod."""
    return {"kubernetes.io/config.hash": config_hash, "kubernetes.io/config.mirror": config_hash}


def container_id(number: int) -> str:
    return f"{number:064x}"
