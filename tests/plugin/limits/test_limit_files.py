"""Limits in the cgroups of pods: where they are, what is written, and what happens when it cannot be."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gas.plugin.limits.limit_files import LimitFiles, NoLimits
from tests.plugin.limits.kernel import CARD0, CARD1, MIB, Kernel, region
from tests.plugin.pods_for_plugin import container_id, pod_uid

A, B = pod_uid(1), pod_uid(2)
SYSTEMD_A = A.replace("-", "_")
BOTH = {region(CARD0): 100 * MIB, region(CARD1): None}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path / "cgroup", monkeypatch, {region(CARD0): 1000 * MIB, region(CARD1): 1000 * MIB})


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"kubepods/pod{A}", id="guaranteed"),
        pytest.param(f"kubepods/burstable/pod{A}", id="burstable"),
        pytest.param(f"kubepods.slice/kubepods-pod{SYSTEMD_A}.slice", id="systemd-guaranteed"),
        pytest.param(
            f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SYSTEMD_A}.slice",
            id="systemd-best-effort",
        ),
        pytest.param(
            f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SYSTEMD_A}.slice", id="a-root-of-kubelets-own"
        ),
        pytest.param(f"docker/0123/kubelet/kubepods/burstable/pod{A}", id="a-node-in-a-container"),
    ],
)
def test_a_pod_is_found_wherever_kubelet_puts_it(kernel: Kernel, path: str) -> None:
    kernel.add("system.slice/kubelet.service")
    kernel.add(f"kubepods/burstable/pod{B}/{container_id(1)}/kubepods/pod{A}")  # made in a container
    cgroup = kernel.add(path)
    assert LimitFiles(kernel.root).apply({A: BOTH}).limited == {A}
    assert kernel.of(cgroup) == {region(CARD0): str(100 * MIB)}


def test_only_what_differs_is_written(kernel: Kernel) -> None:
    cgroup = kernel.add(f"kubepods/pod{A}")
    files = LimitFiles(kernel.root)
    files.apply({A: BOTH})
    files.apply({A: BOTH})
    assert kernel.written == [(f"kubepods/pod{A}", f"{region(CARD0)} {100 * MIB}\n")]
    files.apply({A: {region(CARD0): None, region(CARD1): 5}})
    assert kernel.of(cgroup) == {region(CARD1): "5"}, "a limit of a card that the pod lost is not left behind"
    kernel.limits[cgroup][region(CARD1)] = "7"
    files.apply({A: {region(CARD0): None, region(CARD1): 5}})
    assert kernel.of(cgroup) == {region(CARD1): "5"}, "another program changed it"


def test_the_controller_is_enabled_from_the_root_down(kernel: Kernel) -> None:
    cgroup = kernel.add(f"kubepods/burstable/pod{A}", enabled=False)
    assert LimitFiles(kernel.root).apply({A: BOTH}).faults == {}
    assert kernel.written[:3] == [(".", "+dmem"), ("kubepods", "+dmem"), ("kubepods/burstable", "+dmem")]
    assert kernel.of(cgroup) == {region(CARD0): str(100 * MIB)}


def test_a_pod_without_cgroup_and_one_without_limit(kernel: Kernel) -> None:
    kernel.add(f"kubepods/pod{A}")
    files = LimitFiles(kernel.root)
    outcome = files.apply({A: {region(CARD0): None}, B: BOTH})
    assert not outcome.limited
    assert (outcome.missing, outcome.faults) == ({B}, {})
    kernel.add(f"kubepods/pod{B}")
    assert files.apply({B: BOTH}).limited == {B}, "it comes later"


def test_a_pod_may_end_meanwhile(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroup = kernel.add(f"kubepods/pod{A}")
    write = kernel.write

    def vanish(file: Path, text: str) -> None:
        cgroup.rename(kernel.root / "gone")
        write(file, text)

    monkeypatch.setattr("gas.plugin.limits.limit_files._write", vanish)
    outcome = LimitFiles(kernel.root).apply({A: BOTH})
    assert (outcome.missing, outcome.faults) == ({A}, {})


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        pytest.param(
            errno.EROFS, "Read-only file system; let the plugin write in the node's /sys/fs/cgroup", id="EROFS"
        ),
        pytest.param(errno.EACCES, "Permission denied; let the plugin write in the node's /sys/fs/cgroup", id="EACCES"),
        pytest.param(errno.EINVAL, "Invalid argument", id="EINVAL"),
        pytest.param(errno.ENODEV, "No such device", id="ENODEV"),
        pytest.param(errno.EIO, "Input/output error", id="EIO"),
    ],
)
def test_a_write_that_fails_is_one_sentence(kernel: Kernel, code: int, sentence: str) -> None:
    for number in range(1, 5):
        kernel.add(f"kubepods/pod{pod_uid(number)}")
    kernel.failure = code
    outcome = LimitFiles(kernel.root).apply({pod_uid(number): BOTH for number in range(1, 5)})
    assert list(outcome.faults) == [f"memory limits of pods cannot be set: dmem.max: {sentence}; pods run without them"]
    assert outcome.limited == set()


@pytest.mark.parametrize("reports_busy", [False, True])
def test_a_limit_below_what_is_in_use_is_not_accepted(kernel: Kernel, *, reports_busy: bool) -> None:
    kernel.reports_busy = reports_busy
    first, second = (kernel.add(f"kubepods/pod{uid}") for uid in (A, B))
    kernel.used[first] = {region(CARD0): 200 * MIB}
    files = LimitFiles(kernel.root)
    both = {region(CARD0): 100 * MIB, region(CARD1): 5}
    for _ in range(2):
        outcome = files.apply({A: both, B: both})
        assert (outcome.limited, outcome.refused, outcome.faults) == ({B}, {A}, {})
    assert kernel.of(first) == {region(CARD1): "5"}, "the limits of other cards are set"
    assert kernel.of(second).keys() == {region(CARD0), region(CARD1)}
    kernel.used.clear()
    outcome = files.apply({A: both, B: both})
    assert (outcome.limited, outcome.refused) == ({A, B}, set())
    assert kernel.of(first) == kernel.of(second)


def test_a_controller_that_cannot_be_enabled(kernel: Kernel) -> None:
    kernel.add(f"kubepods/pod{A}", enabled=False)
    kernel.failure = errno.EBUSY
    (fault,) = LimitFiles(kernel.root).apply({A: BOTH}).faults
    assert fault == (
        "memory limits of pods cannot be set: +dmem to cgroup.subtree_control: Device or resource busy; "
        "pods run without them"
    )


def test_a_kernel_without_the_controller(tmp_path: Path) -> None:
    with pytest.raises(NoLimits) as raised:
        LimitFiles(tmp_path).capacity()
    assert str(raised.value) == (
        f"the kernel does not limit memory of cards: {tmp_path}/dmem.capacity does not exist; it needs Linux 6.14 with "
        "CONFIG_CGROUP_DMEM, cgroup version 2, and the node's /sys/fs/cgroup"
    )


def test_a_capacity_that_is_not_one(tmp_path: Path) -> None:
    (tmp_path / "dmem.capacity").write_text("vram0 lots\n")
    with pytest.raises(NoLimits, match=r"dmem\.capacity: expected bytes, found 'lots'$"):
        LimitFiles(tmp_path).capacity()


def test_clearing_removes_every_limit_of_pods(kernel: Kernel) -> None:
    kernel.capacity["dma-heap/cma"] = 5
    first, second = kernel.add(f"kubepods/pod{A}"), kernel.add(f"kubepods/burstable/pod{B}")
    LimitFiles(kernel.root).apply({A: BOTH, B: BOTH})
    kernel.limits[first]["dma-heap/cma"] = "1"
    LimitFiles(kernel.root).clear()
    assert (kernel.of(first), kernel.of(second)) == ({"dma-heap/cma": "1"}, {}), "limits of other devices stay"


def test_clearing_a_node_without_the_controller_does_nothing(tmp_path: Path) -> None:
    LimitFiles(tmp_path / "nowhere").clear()
