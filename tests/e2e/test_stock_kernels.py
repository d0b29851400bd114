"""The worked example on a real node that shows its cards as stock kernels do. A double replies in place of drivers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.hardware.fake_sysfs import fake_gpus
from tests.e2e import stand_in_driver
from tests.e2e.gpu_node import GpuNode
from tests.e2e.pods import container, delete_now, event_messages, is_refused, pod
from tests.e2e.waiting import wait_for
from tests.stock_kernels import STOCK_KERNELS, StockKernel

NAMES = ("stock-1", "stock-2", "stock-3")


@pytest.fixture(params=[pytest.param(each, id=each.name) for each in STOCK_KERNELS])
def kernel(request: pytest.FixtureRequest, gpu_node: GpuNode) -> Iterator[StockKernel]:
    """Provide a kernel; the node's plugin finds two of its cards, and drivers that reply."""
    chosen: StockKernel = request.param
    gpus = fake_gpus(chosen.model, 2)

    def prepare(tree: Path) -> None:
        for gpu in gpus:
            chosen.write(tree, gpu)

    gpu_node.plugin_module = stand_in_driver.__name__
    gpu_node.plugin_environment = {stand_in_driver.REGIONS: ",".join(map(str, chosen.regions))}
    gpu_node.prepare_tree = prepare
    gpu_node.start(gpus, "--shared-dev-num=10")
    yield chosen
    gpu_node.clear()
    gpu_node.plugin_module, gpu_node.plugin_environment = "gas.plugin", {}
    gpu_node.prepare_tree = lambda _tree: None


def test_of_the_worked_example_two_run_and_the_third_starts_when_one_of_them_is_gone(
    kernel: StockKernel, gpu_node: GpuNode
) -> None:
    wait_for("the memory of the cards", lambda: gpu_node.allocatable("memory.max") == 16 * 10**9)
    for name in NAMES:
        wanted = (
            container(memory_max="5G", i915=1) if kernel.model.driver == "i915" else container(memory_max="5G", xe=1)
        )
        gpu_node.create(pod(name, wanted))
    wait_for("one is refused", lambda: any(is_refused(gpu_node.api, name) for name in NAMES))
    (third,) = (name for name in NAMES if is_refused(gpu_node.api, name))
    first, second = gpu_node.running(set(NAMES) - {third})
    assert sorted(gpu_node.cards(first) + gpu_node.cards(second)) == ["card0", "card1"]
    (said, *_) = wait_for("its event", lambda: event_messages(gpu_node.api, third, "FailedScheduling"))
    assert "no card has 5.0 GB of memory.max free" in said
    gpu_node.settled()
    delete_now(gpu_node.api, first["metadata"]["name"])
    (last,) = gpu_node.running([third])
    assert gpu_node.cards(last) == gpu_node.cards(first)
