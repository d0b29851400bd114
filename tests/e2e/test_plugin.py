"""Extender, scheduler, kubelet and plugin together: real containers have exactly the cards written on their pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from copy import deepcopy

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, MAX_1550_XE, fake_gpus
from tests.e2e.gpu_node import SECONDS, GpuNode
from tests.e2e.kube_api import Object
from tests.e2e.kubelet_failures import is_excused
from tests.e2e.pod_resources import listed_ids
from tests.e2e.pods import container, delete_now, event_messages, get_pod, pod
from tests.e2e.waiting import wait_for
from tests.e2e.written_cards import written_containers

BY_CHANCE = "kubelet did not ask for a preference: it reuses devices of the pod's init containers"
NOT_OFFERED = "kubelet did not offer "
_SMALL = container(i915=1, millicores=200)


@pytest.fixture(autouse=True)
def no_pods_after(gpu_node: GpuNode) -> Iterator[None]:
    yield
    gpu_node.clear()


def test_the_worked_example_down_to_the_containers(gpu_node: GpuNode) -> None:
    gpu_node.start(fake_gpus(FLEX_170, 2), "--shared-dev-num=10")
    names = ["a", "b"]
    for name in names:
        gpu_node.create(pod(name, container(i915=1, memory_max="9G")))
    pods = gpu_node.running(names)
    gpu_node.settled()
    assert sorted(gpu_node.cards(each)[0] for each in pods) == ["card0", "card1"]
    printed = wait_for("what the container prints", lambda: gpu_node.node.log(pods[0], "main"))
    (card,) = gpu_node.cards(pods[0])
    assert printed.splitlines()[:3] == ["by-path", card, f"renderD{128 + int(card.removeprefix('card'))}"]
    gpu_node.create(pod("c", container(i915=1, memory_max="9G")))
    wait_for("the third is refused", lambda: event_messages(gpu_node.api, "c", "FailedScheduling"))
    delete_now(gpu_node.api, "a")
    gpu_node.running(["b", "c"])
    gpu_node.settled()


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


def test_tiles_come_as_a_mask(gpu_node: GpuNode) -> None:
    gpu_node.start(fake_gpus(MAX_1550_XE, 2), "--shared-dev-num=2")
    gpu_node.create(pod("one", container(xe=1, tiles=1)))
    gpu_node.create(pod("other", container(xe=1, tiles=1)))
    gpu_node.create(pod("two", container(xe=1, tiles=2)))
    for each in gpu_node.running(["one", "other", "two"]):
        (written,) = written_containers(each)
        tiles = sorted(tile.removeprefix("gt") for tile in written.tiles[written.cards[0]])
        mask = gpu_node.node.environment(each, "main")["ZE_AFFINITY_MASK"]
        assert sorted(mask.split(",")) == tiles
    gpu_node.settled()


def test_a_pod_that_names_its_node_is_adopted_and_booked(gpu_node: GpuNode) -> None:
    gpu_node.start(fake_gpus(FLEX_170, 2), "--shared-dev-num=2")
    gpu_node.create(pod("direct", container(i915=1, millicores=700)), node=gpu_node.node.name)
    (direct,) = gpu_node.running(["direct"])
    (card,) = gpu_node.cards(direct)
    wait_for("its receipt", lambda: gpu_node.receipts() == {"direct": {"gas-allocated-cards": card}})
    wait_for("it in the books", lambda: gpu_node.booked() == {card: 1})
    wait_for("its event", lambda: event_messages(gpu_node.api, "direct", "GPUCardsAdopted"))
    gpu_node.create(pod("decided", container(i915=1, millicores=700)))
    (decided,) = gpu_node.running(["decided"])
    assert gpu_node.cards(decided) != [card]
    gpu_node.settled(receipts_expected=["direct"])
    assert gpu_node.plugin.metric("gas_plugin_adopted_pods_total") == 1


def test_thirty_pods_at_once_then_restarts_of_plugin_and_kubelet(gpu_node: GpuNode) -> None:
    gpu_node.start(fake_gpus(FLEX_170, 8), "--shared-dev-num=8")
    names = [f"p{number}" for number in range(30)]
    for name in names:
        gpu_node.create(pod(name, deepcopy(_SMALL)))
    gpu_node.running(names)
    gpu_node.settled()

    assert gpu_node.plugin.program.terminate() == 0
    gpu_node.plugin.start()
    gpu_node.node.restart_kubelet()
    wait_for("kubelet's pods and their cards", lambda: len(listed_ids(gpu_node.node.pod_resources)) == len(names))
    wait_for("the plugin registered again", gpu_node.plugin.is_ready)
    wait_for("kubelet has the cards", lambda: gpu_node.allocatable("i915") == 64)
    for name in names[:5]:
        delete_now(gpu_node.api, name)
    later = [f"q{number}" for number in range(5)]
    for name in later:
        gpu_node.create(pod(name, deepcopy(_SMALL)))
    gpu_node.running([*names[5:], *later])
    gpu_node.settled()
    assert sum(gpu_node.booked().values()) == 30


def test_thirty_pods_while_plugin_and_kubelet_restart(
    gpu_node: GpuNode, record_property: Callable[[str, object], None]
) -> None:
    """A kubelet that has just started still holds the ids of pods deleted meanwhile, and does not offer them."""
    gpu_node.start(fake_gpus(FLEX_170, 8), "--shared-dev-num=8")
    names = [f"p{number}" for number in range(30)]
    plugin, kubelet = gpu_node.plugin.program, gpu_node.node.kubelet
    disturbances: dict[int, Callable[[], object]] = {
        6: plugin.terminate,
        8: plugin.start,
        12: kubelet.program.kill,
        14: kubelet.start,
        18: plugin.kill,
        20: kubelet.program.kill,
        21: kubelet.start,
        23: plugin.start,
        25: lambda: delete_now(gpu_node.api, "p20"),
    }
    own = set(names[9::10])
    for number, name in enumerate(names):
        gpu_node.create(pod(name, deepcopy(_SMALL)), node=gpu_node.node.name if name in own else None)
        if number in disturbances:
            disturbances[number]()
    names.remove("p20")

    refused = _replaced_until_all_run(gpu_node, names)
    wait_for("the plugin ready", gpu_node.plugin.is_ready)
    adopted = [name for name in names if "gas-ts" not in get_pod(gpu_node.api, name)["metadata"].get("annotations", {})]
    otherwise = _otherwise_because_of(gpu_node, [name for name in names if name not in adopted], NOT_OFFERED)
    record_property("pods refused by kubelet while no plugin was there", refused)
    record_property("pods with other cards, which kubelet did not offer", otherwise)
    print(
        f"\n{refused} pods were refused while no plugin was there; other cards than decided have {otherwise or 'none'}"
    )
    gpu_node.settled(receipts_expected=[*adopted, *otherwise], seconds=SECONDS)


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


def _replaced_until_all_run(gpu_node: GpuNode, names: Collection[str]) -> int:
    """Create each pod that kubelet refused or ended again, as its controller would, and return how often."""
    refused = 0

    def look() -> bool:
        nonlocal refused
        pods = [get_pod(gpu_node.api, name) for name in names]
        for each in pods:
            if each["status"]["phase"] == "Failed":
                assert is_excused(each), each["status"]
                refused += 1
                _replace(gpu_node, each)
        return all(each["status"]["phase"] == "Running" for each in pods)

    wait_for(f"{len(names)} pods running", look, seconds=SECONDS, every=0.5)
    return refused


def _replace(gpu_node: GpuNode, failed: Object) -> None:
    name = failed["metadata"]["name"]
    delete_now(gpu_node.api, name)
    gpu_node.create(pod(name, deepcopy(_SMALL)))
