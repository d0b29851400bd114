"""The program ``gas-page`` in the pod of an extender: reads the cluster and the extender's last decisions."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gas.daemon.flags import UsageError, read_flags
from gas.extender.command_line import parse_flags as parse_extender_flags
from gas.extender.decider import options_of
from gas.inspection.page.flags import Flags
from sandbox.api.server import ApiServer
from sandbox.programs import ChildProcess, running_child, running_extender, write_kubeconfig
from tests.extender.assembled import add_node

PATIENCE = 60.0


class Page:
    def __init__(self, child: ChildProcess, port: int) -> None:
        self.child = child
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


@asynccontextmanager
async def page(directory: Path, server: ApiServer, *flags: str) -> AsyncIterator[Page]:
    kubeconfig = write_kubeconfig(directory / "kubeconfig", server.url)
    arguments = ["--page-port=0", f"--kubeConfig={kubeconfig}", *flags]
    async with running_child("the page", "gas.inspection.page", arguments, directory / "page.log") as child:
        (port,) = await child.ports(r"serving the page on port (\d+)")
        yield Page(child, port)


async def test_the_page_shows_the_cluster_and_the_decisions_of_its_extender(tmp_path: Path) -> None:
    async with ApiServer() as server:
        add_node(server)
        async with (
            running_extender(tmp_path, server.url, []) as extender,
            page(
                tmp_path,
                server,
                f"--extender={extender.plain_url}/",
                "--extender-flags=--card-order=used-first --enableAllowlist",
                "--page-hosts=gpus.example.org",
                "--page-grafana=https://grafana.example.org/",
            ) as served,
        ):
            status, text = await served.get("/data/cluster")
            assert status == 200
            assert [each[0] for each in json.loads(text)["nodes"]] == ["n1"]
            state = json.loads((await served.get("/data/state"))[1])
            assert state["grafana"] == "https://grafana.example.org"
            assert not [note for note in state["notes"] if "extender" in note]  # nothing about it was assumed
            decisions = json.loads((await served.get("/data/decisions"))[1])
            assert decisions == {"decisions": [], "notes": []}  # read from the extender
            async with aiohttp.ClientSession() as session:
                for host, expected in (("gpus.example.org", 200), ("other.example.org", 421)):
                    async with session.get(served.url, headers={"Host": host}) as sent:
                        assert sent.status == expected
            own = os.getpriority(os.PRIO_PROCESS, 0)
            assert os.getpriority(os.PRIO_PROCESS, served.child.process.pid) == min(own + 10, 19)


async def test_a_page_without_an_extender_says_what_it_cannot_show(tmp_path: Path) -> None:
    async with ApiServer() as server, page(tmp_path, server, "--extender=http://127.0.0.1:1") as served:
        await served.get("/data/cluster")
        state = json.loads((await served.get("/data/state"))[1])
        assert "no extender was found in a pod; its default flags are assumed" in state["notes"]
        (note,) = json.loads((await served.get("/data/decisions"))[1])["notes"]
        assert note.startswith("the last decisions are not shown: ")


async def test_the_page_ends_at_once_on_sigterm_with_exit_code_0(tmp_path: Path) -> None:
    async with ApiServer() as server, page(tmp_path, server) as served:
        await served.get("/data/cluster")
        served.child.process.terminate()
        async with asyncio.timeout(PATIENCE):
            assert await served.child.process.wait() == 0


def test_the_page_links_only_to_a_site() -> None:
    assert read_flags(Flags, []).page_grafana == ""
    with pytest.raises(
        UsageError, match=r"expected an address such as https://grafana\.example\.org, found 'javascript:x'"
    ):
        read_flags(Flags, ["--page-grafana=javascript:x"])


def test_settings_are_those_of_the_extenders_flags() -> None:
    assert read_flags(Flags, []).settings is None
    for text in ("", "--card-order=used-first '--vocabularies=intel,aliyun'"):
        settings = read_flags(Flags, [f"--extender-flags={text}"]).settings
        assert settings is not None
        expected = options_of(parse_extender_flags(text.replace("'", "").split()))
        assert settings.options.need == expected.need
        managed = settings.options.vocabularies.managed_resources
        assert managed == expected.vocabularies.managed_resources
    for text in ("--no-such-flag", "--card-order=nothing", "'"):
        with pytest.raises(UsageError):
            read_flags(Flags, [f"--extender-flags={text}"])
