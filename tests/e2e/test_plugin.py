"""Extender, scheduler, kubelet and plugin together: real containers have exactly the cards written on their pods."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.e2e.gpu_node import GpuNode
from tests.e2e.pod_resources import listed_ids
from tests.e2e.pods import container, get_pod, pod
from tests.e2e.written_cards import written_containers

pytestmark = pytest.mark.usefixtures("no_pods_after")

BY_CHANCE = "kubelet did not ask for a preference: it reuses devices of the pod's init containers"


# contract D1.2, D1.4
def test_several_cards_init_containers_and_sidecars(gpu_node: GpuNode) -> None:
    gpu_node.start(fake_gpus(FLEX_170, 4), "--shared-dev-num=4")
    gpu_node.create(pod("several", container("one", i915=2, millicores=500), container("two", i915=1)))
    gpu_node.create(pod("init", container(i915=1, millicores=300), init=(container("prepare", i915=1),)))
    gpu_node.create(
        pod("side", container(i915=2), init=(container("prepare", i915=1), container("side", sidecar=True, i915=1)))
    )
    gpu_node.create(pod("more", container(i915=3), init=(container("prepare", i915=1), container("again", i915=2))))
    gpu_node.running(["several", "init", "side", "more"])
    gpu_node.settled()


def test_what_kubelet_takes_by_chance_of_an_init_containers_cards_has_a_receipt(gpu_node: GpuNode) -> None:
    """Two cards become free, the next two containers need one each, and kubelet chooses without asking the plugin."""
    gpu_node.start(fake_gpus(FLEX_170, 4), "--shared-dev-num=4")
    names = [f"p{number}" for number in range(6)]
    for name in names:
        init = (container("prepare", i915=2), container("side", sidecar=True, i915=1))
        gpu_node.create(pod(name, container(i915=1), init=init))
    gpu_node.running(names)
    by_chance = _otherwise_because_of(gpu_node, names, BY_CHANCE)
    gpu_node.settled(receipts_expected=by_chance)


def _otherwise_because_of(gpu_node: GpuNode, names: Collection[str], cause: str) -> list[str]:
    """Return the pods in which a container has other cards than decided. Fails if the log gives another cause."""
    listed, causes = listed_ids(gpu_node.node.pod_resources), gpu_node.plugin.causes()
    found = []
    for name in names:
        each = get_pod(gpu_node.api, name)
        for written in written_containers(each):
            if gpu_node.cards(each, written.name) == sorted(written.cards):
                continue
            ids = listed[name, written.name]["i915"]
            cause_found = causes.get(frozenset(ids), "nothing")
            assert cause_found.startswith(cause), (
                f"{name}/{written.name} has {ids}, decided {written.cards}; cause: {cause_found}"
            )
            found.append(name)
    return sorted(set(found))
