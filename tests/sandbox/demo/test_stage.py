"""Where the sandbox's sockets go."""

from __future__ import annotations

from pathlib import Path

import pytest

from gas.plugin.kubelet.plugin_socket import LONGEST_PATH
from gas.sandbox.demo.stage import NoShortDirectory, short_temporary_directory

SOCKET = "n1/device-plugins/gpu.intel.com-i915.sock"


def test_temporary_files_stay_where_they_belong_when_paths_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/var/tmp")
    with short_temporary_directory(SOCKET) as name:
        assert Path(name).parent == Path("/var/tmp")


def test_else_they_go_where_paths_are_short_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / ("long" * 20)))
    with short_temporary_directory(SOCKET) as name:
        assert len(f"{name}/{SOCKET}") <= LONGEST_PATH


def test_a_socket_that_fits_nowhere_is_told() -> None:
    with pytest.raises(NoShortDirectory, match=r"needs a directory for unix sockets .* Let TMPDIR name one"):
        short_temporary_directory("x" * 100)
