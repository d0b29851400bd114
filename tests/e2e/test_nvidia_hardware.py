"""Cards of NVIDIA that are really there: plugin, driver, kubelet and CUDA programs in containers.

On a machine without such a card, `test_nvml.py` and `test_mixed_torture.py` show the same with a library in its place.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import resident_bytes
from gas.plugin.nvml.nvml_library import Failure, Nvml
from gas.plugin.nvml.part import CATALOGUE, parse_xids
from tests.e2e import cuda
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object
from tests.e2e.nvml_scans import Scans, has_library
from tests.e2e.pods import delete_now, event_messages, is_refused, pod
from tests.e2e.programs import ProgramError
from tests.e2e.waiting import wait_for
from tests.other_words import GPU_MEM, NVIDIA

MIB, GIB = 2**20, 2**30
PROGRAM = Path(cuda.__file__)
WORDS = ("--vocabularies=aliyun,vendor", "--aliyun-unit=GiB")
SECONDS = 120.0
SCANS = 2000


pytestmark = pytest.mark.skipif(not has_library(), reason="this machine has no driver of NVIDIA")


def smi() -> list[dict[str, str]]:
    """Return what the driver's own program says of each card, in the order of their PCI addresses."""
    names = "uuid,name,pci.bus_id,pci.device_id,memory.total,memory.reserved,mig.mode.current"
    command = ["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [dict(zip(names.split(","), line.split(", "), strict=True)) for line in lines]


@pytest.fixture
def found() -> Iterator[list[dict[str, Any]]]:
    """Provide what root without capabilities finds, as the plugin's container runs."""
    with Scans(root=Path("/"), under=("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")) as scans:
        scan = scans.scan()
        assert scan["problems"] == []
        yield scan["gpus"]


def test_the_facts_are_those_of_the_drivers_own_program(found: list[dict[str, Any]]) -> None:
    said = {each["uuid"]: each for each in smi()}
    print(found)
    assert {card["uuid"] for card in found} == said.keys()
    for card in found:
        of = said[card["uuid"]]
        assert card["driver"] == "nvidia"
        assert card["healthy"]
        assert card["model"] == of["name"]
        assert card["device_id"] == f"0x{int(of['pci.device_id'], 16) >> 16:04x}"
        assert card["pci_address"] == of["pci.bus_id"].lower().removeprefix("0000")
        assert card["memory_size"] // MIB == int(of["memory.total"])
        assert abs((card["memory_size"] - card["memory"]) / MIB - int(of["memory.reserved"])) <= 1
        assert Path(f"/dev/nvidia{card['card']}").is_char_device()
        numa_node = int(Path(f"/sys/bus/pci/devices/{card['pci_address']}/numa_node").read_text())
        assert card["numa_node"] == (numa_node if numa_node >= 0 else None)


def test_programs_have_the_memory_that_is_offered(found: list[dict[str, Any]]) -> None:
    used = {each["uuid"]: each for each in run_cuda("memory")}
    for card in found:
        print(f"offered {card['memory']}, for CUDA {used[card['uuid']]}")
        assert card["memory"] <= used[card["uuid"]]["total"] + 16 * MIB


def test_the_fault_of_an_application_is_reported_and_leaves_the_card_healthy() -> None:
    library = Nvml()
    library.open()

    def reports() -> Sequence[Failure]:
        for index in range(library.count()):
            library.card(index)
        return library.take_failures()

    assert reports() == []
    with Scans(root=Path("/")) as scans:
        before = scans.scan()
        with pytest.raises(subprocess.CalledProcessError):
            run_cuda("fault")
        reported = wait_for("the driver reports it", reports)
        print(reported)
        assert {failure.xid for failure in reported} <= parse_xids(CATALOGUE)
        after = scans.scan()
    library.close()
    assert after["problems"] == []
    assert [card["healthy"] for card in after["gpus"]] == [True] * len(before["gpus"])


def test_many_scans_need_no_more_memory() -> None:
    with Scans(root=Path("/")) as scans:
        first = scans.scan()
        for _ in range(SCANS // 10):
            scans.scan()
        before, began = resident_bytes(scans.pid), time.monotonic()
        for _ in range(SCANS):
            assert scans.scan() == first
        seconds, grown = time.monotonic() - began, resident_bytes(scans.pid) - before
    print(f"{1000 * seconds / SCANS:.1f} ms a scan, {grown / 1e6:.2f} MB more after {SCANS}")
    assert grown < SCANS * 1000


def run_cuda(what: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(PROGRAM), what]
    return list(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))


def start(gpu_node: GpuNode, *flags: str) -> list[dict[str, Any]]:
    """Start plugin and extender for the machine's own cards, and return these."""
    with Scans(root=Path("/")) as scans:
        cards = list(scans.scan()["gpus"])
    gpu_node.new_plugin((), "--card-sources=nvml", "--prefix=/", *WORDS, *flags)
    gpu_node.plugin.start(seconds=SECONDS)
    gpu_node.start_extender(*WORDS)
    wait_for("the cards in the books", lambda: len(gpu_node.books()) == len(cards), seconds=SECONDS)
    wait_for("kubelet's count", lambda: allocatable(gpu_node) == len(cards), seconds=SECONDS)
    return cards


def allocatable(gpu_node: GpuNode) -> int:
    return int(gpu_node.object()["status"]["allocatable"].get(NVIDIA, 0))


def asking(resource: str | None, amount: int = 0) -> Object:
    """Return a container that sees the machine's files, so that it can run CUDA's programs."""
    written: Object = {
        "name": "main",
        "image": "none",
        "volumeMounts": [{"name": "machine", "mountPath": "/machine"}],
    }
    if resource is not None:
        written["resources"] = {"limits": {resource: str(amount)}}
    return written


def create(gpu_node: GpuNode, name: str, container: Object) -> None:
    created = pod(name, container)
    created["spec"]["volumes"] = [{"name": "machine", "hostPath": {"path": "/"}}]
    gpu_node.create(created)


def computed(gpu_node: GpuNode, name: str) -> list[dict[str, Any]]:
    """Return which cards a CUDA program in a container of a pod sees. Raises ProgramError if it sees none."""
    (running,) = gpu_node.running([name])
    program = ("/bin/busybox", "chroot", "/machine", sys.executable, str(PROGRAM), "memory")
    return list(json.loads(gpu_node.node.execute(running, "main", *program)))


def visible(gpu_node: GpuNode, name: str) -> str:
    (running,) = gpu_node.running([name])
    return gpu_node.node.environment(running, "main")["NVIDIA_VISIBLE_DEVICES"]


@pytest.fixture(autouse=True)
def no_pods_after(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "gpu_node" in request.fixturenames:
        request.getfixturevalue("gpu_node").clear()


def test_pods_share_a_card_up_to_its_memory_and_a_whole_card_waits(gpu_node: GpuNode) -> None:
    first = start(gpu_node)[0]
    memory = first["memory"] // GIB
    for name, amount in (("small", memory // 3), ("large", memory // 2)):
        create(gpu_node, name, asking(GPU_MEM, amount))
        assert visible(gpu_node, name) == first["uuid"]
    for number in range(1, allocatable(gpu_node)):
        create(gpu_node, f"whole-{number}", asking(NVIDIA, 1))
        assert visible(gpu_node, f"whole-{number}") != first["uuid"]
    create(gpu_node, "late", asking(NVIDIA, 1))
    wait_for("it is refused", lambda: is_refused(gpu_node.api, "late"), seconds=SECONDS)
    print(wait_for("its event", lambda: event_messages(gpu_node.api, "late", "FailedScheduling")))
    for name in ("small", "large"):
        delete_now(gpu_node.api, name)
    assert visible(gpu_node, "late") == first["uuid"]
    assert gpu_node.extender.books()["differences"] == []


def test_only_a_container_that_was_given_device_nodes_can_compute(gpu_node: GpuNode) -> None:
    cards = start(gpu_node, "--nvidia-access=nodes")
    create(gpu_node, "with", asking(NVIDIA, 1))
    create(gpu_node, "without", asking(None))
    (running,) = gpu_node.running(["with"])
    given = visible(gpu_node, "with")
    (number,) = (card["card"] for card in cards if card["uuid"] == given)
    nodes = gpu_node.node.devices(running, "main")
    assert {f"/dev/nvidia{number}", "/dev/nvidiactl"} <= set(nodes)
    assert [each["uuid"] for each in computed(gpu_node, "with")] == [given]
    with pytest.raises(ProgramError, match="cuInit: error"):
        computed(gpu_node, "without")
