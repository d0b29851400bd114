"""Debian's Chromium without a screen, driven over the DevTools protocol on a WebSocket of aiohttp."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = "chromium"
START_SECONDS = 180.0
PATIENCE = 60.0
"""Seconds after which a test that waits for something in the page gives up."""

KEYS = {"Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "Tab": 9}


class ScriptFailed(Exception):
    """An expression that was evaluated in the page threw."""


def chromium() -> str | None:
    """Return the path of Chromium, None if it is not installed."""
    return shutil.which(PROGRAM)


class Browser:
    """One tab. ``problems`` are exceptions of the page, violations of its policy, and errors that it logged.

    received  bytes on the wire of all responses
    urls      that the tab has requested
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []
        self.urls: list[str] = []
        self.received = 0

    async def read(self) -> None:
        """Take in what the browser sends, until it ends."""
        async for message in self._socket:
            sent = json.loads(message.data)
            if (done := self._waiting.pop(sent.get("id", 0), None)) is not None and not done.done():
                done.set_result(sent)
            elif method := sent.get("method"):
                self._take(method, sent["params"])

    def _take(self, method: str, event: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and event["entry"]["level"] == "error":
            self.problems.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")
        elif method == "Audits.issueAdded" and event["issue"]["code"] == "ContentSecurityPolicyIssue":
            self.problems.append(json.dumps(event["issue"]["details"]))
        elif method == "Network.dataReceived":
            self.received += event["encodedDataLength"]
        elif method == "Network.requestWillBeSent":
            self.urls.append(event["request"]["url"])

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result. Raises ScriptFailed if the browser refuses it."""
        number = next(self._ids)
        done = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(PATIENCE):
            sent = await done
        if "error" in sent:
            raise ScriptFailed(f"{method}: {sent['error']['message']}")
        result: dict[str, Any] = sent["result"]
        return result

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        """Evaluate an expression in the page and return its value. Raises ScriptFailed."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise ScriptFailed(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    async def until(self, expression: str, *, seconds: float = PATIENCE) -> None:
        """Wait until an expression is true in the page. Raises TimeoutError with what the page shows."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        if await self.value(f"!!({expression})"):
                            return
                    except ScriptFailed:  # the page is being loaded
                        pass
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = await self.value("document.body.innerText")
            raise TimeoutError(f"{expression} was not true in time; the page shows:\n{shown[:2000]}") from None

    async def size(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        """Set the size of the window, and whether the user prefers dark colours."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        scheme = "dark" if dark else "light"
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def press(self, key: str) -> None:
        """Press a key: one of `KEYS`, or a character."""
        event: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": KEYS.get(key, ord(key[0].upper())), "code": key}
        typed = {} if key in KEYS and key != "Enter" else {"text": "\r" if key == "Enter" else key}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **event, **typed)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    async def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def hover(self, x: float, y: float) -> None:
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    async def picture(self, file: Path) -> None:
        """Write what the window shows to a PNG file."""
        sent = await self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(sent["data"]))  # noqa: ASYNC240 -- nothing else runs meanwhile


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Run a browser with one tab as long as the block."""
    with tempfile.TemporaryDirectory(prefix="gas-browser-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            "--headless=new",
            "--no-sandbox",  # the tests run as root
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--hide-scrollbars",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            port = await _port(Path(profile) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as listed:
                    (tab,) = [each for each in await listed.json() if each["type"] == "page"]
                async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    made = Browser(socket)
                    reading = asyncio.create_task(made.read())
                    for domain in ("Page", "Runtime", "Log", "Network", "Audits", "Accessibility"):
                        await made.call(f"{domain}.enable")
                    try:
                        yield made
                    finally:
                        reading.cancel()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _port(file: Path) -> int:
    """Return the port that the browser has written into a file."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            if lines := _lines(file):
                return int(lines[0])
            await asyncio.sleep(0.1)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
