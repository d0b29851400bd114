"""What the demo plays on: a sandbox with some nodes and bound pods, the real extender, a scheduler, pods that run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from gas.sandbox.api import Api
from gas.sandbox.api_client import ApiClient
from gas.sandbox.api_server import ApiServer
from gas.sandbox.extender_process import RunningExtender, running_extender
from gas.sandbox.failure import ApiFailure
from gas.sandbox.kinds import NAMESPACES, NODES, PODS
from gas.sandbox.manifest_objects import NodeManifest, PodManifest
from gas.sandbox.mirror import Mirror, Object
from gas.sandbox.narration import Narration
from gas.sandbox.pod_runner import Pace, PodRunner
from gas.sandbox.scheduler import Scheduler


class Stage:
    """The running sandbox, as far as a demo acts on it."""

    def __init__(self, api: Api, extender: RunningExtender, narration: Narration) -> None:
        self.narration = narration
        self._api = api
        self._extender = extender
        self._news = asyncio.Event()

    def submit(self, pod: PodManifest) -> None:
        """Raises ApiFailure."""
        create_pod(self._api, pod)

    async def tell_troubles(self) -> None:
        """What the extender has against the nodes and the bound pods as they are."""
        books = await self._debug("books")
        for node, problems in books.get("problems", {}).items():
            for problem in problems:
                self.narration.warn(f"node {node}: {problem}")
        for trouble in books.get("trouble", {}).values():
            self.narration.warn(f"pod {trouble['pod']} on {trouble['node']}: {trouble['trouble']}")

    def pod_changed(self, before: Object | None, after: Object | None) -> str | None:
        """Tell it on. Answers the UID of a pod that waits for a reason that is new."""
        self._news.set()
        return self.narration.pod_changed(before, after)

    async def tell_refusal(self, uid: str) -> None:
        refusals = await self._debug("refusals")
        self.narration.waits(uid, refusals.get(uid, {}).get("details", {}))
        self._news.set()

    async def until(self, done: Callable[[], bool], *, quiet: float = 0.0, patience: float) -> bool:
        """Whether ``done``, and then no news for ``quiet`` seconds, came true within ``patience`` seconds."""
        try:
            async with asyncio.timeout(patience):
                while True:
                    self._news.clear()
                    try:
                        await asyncio.wait_for(self._news.wait(), quiet if done() else None)
                    except TimeoutError:
                        return True
        except TimeoutError:
            return False

    async def _debug(self, page: str) -> dict[str, Any]:
        """A page of the extender's plain port; empty while it does not answer, of which its end is told elsewhere."""
        patience = aiohttp.ClientTimeout(total=10)
        try:
            async with (
                aiohttp.ClientSession(self._extender.plain_url, timeout=patience) as session,
                session.get(f"/debug/{page}") as answer,
            ):
                answer.raise_for_status()
                found: dict[str, Any] = await answer.json()
                return found
        except (aiohttp.ClientError, TimeoutError):
            return {}


@asynccontextmanager
async def running_stage(
    narration: Narration, set_up: Callable[[Api], None], flags: Sequence[str], pace: Pace | None
) -> AsyncIterator[Stage]:
    """A stage while the block runs; its extender is ready when the block begins.

    set_up  puts the first nodes and pods into the API
    flags   of the extender
    pace    how long pods run; None: nothing runs them, they only get their nodes

    Raises ExtenderEnded, in an ExceptionGroup once the block has begun.
    """
    with TemporaryDirectory(prefix="gas-sandbox-") as directory:
        async with ApiServer() as server, ApiClient(server.url) as client:
            set_up(server.api)
            async with running_extender(Path(directory), server.url, flags) as extender, asyncio.TaskGroup() as tasks:
                stage = Stage(server.api, extender, narration)

                def pod_changed(before: Object | None, after: Object | None) -> None:
                    if (uid := stage.pod_changed(before, after)) is not None:
                        tasks.create_task(stage.tell_refusal(uid))

                at_work = [
                    tasks.create_task(extender.until_it_ends()),
                    tasks.create_task(Mirror(client, "/api/v1/pods", pod_changed).run()),
                    tasks.create_task(Scheduler(client, extender.address).run()),
                ]
                if pace is not None:
                    at_work.append(tasks.create_task(PodRunner(client, pace).run()))
                yield stage
                for task in at_work:
                    task.cancel()


def create_node(api: Api, node: NodeManifest) -> None:
    """Raises ApiFailure."""
    api.create(NODES, None, node.as_object())


def create_pod(api: Api, pod: PodManifest) -> None:
    """Create it, and its namespace where there is none yet. Raises ApiFailure."""
    try:
        api.create(PODS, pod.namespace, pod.as_object())
    except ApiFailure as failure:
        if failure.code != 404:
            raise
        api.create(NAMESPACES, None, {"metadata": {"name": pod.namespace}})
        api.create(PODS, pod.namespace, pod.as_object())
