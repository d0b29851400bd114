"""Every policy of kubelet's Topology Manager, on a real kubelet that sees two NUMA nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gas.cluster.connection import connect
from gas.doctor.checks.plugins import read_topology_policies
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object, write_kubeconfig
from tests.e2e.pods import cards_of, container, event_messages, get_pod, pod
from tests.e2e.ports import free_port
from tests.e2e.waiting import wait_for

pytestmark = pytest.mark.usefixtures("no_pods_after")

CARDS = fake_gpus(FLEX_170, 4, numa_nodes=2)
"""card0 and card1 are on NUMA node 0, card2 and card3 on NUMA node 1."""

HINTS = "--topology-hints"
ALLOWLIST = ["--enableAllowlist"]


@pytest.fixture(scope="module", autouse=True)
def two_numa_nodes(gpu_node: GpuNode) -> None:
    """Show kubelet two NUMA nodes, which share the processors of this machine and have 8 GiB each."""
    directory = gpu_node.node.directory / "numa-nodes"
    cpus = sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*"))
    for number in (0, 1):
        node = directory / f"node{number}"
        node.mkdir(parents=True)
        (node / "meminfo").write_text(f"Node {number} MemTotal:       {8 * 2**20} kB\n")
        (node / "distance").write_text("10 20\n" if number == 0 else "20 10\n")
        for cpu in cpus[number::2]:
            (node / cpu.name).symlink_to(cpu)
    gpu_node.node.mount(directory, "/sys/devices/system/node")


@pytest.fixture(scope="module", params=["none", "best-effort", "restricted", "single-numa-node"])
def policy(request: pytest.FixtureRequest, gpu_node: GpuNode) -> str:
    """Restart kubelet with a policy of its Topology Manager, and with its HTTP server."""
    found = str(request.param)
    if hasattr(gpu_node, "plugin"):
        gpu_node.stop_plugin()
    gpu_node.node.kubelet.configure(
        topologyManagerPolicy=found,
        enableServer=True,
        port=free_port(),
        authentication={"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    )
    gpu_node.node.restart_kubelet()
    return found


def wanting(name: str, allowed: str, *counts: int) -> Object:
    """Return a pod with containers that want so many whole cards, all of them among the allowed ones."""
    containers = [container(f"c{index}", i915=count, millicores=1000 * count) for index, count in enumerate(counts)]
    return pod(name, *containers, annotations={"gas-allow": allowed})


# contract P2.4
def test_kubelet_follows_decisions_without_hints_and_its_policy_with_them(
    gpu_node: GpuNode, policy: str, tmp_path: Path
) -> None:
    api = gpu_node.api
    gpu_node.start(CARDS, extender=ALLOWLIST)
    assert asyncio.run(read_policies(gpu_node, tmp_path)) == {gpu_node.node.name: policy}
    gpu_node.create(wanting("all", "card0,card1,card2,card3", 1, 2, 1))
    (everything,) = gpu_node.running(["all"])
    assert cards_of(everything) == "card0|card1,card2|card3"
    gpu_node.settled()
    assert gpu_node.receipts() == {}
    gpu_node.clear()

    gpu_node.start_plugin(CARDS, HINTS)
    name = f"second-socket-{policy}"
    gpu_node.create(wanting(name, "card3", 1))
    (second,) = gpu_node.running([name])
    assert cards_of(second) == "card3"
    (got,) = gpu_node.cards(second, "c0")
    if policy == "none":
        assert got == "card3"
        gpu_node.settled()
    else:
        assert got in ("card0", "card1"), "the first NUMA node with enough devices"
        gpu_node.settled(receipts_expected=[name])
        assert gpu_node.receipts() == {name: {"gas-allocated-cards": got}}
        assert gpu_node.booked() == {got: 1}
        assert wait_for("the event", lambda: event_messages(api, name, "GPUAllocationMismatch")) == [
            f"kubelet gave other cards than decided: container 'c0' got {got} instead of card3"
        ]
    gpu_node.clear()

    # Strict policies reject a pod that finds one free card on each of two NUMA nodes.
    gpu_node.start_plugin(CARDS)
    gpu_node.create(wanting("first", "card0", 1))
    gpu_node.create(wanting("last", "card3", 1))
    gpu_node.running(["first", "last"])
    gpu_node.start_plugin(CARDS, HINTS)
    gpu_node.create(wanting("both-sockets", "card1,card2", 2))
    if policy in ("none", "best-effort"):
        (both,) = gpu_node.running(["both-sockets"])
        assert gpu_node.cards(both, "c0") == ["card1", "card2"]
    else:
        wait_for("the rejection", lambda: get_pod(api, "both-sockets")["status"]["phase"] == "Failed")
        status = get_pod(api, "both-sockets")["status"]
        assert status["reason"] == "TopologyAffinityError"
        assert "Resources cannot be allocated with Topology locality" in status["message"]
        wait_for("its cards free", lambda: gpu_node.booked() == {"card0": 1, "card3": 1})
    gpu_node.settled()


async def read_policies(gpu_node: GpuNode, directory: Path) -> object:
    """Return what the doctor reads of each kubelet through the API server."""
    api = await connect(str(write_kubeconfig(directory / "kubeconfig", gpu_node.api)))
    try:
        return await read_topology_policies(api, [gpu_node.node.name], 10)
    finally:
        await api.close()
