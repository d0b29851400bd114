"""Pods of every shape, chosen at random, and nodes on which they compete for cards."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.e2e.cluster import Cluster
from tests.e2e.kube_api import Object
from tests.e2e.pod_runner import ENDS_IN, RUNS_FOR
from tests.e2e.pods import container, pod

_NODES = {
    "pair": ({"gpu-numbers": "0.1"}, {"i915": "20", "millicores": "2000", "memory.max": "16G"}),
    "sockets": (
        {"gpu-numbers": "0.1.2.3", "numa-gpu-map": "0-0.1_1-2.3"},
        {"i915": "40", "millicores": "4000", "memory.max": "16G"},
    ),
    "tiled": (
        {
            "gpu-numbers": "0.1.2.3.4.5.6.7",
            "xe-links": "0.0-1.0_0.1-1.1_2.0-3.0_2.1-3.1_4.0-5.0_4.1-5.1",
            "xe-links2": "Z_6.0-7.0_6.1-7.1",
        },
        {"xe": "16", "tiles": "16", "millicores": "8000", "memory.max": "64G"},
    ),
}
"""Labels and resources without prefix."""


def add_mixed_nodes(cluster: Cluster) -> None:
    """Create two nodes of each kind. Together they have room for some dozens of the pods below."""
    for kind, (labels, resources) in _NODES.items():
        for number in (1, 2):
            cluster.add_node(
                f"{kind}-{number}",
                labels={f"gpu.intel.com/{name}": value for name, value in labels.items()},
                resources={f"gpu.intel.com/{name}": value for name, value in resources.items()},
            )


def mixed_pod(name: str, rng: Random) -> Object:
    """Return a pod of a random shape that fits an empty node. It ends by itself, and slowly when deleted."""
    (shape,) = rng.choices(list(_SHAPES), list(_SHAPES.values()))
    drawn = shape(name, rng)
    drawn["metadata"]["labels"] = {RUNS_FOR: f"{rng.uniform(2, 9):.1f}", ENDS_IN: f"{rng.choice((0, 0.5, 2)):g}"}
    return drawn


def lasting_pod(name: str, rng: Random) -> Object:
    """Return a small pod that runs until it is deleted."""
    return pod(name, container(i915=1, millicores=rng.choice((50, 100)), memory_max=f"{rng.randint(1, 4)}00M"))


def _memory(name: str, rng: Random) -> Object:
    return pod(name, container(i915=1, memory_max=f"{rng.randint(1, 7)}G"))


def _millicores(name: str, rng: Random) -> Object:
    return pod(name, container(i915=1, millicores=rng.choice((100, 300, 500, 700, 1000)), memory_max="500M"))


def _several_cards(name: str, rng: Random) -> Object:
    # 3 does not divide 1000: each card gives 334.
    return pod(name, container(i915=rng.choice((2, 3, 4)), millicores=1000, memory_max="4G"))


def _several_containers(name: str, rng: Random) -> Object:
    return pod(
        name,
        container("first", i915=1, millicores=rng.randint(1, 9) * 100),
        container("without"),
        container("second", i915=2, millicores=rng.randint(1, 9) * 100, memory_max="2G"),
    )


def _same_gpu(name: str, rng: Random) -> Object:
    return pod(
        name,
        container("a", i915=1, millicores=rng.randint(1, 5) * 100),
        container("b", i915=1, millicores=rng.randint(1, 5) * 100),
        annotations={"gas-same-gpu": "a,b"},
    )


def _single_numa(name: str, rng: Random) -> Object:
    needs = container("a", i915=1, millicores=600), container("b", i915=1, millicores=rng.choice((200, 600)))
    return pod(name, *needs, annotations={"gas-allocate-single-numa": "yes"})


def _tiles(name: str, rng: Random) -> Object:
    cards, tiles = rng.choice(((1, 1), (1, 2), (2, 2), (2, 4), (4, 4)))
    return pod(name, container(xe=cards, tiles=tiles, millicores=cards * 100))


def _linked(name: str, rng: Random) -> Object:
    cards = rng.choice((2, 2, 4))
    return pod(name, container(xe=cards, tiles=cards), annotations={"gas-allocate-xelink": "yes"})


def _init(name: str, rng: Random) -> Object:
    init = container("prepare", i915=1, millicores=rng.choice((200, 1000)), memory_max="3G")
    return pod(name, container(i915=1, millicores=500, memory_max="1G"), init=(init,))


def _sidecar(name: str, rng: Random) -> Object:
    init = (
        container("prepare", xe=rng.choice((1, 2)), millicores=800),
        container("encode", sidecar=True, xe=1, tiles=1, millicores=200),
    )
    return pod(name, container(xe=1, tiles=1, millicores=700), init=init)


def _company(name: str, rng: Random) -> Object:
    label, text = rng.choice((("affinity", "red"), ("anti-affinity", "green"), ("exclusion", "blue"), ("name", "mine")))
    needs = container(i915=1, millicores=200)
    return pod(name, needs, annotations={f"gas-card-{label}": text})


def _no_gpu(name: str, _: Random) -> Object:
    return pod(name)


_SHAPES: dict[Callable[[str, Random], Object], int] = {
    _memory: 6,
    _millicores: 6,
    _several_cards: 3,
    _several_containers: 3,
    _same_gpu: 3,
    _single_numa: 3,
    _tiles: 6,
    _linked: 3,
    _init: 3,
    _sidecar: 2,
    _company: 3,
    _no_gpu: 3,
}
"""Shapes and how often each comes, relative to the others."""
