"""The page of an extender: a process of its own that comes, is replaced and goes with its extender."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gas.extender.page_process import MODULE
from sandbox.api.server import ApiServer
from sandbox.programs import RunningExtender, free_ports, running_extender
from tests.extender.assembled import add_node

PATIENCE = 60.0


class Page:
    def __init__(self, extender: RunningExtender, port: int) -> None:
        self.extender = extender
        self.url = f"http://127.0.0.1:{port}"

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and text once the page responds and has read the cluster."""
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(self.url + path) as sent:
                        if sent.status != 503:
                            return sent.status, await sent.text()
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)

    async def until_away(self) -> None:
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
            while True:
                try:
                    await (await session.get(self.url)).read()
                except aiohttp.ClientConnectorError:
                    return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)

    def process(self) -> int:
        """Return the id of the page's process: the child of the extender that runs the module."""
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((directory / "stat").read_text().rpartition(") ")[2].split()[1])
                words = (directory / "cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == self.extender.child.process.pid and MODULE.encode() in words:
                return int(directory.name)
        raise AssertionError("the extender has no process for the page")


@asynccontextmanager
async def page(directory: Path, *flags: str) -> AsyncIterator[Page]:
    (port,) = free_ports(1)
    async with ApiServer() as server:
        add_node(server)
        async with running_extender(directory, server.url, [f"--page-port={port}", *flags]) as extender:
            yield Page(extender, port)


async def test_the_extender_serves_the_page_with_the_cluster_and_its_own_settings(tmp_path: Path) -> None:
    async with page(tmp_path, "--page-hosts=gpus.example.org") as served:
        status, text = await served.get("/data/cluster")
        assert status == 200
        assert [each[0] for each in json.loads(text)["nodes"]] == ["n1"]
        state = json.loads((await served.get("/data/state"))[1])
        assert not [note for note in state["notes"] if "extender" in note]  # nothing about it was assumed
        decisions = json.loads((await served.get("/data/decisions"))[1])
        assert decisions == {"decisions": [], "notes": []}  # read from the extender
        async with aiohttp.ClientSession() as session:
            for host, expected in (("gpus.example.org", 200), ("other.example.org", 421)):
                async with session.get(served.url, headers={"Host": host}) as sent:
                    assert sent.status == expected
        assert os.getpriority(os.PRIO_PROCESS, served.process()) > os.getpriority(os.PRIO_PROCESS, 0) or (
            os.getpriority(os.PRIO_PROCESS, 0) == 19
        )


async def test_a_page_that_ends_is_started_again_and_the_extender_goes_on(tmp_path: Path) -> None:
    async with page(tmp_path) as served:
        await served.get("/data/cluster")
        first = served.process()
        os.kill(first, signal.SIGKILL)
        assert (await served.get("/data/cluster"))[0] == 200
        assert served.process() != first
        assert served.extender.child.process.returncode is None
        assert "the process of the page ended with exit code -9" in served.extender.child.written()


async def test_the_page_ends_with_its_extender_even_if_that_is_killed(tmp_path: Path) -> None:
    async with page(tmp_path) as served:
        await served.get("/data/cluster")
        served.extender.child.process.kill()
        await served.until_away()


async def test_without_the_flag_there_is_no_page(tmp_path: Path) -> None:
    async with ApiServer() as server, running_extender(tmp_path, server.url, []) as extender:
        with pytest.raises(AssertionError, match="no process for the page"):
            Page(extender, 0).process()
