"""The page as a program: for one administrator with a kubeconfig, or as the process of an extender with --page-port."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Collection

import aiohttp

from gas.cluster.connection import ApiServer, connect
from gas.daemon.command import stop_on_signals
from gas.daemon.serving import PLAIN_KEEP_ALIVE, ListeningSocket, Port, listen, serve_with
from gas.extender.flags import Flags
from gas.inspection.cluster import Cluster, Settings, options_of
from gas.inspection.gather import Where, connected, read_decisions
from gas.inspection.page.app import page_app
from gas.inspection.page.view import ReadDecisions, View
from gas.inspection.past_decisions import UnreadableDecisions, parse_decisions

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 256
GRACE = 1.0
"""Seconds for requests in progress when the program ends."""

NICENESS = 10
"""The page must not take time from the extender beside it."""

_EXTENDER_TIMEOUT = 2.0


async def show_page(where: Where, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the page of a cluster on loopback until SIGTERM or SIGINT. Raises CannotListen, NoCluster.

    port      0 picks a free one
    on_ready  is called with the address
    """
    with listen(LOOPBACK, port, flag="port", most=MOST_CONNECTIONS) as opened:
        async with connected(where) as api:

            async def decisions(cluster: Cluster) -> tuple[str, ...]:
                return await read_decisions(api, cluster)

            on_ready(f"http://{LOOPBACK}:{opened.getsockname()[1]}/")
            await _serve(api, opened, decisions, None, stop_on_signals(lambda _signal: None))


async def run_beside_extender(flags: Flags, descriptor: int, extender: str) -> None:
    """Serve the page of an extender's cluster on a socket of the extender, until the extender ends.

    descriptor  of the listening socket
    extender    URL of the extender's plain port
    """
    os.nice(NICENESS)
    opened = ListeningSocket(socket.socket(fileno=descriptor), MOST_CONNECTIONS)
    opened.setblocking(False)
    api = await connect(flags.kube_config, explicit=flags.kube_config is not None, user_agent="gas-page")
    stopping = stop_on_signals(lambda _signal: None)
    await _stop_with_parent(stopping)
    settings = Settings(options_of(flags))
    try:
        await _serve(api, opened, _from_extender(extender), settings, stopping, flags.page_hosts)
    finally:
        await api.close()


async def _serve(  # noqa: PLR0917
    api: ApiServer,
    opened: ListeningSocket,
    decisions: ReadDecisions,
    settings: Settings | None,
    stopping: asyncio.Event,
    hosts: Collection[str] = (),
) -> None:
    view = View(api, decisions, settings)
    port = Port(app=page_app(view, stopping, hosts=hosts), socket=opened, tls=None, keep_alive=PLAIN_KEEP_ALIVE)
    await serve_with([port], stopping, graceful_timeout=GRACE, background=[view.run()])


def _from_extender(url: str) -> ReadDecisions:
    """Return a function that reads the decisions of one extender from its plain port."""

    async def read(cluster: Cluster) -> tuple[str, ...]:
        patience = aiohttp.ClientTimeout(total=_EXTENDER_TIMEOUT)
        try:
            async with (
                aiohttp.ClientSession(timeout=patience) as session,
                session.get(url + "/debug/decisions") as sent,
            ):
                cluster.decisions = parse_decisions(await sent.read())
        except (aiohttp.ClientError, TimeoutError, UnreadableDecisions) as error:
            return (f"the last decisions are not shown: {error or 'the extender did not respond'}",)
        return ()

    return read


async def _stop_with_parent(stopping: asyncio.Event) -> None:
    """Stop when standard input ends: its other end is the extender, which may have been killed."""

    class Watcher(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            stopping.set()

    await asyncio.get_running_loop().connect_read_pipe(Watcher, sys.stdin)
