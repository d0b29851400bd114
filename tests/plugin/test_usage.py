"""The plugin with --usage, in a node inside the process."""

from __future__ import annotations

import json

import pytest

from gas.plugin.usage.usage_report import usage_json
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.builders import container, pod_json
from tests.plugin.node_of_sandbox import sandbox_node
from tests.plugin.pods_for_plugin import decided
from tests.plugin.scripted_kubelet import eventually
from tests.plugin.usage.processes import MIB, Processes, container_id, xe

FLEX = fake_gpus(FLEX_170, 2)


async def test_a_pod_s_use_is_shown_and_too_much_of_it_is_an_event(caplog: pytest.LogCaptureFixture) -> None:
    async with sandbox_node(*FLEX) as node:
        processes = Processes(node.tree / "proc")
        async with node.running_plugin("--usage", "--shared-dev-num=4") as plugin:
            wanted = container(i915=1, memory_max="100Mi")
            pod = node.create(pod_json(wanted, name="greedy", annotations=decided("card1")))
            assert await node.got(pod) == ["card1"]
            uid = pod["metadata"]["uid"]
            processes.add(
                10,
                None,
                xe(1, address=FLEX[1].pci_address, vram=130),
                cgroup_text=f"0::/kubepods/burstable/pod{uid}/{container_id(1)}\n",
            )
            assert plugin.cluster is not None
            assert plugin.cluster.usage is not None
            usage = plugin.cluster.usage
            await usage.walk_once()
            (shown,) = json.loads(usage_json(usage))["pods"]
            assert (shown["name"], shown["uid"]) == ("greedy", uid)
            assert shown["cards"]["card1"]["memoryUsed"] == 130 * MIB
            assert shown["cards"]["card1"]["memoryRequested"] == 100 * MIB
            place = {"namespace": "default", "pod": "greedy", "card": "card1"}
            assert node.metrics.registry.get_sample_value("gas_plugin_pod_memory_used_bytes", place) == 130 * MIB
            await eventually(lambda: [reason for reason, _ in node.events("greedy")] == ["GPUMemoryOverRequest"])
            assert "the pod uses 130 MiB of card1 but requested 100 MiB" in caplog.text
            node.delete("greedy")
            await eventually(lambda: not json.loads(usage_json(usage))["pods"])


async def test_without_the_flag_no_process_is_read() -> None:
    async with sandbox_node(*FLEX) as node, node.running_plugin() as plugin:
        assert plugin.cluster is not None
        assert plugin.cluster.usage is None
        assert node.metrics.registry.get_sample_value("gas_plugin_usage_walks_total") == 0
