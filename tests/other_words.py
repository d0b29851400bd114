"""Pods and nodes in the words of other systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gas.objects.stored import Node
from gas.values.amounts import MemoryUnit
from tests.builders import described_node, requesting

GPU_MEM = "aliyun.com/gpu-mem"
GPU_COUNT = "aliyun.com/gpu-count"
NVIDIA = "nvidia.com/gpu"
MIB = MemoryUnit.MIB.bytes


def asking(name: str = "main", *, always: bool = False, **requests: Any) -> dict[str, Any]:
    """Return a container; ``gpu_mem``, ``nvidia`` and ``dcu`` stand for the resources of these systems."""
    resources = {_NAMES[key]: str(amount) for key, amount in requests.items()}
    return requesting(resources, name, always=always) | {"image": "example/main:1"}


_NAMES = {"gpu_mem": GPU_MEM, "gpu_count": GPU_COUNT, "nvidia": NVIDIA, "dcu": "dcu.com/gpu"}

KOORDINATOR = {
    "shared": "koordinator.sh/gpu.shared",
    "core": "koordinator.sh/gpu-core",
    "memory": "koordinator.sh/gpu-memory",
    "ratio": "koordinator.sh/gpu-memory-ratio",
    "gpu": "koordinator.sh/gpu",
}
"""Short names of Koordinator's resources."""


def sharing(name: str = "main", *, always: bool = False, **requests: Any) -> dict[str, Any]:
    """Return a container in Koordinator's words; ``core`` and the others of KOORDINATOR stand for its resources."""
    resources = {KOORDINATOR[key]: str(amount) for key, amount in requests.items()}
    return requesting(resources, name, always=always) | {"image": "example/main:1"}


def koordinator_node(*sizes: int, **stated: Any) -> dict[str, Any]:
    """Return a node whose plugin records cards of these bytes in Koordinator's words; 0: the memory is not known."""
    whole = 100 * len(sizes)
    koordinator = {"shared": whole, "core": whole, "ratio": whole, "gpu": whole, "memory": sum(sizes)}
    node = stating(memory=sizes, **stated)
    amounts = node["status"]["allocatable"] | counted_node(**koordinator)["status"]["allocatable"]
    return node | {"status": {"allocatable": amounts, "capacity": amounts}}


def counted_node(**stated: Any) -> dict[str, Any]:
    """Return a node without records of its cards that states these of KOORDINATOR."""
    amounts = {KOORDINATOR[key]: str(amount) for key, amount in stated.items()}
    return stating() | {"status": {"allocatable": amounts, "capacity": amounts}}


def stating(name: str = "n1", *, memory: Sequence[int] | None = None, **stated: Any) -> dict[str, Any]:
    """Return a node that states resources; ``gpu_mem``, ``gpu_count``, ``nvidia`` and ``dcu`` stand for full names.

    memory  bytes of each of its cards, for a node that records them
    """
    fields = {key: stated.pop(key) for key in ("labels", "annotations", "driver") if key in stated}
    amounts = {
        _NAMES.get(key, "gpu.intel.com/" + key.replace("memory_max", "memory.max")): amount
        for key, amount in stated.items()
    }
    return described_node(name, amounts, memory=memory, **fields)


def decoded(node: Mapping[str, Any]) -> Node:
    return msgspec.convert(dict(node), Node)


def aliyun_node(name: str = "n1", *, cards: int = 2, units: int = 16276) -> dict[str, Any]:
    """Return a node as the original's device plugin describes it, with equal cards."""
    return stating(name, gpu_mem=cards * units, gpu_count=cards)
