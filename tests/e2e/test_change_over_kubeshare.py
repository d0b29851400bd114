"""The steps of docs/from-kubeshare.md on a real node with NVIDIA's cards, there and back, while pods come and go."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.deploy.manifests import DEPLOY
from tests.e2e.change_over import Load, Place, Rehearsal, Witness
from tests.e2e.control_plane_node import ControlPlaneNode
from tests.e2e.fake_nvml import GIB, card, uuid
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object, RefusedError
from tests.e2e.kubectl import Kubectl
from tests.e2e.kubeshare_original import (
    DEFINITION,
    GPU,
    GPUID,
    MEMORY,
    PLACEHOLDER,
    REQUEST,
    SHAREPODS,
    SYSTEM_PODS,
    KubeShare,
)
from tests.e2e.nvidia_plugin import VISIBLE, NvidiaPlugin
from tests.e2e.pods import PODS, delete, get_pod
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import unregister
from tests.kubeshare_words import share

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CARDS, SIZE = 3, 8 * GIB
UUIDS = [uuid(minor) for minor in range(CARDS)]
INTELS = fake_gpus(replace(FLEX_170, memory=SIZE), 1)
OF_INTEL = "card0"
WHOLE = dict.fromkeys([*UUIDS, OF_INTEL], 1000)
"""Thousandths by UUID, of Intel's card by name; pods take the same part of a card's memory."""
KUBESHARES = "POD_MANAGER_PORT"
"""The name of a variable of the pods that KubeShare makes."""
KEPT = ("BoundDeviceID", "PodManagerPort")
RESIDENTS = ("0.6", "0.5", "0.4")
"""Requests of the SharePods whose pods run from the beginning to the end."""


def taken(written: Object) -> Mapping[str, int]:
    """Return what a pod takes: of the card in its variable if KubeShare made it, else of the one that gas wrote."""
    annotations = written["metadata"]["annotations"]
    cards = {
        each["value"]
        for container in written["spec"]["containers"]
        for each in container.get("env", [])
        if each["name"] == VISIBLE
    }
    if not cards:
        if not (text := annotations.get("gas-allocated-cards") or annotations.get("gas-container-cards")):
            raise ValueError("no card is written")
        cards = {name if name == OF_INTEL else UUIDS[int(name.removeprefix("card")) % 1000] for name in text.split(",")}
    thousandths = round(float(annotations[REQUEST]) * 1000)
    assert int(annotations[MEMORY]) == thousandths * SIZE // 1000
    return dict.fromkeys(cards, thousandths)


class KubeSharePlace(Place):
    guide = "from-kubeshare.md"
    overlay = "kubeshare-nvidia"
    cards = [card(minor, total=SIZE + GIB, reserved=GIB) for minor in range(CARDS)]  # noqa: RUF012

    def __init__(self, gpu_node: GpuNode, machine: ControlPlaneNode, kubectl: Kubectl) -> None:
        super().__init__(gpu_node, machine, kubectl)
        self.kubeshare = KubeShare(self.api, gpu_node.node, UUIDS)
        self.nvidia = NvidiaPlugin(gpu_node.node, UUIDS)

    def start_kubeshare(self) -> None:
        self.nvidia.start()
        wait_for("NVIDIA's cards", lambda: self.offered(GPU) == CARDS)
        self.kubeshare.start()

    def stop_kubeshare(self) -> None:
        self.kubeshare.stop()
        self.nvidia.stop()

    def create_programs(self) -> None:
        """Create the objects of the programs that step 2 deletes, of which only the names matter."""
        containers = [{"name": "main", "image": "none"}]
        for name in ("kubeshare-scheduler", "kubeshare-device-manager"):
            spec = {"schedulerName": "none", "automountServiceAccountToken": False, "containers": containers}
            self.api.create(SYSTEM_PODS, {"metadata": {"name": name}, "spec": spec})
        labels = {"app": "nvidia"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        written = {"metadata": {"name": "nvidia-device-plugin-daemonset"}, "spec": spec}
        self.api.create("/apis/apps/v1/namespaces/kube-system/daemonsets", written)

    def start_gas(self) -> None:
        self.start_extender()
        self.gpu_node.start_plugin(INTELS, *self.plugin_flags())
        wait_for("our shares", lambda: self.offered("kubeshare/vgpu") == (CARDS + len(INTELS)) * 1000)

    def stop_gas(self) -> None:
        unregister(self.api)
        self.gpu_node.extender.program.kill()
        self.gpu_node.stop_plugin()

    def create(self, name: str, request: str) -> None:
        annotations = share(request, "1.0", str(round(float(request) * 1000) * SIZE // 1000))
        spec: Object = {"restartPolicy": "Always", "containers": [{"name": "main", "image": "none"}]}
        metadata = {"name": name, "annotations": annotations}
        written: Object = {"apiVersion": "kubeshare.nthu/v1", "kind": "SharePod", "metadata": metadata, "spec": spec}
        self.gpu_node.prepare(written)
        spec["terminationGracePeriodSeconds"] = 1
        self.api.create(SHAREPODS, written)

    def delete(self, name: str) -> None:
        """Delete a SharePod, and its pod as the garbage collector does, which does not run here."""
        with suppress(RefusedError):
            self.api.delete(f"{SHAREPODS}/{name}")
        delete(self.api, name)

    def has_pods(self, names: list[str]) -> bool:
        self.kubeshare.check()
        return all(self.api.find(f"{PODS}/{name}") for name in names)

    def share(self, name: str) -> Object:
        return self.api.get(f"{SHAREPODS}/{name}")

    def has(self, written: Object) -> set[str]:
        """Return a container's card. Both systems give it the same capabilities of NVIDIA's driver."""
        if intels := set(self.gpu_node.cards(written)):
            return intels
        env = self.gpu_node.node.environment(written, "main")
        assert env["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
        return {env.get(VISIBLE, "")}


@pytest.fixture
def place(gpu_node: GpuNode, binaries: Path) -> Iterator[KubeSharePlace]:
    with KubeSharePlace.running(gpu_node, binaries) as place:
        yield place
        place.kubeshare.end()


DELETE = f"kubectl delete -k deploy/overlays/{KubeSharePlace.overlay} -l app.kubernetes.io/component!=sharepods"


# contract S1.15, S1.24, S1.25
def test_a_cluster_changes_from_kubeshare_and_back_under_load(place: KubeSharePlace) -> None:
    gpu_node, api = place.gpu_node, place.api
    rng = Random(27)
    witness = Witness(api, WHOLE, taken)
    load = Load(witness, rng, lambda name, rng: place.create(name, f"0.{rng.randint(1, 3)}"), place.delete, most=16)
    rehearsal = Rehearsal(api, witness, load, taken, place.has)
    api.ensure(DEFINITIONS, DEFINITION)
    wait_for("SharePods are served", lambda: api.find(SHAREPODS))
    place.start_kubeshare()
    place.create_programs()
    residents = [f"resident-{number}" for number in range(len(RESIDENTS))]
    for name, request in zip(residents, RESIDENTS, strict=True):
        place.create(name, request)
    wait_for("the residents' pods", lambda: place.has_pods(residents))
    gpu_node.running(residents)
    wait_for("the residents shown", lambda: all("PodObjectMeta" in place.share(name)["status"] for name in residents))
    before = {name: place.share(name) for name in residents}

    with rehearsal.running():
        with rehearsal.step("KubeShare"):
            rehearsal.new_pods_run(len(RESIDENTS) + 4)
        with rehearsal.step("there: 1. the node"):
            place.run("kubectl label node NODE nvidia.com/gpu.present=true")
        with rehearsal.step("there: 2. without KubeShare"):
            for kind in (
                "pod kubeshare-scheduler kubeshare-device-manager",
                "daemonset nvidia-device-plugin-daemonset",
            ):
                place.run(f"kubectl --namespace=kube-system delete {kind}")
            place.stop_kubeshare()
            rehearsal.settled()
        with rehearsal.step("there: 3. kube-scheduler"):
            place.run("gas-configurator --apply-secret --vocabularies=intel,kubeshare,vendor")
            place.machine.wait_for_scheduler("ours", with_configuration=True)
        with rehearsal.step("there: 4. gas"):
            place.start_gas()
            rehearsal.new_pods_run(4)
            troubled = {each["pod"] for each in gpu_node.extender.books()["trouble"].values()}
            assert all(name.startswith(f"kube-system/{PLACEHOLDER}-") for name in troubled), troubled
            for name in residents:
                now = place.share(name)["status"]
                assert {key: now[key] for key in KEPT} == {key: before[name]["status"][key] for key in KEPT}
        with rehearsal.step("back: 1. close the node"):
            place.run("kubectl cordon NODE")
            rehearsal.settled()
        with rehearsal.step("back: 2. without gas"):
            place.stop_gas()
            delete_all = place.documented(DELETE).replace("deploy/", f"{DEPLOY}/").split()[1:]
            deleted = place.kubectl.run(*delete_all, "--ignore-not-found", "--dry-run=server")
            assert '"gas-sharepods" deleted' in deleted
            assert "sharepods.kubeshare.nthu" not in deleted
            for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
                api.delete(f"/apis/admissionregistration.k8s.io/v1/{kind}/gas-sharepods")
        with rehearsal.step("back: 3. without the pods of gas"), load.paused:
            for each in api.items(SHAREPODS):
                if "status" in each and "PodManagerPort" not in each["status"]:
                    witness.delete(each["metadata"]["name"], place.delete)
            wait_for("only KubeShare's pods", lambda: all(KUBESHARES in str(each["spec"]) for each in api.items(PODS)))
        with rehearsal.step("back: 4. KubeShare"):
            place.run("kubectl uncordon NODE")
            place.kubectl.run("replace", "-f", "-", text=json.dumps(DEFINITION))
            place.start_kubeshare()
            rehearsal.new_pods_run(4)
        assert {name: get_pod(api, name)["metadata"]["uid"] for name in residents} == {
            name: before[name]["status"]["PodObjectMeta"]["uid"] for name in residents
        }
        assert {name: place.share(name)["metadata"]["annotations"][GPUID] for name in residents} == {
            name: before[name]["metadata"]["annotations"][GPUID] for name in residents
        }
        load.stop()
        place.stop_kubeshare()
    print(f"{witness.writes} writes, {len(witness.ran)} pods ran, most thousandths taken of each card: {witness.most}")
