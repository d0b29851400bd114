"""Which pod a process belongs to, in every form of ``/proc/PID/cgroup``."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas.plugin.usage.process_walk import pod_of_process

UID = "2c48f6ae-9d0b-4a0f-8a6f-0242ac120002"
SYSTEMD_UID = UID.replace("-", "_")
ID = "0f3c" * 16
OTHER = "11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(f"0::/kubepods/pod{UID}/{ID}\n", id="guaranteed"),
        pytest.param(
            f"0::/system.slice/docker-{'ab' * 32}.scope/kubelet.slice/kubelet-kubepods.slice/"
            f"kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{SYSTEMD_UID}.slice/"
            f"cri-containerd-{ID}.scope\n",
            id="a-node-in-a-container",
        ),
        pytest.param(
            f"11:memory:/system.slice/containerd.service/kubepods-burstable-pod{SYSTEMD_UID}.slice:cri-containerd:{ID}\n",
            id="containerd-cgroupfs-under-a-systemd-kubelet",
        ),
        pytest.param(f"0::/../../pod{UID}/{ID}\n", id="as-a-cgroup-namespace-shows-it"),
        pytest.param(f"0::/kubepods/pod{UID}\n", id="the-pod-itself"),
        pytest.param(
            f"0::/kubepods/pod{UID}/{ID}/kubepods/pod{OTHER}/{'ee' * 32}\n", id="a-group-called-like-another-pod"
        ),
    ],
)
def test_processes_of_a_pod(content: str) -> None:
    assert pod_of_process(content.encode()) == UID


def test_a_static_pod_has_a_hash_as_its_uid() -> None:
    content = f"0::/kubepods/burstable/pod{'5e' * 16}/{ID}\n"
    assert pod_of_process(content.encode()) == "5e" * 16


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("0::/\n", id="the-root"),
        pytest.param("0::/system.slice/kubelet.service\n", id="kubelet"),
        pytest.param(f"0::/system.slice/containerd.service/{ID}\n", id="no-pod"),
        pytest.param(f"0::/kubepods/podium-{UID}/{ID}\n", id="not-quite-a-pod"),
        pytest.param(f"0::/kubepods/pod{UID}x/{ID}\n", id="a-longer-uid"),
        pytest.param(f"/kubepods/pod{UID}/{ID}\n", id="without-the-first-fields"),
        pytest.param(f"2:memory:/kubepods/pod{UID}/{ID}\n1:pids:/kubepods/pod{OTHER}/{ID}\n", id="two-pods"),
        pytest.param("\x00\xff:\n::::\n", id="binary"),
    ],
)
def test_processes_that_count_for_no_pod(content: str) -> None:
    assert pod_of_process(content.encode("latin-1")) is None


uids = st.uuids().map(str)
ids = st.integers(0, 16**64 - 1).map(lambda number: f"{number:064x}")


def cgroupfs(uid: str, container: str, level: str, crio: bool) -> str:
    middle = f"/{level}" if level else ""
    return f"/kubepods{middle}/pod{uid}/{'crio-' if crio else ''}{container}"


def systemd(uid: str, container: str, level: str, crio: bool) -> str:
    dash = f"-{level}" if level else ""
    middle = f"/kubepods-{level}.slice" if level else ""
    runtime = "crio" if crio else "cri-containerd"
    return f"/kubepods.slice{middle}/kubepods{dash}-pod{uid.replace('-', '_')}.slice/{runtime}-{container}.scope"


@given(
    uid=uids,
    container=ids,
    level=st.sampled_from(["", "burstable", "besteffort"]),
    crio=st.booleans(),
    driver=st.sampled_from([cgroupfs, systemd]),
    version_1=st.booleans(),
    below=st.text("abc/pod-:0.", max_size=80),
)
def test_every_driver_and_runtime(
    *,
    uid: str,
    container: str,
    level: str,
    crio: bool,
    driver: Callable[[str, str, str, bool], str],
    version_1: bool,
    below: str,
) -> None:
    path = driver(uid, container, level, crio) + (f"/{below}" if below else "")
    text = f"4:pids:{path}\n3:cpu,cpuacct:{path}\n0::/\n" if version_1 else f"0::{path}\n"
    assert pod_of_process(text.encode()) == str(UUID(uid))


@given(st.binary())
def test_any_content_is_a_pod_or_none(content: bytes) -> None:
    found = pod_of_process(content)
    assert found is None or len(found) in (32, 36)
