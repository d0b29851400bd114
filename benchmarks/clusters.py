"""Clusters made from a seed: nodes with cards, and pods that hold some of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from gas.intel import names

Object = dict[str, Any]

CARDS = 8
SHARES = 10
"""Containers that may share one card."""


@dataclass(frozen=True, slots=True)
class Size:
    """nodes, and the GPU pods placed on them."""

    nodes: int
    pods: int


def node_names(size: Size) -> list[str]:
    return [f"node-{number:05}" for number in range(size.nodes)]


def nodes(size: Size) -> list[Object]:
    """Nodes of eight cards with two tiles, 16 GB and 1000 millicores each."""
    amounts = {
        "cpu": "64",
        "pods": "110",
        names.PREFIX + "i915": str(CARDS * SHARES),
        names.PREFIX + "millicores": str(CARDS * 1000),
        names.PREFIX + "memory.max": str(CARDS * 16 * 10**9),
        names.PREFIX + names.TILES: str(CARDS * 2),
    }
    numbers = ".".join(str(number) for number in range(CARDS))
    return [
        {
            "metadata": {"name": name, "labels": {names.GPU_NUMBERS: numbers}},
            "status": {"allocatable": amounts, "capacity": amounts},
        }
        for name in node_names(size)
    ]


def placed_pods(size: Size, seed: int) -> list[Object]:
    """Pods that run, spread over the nodes, each on one card of its node; no card is over what it has."""
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
            names.TIMESTAMP: str(number),
            names.CONTAINER_CARDS: f"card{turn % CARDS}",
        }
    return placed


def pod(name: str, amounts: dict[str, int]) -> Object:
    """A pod with one container that asks for these, by names without prefix."""
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "benchmark"}},
        "spec": {"containers": [_container(amounts)]},
    }


def _container(amounts: dict[str, int]) -> Object:
    resources = {names.PREFIX + name: str(amount) for name, amount in amounts.items()}
    return {"name": "main", "image": "none", "resources": {"limits": resources, "requests": resources}}
