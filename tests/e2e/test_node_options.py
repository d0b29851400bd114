"""Options of the plugin on a real node: tiles, monitoring, NFD's file, CDI."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, MAX_1550_XE, fake_gpus
from tests.e2e.containerd import SOCKET
from tests.e2e.gpu_node import GpuNode
from tests.e2e.pods import container, pod
from tests.e2e.runtime_recorder import Made, read_notes
from tests.e2e.waiting import wait_for
from tests.e2e.written_cards import PREFIX, amount

ORDINARY = fake_gpus(FLEX_170, 2)
TILED = fake_gpus(MAX_1550_XE, 6, first=2)
BOTH = (*ORDINARY, *TILED)
MANY = fake_gpus(FLEX_170, 20, first=90, numa_nodes=2)
"""More cards than one label can name."""
SHARED = "--shared-dev-num=2"

SUMS = ("millicores", "memory.max", "tiles")


@pytest.fixture(autouse=True)
def no_pods_after(gpu_node: GpuNode) -> Iterator[None]:
    yield
    gpu_node.clear()


# Tiles


def test_the_mask_follows_the_hierarchy_that_the_container_asks_for(gpu_node: GpuNode) -> None:
    gpu_node.close_tiles(*(f"card{gpu.card}_gt0" for gpu in TILED))
    gpu_node.start(BOTH, SHARED)
    names = ("COMPOSITE", "COMBINED", "FLAT")
    for hierarchy in names:
        written = container(xe=2, tiles=2)
        written["env"] = [{"name": "ZE_FLAT_DEVICE_HIERARCHY", "value": hierarchy}]
        gpu_node.create(pod(hierarchy.lower(), written))
    pods = gpu_node.running([name.lower() for name in names])
    gpu_node.settled()
    masks = [gpu_node.node.environment(each, "main")["ZE_AFFINITY_MASK"] for each in pods]
    assert masks == ["0.1,1.1", "1,3", "1,3"], "of each card the second tile"
    gpu_node.open_tiles()


def test_containers_with_two_cards_of_several_tiles_each(gpu_node: GpuNode) -> None:
    gpu_node.start(BOTH, SHARED)
    composite = container("composite", xe=2, tiles=4)
    composite["env"] = [{"name": "ZE_FLAT_DEVICE_HIERARCHY", "value": "COMPOSITE"}]
    gpu_node.create(pod("all", composite, container("plain"), container("flat", xe=2, tiles=4)))
    gpu_node.create(pod("no-tiles", container(xe=2)))
    (both, without) = gpu_node.running(["all", "no-tiles"])
    gpu_node.settled()
    assert gpu_node.node.environment(both, "composite")["ZE_AFFINITY_MASK"] == "0.0,0.1,1.0,1.1"
    assert gpu_node.node.environment(both, "flat")["ZE_AFFINITY_MASK"] == "0,1,2,3"
    assert "ZE_AFFINITY_MASK" not in gpu_node.node.environment(both, "plain")
    assert "ZE_AFFINITY_MASK" not in gpu_node.node.environment(without, "main")


# Monitoring


def test_a_monitor_sees_all_cards_and_one_with_a_card_besides_is_booked_for_that_card(gpu_node: GpuNode) -> None:
    gpu_node.start(BOTH, SHARED, "--enable-monitoring")
    wait_for("the resource", lambda: gpu_node.allocatable("monitoring") == 1)
    gpu_node.create(pod("watcher", container(monitoring=1)))
    (watcher,) = gpu_node.running(["watcher"])
    gpu_node.settled()
    engines = [f"/dev/mei{gpu.mei}" for gpu in BOTH]
    assert [path for path in gpu_node.node.devices(watcher, "main") if "mei" in path] == sorted(engines)
    assert gpu_node.booked() == {}
    gpu_node.clear()
    gpu_node.create(pod("both", container("watches", i915=1, monitoring=1), container("own", i915=1, millicores=900)))
    (both,) = gpu_node.running(["both"])
    gpu_node.settled()
    assert len(gpu_node.cards(both, "watches")) == len(BOTH)
    assert len(gpu_node.cards(both, "own")) == 1
    assert sum(gpu_node.booked().values()) == 2


def test_with_split_monitoring_each_driver_has_a_resource_of_its_own(gpu_node: GpuNode) -> None:
    gpu_node.start(BOTH, SHARED, "--enable-monitoring", "--split-monitoring")
    wait_for("the resources", lambda: gpu_node.allocatable("i915_monitoring") == gpu_node.allocatable("xe_monitoring"))
    gpu_node.create(pod("i915", container(i915_monitoring=1)))
    gpu_node.create(pod("xe", container(xe_monitoring=1, xe=1, tiles=2)))
    one, other = gpu_node.running(["i915", "xe"])
    gpu_node.settled()
    assert gpu_node.cards(one) == [f"card{gpu.card}" for gpu in ORDINARY]
    assert gpu_node.cards(other) == [f"card{gpu.card}" for gpu in TILED]


# NFD


def test_with_a_feature_file_the_plugin_leaves_the_node_to_nfd(gpu_node: GpuNode) -> None:
    file = feature_file(gpu_node)
    gpu_node.start(MANY, SHARED)
    direct = said(gpu_node)
    assert direct[PREFIX + "gpu-numbers2"].startswith("Z")
    gpu_node.uninstall()
    assert said(gpu_node) == {}
    gpu_node.start_plugin(MANY, SHARED, "--write-node=nfd", f"--nfd-file={file}")
    features = wait_for("the file", lambda: nfd_features(file.parent))
    assert features == direct, "NFD would write what the plugin itself does"
    assert said(gpu_node) == {}
    as_nfd_writes(gpu_node, features)
    gpu_node.create(pod("by-nfd", container(i915=1, millicores=600)))
    gpu_node.running(["by-nfd"])
    gpu_node.settled()
    assert gpu_node.plugin.metric("gas_plugin_node_writes_total") == 0
    gpu_node.stop_plugin()
    assert list(file.parent.iterdir()) == []


def test_the_plugin_tolerates_what_nfd_writes_as_well_and_restores_what_nfd_removes(gpu_node: GpuNode) -> None:
    """As when NFD still has a feature file that Intel's plugin wrote."""
    gpu_node.start(MANY, SHARED)
    direct = said(gpu_node)
    written = gpu_node.plugin.metric("gas_plugin_node_writes_total")
    as_nfd_writes(gpu_node, direct)
    time.sleep(1.5)  # longer than the pause between two writes of the plugin
    assert said(gpu_node) == direct
    assert gpu_node.plugin.metric("gas_plugin_node_writes_total") == written
    as_nfd_writes(gpu_node, dict.fromkeys(direct))
    wait_for("it back on the node", lambda: said(gpu_node) == direct)


