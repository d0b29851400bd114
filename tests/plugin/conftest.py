"""A directory whose path is short enough for unix sockets, unlike pytest's own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def socket_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gas-") as directory:
        yield Path(directory)
