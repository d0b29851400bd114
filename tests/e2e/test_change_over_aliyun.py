"""The steps of docs/from-aliyun.md on a real node with NVIDIA's cards, there and back, while pods come and go."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.e2e.agreement import RECEIPTS, with_receipts
from tests.e2e.change_over import Load, Place, Rehearsal, Witness
from tests.e2e.control_plane_node import ControlPlaneNode
from tests.e2e.fake_nvml import card, uuid
from tests.e2e.gpu_node import GpuNode
from tests.e2e.gpushare import GPU_COUNT, GPU_MEM, INDEX, VISIBLE, GpushareExtender, GpusharePlugin, requested
from tests.e2e.kube_api import Object, RefusedError
from tests.e2e.kubectl import Kubectl
from tests.e2e.mixed_words import FIRST_OF_NVIDIA, GIB
from tests.e2e.nvidia_plugin import NVIDIA
from tests.e2e.pods import OVER, PODS, asking, pod
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import unregister
from tests.e2e.written_cards import written_containers

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

KUBE_SYSTEM_APPS = "/apis/apps/v1/namespaces/kube-system"
CARDS, UNITS = 3, 9
"""Aliyun's plugin counts 9 GiB of a card, ours 8: the driver keeps the rest for itself."""
INTELS = fake_gpus(replace(FLEX_170, memory=(UNITS - 1) * GIB), 1)
"""The node has a card of Intel's as well, which only ours knows; its index is the last one."""
MEMORY = {str(index): UNITS * GIB for index in range(CARDS + len(INTELS))}
"""By index."""
RESIDENTS = (5, 4, 3)
"""Units of the pods that run from the beginning to the end."""


def taken(written: Object) -> Mapping[str, int]:
    """Return what a pod takes by the annotations of both systems."""
    annotations = written["metadata"].get("annotations", {})
    if not requested(written):  # a whole card
        return {index_of(annotations["gas-container-cards"]): UNITS * GIB}
    if INDEX not in annotations:
        raise ValueError("no card is written")
    if any(annotations.get(receipt) for receipt in RECEIPTS):
        cards = {name for each in written_containers(with_receipts(written)) for name in each.cards}
        return {index_of(name): requested(written) * GIB for name in cards}
    return {annotations[INDEX]: requested(written) * GIB}


def index_of(card: str) -> str:
    number = int(card.removeprefix("card"))
    return str(number - FIRST_OF_NVIDIA if number >= FIRST_OF_NVIDIA else CARDS + number)


class AliyunPlace(Place):
    guide = "from-aliyun.md"
    overlay = "aliyun-nvidia"
    cards = [card(minor, total=UNITS * GIB, reserved=GIB) for minor in range(CARDS)]  # noqa: RUF012
    configuration = "scheduler-policy-config.yaml"

    def __init__(self, gpu_node: GpuNode, machine: ControlPlaneNode, kubectl: Kubectl) -> None:
        super().__init__(gpu_node, machine, kubectl)
        self.old_extender: GpushareExtender
        self.old_plugin = GpusharePlugin(self.api, gpu_node.node, CARDS, UNITS)

    def install_aliyuns(self) -> None:
        """Follow Aliyun's guide: extender, kube-scheduler's configuration, plugin, label."""
        self.start_old_extender()
        self.configure_scheduler([self.old_extender.entry])
        self.use_configuration()
        self.kubectl.run("label", "node", self.node, "gpushare=true")
        self.start_old_plugin()

    def start_old_extender(self) -> None:
        """Create the objects of Aliyun's manifest, of which only the names matter here, and start what they run."""
        self.old_extender = GpushareExtender(self.api)
        self.old_extender.start()
        self.api.create(f"{KUBE_SYSTEM_APPS}/deployments", workload("Deployment", "gpushare-schd-extender"))
        service = {
            "metadata": {"name": "gpushare-schd-extender", "labels": {"app": "gpushare"}},
            "spec": {"ports": [{"port": 12345}]},
        }
        self.api.create("/api/v1/namespaces/kube-system/services", service)

    def start_old_plugin(self) -> None:
        self.api.create(f"{KUBE_SYSTEM_APPS}/daemonsets", workload("DaemonSet", "gpushare-device-plugin-ds"))
        self.old_plugin.start()
        wait_for("Aliyun's units", lambda: self.offered(GPU_MEM) == CARDS * UNITS)

    def start_gas(self) -> None:
        """Start extender and plugin with the flags of the overlay that say what is offered to whom.

        While Aliyun's plugin is there, ours offers nothing of its resource.
        """
        self.start_extender()
        self.gpu_node.new_plugin(INTELS, *self.plugin_flags())
        self.gpu_node.plugin.program.start()
        wait_for("our plugin waiting", self.other_plugin_is_reported, every=0.5)
        assert self.offered(GPU_MEM) == CARDS * UNITS

    def other_plugin_is_reported(self) -> bool:
        events = self.api.items("/api/v1/namespaces/default/events")
        return any(each["reason"] == "GPUResourceOfAnotherPlugin" for each in events)

    def replace_old_plugin(self) -> None:
        self.old_plugin.stop()
        wait_for("our plugin ready", self.gpu_node.plugin.is_ready)
        wait_for("our units", lambda: self.offered(GPU_MEM) == (CARDS + len(INTELS)) * (UNITS - 1))

    def bound(self) -> list[Object]:
        bound = [each for each in self.api.items(PODS) if each["spec"].get("nodeName")]
        return [each for each in bound if each["status"]["phase"] not in OVER]

    def free_a_card(self, witness: Witness) -> None:
        """Delete the pods of the load on one of NVIDIA's cards that has no resident."""
        pods = {each["metadata"]["name"]: each for each in self.api.items(PODS)}
        has = {name: taken(each).keys() if each["spec"].get("nodeName") else () for name, each in pods.items()}
        kept = {index for name, cards in has.items() if name.startswith("resident-") for index in cards}
        free = min({str(index) for index in range(CARDS)} - kept)
        for name, cards in has.items():
            if free in cards or not cards:  # those that wait would take its place
                witness.delete(name)

    def create(self, name: str, limits: Mapping[str, int]) -> None:
        written = pod(name, asking(limits))
        self.gpu_node.prepare(written)
        written["spec"]["terminationGracePeriodSeconds"] = 1
        self.api.create(PODS, written)

    def has(self, written: Object) -> set[str]:
        """Return the index of the card that a container has, which the old plugin names by index and ours by UUID."""
        visible = self.gpu_node.node.environment(written, "main").get(VISIBLE, "")
        of_nvidia = {str(index) for index in range(CARDS) if visible in (str(index), uuid(index))}
        return of_nvidia | set(map(index_of, self.gpu_node.cards(written)))


