from __future__ import annotations

from pathlib import Path

import pytest

from tests.configurator.control_plane_files import ControlPlaneFiles


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControlPlaneFiles:
    """A node's files, with a working directory that holds no scheduler configuration."""
    monkeypatch.chdir(tmp_path)
    return ControlPlaneFiles(tmp_path / "node")
