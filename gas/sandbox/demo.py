"""The demo: the sandbox, the real extender, and the pods that a file or the examples hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
from rich.console import Console
from rich.text import Text

from gas.sandbox.api_client import ApiClient, RefusedByApi
from gas.sandbox.api_server import ApiServer
from gas.sandbox.extender_process import RunningExtender, running_extender
from gas.sandbox.manifests import Manifests, Object, read_manifests
from gas.sandbox.mirror import Mirror
from gas.sandbox.narration import Narration
from gas.sandbox.pod_runner import Pace, PodRunner
from gas.sandbox.scheduler import Scheduler

RUN_SECONDS = 5.0
"""How long the pods of the examples run."""

PAUSE = 0.6
"""Seconds between two files, so that the lines can be followed."""

QUIET_SECONDS = 1.5
"""Without any news for so long, what waits has been tried and goes on waiting."""

PATIENCE = 120.0
"""Seconds after which the demo ends, whatever still happens."""


@dataclass(frozen=True, slots=True)
class _Stage:
    client: ApiClient
    extender: RunningExtender
    narration: Narration
    news: asyncio.Event


async def show_examples(console: Console, directory: Path, flags: Sequence[str]) -> None:
    """Submit the files of ``directory`` one after the other to the nodes in its ``nodes/`` and tell what happens."""
    nodes, files = _read_examples(directory)
    async with _stage(console, nodes.nodes, flags, Pace(init=0.2, run=RUN_SECONDS)) as stage:
        stage.narration.say(f"{len(nodes.nodes)} nodes; pods run for {RUN_SECONDS:g} seconds.\n")
        for file, manifests in files:
            stage.narration.say(f"{directory.name}/{file.name}: {_first_sentence(file)}")
            for pod in manifests.pods:
                await _create_pod(stage.client, pod)
            await asyncio.sleep(PAUSE)
        await _until(stage, lambda: all(story.ended is not None for story in stage.narration.stories.values()))
        console.print()
        console.print(stage.narration.table())


async def show_cluster(console: Console, file: Path, flags: Sequence[str]) -> None:
    """Put the nodes and bound pods of a file up as they are, and tell where its waiting pods would go."""
    manifests = read_manifests(file)
    over = [pod for pod in manifests.pods if pod["status"]["phase"] in ("Succeeded", "Failed")]
    bound = [pod for pod in manifests.pods if pod["spec"].get("nodeName") and pod not in over]
    waiting = [pod for pod in manifests.pods if not pod["spec"].get("nodeName") and pod not in over]
    async with _stage(console, manifests.nodes, flags, Pace(run=None), bound) as stage:
        counted = f"{len(manifests.nodes)} nodes, {len(bound)} pods on them, {len(waiting)} waiting"
        ignored = [f"{count} {kind}" for kind, count in manifests.ignored.items()]
        ignored += [f"{len(over)} pods that have ended"] if over else []
        stage.narration.say(f"{file}: {counted}" + (f"; not looked at: {', '.join(ignored)}" if ignored else ""))
        for pod in waiting:
            await _create_pod(stage.client, pod)
        await _until_quiet(stage)
        console.print()
        console.print(stage.narration.table())


@asynccontextmanager
async def _stage(
    console: Console, nodes: Sequence[Object], flags: Sequence[str], pace: Pace, bound: Sequence[Object] = ()
) -> AsyncIterator[_Stage]:
    """A sandbox with these nodes and bound pods, its extender ready, its scheduler and its pods at work."""
    with TemporaryDirectory(prefix="gas-sandbox-") as name:
        async with ApiServer() as server, ApiClient(server.url) as client:
            for node in nodes:
                await _create(client, "/api/v1/nodes", node)
            for pod in bound:
                await _create_pod(client, pod)
            async with running_extender(Path(name), server.url, flags) as extender, asyncio.TaskGroup() as tasks:
                narration, news = Narration(console), asyncio.Event()
                stage = _Stage(client, extender, narration, news)

                def pod_changed(before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
                    news.set()
                    if (uid := narration.pod_changed(before, after)) is not None:
                        tasks.create_task(_tell_refusal(stage, uid))

                loops = [
                    tasks.create_task(Mirror(client, "/api/v1/pods", pod_changed).run()),
                    tasks.create_task(PodRunner(client, pace).run()),
                    tasks.create_task(Scheduler(client, extender.address).run()),
                ]
                yield stage
                for loop in loops:
                    loop.cancel()


async def _tell_refusal(stage: _Stage, uid: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{stage.extender.plain_url}/debug/refusals") as answer:
        refusals = await answer.json()
    stage.narration.waits(uid, refusals.get(uid, {}).get("details", {}))


async def _until(stage: _Stage, done: Any) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while not done():
                stage.news.clear()
                await stage.news.wait()
    except TimeoutError:
        stage.narration.say(f"Some pods still wait after {PATIENCE:g} seconds.", "yellow")


async def _until_quiet(stage: _Stage) -> None:
    """Until every pod is bound or has been refused, and nothing changes any more."""
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                stage.news.clear()
                try:
                    await asyncio.wait_for(stage.news.wait(), QUIET_SECONDS)
                except TimeoutError:
                    if all(story.node or story.reason for story in stage.narration.stories.values()):
                        return
    except TimeoutError:
        stage.narration.say(f"Not every pod was tried within {PATIENCE:g} seconds.", "yellow")


async def _create_pod(client: ApiClient, pod: Object) -> None:
    await _create(client, f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)


async def _create(client: ApiClient, path: str, value: Object) -> None:
    """Create it; the namespace of a pod as well, where there is none yet. Raises RefusedByApi."""
    try:
        await client.post(path, value)
    except RefusedByApi as refusal:
        if refusal.code != 404:
            raise
        await client.post("/api/v1/namespaces", {"metadata": {"name": value["metadata"]["namespace"]}})
        await client.post(path, value)


def _read_examples(directory: Path) -> tuple[Manifests, list[tuple[Path, Manifests]]]:
    """The nodes of all files below ``nodes/``, and each file of pods. Raises BadManifest."""
    nodes = Manifests()
    for file in sorted(directory.glob("nodes/*.yaml")):
        nodes.add(read_manifests(file))
    return nodes, [(file, read_manifests(file)) for file in _in_order(directory)]


def _in_order(directory: Path) -> list[Path]:
    """The worked example first, since everything begins with it."""
    return sorted(directory.glob("*.yaml"), key=lambda file: (file.stem != "worked-example", file.name))


def _first_sentence(file: Path) -> str:
    """Of the comment that the file begins with."""
    comment = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return " ".join(comment).partition(". ")[0].rstrip(".:")


def heading(console: Console) -> None:
    """What this is, in two lines."""
    console.print(
        Text("A cluster inside this process: API server, scheduler, pods. The extender is the real one, over TLS.")
    )
