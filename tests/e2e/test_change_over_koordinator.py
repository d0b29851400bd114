"""The steps of docs/from-koordinator.md on a real node with NVIDIA's cards, there and back, while pods come and go."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.e2e.agreement import RECEIPTS
from tests.e2e.change_over import Load, Place, Rehearsal, Witness
from tests.e2e.fake_nvml import GIB, card, uuid
from tests.e2e.gpu_node import GpuNode
from tests.e2e.koordinator_original import (
    CORE,
    MEMORY,
    MINORS,
    RATIO,
    SHARED,
    DeviceShare,
    KoordManager,
    allocated,
)
from tests.e2e.kube_api import Object
from tests.e2e.nvidia_plugin import NVIDIA, VISIBLE, NvidiaPlugin
from tests.e2e.pods import PODS, asking, pod
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import unregister

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

CARDS, SIZE = 4, 9 * GIB
"""Koordlet reports 9 GiB of a card, and our plugin 8: the driver keeps the rest for itself."""
INTELS = fake_gpus(replace(FLEX_170, memory=SIZE - GIB), 1)
OF_INTEL = "1000"
"""The node has a card of Intel's as well, which only ours knows, and its number in Koordinator's words."""
LIMITS = dict.fromkeys([*map(str, range(CARDS)), OF_INTEL], SIZE)
GIVEN = "GIVEN_BY_KOORDLET"
"""The variable in which a pod shows the annotation from which koordlet's hook takes the cards of a container."""
RESIDENTS: tuple[tuple[dict[str, int], ...], ...] = (
    ({NVIDIA: 1},),
    ({SHARED: 2, RATIO: 100, CORE: 60},),
    ({SHARED: 1, RATIO: 30}, {SHARED: 1, RATIO: 30}),
    ({SHARED: 1, MEMORY: 2 * GIB, CORE: 20},),
)
"""The containers of the pods that run from the beginning to the end; the first has a whole card."""


def taken(written: Object) -> Mapping[str, int]:
    """Return the bytes that a pod takes of each card, all of a card that it has alone."""
    found = {str(minor): SIZE if core >= 100 else memory for minor, (memory, core) in allocated(written).items()}
    if not found:
        raise ValueError("no card is written")
    annotations = written["metadata"]["annotations"]
    if set(annotations[MINORS].split(",")) != found.keys():
        raise ValueError("the numbers of its cards are others")
    if any(annotations.get(receipt) for receipt in RECEIPTS):
        raise ValueError("kubelet gave another card")
    return found


class KoordinatorPlace(Place):
    guide = "from-koordinator.md"
    overlay = "koordinator-nvidia"
    cards = [card(minor, total=SIZE, reserved=GIB) for minor in range(CARDS)]  # noqa: RUF012
    configuration = "koord-scheduler-config.yaml"

    def install_koordinator(self) -> None:
        self.start_device_share()
        self.use_configuration()
        self.manager = KoordManager(self.api, self.node, CARDS, SIZE)
        self.start_old_node()

    def start_device_share(self) -> None:
        self.share = DeviceShare(self.api, CARDS, SIZE)
        self.share.start()
        self.configure_scheduler([self.share.entry])

    def start_old_node(self) -> None:
        """Start what runs for the node: koordlet, koord-manager, and NVIDIA's plugin."""
        self.nvidia = NvidiaPlugin(self.gpu_node.node, [uuid(minor) for minor in range(CARDS)])
        self.nvidia.start()
        self.manager.start()
        wait_for(
            "Koordinator's resources",
            lambda: self.offered(SHARED) == 100 * CARDS and self.offered(NVIDIA) == CARDS,
        )

    def start_gas(self) -> None:
        self.start_extender()
        self.gpu_node.start_plugin(INTELS, *self.plugin_flags())
        cards = CARDS + len(INTELS)
        wait_for(
            "our resources",
            lambda: (
                self.offered(SHARED) == 100 * cards
                and self.offered(NVIDIA) == CARDS
                and self.offered(MEMORY) == cards * (SIZE - GIB)
            ),
        )

    def create(self, name: str, *limits: Mapping[str, int]) -> None:
        written = pod(name, *(asking(each, f"c{at}") for at, each in enumerate(limits)))
        self.gpu_node.prepare(written)
        shown = {"fieldRef": {"fieldPath": f"metadata.annotations['{MINORS}']"}}
        for container in written["spec"]["containers"]:
            container["env"] = [{"name": GIVEN, "valueFrom": shown}]
        written["spec"]["terminationGracePeriodSeconds"] = 1
        self.api.create(PODS, written)

    def has(self, written: Object) -> set[str]:
        """Return the cards of the containers, each of which must have all, by what our plugin or koordlet gave them."""
        by_gas = "gas-ts" in written["metadata"]["annotations"]
        found = set()
        for container in written["spec"]["containers"]:
            env = self.gpu_node.node.environment(written, container["name"])
            # NVIDIA's plugin gives any card, in whose place koordlet's hook gives the decided one.
            by_plugin = VISIBLE in env and (by_gas or NVIDIA not in container["resources"]["limits"])
            names = {uuid(minor) if by_plugin else str(minor): str(minor) for minor in range(CARDS)}
            intels = {OF_INTEL} if self.gpu_node.cards(written, container["name"]) else set()
            given = env.get(VISIBLE, "") if by_plugin or intels else env[GIVEN]
            found.add(frozenset(intels.union(names[each] for each in given.split(",") if each)))
        (cards,) = found
        return set(cards)


