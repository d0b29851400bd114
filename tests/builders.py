"""Kubernetes objects for tests: a call states only what the case is about."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gas.objects.stored import Node, Pod
from gas.values.card_records import ANNOTATION, CardRecord, format_card_records
from gas.values.cards import Card
from gas.vocabularies.pod_parts import need_facts
from gas.vocabularies.protocol import NeedFacts

_uids = itertools.count(1)


def container(name: str = "main", *, always: bool = False, **requests: int | str) -> dict[str, Any]:
    """Return a container; ``i915=1`` asks for gpu.intel.com/i915, and ``memory_max`` stands for memory.max.

    always  whether it is a sidecar
    """
    return requesting({_resource(key): value for key, value in requests.items()}, name, always=always)


def requesting(resources: Mapping[str, Any], name: str = "main", *, always: bool = False) -> dict[str, Any]:
    """Return a container that requests amounts of resources, given by their full names, and is limited to them."""
    built: dict[str, Any] = {"name": name}
    if resources:
        amounts = dict(resources)
        built["resources"] = {"requests": amounts, "limits": amounts}
    if always:
        built["restartPolicy"] = "Always"
    return built


def _resource(key: str) -> str:
    return "gpu.intel.com/" + {"memory_max": "memory.max"}.get(key, key)


def pod_json(
    *containers: Mapping[str, Any],
    name: str = "pod",
    namespace: str = "default",
    uid: str | None = None,
    init: tuple[Mapping[str, Any], ...] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    node: str | None = None,
    phase: str = "Pending",
    deleting: bool = False,
) -> dict[str, Any]:
    """Return a pod as JSON."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid or f"uid-{next(_uids)}"}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    if labels is not None:
        metadata["labels"] = dict(labels)
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec: dict[str, Any] = {"containers": [dict(each) for each in containers]}
    if init:
        spec["initContainers"] = [dict(each) for each in init]
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


def pod(*containers: Mapping[str, Any], **fields: Any) -> Pod:
    """Return the same object, decoded."""
    return msgspec.convert(pod_json(*containers, **fields), Pod)


def facts(*containers: Mapping[str, Any], **fields: Any) -> NeedFacts:
    """Return the facts that a need is read from; see `pod_json`."""
    return need_facts(pod(*containers, **fields))


def node_json(
    name: str = "node-1",
    *,
    cards: int | str = 2,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **allocatable: int | str,
) -> dict[str, Any]:
    """Return a node as JSON; ``cards`` is how many it has, or the text of the label.

    Without any resource each card has one i915, 1000 millicores and 8 GB of memory.max.
    """
    numbers = cards if isinstance(cards, str) else ".".join(map(str, range(cards)))
    count = len(numbers.split("."))
    resources: Mapping[str, int | str] = allocatable or {
        "i915": count,
        "millicores": 1000 * count,
        "memory_max": 8_000_000_000 * count,
    }
    amounts = {_resource(key): str(value) for key, value in resources.items()}
    return described_node(
        name, amounts, labels={"gpu.intel.com/gpu-numbers": numbers, **(labels or {})}, annotations=annotations
    )


def described_node(
    name: str,
    amounts: Mapping[str, Any],
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    memory: Sequence[int] | None = None,
    driver: str = "i915",
    uuids: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a node as JSON with amounts of resources, given by their full names.

    memory  bytes of each of its cards, for a node that records them; 0 for an unknown amount
    uuids   of the same cards; none by default
    """
    texts = dict(annotations or {})
    if memory is not None:
        records = [
            CardRecord(card=Card(n), driver=driver, memory=each or None, uuid=uuid)
            for n, (each, uuid) in enumerate(zip(memory, uuids or [""] * len(memory), strict=True))
        ]
        texts = {ANNOTATION: format_card_records(records), **texts}
    written = {resource: str(amount) for resource, amount in amounts.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels or {}), "annotations": texts},
        "status": {"allocatable": written, "capacity": written},
    }


def node(name: str = "node-1", **fields: Any) -> Node:
    """Return the same object, decoded."""
    return msgspec.convert(node_json(name, **fields), Node)