def feature_file(gpu_node: GpuNode) -> Path:
    """Return the path of a feature file in a directory that NFD reads."""
    features_d = gpu_node.node.directory / "features.d"
    features_d.mkdir()
    return features_d / "intel-gpu-resources.txt"


def said(gpu_node: GpuNode) -> dict[str, str]:
    """Return the node's labels and sums about cards, by their full names."""
    node = gpu_node.object()
    labels = {name: text for name, text in node["metadata"]["labels"].items() if name.startswith(PREFIX)}
    capacity = node["status"]["capacity"]
    sums = {PREFIX + name: str(amount(capacity[PREFIX + name])) for name in SUMS if PREFIX + name in capacity}
    return labels | sums


def nfd_features(directory: Path) -> dict[str, str]:
    """Return the lines ``NAME=VALUE`` that NFD's worker reads: of files that are not hidden, not of directories."""
    found = {}
    for file in directory.iterdir():
        if file.is_file() and not file.name.startswith("."):
            for line in file.read_text().splitlines():
                if line and not line.startswith("#"):
                    name, _, value = line.partition("=")
                    assert re.fullmatch(r"[a-z.]+/[A-Za-z0-9.-]+", name), "a name with its namespace stays as it is"
                    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", value), "a label's value"
                    found[name] = value
    return found


def as_nfd_writes(gpu_node: GpuNode, features: dict[str, str] | dict[str, None]) -> None:
    """Write as NFD's master does: configured names into the capacity, all others as labels."""
    resources = {name: features[name] for name in features if name.removeprefix(PREFIX) in SUMS}
    labels = {name: features[name] for name in features if name not in resources}
    path = f"/api/v1/nodes/{gpu_node.node.name}"
    gpu_node.api.merge(path, {"metadata": {"labels": labels}})
    gpu_node.api.merge(f"{path}/status", {"status": {"capacity": resources, "allocatable": resources}})


