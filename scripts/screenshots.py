"""``python -m scripts.screenshots``: the pictures in docs/page, of a made-up cluster in Debian's Chromium."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from gas.inspection.page.view import USE_INTERVAL
from sandbox.programs import write_kubeconfig
from tests.e2e.browser import Browser, browser, chromium

PICTURES = Path(__file__).parents[1] / "docs" / "page"
LARGE, SMALL = (5000, 20_000), (40, 250)
"""Nodes and pods of the two clusters that are shown."""


class Picture(NamedTuple):
    """A picture: the cluster, the view, the size of the window, and what must be true before it is taken."""

    name: str
    cluster: tuple[int, int]
    view: str
    width: int
    height: int
    is_dark: bool
    until: str


_MAP = "document.querySelector('canvas') && document.getElementById('live').textContent === 'live'"
_USED = (
    f"{_MAP} && document.getElementById('totals').textContent.includes('Memory used')"
    " && !document.getElementById('notes').textContent.includes('use is not shown')"  # on a busy machine
)
_REASONS = "document.querySelectorAll('.suggestions li').length > 1"

SHOWN = (
    Picture("map", LARGE, "#/map", 1280, 860, False, _USED),
    Picture("node", SMALL, "#/node/node-00006", 1280, 1180, False, "document.querySelectorAll('.card').length === 8"),
    Picture("why", SMALL, "#/pod/default/wide-2", 1280, 800, False, _REASONS),
    Picture("phone", LARGE, "#/map", 390, 780, True, _USED),
)


async def take(tab: Browser, url: str, picture: Picture, directory: Path) -> None:
    """Show a view and write it to a file."""
    await tab.size(picture.width, picture.height, dark=picture.is_dark)
    await tab.open("about:blank")
    await tab.open(url + picture.view)
    await tab.until(picture.until, seconds=600)
    await asyncio.sleep(1.0)  # transitions end
    await tab.picture(directory / f"{picture.name}.png")
    if tab.problems:
        raise SystemExit(f"{picture.name}: the page has problems: {'; '.join(tab.problems)}")


@asynccontextmanager
async def page(nodes: int, pods: int) -> AsyncIterator[str]:
    """Run a made-up API server and the page of it, and return its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free, TemporaryDirectory(prefix="gas-page-") as directory:
        port = free.getsockname()[1]
        free.close()
        arguments = [f"--port={port}", f"--nodes={nodes}", f"--pods={pods}", "--use"]
        kubeconfig = write_kubeconfig(Path(directory) / "kubeconfig", f"http://127.0.0.1:{port}")
        feed = await asyncio.create_subprocess_exec(sys.executable, "-m", "benchmarks.feed", *arguments)
        command = (sys.executable, "-m", "gas", "page", f"--kubeconfig={kubeconfig}")
        try:
            await _until_open(port)
            shown = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
            try:
                if shown.stderr is None:
                    raise SystemExit("the page has no standard error")
                line = (await shown.stderr.readline()).decode()
                yield line.partition("at ")[2].partition(";")[0]
            finally:
                shown.terminate()
                await shown.wait()
        finally:
            feed.terminate()
            await feed.wait()


async def _until_open(port: int) -> None:
    async with asyncio.timeout(120):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.2)
                continue
            writer.close()
            return


async def main() -> None:
    if chromium() is None:
        raise SystemExit("Chromium is not installed; run: apt-get install chromium")
    PICTURES.mkdir(exist_ok=True)
    for cluster in (SMALL, LARGE):
        async with page(*cluster) as url, browser() as tab:
            await tab.open(url)
            await tab.until(_USED, seconds=600)  # the page reads all objects first
            tab.problems.clear()  # it was not ready until then
            await asyncio.sleep(USE_INTERVAL + 2)
            for picture in SHOWN:
                if picture.cluster == cluster:
                    await take(tab, url, picture, PICTURES)


if __name__ == "__main__":
    asyncio.run(main())
