"""The plugin with --memory-limits=pod, in a node inside the process."""

from __future__ import annotations

import pytest

from gas.plugin import node_writer
from gas.plugin.flags import parse_flags
from gas.plugin.limits.memory_limits import MemoryLimits
from gas.plugin.limits.part import MEMORY_LIMITS, LimitFlags
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.background import eventually
from tests.builders import container, pod_json
from tests.plugin.limits.kernel import MIB, Kernel, region
from tests.plugin.node_of_sandbox import NODE, sandbox_node
from tests.plugin.pods_for_plugin import decided

FLEX = fake_gpus(FLEX_170, 2)
CAPACITY = {region(gpu.pci_address): 16 * 2**30 for gpu in FLEX}
FLAGS = ("--memory-limits=pod", "--shared-dev-num=4")


async def test_a_pod_that_runs_has_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sandbox_node(*FLEX) as node:
        kernel = Kernel(node.tree / "sys/fs/cgroup", monkeypatch, CAPACITY)
        async with node.running_plugin(*FLAGS) as plugin:
            wanted = container(i915=1, memory_max="100Mi")
            pod = node.create(pod_json(wanted, name="a", annotations=decided("card1")))
            cgroup = kernel.add(f"kubepods/burstable/pod{pod['metadata']['uid']}")
            assert await node.got(pod) == ["card1"]
            await eventually(lambda: node.pod("a")["status"]["phase"] == "Running")
            assert kernel.of(cgroup) == {region(FLEX[1].pci_address): str(100 * MIB)}
            calls = {"method": "PreStartContainer", "resource": "i915", "outcome": "decided"}
            assert node.metrics.registry.get_sample_value("gas_plugin_answers_total", calls) == 1
            (hooks,) = plugin.hooks
            limits: MemoryLimits = hooks.tasks[0].__self__  # type: ignore[attr-defined]
            await limits.apply(None)
            assert node.metrics.registry.get_sample_value("gas_plugin_memory_limited_pods") == 1
            assert node.metrics.registry.get_sample_value("gas_plugin_memory_limits_missing") == 0


async def test_a_node_that_cannot_limit_says_so_and_its_pods_run() -> None:
    async with sandbox_node(*FLEX) as node, node.running_plugin(*FLAGS):
        pod = node.create(pod_json(container(i915=1, memory_max="100Mi"), name="a", annotations=decided("card1")))
        assert await node.got(pod) == ["card1"]
        await eventually(lambda: node.pod("a")["status"]["phase"] == "Running")
        await eventually(lambda: [reason for reason, _ in node.events(NODE)].count("GPUMemoryLimitsMissing") == 1)
        assert node.metrics.registry.get_sample_value("gas_plugin_memory_limits_missing") == 1


async def test_without_the_flag_kubelet_does_not_call_before_starts() -> None:
    async with sandbox_node(*FLEX) as node, node.running_plugin():
        pod = node.create(pod_json(container(i915=1), name="a", annotations=decided("card1")))
        assert await node.got(pod) == ["card1"]
        await eventually(lambda: node.pod("a")["status"]["phase"] == "Running")
        calls = {"method": "PreStartContainer", "resource": "i915", "outcome": "decided"}
        assert node.metrics.registry.get_sample_value("gas_plugin_answers_total", calls) is None


async def test_what_is_missing_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_writer, "REPEAT", 0.05)
    monkeypatch.setattr("gas.cluster.events._QUIET", 0.0)
    async with sandbox_node(*FLEX) as node, node.running_plugin(*FLAGS):
        await eventually(lambda: max(node.event_counts("GPUMemoryLimitsMissing"), default=0) >= 3)


async def test_uninstall_removes_the_limits_of_running_pods() -> None:
    async with sandbox_node(*FLEX) as node:
        root = node.tree / "sys/fs/cgroup"
        cgroup = root / "kubepods/pod2c48f6ae-9d0b-4a0f-8a6f-0242ac120002"
        cgroup.mkdir(parents=True)
        (root / "dmem.capacity").write_text("drm/0000:03:00.0/vram0 100\n")
        (cgroup / "dmem.max").write_text("drm/0000:03:00.0/vram0 50\n")
        MEMORY_LIMITS.clean_up(parse_flags([f"--prefix={node.tree}", "--memory-limits=pod"], environ={}, host_name="n"))
        assert (cgroup / "dmem.max").read_text() == "drm/0000:03:00.0/vram0 max\n"


@pytest.mark.parametrize(
    ("argv", "limits", "warnings"),
    [
        pytest.param([], "none", (), id="default"),
        pytest.param(["--memory-limits=pod"], "pod", (), id="on"),
        pytest.param(
            ["-resource-manager=false", "--memory-limits=pod"],
            "pod",
            ("ignored: --memory-limits=pod; with --resource-manager=false the plugin does not know the pods",),
            id="without-pods",
        ),
    ],
)
def test_flags(argv: list[str], limits: str, warnings: tuple[str, ...]) -> None:
    flags = parse_flags(argv, environ={}, host_name="n")
    assert (flags.of(LimitFlags).memory_limits, flags.warnings) == (limits, warnings)
    assert MEMORY_LIMITS.runs_with(flags) is (limits == "pod" and not warnings)
