"""Run the real extender and device plugins as child processes, which end when the sandbox ends."""

import asyncio
import base64
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import aiohttp

from configurator.certificates import CLIENT_NAME
from gas.daemon.flags import UsageError
from gas.extender.command_line import parse_flags
from gas.extender.parts import PARTS
from gas.values.errors import GasError
from gas.vocabularies.combined import Vocabularies
from sandbox.certificates import Authority
from sandbox.scheduler.extender_client import ExtenderAddress

STOP_SECONDS = 5.0  # seconds that a program has to end before it is killed
START_SECONDS = 30.0  # seconds for a program to print its ports, and for the extender to get ready

_LAST_LINES = 5


class ProcessEnded(GasError):
    """A program did not get ready, or ended by itself. The sentence ends with its last lines of output."""

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A running program. Messages call it ``name``, such as ``the extender``."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    async def until_it_ends(self) -> NoReturn:
        code = await self.process.wait()
        raise self.ended(f"{self.name} ended with exit code {code}")

    def ended(self, event: str, exit_code: int = 1) -> ProcessEnded:
        """Return the error for an unexpected end, with the last lines of the program's output."""
        return ProcessEnded(
            "\n".join([f"{event}. Its last output:", *self.written().splitlines()[-_LAST_LINES:]]), exit_code
        )

    async def ports(self, pattern: str) -> list[int]:
        """Return the ports in the first line of output that fits a pattern, once it is there. Raises ProcessEnded.

        The program chooses them itself: a port that was free a moment ago may be in use when it listens.
        """
        try:
            async with asyncio.timeout(START_SECONDS):
                while (found := re.search(pattern, self.written())) is None:
                    if (code := self.process.returncode) in (0, 2):  # it has printed its help, or a wrong flag
                        raise ProcessEnded(self.written(), code or 0)
                    if code is not None:
                        raise self.ended(f"{self.name} did not start: exit code {code}", code)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise self.ended(f"{self.name} does not say its ports after {START_SECONDS:g} s") from None
        return [int(port) for port in found.groups()]

    def written(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace").strip()


@asynccontextmanager
async def running_child(
    name: str, module: str, arguments: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[ChildProcess]:
    """Run ``python -m module`` as long as the block, with output to the file ``log`` and additional ``environment``."""
    with log.open("wb") as output:
        # Its own session: Ctrl-C must not reach it, because the sandbox ends its programs in order.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    try:
        yield ChildProcess(name, process, log)
    finally:
        await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@dataclass(frozen=True, slots=True)
class RunningExtender:
    """A ready extender. ``plain_url`` has metrics and debug pages."""

    address: ExtenderAddress
    plain_url: str
    child: ChildProcess


@asynccontextmanager
async def running_extender(directory: Path, api_url: str, flags: Sequence[str]) -> AsyncIterator[RunningExtender]:
    """Run ``python -m gas.extender`` against an API server as long as the block. It is ready when the block begins.

    ``directory`` is for its certificates, its kubeconfig and its log; ``flags`` are additional ones. Raises UsageError
    for one that the sandbox sets itself, and ProcessEnded with the extender's own exit code if it does not start.
    """
    authority = Authority(directory)
    server, client = authority.server(), authority.client()
    own = {
        "kubeConfig": write_kubeconfig(directory / "kubeconfig", api_url),
        "cert": server.certificate,
        "key": server.key,
        "cacert": authority.certificate,
        "allowed-names": CLIENT_NAME,
        "bind-address": "127.0.0.1",
        "port": 0,
        "metrics-address": "127.0.0.1",
        "metrics-port": 0,
    }
    for flag in flags:
        if (name := flag.lstrip("-").partition("=")[0]) in own and flag.startswith("-"):
            raise UsageError(f"--{name}: the sandbox sets this flag itself; remove it")
    arguments = [*(f"--{name}={value}" for name, value in own.items()), *flags]
    async with running_child("the extender", "gas.extender", arguments, directory / "extender.log") as child:
        port, plain_port = await child.ports(r"serves kube-scheduler on port (\d+), .* on port (\d+)")
        plain_url = f"http://127.0.0.1:{plain_port}"
        await _wait_until_ready(child, plain_url)
        parsed = parse_flags(flags)
        address = ExtenderAddress(
            url=f"https://127.0.0.1:{port}",
            authority=authority.certificate,
            certificate=client.certificate,
            key=client.key,
            managed_resources=Vocabularies(parsed.vocabularies).managed_resources,
            ignorable=False,
            weight=int(any("prioritize" in part.verbs and part.is_on(parsed) for part in PARTS)),
        )
        yield RunningExtender(address, plain_url, child)


async def _wait_until_ready(child: ChildProcess, plain_url: str) -> None:
    patience = aiohttp.ClientTimeout(total=2)
    try:
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession(timeout=patience) as session:
            while child.process.returncode is None:
                try:
                    async with session.get(f"{plain_url}/readyz") as answer:
                        if answer.status == 200:
                            return
                except (aiohttp.ClientError, TimeoutError):
                    pass
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise child.ended(f"the extender was not ready after {START_SECONDS:g} s") from None
    raise child.ended("the extender ended before it was ready", child.process.returncode or 1)


@asynccontextmanager
async def running_page(
    kubeconfig: Path, extender: RunningExtender, flags: Sequence[str]
) -> AsyncIterator[tuple[str, ChildProcess]]:
    """Run the page of an extender with these flags as long as the block. Return its URL and its process."""
    arguments = ["--page-port=0", f"--kubeConfig={kubeconfig}", f"--extender={extender.plain_url}"]
    arguments.append(f"--extender-flags={shlex.join(flags)}")
    async with running_child("the page", "gas.inspection.page", arguments, kubeconfig.with_name("page.log")) as page:
        (port,) = await page.ports(r"serving the page on port (\d+)")
        yield f"http://127.0.0.1:{port}/", page


def write_kubeconfig(file: Path, url: str, *, ca: Path | bytes | None = None, **user: object) -> Path:
    """Write a kubeconfig with one context; without a ``user`` it has no credentials, as the sandbox asks for none.

    ca  file of the authority that signs for the server, or its content, which the kubeconfig then holds
    """
    cluster: dict[str, str] = {"server": url}
    if isinstance(ca, Path):
        cluster["certificate-authority"] = str(ca)
    elif ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sandbox",
        "clusters": [{"name": "sandbox", "cluster": cluster}],
        "users": [{"name": "sandbox", "user": user}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
    }
    file.touch(mode=0o600)
    file.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return file
