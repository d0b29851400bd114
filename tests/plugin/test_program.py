"""The program as a process: exit codes, signals, and the files it leaves behind."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.error import HTTPError

import pytest

from gas.daemon.flags import PartFlags
from gas.plugin.flags import parse_flags
from gas.plugin.part import Core, CoreFlags, Hooks, Part
from gas.plugin.program import uninstall
from gas.plugin.published_file import FileFault
from gas.vocabularies.selection import parse_vocabularies
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from sandbox.programs import write_kubeconfig
from tests.background import eventually, soon
from tests.e2e.ports import free_port
from tests.plugin.node_of_sandbox import NODE, SandboxNode, sandbox_node


@asynccontextmanager
async def process(*arguments: str, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run ``gas-plugin``, and kill it when the block ends."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "gas.plugin", *arguments)
    started = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environ)
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def ended(*arguments: str, **environ: str) -> tuple[int | None, str, str]:
    """Return exit code, output and errors of a run that ends by itself."""
    async with process(*arguments, **environ) as running:
        out, errors = await asyncio.wait_for(running.communicate(), 30)
        return running.returncode, out.decode(), errors.decode()


def options(node: SandboxNode) -> list[str]:
    kubeconfig = write_kubeconfig(node.directory / "kubeconfig", node.server.url, token="plugin")
    return [
        f"--kubeConfig={kubeconfig}",
        f"--prefix={node.tree}",
        f"--kubelet-dir={node.kubelet_dir}",
        f"--node-name={NODE}",
        "--metrics-address=127.0.0.1",
    ]


async def test_wrong_usage_is_reported_with_exit_code_2() -> None:
    code, out, errors = await ended("--prot=1")
    assert (code, out) == (2, "")
    assert errors.startswith("gas-plugin: unknown flag '--prot'")


async def test_help_and_version_end_at_once() -> None:
    code, out, _ = await ended("--help")
    assert (code, out.splitlines()[0]) == (0, "Usage: gas-plugin [flags]")
    code, out, _ = await ended("--version")
    assert (code, out.split()[0]) == (0, "gas-plugin")


async def test_imported_modules_are_frozen_for_the_garbage_collector() -> None:
    """Traversing all of them takes tens of milliseconds, in which kubelet would wait for a reply."""
    script = """
import gc, sys
from gas.plugin import program
from gas.plugin.__main__ import main

async def count(*_):
    print(gc.get_freeze_count() > 10 * len(gc.get_objects()), flush=True)

program.run_plugin = count
sys.argv = ["gas-plugin", "--resource-manager=false"]
sys.exit(main())
"""
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=pipe)
    out, _ = await asyncio.wait_for(started.communicate(), 30)
    assert out == b"True\n"


async def test_a_variable_that_is_not_a_number_stops_it_from_starting() -> None:
    code, _, errors = await ended("--resource-manager=false", GPU_MEMORY_RESERVED="much")
    assert code == 1
    assert "cannot start: environment variable GPU_MEMORY_RESERVED" in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_it_ends_in_order_and_leaves_no_socket(number: signal.Signals) -> None:
    async with sandbox_node(*fake_gpus(FLEX_170, 2), kubelet=False) as node:
        port = free_port()
        async with process(*options(node), f"--metrics-port={port}") as running:
            not_ready = await asyncio.to_thread(_get_until, port, "/readyz", "kubelet has not started")
            assert not_ready[0] == 503
            await node.start_kubelet()
            await soon(lambda: node.allocatable()["i915"] == "2")
            await eventually(lambda: "gpu.intel.com/gpu-numbers" in node.node()["metadata"]["labels"])
            assert await asyncio.to_thread(_get, port, "/healthz") == (200, "ok\n")
            assert await asyncio.to_thread(_get, port, "/readyz") == (200, "ok\n")
            status, metrics = await asyncio.to_thread(_get, port, "/metrics")
            assert status == 200
            assert 'gas_plugin_cards{driver="i915",state="healthy"} 2.0' in metrics
            running.send_signal(number)
            _, errors = await asyncio.wait_for(running.communicate(), 15)
            assert running.returncode == 0, errors.decode()
        assert not list((node.kubelet_dir / "device-plugins").glob("gpu.intel.com*"))
        assert "gpu.intel.com/gpu-numbers" in node.node()["metadata"]["labels"]


async def uninstalled(node: SandboxNode, *flags: str, parts: Sequence[Part[Any]] = ()) -> int:
    return await uninstall(parse_flags([*options(node), *flags], environ={}), parts)


async def test_uninstall_is_run_in_place_of_the_plugin() -> None:
    script = """
import sys
from gas.plugin import program
from gas.plugin.__main__ import main

async def uninstall(flags):
    print(flags.node_name, flush=True)
    return 3

program.uninstall = uninstall
sys.argv = ["gas-plugin", "--uninstall", "--node-name=n1"]
sys.exit(main())
"""
    started = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(started.communicate(), 30)
    assert (started.returncode, out) == (3, b"n1\n")


async def test_uninstall_removes_what_its_vocabularies_write_and_nothing_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with sandbox_node(*fake_gpus(FLEX_170, 1)) as node:
        spoken = parse_vocabularies("intel,aliyun")
        async with node.running_plugin(vocabularies=spoken):
            await soon(lambda: node.node()["status"]["allocatable"].get("aliyun.com/gpu-count") == "1")
        assert await uninstalled(node) == 0
        assert "kubelet keeps gpu.intel.com/i915 in its capacity" in caplog.text
        assert list(node.node()["metadata"]["labels"]) == ["kubernetes.io/hostname"]
        assert "gas-cards" not in node.node()["metadata"].get("annotations", {})
        assert not {"millicores", "memory.max", "tiles"} & node.allocatable().keys()
        assert node.node()["status"]["allocatable"]["aliyun.com/gpu-count"] == "1"  # Aliyun's own plugin may be there
        assert await uninstalled(node, "--vocabularies=intel,aliyun") == 0
        assert "aliyun.com/gpu-count" not in node.node()["status"]["allocatable"]


async def test_uninstall_continues_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_flags: CoreFlags, _own: PartFlags) -> None:
        raise FileFault("cannot remove the file")

    def build(_core: Core, _own: PartFlags) -> Hooks:
        return Hooks()

    part = Part(name="x", flags=PartFlags, is_on=lambda *_: False, build=build, switched_on_by="--x", uninstall=fail)
    async with sandbox_node(*fake_gpus(FLEX_170, 2)) as node:
        async with node.running_plugin():
            await eventually(lambda: "gpu.intel.com/gpu-numbers" in node.node()["metadata"]["labels"])
        assert await uninstalled(node, parts=[part]) == 1
        assert "cannot uninstall completely: cannot remove the file" in caplog.text
        assert not [name for name in node.node()["metadata"]["labels"] if name.startswith("gpu.intel.com/")]


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def _get_until(port: int, path: str, word: str) -> tuple[int, str]:
    """Return the first response that has this word in it; before, the port may be closed."""
    end = time.monotonic() + 20
    while True:
        with suppress(OSError):
            answer = _get(port, path)
            if word in answer[1]:
                return answer
        if time.monotonic() > end:
            raise TimeoutError(f"{path} never said {word!r}")
        time.sleep(0.05)
