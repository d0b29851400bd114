"""The real extender as a process of its own, set up for a sandbox: certificates, kubeconfig, ports."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from gas.errors import GasError
from gas.sandbox.certificates import Authority
from gas.sandbox.child_process import ChildProcess, ProcessEnded, running_child
from gas.sandbox.extender_client import ExtenderAddress
from gas.sandbox.kubeconfig import write_kubeconfig

START_SECONDS = 30.0


class FlagOfTheSandbox(GasError):
    """A flag that the sandbox must set itself was given."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class RunningExtender:
    """Where it answers the scheduler, and where it shows its books (``http://127.0.0.1:PORT``)."""

    address: ExtenderAddress
    plain_url: str
    child: ChildProcess


@asynccontextmanager
async def running_extender(directory: Path, api_url: str, flags: Sequence[str]) -> AsyncIterator[RunningExtender]:
    """Run ``python -m gas.extender`` against an API server while the block does; ready when the block begins.

    directory  for its certificates, its kubeconfig and its log
    flags      beside those that the sandbox sets itself

    Raises ProcessEnded, with the extender's own exit code if it did not start, and FlagOfTheSandbox.
    """
    authority = Authority()
    ca = authority.write(directory)
    server = authority.write_server(directory)
    client = authority.write_client(directory)
    port, plain_port = _free_ports(2)
    own = {
        "kubeConfig": write_kubeconfig(directory, api_url),
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
    arguments = [*(f"--{name}={value}" for name, value in own.items()), *flags]
    async with running_child("the extender", "gas.extender", arguments, directory / "extender.log") as child:
        plain_url = f"http://127.0.0.1:{plain_port}"
        await _wait_until_ready(child, plain_url)
        address = ExtenderAddress(
            url=f"https://127.0.0.1:{port}",
            authority=ca,
            certificate=client.certificate,
            key=client.key,
            ignorable=False,
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
    code = child.process.returncode
    if code in (0, 2):  # it was asked for its help, or told what is wrong with its flags
        raise ProcessEnded(child.written(), code)
    raise child.ended(f"the extender did not start, it ended with exit code {code}", code or 1)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
