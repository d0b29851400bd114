from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gas.cluster.events import Events, Involved
from sandbox.api.server import ApiServer
from sandbox.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        yield server


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return the (object, reason) of each event that is posted from now on, in order."""
    posted: list[tuple[str, str]] = []
    post = Events.post

    def recording(self: Events, involved: Involved, **fields: Any) -> None:
        posted.append((involved.name, fields["reason"]))
        post(self, involved, **fields)

    monkeypatch.setattr(Events, "post", recording)
    return posted