@pytest.fixture
def place(gpu_node: GpuNode, binaries: Path) -> Iterator[AliyunPlace]:
    with AliyunPlace.running(gpu_node, binaries) as place:
        yield place
        place.old_plugin.stop()  # else its thread keeps the process of the tests
        kinds = "daemonsets,deployments,services"
        place.kubectl.run("--namespace=kube-system", "delete", kinds, "--selector=app=gpushare")


def workload(kind: str, name: str) -> Object:
    labels = {"app": "gpushare"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "gpushare", "image": "none"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec}


def test_a_cluster_changes_from_aliyuns_system_and_back_under_load(place: AliyunPlace) -> None:
    gpu_node, machine = place.gpu_node, place.machine
    rng = Random(27)
    witness = Witness(place.api, MEMORY, taken)
    load = Load(witness, rng, lambda name, rng: place.create(name, {GPU_MEM: rng.randint(1, 4)}), every=0.3)
    rehearsal = Rehearsal(place.api, witness, load, taken, place.has)
    place.install_aliyuns()
    for number, units in enumerate(RESIDENTS):
        place.create(f"resident-{number}", {GPU_MEM: units})
    gpu_node.running([f"resident-{number}" for number in range(len(RESIDENTS))])

    with rehearsal.running():
        with rehearsal.step("Aliyun's system"):
            rehearsal.new_pods_run()

        with rehearsal.step("there: 1. close the node"):
            place.run("kubectl cordon NODE")
            rehearsal.settled()
        with rehearsal.step("there: 2. kube-scheduler"):
            place.configure_scheduler([])
            place.run("gas-configurator --apply-secret --vocabularies=intel,aliyun,vendor")
            machine.wait_for_scheduler("ours", with_configuration=True)
        with rehearsal.step("there: 3. gas"):
            place.start_gas()
            place.run("kubectl label node NODE nvidia.com/gpu.present=true")
            place.run("kubectl --namespace=kube-system delete daemonset gpushare-device-plugin-ds")
            place.replace_old_plugin()
        with rehearsal.step("there: 4. open the node"):
            place.run("kubectl uncordon NODE")
            rehearsal.new_pods_run()
        with rehearsal.step("there: whole cards, and pods that are refused"), load.paused:
            place.free_a_card(witness)
            with pytest.raises(RefusedError, match="which gives it no card; request"):
                place.create("refused", {GPU_COUNT: 1})
            place.create("whole", {NVIDIA: 1})
            (whole,) = gpu_node.running(["whole"])
            (index,) = place.has(whole)
            assert not any(index in taken(each) for each in place.bound() if each["metadata"]["name"] != "whole")
            witness.delete("whole")
        with rehearsal.step("there: 5. without Aliyun's extender"):
            place.run("kubectl --namespace=kube-system delete deployment,service gpushare-schd-extender")
            place.old_extender.stop()
            rehearsal.new_pods_run()

        with rehearsal.step("back: close the node"):
            place.run("kubectl cordon NODE")
            rehearsal.settled()
        with rehearsal.step("back: kube-scheduler"):
            unregister(place.api)
            place.run("gas-configurator --undo")
            place.start_old_extender()
            place.configure_scheduler([place.old_extender.entry])
            place.restart_scheduler()
            gpu_node.extender.program.kill()
        with rehearsal.step("between: Aliyun's extender with our plugin"):
            place.run("kubectl uncordon NODE")
            rehearsal.new_pods_run()
            place.run("kubectl cordon NODE")
            rehearsal.settled()
        with rehearsal.step("back: Aliyun's plugin"):
            gpu_node.stop_plugin()
            place.run("gas-plugin --uninstall --vocabularies=intel,aliyun")
            assert GPU_COUNT not in gpu_node.object()["status"]["capacity"]
            place.start_old_plugin()
        with rehearsal.step("back: open the node"):
            place.run("kubectl uncordon NODE")
            rehearsal.new_pods_run()
    print(f"{witness.writes} writes, {len(witness.ran)} pods ran, most bytes taken of each card: {witness.most}")
    assert {f"resident-{number}" for number in range(len(RESIDENTS))} <= set(witness.running())
