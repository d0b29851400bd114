"""The commands, called on the example cluster in the sandbox's API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gas.commands import run
from sandbox.api.server import ApiServer
from tests.doctor.sandbox_cluster import Beside, doctor_server, write_kubeconfig
from tests.inspection.example_cluster import EXAMPLE_USE, example_nodes, example_pods, fill, with_real_uids


class Result(NamedTuple):
    code: int
    out: str
    err: str


class Kubectl:
    """Call ``kubectl gas`` on a cluster."""

    def __init__(self, server: ApiServer, beside: Beside, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.server = server
        self.beside = beside
        self.kubeconfig = kubeconfig
        self._capsys = capsys

    async def __call__(self, *arguments: str) -> Result:
        self._capsys.readouterr()
        code = await asyncio.to_thread(run, [*arguments])
        printed = self._capsys.readouterr()
        return Result(code, printed.out, printed.err)

    async def data(self, *arguments: str) -> list[dict[str, object]]:
        """Return the rows of a report in JSON."""
        result = await self(*arguments, "-o", "json")
        assert result.code == 0, result.err
        rows: list[dict[str, object]] = json.loads(result.out)
        return rows


@pytest.fixture
async def kubectl(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Kubectl]:
    beside = Beside()
    server = doctor_server(beside)
    async with server:
        fill(server, example_nodes(), example_pods())
        beside.objects.update(with_real_uids(server, EXAMPLE_USE))
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server.url)
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        yield Kubectl(server, beside, kubeconfig, capsys)
