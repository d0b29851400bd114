"""Pods and nodes in HAMi's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gas.values.card_records import ANNOTATION, CardRecord, format_card_records
from gas.values.cards import Card
from tests.builders import described_node, pod_json, requesting

MIB = 2**20
A, B, C, D = (f"GPU-{letter * 8}-0000-4000-8000-000000000000" for letter in "abcd")
UUIDS = (A, B, C, D)
NAMES = {"gpu": "gpu", "mem": "gpumem", "pct": "gpumem-percentage", "cores": "gpucores", "prio": "priority"}
ALLOCATED = "hami.io/vgpu-devices-allocated"
REGISTER = "hami.io/node-nvidia-register"


def asking(name: str = "main", *, always: bool = False, **amounts: int | str) -> dict[str, Any]:
    """Return a container; ``gpu``, ``mem``, ``pct``, ``cores`` and ``prio`` stand for HAMi's resources."""
    resources = {f"nvidia.com/{NAMES[key]}": str(amount) for key, amount in amounts.items()}
    return requesting(resources, name, always=always) | {"image": "example/main:1"}


def wanting(name: str = "pod", *containers: Mapping[str, Any], **amounts: Any) -> dict[str, Any]:
    """Return a pod with one container with these amounts, or with the given ones; the others are fields of the pod."""
    fields = {key: amounts.pop(key) for key in ("annotations", "node", "init", "phase") if key in amounts}
    return pod_json(*(containers or (asking(**amounts),)), name=name, uid=name, **fields)


def hami_node(
    name: str = "n",
    *,
    memory: Sequence[int] = (24576, 24576),
    models: Sequence[str] = (),
    numa: Sequence[int] = (),
    places: int = 10,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a node as our plugin records it, with a card for each number of MiB."""
    records = [
        CardRecord(
            card=Card(number),
            driver="nvidia",
            model=models[number] if models else "NVIDIA A10",
            uuid=UUIDS[number],
            memory=mib * MIB,
            numa_node=numa[number] if numa else 0,
        )
        for number, mib in enumerate(memory)
    ]
    texts = {ANNOTATION: format_card_records(records), **(annotations or {})}
    return described_node(name, {"nvidia.com/gpu": places * len(memory)}, annotations=texts)
