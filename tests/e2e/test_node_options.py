"""Options of the plugin on a real node: tiles, monitoring, CDI."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, MAX_1550_XE, fake_gpus
from tests.e2e.containerd import SOCKET
from tests.e2e.gpu_node import GpuNode
from tests.e2e.pods import container, pod
from tests.e2e.runtime_recorder import request_for
from tests.e2e.waiting import wait_for

pytestmark = pytest.mark.usefixtures("no_pods_after")

ORDINARY = fake_gpus(FLEX_170, 2)
TILED = fake_gpus(MAX_1550_XE, 6, first=2)
BOTH = (*ORDINARY, *TILED)
SHARED = "--shared-dev-num=2"


def test_the_mask_follows_the_hierarchy_that_the_container_asks_for(gpu_node: GpuNode) -> None:
    gpu_node.close_tiles(*(f"card{gpu.card}_gt0" for gpu in TILED[:4]))
    gpu_node.start(BOTH, SHARED)
    names = ("COMPOSITE", "FLAT")
    for hierarchy in names:
        written = container(xe=2, tiles=2)
        written["env"] = [{"name": "ZE_FLAT_DEVICE_HIERARCHY", "value": hierarchy}]
        gpu_node.create(pod(hierarchy.lower(), written, container("plain")))
    gpu_node.create(pod("all", container(xe=2, tiles=4)))
    pods = gpu_node.running([*(name.lower() for name in names), "all"])
    gpu_node.settled()
    masks = [gpu_node.node.environment(each, "main")["ZE_AFFINITY_MASK"] for each in pods]
    assert masks == ["0.1,1.1", "1,3", "0,1,2,3"], "of each card of the first two the second tile"
    assert "ZE_AFFINITY_MASK" not in gpu_node.node.environment(pods[0], "plain")
    gpu_node.open_tiles()


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
        request, cards = request_for(notes, each["metadata"]["name"], "main"), gpu_node.cards(each)
        assert sorted(re.findall(rb"gpu\.intel\.com/card=(card\d+)", request)) == [card.encode() for card in cards]
        nodes = sorted(path for card in cards for path in described[f"gpu.intel.com/card={card}"])
        assert sorted(set(re.findall(rb"/dev/dri/(?:card|renderD)\d+", request))) == [path.encode() for path in nodes]
    assert b"gpu.intel.com/card=" not in request_for(notes, "one", "none")

    gpu_node.start(BOTH, SHARED, "--cdi=annotations", f"--cdi-file={file}")
    gpu_node.create(pod("annotated", container(i915=1)))
    (annotated,) = gpu_node.running(["annotated"])
    gpu_node.settled()
    (card,) = gpu_node.cards(annotated)
    request = request_for(notes, "annotated", "main")
    assert re.search(rb"cdi\.k8s\.io/gas-plugin_i915\x12.gpu\.intel\.com/card=%s" % card.encode(), request, re.DOTALL)


def cdi_devices(file: Path) -> dict[str, list[str]]:
    """Return full name -> paths of its device nodes, which must be there."""
    spec: dict[str, Any] = json.loads(file.read_text())
    found = {}
    for device in spec["devices"]:
        nodes = device["containerEdits"]["deviceNodes"]
        assert all(Path(node["hostPath"]).is_char_device() for node in nodes)
        found[f"{spec['kind']}={device['name']}"] = [node["path"] for node in nodes]
    return found


def test_a_kubelet_with_a_root_of_its_own_has_only_pod_resources_there(gpu_node: GpuNode) -> None:
    node, usual = gpu_node.node, gpu_node.node.directory / "kubelet"
    moved = node.directory / "moved"
    node.kubelet.program.kill()
    node.kubelet.use_root(moved)
    node.kubelet.start()
    try:
        assert (moved / "pod-resources/kubelet.sock").exists()
        assert not (moved / "device-plugins").exists()
        gpu_node.start(ORDINARY, f"--kubelet-dir={moved}", "--device-plugins-dir=/var/lib/kubelet/device-plugins")
        gpu_node.create(pod("a", container(i915=1)))
        (running,) = gpu_node.running(["a"])
        assert gpu_node.cards(running) == [running["metadata"]["annotations"]["gas-container-cards"]]
        gpu_node.settled()
        gpu_node.clear()
    finally:
        node.kubelet.program.kill()
        node.kubelet.use_root(usual)
        node.kubelet.start()
