"""Files with nodes and pods for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Object = dict[str, Any]

AMOUNTS = {"cpu": "8", "gpu.intel.com/i915": "20", "gpu.intel.com/memory.max": "16000000000"}


def node(name: str, **spec: Any) -> Object:
    """Return a node with two cards of 8 GB each."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"gpu.intel.com/gpu-numbers": "0.1"}},
        "spec": spec,
        "status": {"allocatable": AMOUNTS, "capacity": AMOUNTS},
    }


def pod(name: str | None, gigabytes: int = 5, *, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    """Return a pod whose container requests one card and this amount of memory; with 0 it requests no card."""
    amounts = {"gpu.intel.com/i915": 1, "gpu.intel.com/memory.max": f"{gigabytes}G"} if gigabytes else {}
    metadata = {"namespace": "default", "annotations": annotations or {}} | ({"name": name} if name else {})
    container = {"name": "main", "image": "example/main:1", "resources": {"limits": amounts}}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def write(file: Path, *objects: object) -> Path:
    file.write_text(json.dumps({"kind": "List", "items": list(objects)}), encoding="utf-8")
    return file