@pytest.fixture
def place(gpu_node: GpuNode, binaries: Path) -> Iterator[KoordinatorPlace]:
    with KoordinatorPlace.running(gpu_node, binaries) as place:
        yield place


def limits(rng: Random) -> tuple[Mapping[str, int], ...]:
    """Return what the containers of a pod of the load ask for."""
    share = {SHARED: 1, RATIO: rng.choice((5, 10, 20)), CORE: rng.choice((5, 10))}
    two = {SHARED: 2, MEMORY: 2 * rng.randint(1, 1024) * 2**20}
    return rng.choice(((share,), (two,), (share, share)))


# contract O1.10, O1.12, O1.20, O1.24, O1.25, O1.27, O1.32
def test_a_cluster_changes_from_koordinator_and_back_under_load(place: KoordinatorPlace) -> None:
    witness = Witness(place.api, LIMITS, taken)
    load = Load(witness, Random(27), lambda name, rng: place.create(name, *limits(rng)), most=7)
    rehearsal = Rehearsal(place.api, witness, load, taken, place.has)
    place.install_koordinator()
    residents = [f"resident-{number}" for number in range(len(RESIDENTS))]
    for name, of_containers in zip(residents, RESIDENTS, strict=True):
        place.create(name, *of_containers)
    place.gpu_node.running(residents)

    with rehearsal.running():
        with rehearsal.step("Koordinator"):
            rehearsal.new_pods_run()
        with rehearsal.step("1. close the node"):
            place.run("kubectl cordon NODE")
            rehearsal.settled()
            place.run("kubectl label node NODE nvidia.com/gpu.present=true")
            place.nvidia.stop()
        with rehearsal.step("2. Koordinator's part"):
            place.manager.stop()
            place.configure_scheduler([])
            place.share.stop()
        with rehearsal.step("3. the scheduler"):
            place.run("gas-configurator --apply-secret --vocabularies=intel,koordinator,vendor")
            place.machine.wait_for_scheduler("ours", with_configuration=True)
        with rehearsal.step("4. gas"):
            place.start_gas()
        with rehearsal.step("5. open the node"):
            place.run("kubectl uncordon NODE")
            rehearsal.new_pods_run(8)

        with rehearsal.step("back: close the node"):
            place.run("kubectl cordon NODE")
            rehearsal.settled()
        with rehearsal.step("back: the scheduler"):
            unregister(place.api)
            place.run("gas-configurator --undo")
            place.gpu_node.extender.program.kill()
            place.start_device_share()
            place.restart_scheduler()
        with rehearsal.step("back: open the node"):
            place.run("kubectl uncordon NODE")
            rehearsal.new_pods_run(8)
    print(f"{witness.writes} writes, {len(witness.ran)} pods ran, most bytes taken of each card: {witness.most}")
    assert set(residents) <= set(witness.running())
