"""Programs, their flags and their files, recognised in the pods of a cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gas.doctor.all_parts import CHECKS
from gas.doctor.findings import Unseen
from gas.doctor.host_files import LARGEST_FILE, HostFiles
from gas.doctor.parts.feature_discovery import NFD
from gas.objects.stored import DetailedContainer as Container
from gas.programs import (
    EXTENDER,
    INTEL_PLUGIN,
    ORIGINAL_EXTENDER,
    PLUGIN,
    PROGRAMS,
    SCHEDULER,
    Program,
    flag_value,
    image_version,
    is_on,
    vocabulary_flags,
)


@pytest.mark.parametrize(
    ("container", "program"),
    [
        pytest.param(Container(image="gas:0.1.0", command=["gas-extender"]), EXTENDER, id="extender"),
        pytest.param(Container(image="gas:0.1.0", command=["/extender"]), EXTENDER, id="in-the-original's-place"),
        pytest.param(Container(command=["python3", "-m", "gas.extender"]), EXTENDER, id="extender-as-a-module"),
        pytest.param(Container(image="x", args=["/usr/bin/gas-plugin", "-v=2"]), PLUGIN, id="plugin-in-args"),
        pytest.param(Container(image="intel/gpu-extender", command=["/extender"]), ORIGINAL_EXTENDER, id="original"),
        pytest.param(Container(image="h:5000/intel/intel-gpu-plugin@sha256:0"), INTEL_PLUGIN, id="intel-by-digest"),
        pytest.param(Container(image="r/kube-scheduler:v1.34"), SCHEDULER, id="scheduler-by-image"),
        pytest.param(Container(command=["/koord-scheduler", "--v=4"]), SCHEDULER, id="koordinator's-scheduler"),
        pytest.param(Container(image="r/nfd/node-feature-discovery:v0.17-minimal"), NFD, id="nfd"),
        pytest.param(Container(image="busybox", command=["sh", "-c", "sleep", "gas-extender"]), None, id="another"),
        pytest.param(Container(), None, id="nothing"),
    ],
)
def test_the_program_of_a_container(container: Container, program: Program | None) -> None:
    known = (*PROGRAMS, *(each for check in CHECKS for each in check.programs))
    assert [each for each in known if each.runs_in(container)] == ([program] if program else [])


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
def test_the_release_in_an_images_tag(image: str, version: tuple[int, int] | None) -> None:
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
def test_the_value_of_a_flag(words: list[str], value: str | None) -> None:
    assert flag_value(Container(args=words), "config") == value


def test_the_vocabularies_of_a_flag_that_is_given_twice() -> None:
    words = ["--vocabularies=intel,aliyun", "--v=4", "-vocabularies", "intel,vendor"]
    assert vocabulary_flags(Container(args=words))["vocabularies"] == "intel,aliyun,intel,vendor"


@pytest.mark.parametrize(
    ("words", "on"), [([], True), (["-x"], True), (["-x=false"], False), (["--x=0"], False), (["--x=true"], True)]
)
def test_a_boolean_flag_has_its_default_unless_it_is_set(words: list[str], on: bool) -> None:
    assert is_on(Container(args=words), "x", default=True) is on


def test_the_control_planes_files_are_found_where_its_directory_is_mounted(tmp_path: Path) -> None:
    rooted = HostFiles(tmp_path / "etc" / "kubernetes", 1)
    assert rooted.local("/etc/kubernetes/a") == tmp_path / "etc" / "kubernetes" / "a"
    assert rooted.local("/etc/certs/a") == tmp_path / "etc" / "certs" / "a"
    copied = HostFiles(tmp_path / "copy", 1)
    assert copied.local("/etc/kubernetes/a") == tmp_path / "copy" / "a"
    assert isinstance(copied.local("/etc/certs/a"), Unseen)
    assert isinstance(copied.local("/etc/kubernetes/../shadow"), Unseen)
    assert isinstance(copied.local("relative"), Unseen)
    assert isinstance(copied.read("/etc/certs/a"), Unseen)


def test_a_file_that_is_too_large_or_cannot_be_read_is_unseen(tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(b"x" * (LARGEST_FILE + 1))
    os.mkfifo(tmp_path / "no writer")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name, words in (
        ("huge", f"larger than {LARGEST_FILE} bytes"),
        ("missing", "No such file"),
        (".", "expected a file, found a directory"),
        ("endless", "expected a file, found a device"),
        ("no writer", "a pipe whose writer did not finish in 0.05 s"),
    ):
        found = HostFiles(tmp_path, 0.05).read_here(tmp_path / name)
        assert isinstance(found, Unseen), name
        assert words in found.why


@pytest.mark.parametrize(
    ("written", "is_closed", "expected"),
    [
        pytest.param(b"a: 1", True, b"a: 1", id="what-came-out-of-it"),
        pytest.param(b"a: 1", False, "did not finish", id="a-writer-that-stays"),
        pytest.param(b"", True, b"", id="a-writer-that-says-nothing"),
    ],
)
def test_a_pipe_is_read_until_its_writer_closes_it(written: bytes, is_closed: bool, expected: bytes | str) -> None:
    """A shell passes such a pipe for ``<(command)``."""
    reader, writer = os.pipe()
    try:
        os.write(writer, written)
        if is_closed:
            os.close(writer)
        found = HostFiles(Path("/"), 5 if is_closed else 0.05).read_here(Path(f"/dev/fd/{reader}"))
    finally:
        os.close(reader)
        if not is_closed:
            os.close(writer)
    if isinstance(expected, bytes):
        assert found == expected
    else:
        assert isinstance(found, Unseen)
        assert expected in found.why
