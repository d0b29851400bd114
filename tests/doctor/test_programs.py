"""How programs, their flags and their files are found in what a cluster says about its pods."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from gas.doctor.gather.mounts import Mounts
from gas.doctor.host_files import LARGEST_FILE, HostFiles, read_file
from gas.doctor.looked import Unseen
from gas.doctor.objects import Container, Details
from gas.doctor.programs import Program, flag_value, image_version, is_on, program_of


@pytest.mark.parametrize(
    ("container", "program"),
    [
        pytest.param(Container(image="gas:0.1.0", command=["gas-extender"]), Program.EXTENDER, id="extender"),
        pytest.param(
            Container(image="gas:0.1.0", command=["/extender"]), Program.EXTENDER, id="in-the-original's-place"
        ),
        pytest.param(Container(command=["python3", "-m", "gas.extender"]), Program.EXTENDER, id="extender-as-a-module"),
        pytest.param(Container(image="x", args=["/usr/bin/gas-plugin", "-v=2"]), Program.PLUGIN, id="plugin-in-args"),
        pytest.param(
            Container(image="intel/gpu-extender", command=["/extender"]), Program.ORIGINAL_EXTENDER, id="original"
        ),
        pytest.param(
            Container(image="h:5000/intel/intel-gpu-plugin@sha256:0"), Program.INTEL_PLUGIN, id="intel-by-digest"
        ),
        pytest.param(
            Container(image="r/kube-scheduler:v1.34", command=["kube-scheduler"]), Program.SCHEDULER, id="scheduler"
        ),
        pytest.param(Container(image="r/nfd/node-feature-discovery:v0.17-minimal"), Program.NFD, id="nfd"),
        pytest.param(Container(image="busybox", command=["sh", "-c", "sleep", "gas-extender"]), None, id="another"),
        pytest.param(Container(), None, id="nothing"),
    ],
)
def test_program_of(container: Container, program: Program | None) -> None:
    assert program_of(container) is program


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("intel/intel-gpu-plugin:0.32.1", (0, 32)),
        ("intel/intel-gpu-plugin:v0.34", (0, 34)),
        ("host:5000/intel-gpu-plugin:0.36.0-ubi", (0, 36)),
        ("host:5000/intel-gpu-plugin", None),
        ("intel/intel-gpu-plugin:devel", None),
        ("intel/intel-gpu-plugin:0.32.1@sha256:00", (0, 32)),
        ("intel/intel-gpu-plugin@sha256:00", None),
    ],
)
def test_image_version(image: str, version: tuple[int, int] | None) -> None:
    assert image_version(Container(image=image)) == version


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--config=/a"], "/a"),
        (["-config", "/a"], "/a"),
        (["--config=/a", "--config=/b"], "/b"),
        (["--config", "--other"], "true"),
        (["--config"], "true"),
        (["--configuration=/a"], None),
        ([], None),
    ],
)
def test_flag_value(words: list[str], value: str | None) -> None:
    assert flag_value(Container(args=words), "config") == value


@pytest.mark.parametrize(
    ("words", "on"), [([], True), (["-x"], True), (["-x=false"], False), (["--x=0"], False), (["--x=true"], True)]
)
def test_a_boolean_flag_is_on_unless_it_is_told_otherwise(words: list[str], on: bool) -> None:
    assert is_on(Container(args=words), "x", default=True) is on


POD = {
    "spec": {
        "containers": [
            {
                "name": "s",
                "volumeMounts": [
                    {"name": "gas", "mountPath": "/etc/kubernetes"},
                    {"name": "deep", "mountPath": "/etc/kubernetes/deep/"},
                    {"name": "file", "mountPath": "/one.yaml", "subPath": "c.yaml"},
                    {"name": "map", "mountPath": "/map"},
                    {"name": "gone", "mountPath": "/gone"},
                ],
            }
        ],
        "volumes": [
            {"name": "gas", "hostPath": {"path": "/etc/kubernetes/gas"}},
            {"name": "deep", "hostPath": {"path": "/deep"}},
            {"name": "file", "configMap": {"name": "files"}},
            {"name": "map", "configMap": {"name": "maps", "items": [{"key": "k", "path": "p.yaml"}]}},
        ],
    }
}


@pytest.mark.parametrize(
    ("path", "host", "config_map"),
    [
        ("/etc/kubernetes/a.yaml", "/etc/kubernetes/gas/a.yaml", None),
        ("/etc/kubernetes/deep/a", "/deep/a", None),
        ("/etc/kubernetes", "/etc/kubernetes/gas", None),
        ("/one.yaml", None, ("files", "c.yaml")),
        ("/map/p.yaml", None, ("maps", "k")),
        ("/map/other", None, ("maps", "other")),
        ("/gone/a", None, None),
        ("/elsewhere", None, None),
        ("relative", None, None),
    ],
)
def test_where_paths_in_a_container_lead_to(path: str, host: str | None, config_map: tuple[str, str] | None) -> None:
    pod = msgspec.convert(POD, Details)
    mounts = Mounts(pod=pod, container=(pod.spec.containers or [])[0])
    assert mounts.host_path(path) == host
    assert mounts.config_map(path) == config_map


def test_the_control_planes_files_are_found_where_its_directory_is_mounted(tmp_path: Path) -> None:
    rooted = HostFiles(tmp_path / "etc" / "kubernetes", 1)
    assert rooted.local("/etc/kubernetes/a") == tmp_path / "etc" / "kubernetes" / "a"
    assert rooted.local("/etc/certs/a") == tmp_path / "etc" / "certs" / "a"
    copied = HostFiles(tmp_path / "copy", 1)
    assert copied.local("/etc/kubernetes/a") == tmp_path / "copy" / "a"
    assert copied.local("/etc/certs/a") is None
    assert copied.local("/etc/kubernetes/../shadow") is None
    assert copied.local("relative") is None
    assert isinstance(copied.read("/etc/certs/a"), Unseen)


def test_files_that_are_huge_or_cannot_be_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(b"x" * (LARGEST_FILE + 1))
    os.mkfifo(tmp_path / "nobody writes")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name, words in (
        ("huge", f"larger than {LARGEST_FILE} bytes"),
        ("missing", "No such file"),
        (".", "expected a file, found a directory"),
        ("endless", "expected a file, found a device"),
        ("nobody writes", "a pipe whose writer did not come to an end in 0.05 s"),
    ):
        found = read_file(tmp_path / name, 0.05)
        assert isinstance(found, Unseen), name
        assert words in found.why


@pytest.mark.parametrize(
    ("written", "is_closed", "expected"),
    [
        pytest.param(b"a: 1", True, b"a: 1", id="what-came-out-of-it"),
        pytest.param(b"a: 1", False, "did not come to an end", id="a-writer-that-stays"),
        pytest.param(b"", True, b"", id="a-writer-that-says-nothing"),
    ],
)
def test_a_pipe_is_read_until_its_writer_goes(written: bytes, is_closed: bool, expected: bytes | str) -> None:
    """As a shell's ``<(command)`` is one."""
    reader, writer = os.pipe()
    try:
        os.write(writer, written)
        if is_closed:
            os.close(writer)
        found = read_file(Path(f"/dev/fd/{reader}"), 5 if is_closed else 0.05)
    finally:
        os.close(reader)
        if not is_closed:
            os.close(writer)
    if isinstance(expected, bytes):
        assert found == expected
    else:
        assert isinstance(found, Unseen)
        assert expected in found.why
