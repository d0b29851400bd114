"""The admission port of the whole program."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gas.daemon.listening import (
    MOST_ADMISSION_CONNECTIONS,
    MOST_SCHEDULER_CONNECTIONS,
    CannotListen,
    ListeningSocket,
    listen,
)
from gas.extender.command_line import parse_flags
from gas.extender.flags import Flags
from gas.extender.program import run_extender
from sandbox.api.server import ApiServer
from sandbox.certificates import Authority
from sandbox.programs import running_extender, write_kubeconfig
from tests.builders import container, pod_json
from tests.e2e.ports import free_port
from tests.extender.admission.reviews import review_json
from tests.extender.handshakes import client_context

GPU_POD = pod_json(container(i915=1, xe=1))


@asynccontextmanager
async def admission_port(directory: Path, *flags: str) -> AsyncIterator[int]:
    """Run the program with an admission port."""
    port = free_port()
    async with ApiServer() as server, running_extender(directory, server.url, [f"--admission-port={port}", *flags]):
        yield port


def own_flags(directory: Path, authority: Authority, *flags: str) -> Flags:
    """Return the flags of an extender whose API server is away."""
    pair = authority.server()
    kubeconfig = write_kubeconfig(directory / "kubeconfig", "http://127.0.0.1:1", token="any")
    files = [
        f"--cert={pair.certificate}",
        f"--key={pair.key}",
        f"--cacert={authority.certificate}",
        f"--kubeConfig={kubeconfig}",
    ]
    return parse_flags([*files, "--port=0", "--metrics-port=0", *flags])


def ask(port: int, context: ssl.SSLContext) -> Any:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
    try:
        body = json.dumps(review_json(GPU_POD))
        connection.request("POST", "/validate", body, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())["response"]
    finally:
        connection.close()


def trusting(file: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(file)
    return context


async def test_the_port_serves_with_the_schedulers_certificate_and_needs_no_clients_certificate(tmp_path: Path) -> None:
    async with admission_port(tmp_path) as port:
        response = ask(port, trusting(tmp_path / "ca.crt"))
    assert not response["allowed"]
    assert "use only one of them" in response["status"]["message"]


async def test_the_port_serves_with_its_own_certificate_and_lets_only_its_clients_call(
    tmp_path: Path, authority: Authority
) -> None:
    pair = authority.server("webhooks")
    flags = [f"--admission-certificate={pair.certificate}", f"--admission-key={pair.key}"]
    async with admission_port(tmp_path, *flags, f"--admission-client-ca={authority.certificate}") as port:
        assert not ask(port, client_context(authority, authority.client("kube-apiserver")))["allowed"]
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            ask(port, client_context(authority, None))


async def test_only_clients_with_one_of_the_names_may_call(tmp_path: Path, authority: Authority) -> None:
    pair = authority.server("webhooks")
    flags = [
        f"--admission-certificate={pair.certificate}",
        f"--admission-key={pair.key}",
        f"--admission-client-ca={authority.certificate}",
        "--admission-client-names=kube-apiserver,other",
    ]
    async with admission_port(tmp_path, *flags) as port:
        assert not ask(port, client_context(authority, authority.client("kube-apiserver")))["allowed"]
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            ask(port, client_context(authority, authority.client("kube-scheduler")))


@pytest.mark.parametrize("flag", ["admission-certificate", "admission-key", "admission-client-ca"])
async def test_a_file_that_cannot_be_used_is_named_with_its_flag(
    tmp_path: Path, authority: Authority, flag: str
) -> None:
    missing = tmp_path / "missing.pem"
    flags = own_flags(tmp_path, authority, "--admission-port=1", f"--{flag}={missing}")
    with pytest.raises(Exception, match=f"^--{flag} {missing} cannot be read: No such file or directory$"):
        await run_extender(flags, "1")


async def test_a_port_in_use_is_named_with_its_flag(tmp_path: Path, authority: Authority) -> None:
    with socket.create_server(("", 0)) as used:
        port = used.getsockname()[1]
        flags = own_flags(tmp_path, authority, f"--admission-port={port}")
        with pytest.raises(CannotListen, match=r"^--admission-port: cannot listen on port"):
            await run_extender(flags, "1")


async def test_the_ports_that_create_tls_objects_have_a_limit_of_connections(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    most: dict[str, int | None] = {}

    def recording(address: str, port: int, *, flag: str, **limits: Any) -> ListeningSocket:
        most[flag] = limits.get("most")
        if flag == "admission-port":
            raise CannotListen("all ports were listed")
        return listen(address, port, flag=flag, **limits)

    monkeypatch.setattr("gas.extender.program.listen", recording)
    with pytest.raises(CannotListen, match="all ports were listed"):
        await run_extender(own_flags(tmp_path, authority, "--admission-port=1"), "1")
    assert most == {
        "port": MOST_SCHEDULER_CONNECTIONS,
        "metrics-port": None,
        "admission-port": MOST_ADMISSION_CONNECTIONS,
    }