# CDI


@pytest.fixture
def notes(gpu_node: GpuNode) -> Iterator[Path]:
    """Record kubelet's requests to the container runtime, and provide the file of records."""
    node = gpu_node.node
    listen = "/run/containerd/recorder.sock"
    file = node.directory / "containers.json"
    command = [sys.executable, "-m", "tests.e2e.runtime_recorder", listen, SOCKET, str(file)]
    recorder = node.program("recorder", command, env={"PYTHONPATH": str(Path(__file__).parents[2])})
    recorder.start()
    wait_for("the recorder", file.exists, every=0.05)
    node.kubelet.use_runtime(listen)
    node.restart_kubelet()
    yield file
    node.kubelet.use_runtime(SOCKET)
    node.restart_kubelet()
    recorder.kill()


def test_with_cdi_the_runtime_gets_the_names_of_the_cards_that_the_spec_file_describes(
    gpu_node: GpuNode, notes: Path
) -> None:
    """A container runs with plain device nodes under a runtime that does not know CDI, with the same nodes in the file.

    Debian's containerd 1.6 is such a runtime, so what a runtime makes of the names cannot be shown here.
    """
    file = gpu_node.node.directory / "cdi/cards.json"
    gpu_node.start(BOTH, SHARED, "--cdi=names", f"--cdi-file={file}")
    gpu_node.create(pod("one", container(i915=1), container("none")))
    gpu_node.create(pod("two", container(xe=2, tiles=2)))
    pods = gpu_node.running(["one", "two"])
    gpu_node.settled()
    described = cdi_devices(file)
    assert sorted(described) == sorted(f"gpu.intel.com/card=card{gpu.card}" for gpu in BOTH)
    for each in pods:
        made = note_about(notes, each["metadata"]["name"], "main")
        assert sorted(made.cdi) == [f"gpu.intel.com/card={card}" for card in gpu_node.cards(each)]
        assert sorted(made.devices) == sorted(path for device in made.cdi for path in described[device])
    assert note_about(notes, "one", "none").cdi == ()

    gpu_node.start(BOTH, SHARED, "--cdi=annotations", f"--cdi-file={file}")
    gpu_node.create(pod("annotated", container(i915=1)))
    (annotated,) = gpu_node.running(["annotated"])
    gpu_node.settled()
    made = note_about(notes, "annotated", "main")
    (card,) = gpu_node.cards(annotated)
    assert made.cdi == ()
    assert made.annotations["cdi.k8s.io/gas-plugin_i915"] == f"gpu.intel.com/card={card}"


def note_about(notes: Path, of: str, name: str) -> Made:
    (made,) = (made for made in read_notes(notes) if (made.pod, made.container) == (of, name))
    return made


def cdi_devices(file: Path) -> dict[str, list[str]]:
    """Return full name -> paths of its device nodes, and check the file against CDI's specification."""
    spec: dict[str, Any] = json.loads(file.read_text())
    assert spec.keys() == {"cdiVersion", "kind", "devices"}
    assert spec["cdiVersion"] in ("0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0"), "hostPath came with 0.5.0"
    assert re.fullmatch(
        r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", spec["kind"]
    )
    found: dict[str, list[str]] = {}
    for device in spec["devices"]:
        assert device.keys() == {"name", "containerEdits"}
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", device["name"])
        name = f"{spec['kind']}={device['name']}"
        assert name not in found
        edits = device["containerEdits"]
        assert edits.keys() == {"deviceNodes", "mounts"}
        assert edits["deviceNodes"], "a device without edits is not valid"
        for node in edits["deviceNodes"]:
            assert node.keys() == {"path", "hostPath", "type", "permissions"}
            assert node["path"].startswith("/dev/dri/")
            assert Path(node["hostPath"]).is_char_device()
            assert node["type"] == "c"
            assert set(node["permissions"]) <= set("rwm")
        for mount in edits["mounts"]:
            assert mount.keys() == {"hostPath", "containerPath", "options"}
            assert Path(mount["hostPath"]).exists()
            assert "ro" in mount["options"]
        found[name] = [node["path"] for node in edits["deviceNodes"]]
    return found
