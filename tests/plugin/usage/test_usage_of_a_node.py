"""The plugin with --usage, in a node inside the process."""

from __future__ import annotations

import json

import pytest

from gas.plugin.flags import parse_flags
from gas.plugin.usage.part import USAGE, UsageFlags
from gas.plugin.usage.usage_monitor import UsageMonitor
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.background import eventually
from tests.builders import container, pod_json
from tests.plugin.node_of_sandbox import sandbox_node
from tests.plugin.pods_for_plugin import container_id, decided
from tests.plugin.usage.processes import MIB, Processes, xe

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
            (hooks,) = plugin.hooks
            monitor: UsageMonitor = hooks.tasks[0].__self__  # type: ignore[attr-defined]
            await monitor.walk_once()
            (shown,) = json.loads(plugin.documents()["/usage"]())["pods"]
            assert (shown["name"], shown["uid"]) == ("greedy", uid)
            assert shown["cards"]["card1"]["memoryUsed"] == 130 * MIB
            assert shown["cards"]["card1"]["memoryRequested"] == 100 * MIB
            place = {"namespace": "default", "pod": "greedy", "card": "card1"}
            assert node.metrics.registry.get_sample_value("gas_plugin_pod_memory_used_bytes", place) == 130 * MIB
            await eventually(lambda: [reason for reason, _ in node.events("greedy")] == ["GPUMemoryOverRequest"])
            assert "the pod uses 130 MiB of card1 but requested 100 MiB" in caplog.text
            node.delete("greedy")
            await eventually(lambda: not json.loads(plugin.documents()["/usage"]())["pods"])


async def test_without_the_flag_no_process_is_read() -> None:
    async with sandbox_node(*FLEX) as node, node.running_plugin() as plugin:
        assert not plugin.hooks
        assert node.metrics.registry.get_sample_value("gas_plugin_usage_walks_total") is None
        assert "see --usage" in json.loads(plugin.documents()["/usage"]())["trouble"]


@pytest.mark.parametrize(
    ("argv", "usage", "warnings"),
    [
        pytest.param([], False, (), id="default"),
        pytest.param(["--usage"], True, (), id="on"),
        pytest.param(
            ["-resource-manager=false", "--usage"],
            True,
            ("ignored: --usage; with --resource-manager=false the plugin does not know the pods",),
            id="without-pods",
        ),
    ],
)
def test_flags(argv: list[str], *, usage: bool, warnings: tuple[str, ...]) -> None:
    flags = parse_flags(argv, environ={}, host_name="n")
    assert (flags.of(UsageFlags).usage, flags.warnings) == (usage, warnings)
    assert USAGE.runs_with(flags) is (usage and not warnings)
