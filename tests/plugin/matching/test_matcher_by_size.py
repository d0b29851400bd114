"""Matching by the number of ids alone."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gas.plugin.matching.gpu_pods import GpuPods
from gas.vocabularies.known import DEFAULT
from tests.builders import container
from tests.listed import list_all
from tests.plugin.model_kubelet import Handed, Kubelet, Plugin
from tests.plugin.pods_for_plugin import I915, decided, node_pod, slots

SHAPES: list[dict[str, Any]] = [
    {"containers": [1], "init": []},
    {"containers": [2], "init": []},
    {"containers": [1, 1], "init": [3]},
    {"containers": [4], "init": [4]},
]


@given(st.permutations(range(4)), st.permutations(range(4)), st.randoms(use_true_random=False))
def test_pods_of_different_sizes_get_their_cards_in_any_order_without_a_listing(
    kubelets_order: list[int], ts: list[int], chance: random.Random
) -> None:
    cards = iter(range(10))
    pods = []
    for number, shape in enumerate(SHAPES):
        init = [[f"card{next(cards)}" for _ in range(size)] for size in shape["init"]]
        if number == 2:
            apps = [[init[0][0]], [init[0][1]]]
        elif number == 3:
            apps = init
        else:
            apps = [[f"card{next(cards)}" for _ in range(size)] for size in shape["containers"]]
        pods.append(
            node_pod(
                *(container(f"c{at}", i915=size) for at, size in enumerate(shape["containers"])),
                name=f"pod{number}",
                init=tuple(container(f"i{at}", i915=size) for at, size in enumerate(shape["init"])),
                annotations=decided("|".join(map(",".join, apps)), init="|".join(map(",".join, init)), ts=ts[number]),
            )
        )
    kubelet = Kubelet({I915: slots(10)}, chance)
    plugin = Plugin(GpuPods(DEFAULT), None)
    list_all(plugin.pods, pods)

    handed: list[Handed] = []
    for number in kubelets_order:
        handed += [each for each in kubelet.admit(pods[number], plugin) if each is not None]

    assert len(handed) == 8 - 1
    for each in handed:
        target = each.match.target
        assert target is not None
        assert (target.pod.uid, target.demand) == (each.pod.uid, each.want)
        if not each.by_chance:
            assert target.decided is not None
            assert {id_.card for id_ in each.ids} == set(target.decided.cards)
