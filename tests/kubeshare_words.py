"""Pods and nodes in KubeShare's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.builders import described_node, pod_json, requesting

GIB = 2**30
VGPU = "kubeshare/vgpu"
GPUID = "kubeshare/GPUID"


def share(
    request: str | None = "0.5",
    limit: str | None = "1.0",
    memory: str | None = "0",
    *,
    gpuid: str | None = None,
    affinity: str | None = None,
    anti_affinity: str | None = None,
    exclusion: str | None = None,
    **others: str,
) -> dict[str, str]:
    """Return the annotations of a pod; None leaves one out."""
    stated = {
        "kubeshare/gpu_request": request,
        "kubeshare/gpu_limit": limit,
        "kubeshare/gpu_mem": memory,
        GPUID: gpuid,
        "kubeshare/sched_affinity": affinity,
        "kubeshare/sched_anti-affinity": anti_affinity,
        "kubeshare/sched_exclusion": exclusion,
    }
    return {name: text for name, text in stated.items() if text is not None} | others


def with_card(name: str = "main", cards: int | None = 1, *, always: bool = False, **amounts: int) -> dict[str, Any]:
    """Return a container; ``millicores`` and ``memory_max`` stand for the amounts as resources.

    cards  None for a container without the resource
    """
    requests = {} if cards is None else {VGPU: str(cards)}
    requests |= {f"kubeshare/{key.replace('_', '.')}": str(amount) for key, amount in amounts.items()}
    return requesting(requests, name, always=always) | {"image": "example/main:1"}


def sharing(
    name: str = "pod", annotations: Mapping[str, str] | None = None, *containers: Mapping[str, Any], **fields: Any
) -> dict[str, Any]:
    """Return a pod with a share of a card, in one container with the resource unless others are given."""
    stated = share() if annotations is None else annotations
    return pod_json(*(containers or (with_card(),)), name=name, uid=name, annotations=stated, **fields)


def of_the_original(name: str, annotations: Mapping[str, str], uuid: str, node: str = "n1") -> dict[str, Any]:
    """Return a pod as KubeShare's device manager makes it: no container requests a card, a variable names it."""
    variables = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": uuid}, {"name": "POD_NAME", "value": name}]
    return sharing(name, annotations, with_card("main", None) | {"env": variables}, node=node)


def sharing_node(name: str = "n1", *, memory: Sequence[int] = (8 * GIB, 8 * GIB), **stated: Any) -> dict[str, Any]:
    """Return a node as our plugin describes it, with a card for each number of bytes.

    stated  labels, annotations, driver, uuids, and amounts by full name, with ``__`` for the slash and ``_`` for a dot
    """
    fields = {key: stated.pop(key) for key in ("labels", "annotations", "driver", "uuids") if key in stated}
    amounts = {
        VGPU: 1000 * len(memory),
        "kubeshare/millicores": 1000 * len(memory),
        "kubeshare/memory.max": sum(memory),
        **{key.replace("__", "/").replace("_", "."): amount for key, amount in stated.items()},
    }
    return described_node(name, amounts, memory=memory, **fields)
