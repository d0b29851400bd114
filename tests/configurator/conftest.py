from __future__ import annotations

from pathlib import Path

import pytest

from tests.configurator.control_plane_files import ControlPlaneFiles


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControlPlaneFiles:
    """Make a node's files, and a working directory without a scheduler configuration."""
    monkeypatch.chdir(tmp_path)
    return ControlPlaneFiles(tmp_path / "node")
