"""Memory limits on a real kubelet: there before the first instruction of a container, and gone with its pod.

No machine of these tests has a card with ``dmem``, so ``pids`` stands in for it (`tests/e2e/stand_in_limits.py`).
``GAS_E2E_STARTS`` is the number of starts to watch.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.e2e import stand_in_limits
from tests.e2e.gpu_node import SECONDS, GpuNode
from tests.e2e.images import BUSYBOX
from tests.e2e.kube_api import Object
from tests.e2e.pods import OVER, container, delete_now, get_pod, pod
from tests.e2e.waiting import wait_for

pytestmark = pytest.mark.usefixtures("no_pods_after")

GPUS = fake_gpus(FLEX_170, 1)
STARTS = int(os.environ.get("GAS_E2E_STARTS", "20"))
AT_ONCE = 20


def hierarchy() -> Path:
    mounted = Path("/sys/fs/cgroup")
    return mounted if (mounted / "cgroup.controllers").exists() else mounted / "pids"


@pytest.fixture
def limiting_node(gpu_node: GpuNode) -> GpuNode:
    """Provide the node with the stand-in, which sees the real cgroups."""
    gpu_node.plugin_module = stand_in_limits.__name__
    gpu_node.plugin_environment = {stand_in_limits.CARD: GPUS[0].pci_address}
    gpu_node.prepare_tree = show_cgroups
    gpu_node.start(GPUS, "--shared-dev-num=40", "--memory-limits=pod")
    return gpu_node


def show_cgroups(tree: Path) -> None:
    """Let a plugin that looks below a tree find the real cgroups."""
    (tree / "sys/fs").mkdir(parents=True, exist_ok=True)
    (tree / "sys/fs/cgroup").symlink_to(hierarchy())


def showing(name: str, *containers: Object, init: tuple[Object, ...] = (), then: str = "") -> Object:
    """Return a pod whose containers print their pod's limit in their very first process."""
    written = pod(name, *containers, init=init)
    limit = "/cgroups/kubepods/besteffort/pod$(UID)/pids.max"
    for each in (*init, *containers):
        is_first = each.get("restartPolicy") == "Always" or each in containers
        script = f"cat {limit}; {then}" if then and is_first else ""
        each |= {
            "image": BUSYBOX.name,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", script] if script else ["/bin/cat", limit],
            "env": [{"name": "UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
            "volumeMounts": [{"name": "cgroups", "mountPath": "/cgroups", "readOnly": True}],
        }
    return written


def create(gpu_node: GpuNode, written: Object) -> None:
    root = hierarchy() / gpu_node.node.cgroups.name
    written["spec"]["volumes"] = [{"name": "cgroups", "hostPath": {"path": str(root)}}]
    gpu_node.create_unchanged(written)


def limit_of(gpu_node: GpuNode, of: Object) -> str:
    """Return the limit of a pod that runs."""
    cgroup = hierarchy() / gpu_node.node.cgroups.name / f"kubepods/besteffort/pod{of['metadata']['uid']}"
    return (cgroup / "pids.max").read_text().strip()


def printed_by(gpu_node: GpuNode, name: str) -> str:
    """Wait until a pod has ended, and return what it printed."""
    over = wait_for(f"the end of {name}", lambda: ended(gpu_node, name), seconds=2 * SECONDS)
    return wait_for("its output", lambda: gpu_node.node.log(over, "main"), seconds=20).strip()


def ended(gpu_node: GpuNode, name: str) -> Object | None:
    """Return a pod if it has ended."""
    found = get_pod(gpu_node.api, name)
    return found if found["status"]["phase"] in OVER else None


def test_the_limit_is_there_before_the_first_instruction(limiting_node: GpuNode) -> None:
    wrong: list[str] = []
    for first in range(0, STARTS, AT_ONCE):
        amounts = {f"start-{number}": 100 + number % 500 for number in range(first, min(first + AT_ONCE, STARTS))}
        for name, mib in amounts.items():
            create(limiting_node, showing(name, container(i915=1, memory_max=f"{mib}Mi")))
        for name, mib in amounts.items():
            printed = printed_by(limiting_node, name)
            if printed != str(mib):
                wrong.append(f"{name}: expected {mib}, found {printed}")
            delete_now(limiting_node.api, name)
    assert not wrong, f"{len(wrong)} of {STARTS} starts: {wrong[:5]}"
    assert limiting_node.plugin.metric('gas_plugin_answer_seconds_count{method="PreStartContainer"}') >= STARTS
    assert limiting_node.plugin.metric("gas_plugin_memory_limits_missing") == 0


def test_sidecars_init_containers_and_restarts(limiting_node: GpuNode) -> None:
    """Every container of a pod, at each of its starts, finds room for all that run together."""
    written = showing(
        "several",
        container(i915=1, memory_max="200Mi"),
        init=(
            container("side", sidecar=True, i915=1, memory_max="50Mi"),
            container("prepare", i915=1, memory_max="300Mi"),
        ),
        then="sleep 100000",
    )
    written["spec"]["restartPolicy"] = "Always"
    create(limiting_node, written)
    (running,) = limiting_node.running(["several"])
    for name in ("side", "prepare", "main"):
        assert wait_for("its output", partial(limiting_node.node.log, running, name)) == "350\n"
    assert limit_of(limiting_node, running) == "350"
    limiting_node.node.kill(running, "main")
    assert wait_for("the restart", lambda: limiting_node.node.log(running, "main", restarts=1), seconds=60) == "350\n"


def test_the_limit_survives_the_plugin_and_ends_with_the_pod(limiting_node: GpuNode) -> None:
    create(limiting_node, showing("shared", container(i915=1, memory_max="150Mi"), then="sleep 100000"))
    create(limiting_node, showing("whole", container(i915=1), then="sleep 100000"))
    shared, whole = limiting_node.running(["shared", "whole"])
    assert (limit_of(limiting_node, shared), limit_of(limiting_node, whole)) == ("150", "max")
    wait_for("the metric", lambda: limiting_node.plugin.metric("gas_plugin_memory_limited_pods") == 1, seconds=30)
    limiting_node.stop_plugin()
    assert limit_of(limiting_node, shared) == "150"
    limiting_node.plugin.start()
    wait_for("the metric again", lambda: limiting_node.plugin.metric("gas_plugin_memory_limited_pods") == 1, seconds=30)
    limiting_node.node.restart_kubelet()
    assert limit_of(limiting_node, shared) == "150"
    cgroup = hierarchy() / limiting_node.node.cgroups.name / f"kubepods/besteffort/pod{shared['metadata']['uid']}"
    delete_now(limiting_node.api, "shared")
    wait_for("its cgroup gone", lambda: not cgroup.exists(), seconds=60)
