"""The real extender as a process of its own, set up for a sandbox: certificates, kubeconfig, ports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import aiohttp

from gas.errors import GasError
from gas.sandbox.certificates import Authority
from gas.sandbox.extender_client import ExtenderAddress

START_SECONDS = 30.0


class ExtenderEnded(GasError):
    """It never got ready, or it ended by itself; the sentence ends with what it wrote last."""

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class FlagOfTheSandbox(GasError):
    """A flag that the sandbox must set itself was given."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class RunningExtender:
    """Where it answers the scheduler, and where it shows its books (``http://127.0.0.1:PORT``)."""

    address: ExtenderAddress
    plain_url: str
    process: asyncio.subprocess.Process
    _log: Path

    async def until_it_ends(self) -> NoReturn:
        """Wait for what should not come. Raises ExtenderEnded."""
        code = await self.process.wait()
        raise ExtenderEnded(
            "\n".join([f"the extender ended with exit code {code}. It wrote:", *_last_lines(self._log)])
        )


@asynccontextmanager
async def running_extender(directory: Path, api_url: str, flags: Sequence[str]) -> AsyncIterator[RunningExtender]:
    """Run ``python -m gas.extender`` against an API server while the block does; ready when the block begins.

    directory  for its certificates, its kubeconfig and its log
    flags      beside those that the sandbox sets itself

    Raises ExtenderEnded, with the extender's own exit code if it did not start, and FlagOfTheSandbox.
    """
    authority = Authority()
    ca = authority.write(directory)
    server = authority.write_server(directory)
    client = authority.write_client(directory)
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig(api_url)), encoding="utf-8")
    port, plain_port = _free_ports(2)
    own = {
        "kubeConfig": kubeconfig,
        "cert": server.certificate,
        "key": server.key,
        "cacert": ca,
        "allowed-names": "system:kube-scheduler",
        "bind-address": "127.0.0.1",
        "port": port,
        "metrics-address": "127.0.0.1",
        "metrics-port": plain_port,
    }
    for flag in flags:
        if (name := flag.lstrip("-").partition("=")[0]) in own and flag.startswith("-"):
            raise FlagOfTheSandbox(f"--{name} is set by the sandbox itself; leave it out")
    log = directory / "extender.log"
    command = [sys.executable, "-m", "gas.extender", *(f"--{name}={value}" for name, value in own.items()), *flags]
    with log.open("wb") as output:
        # A session of its own: Ctrl-C is for us to pass on, in our order.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        plain_url = f"http://127.0.0.1:{plain_port}"
        await _wait_until_ready(process, plain_url, log)
        address = ExtenderAddress(
            url=f"https://127.0.0.1:{port}",
            authority=ca,
            certificate=client.certificate,
            key=client.key,
            ignorable=False,
        )
        yield RunningExtender(address, plain_url, process, log)
    finally:
        await _stop(process)


async def _wait_until_ready(process: asyncio.subprocess.Process, plain_url: str, log: Path) -> None:
    patience = aiohttp.ClientTimeout(total=2)
    try:
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession(timeout=patience) as session:
            while process.returncode is None:
                try:
                    async with session.get(f"{plain_url}/readyz") as answer:
                        if answer.status == 200:
                            return
                except (aiohttp.ClientError, TimeoutError):
                    pass
                await asyncio.sleep(0.05)
    except TimeoutError:
        sentence = f"the extender was not ready after {START_SECONDS:g} s. It wrote:"
        raise ExtenderEnded("\n".join([sentence, *_last_lines(log)])) from None
    if process.returncode in (0, 2):  # it was asked for its help, or told what is wrong with its flags
        raise ExtenderEnded(_written(log), process.returncode)
    sentence = f"the extender did not start, it ended with exit code {process.returncode}. It wrote:"
    raise ExtenderEnded("\n".join([sentence, *_last_lines(log)]), process.returncode or 1)


def _written(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace").strip()


def _last_lines(log: Path) -> list[str]:
    return _written(log).splitlines()[-5:]


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(5):
            await process.wait()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _kubeconfig(api_url: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sandbox",
        "clusters": [{"name": "sandbox", "cluster": {"server": api_url}}],
        "users": [{"name": "sandbox", "user": {}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
    }


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
