"""The temporary directory for the sandbox's sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from gas.plugin.kubelet.plugin_socket import LONGEST_PATH
from sandbox.demo.sandbox import short_temporary_directory

SOCKET = "n1/device-plugins/gpu.intel.com-i915.sock"


def test_sockets_are_in_the_directory_for_temporary_files_if_its_path_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/var/tmp")
    with short_temporary_directory(SOCKET) as name:
        assert Path(name).parent == Path("/var/tmp")


def test_sockets_are_elsewhere_if_that_path_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / ("long" * 20)))
    with short_temporary_directory(SOCKET) as name:
        assert len(f"{name}/{SOCKET}") <= LONGEST_PATH
