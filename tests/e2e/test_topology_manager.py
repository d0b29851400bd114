"""Every policy of kubelet's Topology Manager, on a real kubelet that sees two NUMA nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gas.cluster.connection import connect
from gas.doctor.checks.topology_manager import read_topology_policies
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import Object, write_kubeconfig
from tests.e2e.numa import NODES, write_two_numa_nodes
from tests.e2e.pods import cards_of, container, event_messages, get_pod, pod
from tests.e2e.ports import free_port
from tests.e2e.waiting import wait_for

CARDS = fake_gpus(FLEX_170, 4, numa_nodes=2)
"""card0 and card1 are on NUMA node 0, card2 and card3 on NUMA node 1."""

HINTS = "--topology-hints"
ALLOWLIST = ["--enableAllowlist"]


@pytest.fixture(scope="module", autouse=True)
def two_numa_nodes(gpu_node: GpuNode) -> None:
    directory = gpu_node.node.directory / "numa-nodes"
    write_two_numa_nodes(directory)
    gpu_node.node.mount(directory, NODES)


@pytest.fixture(autouse=True)
def no_pods_after(gpu_node: GpuNode) -> Iterator[None]:
    yield
    gpu_node.clear()


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


def test_without_hints_every_container_gets_the_decided_cards(gpu_node: GpuNode, policy: str) -> None:
    gpu_node.start(CARDS, extender=ALLOWLIST)
    gpu_node.create(wanting("second-socket", "card3", 1))
    gpu_node.create(wanting("both-sockets", "card0,card2", 2))
    second, both = gpu_node.running(["second-socket", "both-sockets"])
    assert gpu_node.cards(second, "c0") == ["card3"]
    assert gpu_node.cards(both, "c0") == ["card0", "card2"]
    gpu_node.settled()
    gpu_node.clear()
    gpu_node.create(wanting("all", "card0,card1,card2,card3", 1, 2, 1))
    (everything,) = gpu_node.running(["all"])
    assert cards_of(everything) == "card0|card1,card2|card3"
    gpu_node.settled()
    assert gpu_node.receipts() == {}


# contract P2.4
def test_with_hints_kubelet_chooses_the_numa_node_and_the_difference_is_reported(
    gpu_node: GpuNode, policy: str
) -> None:
    name = f"second-socket-{policy}"
    gpu_node.start(CARDS, HINTS, extender=ALLOWLIST)
    gpu_node.create(wanting(name, "card3", 1))
    (second,) = gpu_node.running([name])
    assert cards_of(second) == "card3"
    if policy == "none":
        assert gpu_node.cards(second, "c0") == ["card3"]
        gpu_node.settled()
        assert gpu_node.receipts() == {}
        return
    (got,) = gpu_node.cards(second, "c0")
    assert got in ("card0", "card1"), "the first NUMA node with enough devices"
    gpu_node.settled(receipts_expected=[name])
    assert gpu_node.receipts() == {name: {"gas-allocated-cards": got}}
    assert gpu_node.booked() == {got: 1}
    assert wait_for("the event", lambda: event_messages(gpu_node.api, name, "GPUAllocationMismatch")) == [
        f"kubelet gave other cards than decided: container 'c0' got {got} instead of card3"
    ]


def test_with_hints_strict_policies_reject_a_pod_whose_cards_are_on_two_numa_nodes(
    gpu_node: GpuNode, policy: str
) -> None:
    gpu_node.start(CARDS, extender=ALLOWLIST)
    gpu_node.create(wanting("first", "card0", 1))
    gpu_node.create(wanting("last", "card3", 1))
    gpu_node.running(["first", "last"])
    gpu_node.start_plugin(CARDS, HINTS)
    gpu_node.create(wanting("both-sockets", "card1,card2", 2))
    if policy in ("none", "best-effort"):
        (both,) = gpu_node.running(["both-sockets"])
        assert gpu_node.cards(both, "c0") == ["card1", "card2"]
        gpu_node.settled()
        return
    wait_for("the rejection", lambda: get_pod(gpu_node.api, "both-sockets")["status"]["phase"] == "Failed")
    status = get_pod(gpu_node.api, "both-sockets")["status"]
    assert status["reason"] == "TopologyAffinityError"
    assert "Resources cannot be allocated with Topology locality" in status["message"]
    wait_for("its cards free", lambda: gpu_node.booked() == {"card0": 1, "card3": 1})
    gpu_node.settled()


def test_the_doctor_reads_the_policy(gpu_node: GpuNode, policy: str, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", gpu_node.api)

    async def read() -> object:
        api = await connect(str(kubeconfig), explicit=True)
        try:
            return await read_topology_policies(api, [gpu_node.node.name], 10)
        finally:
            await api.close()

    assert asyncio.run(read()) == {gpu_node.node.name: policy}
