"""The steps of docs/from-koordinator.md on a real node with NVIDIA's cards, there and back, while pods come and go."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import yaml

from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.deploy.manifests import DEPLOY, arguments
from tests.e2e.agreement import RECEIPTS
from tests.e2e.change_over import Load, Rehearsal, Witness
from tests.e2e.control_plane_node import REPOSITORY, STATIC_PODS, ControlPlaneNode
from tests.e2e.fake_nvml import GIB, FakeNvml, card, uuid
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
from tests.e2e.kube_api import Object, write_kubeconfig
from tests.e2e.kubectl import Kubectl
from tests.e2e.nvidia_plugin import NVIDIA, VISIBLE, NvidiaPlugin
from tests.e2e.pods import PODS, asking, pod
from tests.e2e.ports import free_port
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import apply_overlay, unregister

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

PAGE = (REPOSITORY / "docs/from-koordinator.md").read_text(encoding="utf-8")
OVERLAY = "koordinator-nvidia"
CONFIGURATION = "koord-scheduler-config.yaml"
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


class Place:
    """The node, its control plane, and the programs of both systems."""

    def __init__(self, gpu_node: GpuNode, machine: ControlPlaneNode, binaries: Path) -> None:
        self.gpu_node = gpu_node
        self.machine = machine
        self.node = gpu_node.node.name
        self.api = gpu_node.api
        admin = write_kubeconfig(gpu_node.node.directory / "admin.kubeconfig", self.api)
        self.kubectl = Kubectl(binaries / "kubectl", admin)
        self.configuration = machine.etc / "kubernetes" / CONFIGURATION
        self.manager = KoordManager(self.api, self.node, CARDS, SIZE)
        library = FakeNvml(gpu_node.node.directory / "nvml")
        library.write([card(minor, total=SIZE, reserved=GIB) for minor in range(CARDS)])
        gpu_node.plugin_environment = library.environment

    def install_koordinator(self) -> None:
        self.start_device_share()
        manifest = yaml.safe_load(self.machine.manifest.read_text())
        (container,) = manifest["spec"]["containers"]
        container["command"].append(f"--config=/etc/kubernetes/{CONFIGURATION}")
        container["volumeMounts"].append({"name": "config", "mountPath": f"/etc/kubernetes/{CONFIGURATION}"})
        path = {"path": f"/etc/kubernetes/{CONFIGURATION}", "type": "FileOrCreate"}
        manifest["spec"]["volumes"].append({"name": "config", "hostPath": path})
        self.machine.manifest.write_text(yaml.safe_dump(manifest))
        self.machine.wait_for_scheduler("koord-scheduler", with_configuration=True)
        self.start_old_node()

    def start_device_share(self) -> None:
        self.share = DeviceShare(self.api, CARDS, SIZE)
        self.share.start()
        self.write_configuration([self.share.entry])

    def start_old_node(self) -> None:
        """Start what runs for the node: koordlet, koord-manager, and NVIDIA's plugin."""
        self.nvidia = NvidiaPlugin(self.gpu_node.node, [uuid(minor) for minor in range(CARDS)])
        self.nvidia.start()
        self.manager.start()
        wait_for(
            "Koordinator's resources",
            lambda: self.offered(SHARED) == 100 * CARDS and self.offered(NVIDIA) == CARDS,
        )

    def restart_scheduler(self) -> None:
        """Move the manifest away and back, as administrators of static pods do."""
        manifest = self.machine.manifest.read_text()
        self.machine.manifest.unlink()
        scheduler = f"{STATIC_PODS}/kube-scheduler-{self.node}"
        wait_for("the end of kube-scheduler", lambda: self.api.find(scheduler) is None, every=0.2)
        self.machine.manifest.write_text(manifest)
        self.machine.wait_for_scheduler("again", with_configuration=True)

    def write_configuration(self, extenders: list[Object]) -> None:
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
            "extenders": extenders,
        }
        self.configuration.write_text(yaml.safe_dump(configuration))

    def run(self, command: str) -> None:
        """Run a command of the guide, which must have it, on this node."""
        assert command in PAGE, f"docs/from-koordinator.md does not have the command that is tried: {command}"
        program, *words = command.replace("NODE", self.node).split()
        if program == "kubectl":
            self.kubectl.run(*words)
        elif program == "gas-configurator":
            self.machine.configurator(*words, *(self._certificates() if "--apply-secret" in words else ()))
        else:
            own = [f"--kubeConfig={self.gpu_node.node.directory / 'plugin.kubeconfig'}", f"--node-name={self.node}"]
            self.machine.run(sys.executable, "-m", program.replace("-", "."), *words, *own)

    def _certificates(self) -> list[str]:
        """Return the configurator's flags for this machine, so that nothing needs a name of a Service."""
        own = self.gpu_node.cluster
        pairs = {"": own.client, "serving-": own.serving}
        return [
            f"--url=https://localhost:{own.service.port}",
            *(f"--{prefix}cert={pair.certificate}" for prefix, pair in pairs.items()),
            *(f"--{prefix}key={pair.key}" for prefix, pair in pairs.items()),
            f"--client-ca={own.authority.certificate}",
            f"--serving-ca={own.authority.certificate}",
        ]

    def start_gas(self) -> None:
        """Start extender and plugin with the flags of the overlay that say what is offered to whom."""
        port = free_port()
        self.gpu_node.start_extender(*flags("gpu-aware-scheduling"), f"--admission-port={port}")
        apply_overlay(self.kubectl, self.gpu_node, OVERLAY, port)
        of_both = [each for each in flags("gas-plugin-nvidia") if each != "--card-sources=nvml"]
        self.gpu_node.start_plugin(INTELS, *of_both, "--card-sources=sysfs,nvml")
        cards = CARDS + len(INTELS)
        wait_for(
            "our resources",
            lambda: (
                self.offered(SHARED) == 100 * cards
                and self.offered(NVIDIA) == CARDS
                and self.offered(MEMORY) == cards * (SIZE - GIB)
            ),
        )

    def offered(self, resource: str) -> int:
        return int(self.gpu_node.object()["status"].get("allocatable", {}).get(resource, "0"))

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
def place(gpu_node: GpuNode, binaries: Path) -> Iterator[Place]:
    gpu_node.cluster.scheduler.stop()
    machine = ControlPlaneNode(gpu_node.cluster, gpu_node.node, binaries)
    machine.start()
    place = Place(gpu_node, machine, binaries)
    yield place
    place.kubectl.run("delete", "--ignore-not-found", "-k", DEPLOY / "overlays" / OVERLAY)


def flags(workload: str) -> list[str]:
    kinds = ("--vocabularies=", "--card-sources=")
    return [each for each in arguments(OVERLAY, workload) if each.startswith(kinds)]


def limits(rng: Random) -> tuple[Mapping[str, int], ...]:
    """Return what the containers of a pod of the load ask for."""
    share = {SHARED: 1, RATIO: rng.choice((5, 10, 20)), CORE: rng.choice((5, 10))}
    two = {SHARED: 2, MEMORY: 2 * rng.randint(1, 1024) * 2**20}
    return rng.choice(((share,), (two,), (share, share)))


# contract O1.10, O1.12, O1.20, O1.24, O1.25, O1.27, O1.32
def test_a_cluster_changes_from_koordinator_and_back_under_load(place: Place) -> None:
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
            place.write_configuration([])
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
