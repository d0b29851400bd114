"""Run the page: for one administrator with a kubeconfig, or in the pod of an extender."""

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from functools import partial

import aiohttp

from gas.cluster.connection import connect
from gas.daemon.command import stop_on_signals
from gas.daemon.listening import ListeningSocket, listen
from gas.daemon.serving import PLAIN_KEEP_ALIVE, Port, serve_with
from gas.inspection.cluster import Cluster
from gas.inspection.connection import Where
from gas.inspection.following import connected
from gas.inspection.gather import UnusableDocument, parse_decisions, read_decisions
from gas.inspection.page.app import page_app
from gas.inspection.page.flags import Flags
from gas.inspection.page.view import ReadDecisions, View

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 256
GRACE = 1.0  # seconds for requests in progress when the program ends
NICENESS = 10  # priority of the page, which must not take time from an extender on the same machine

_EXTENDER_TIMEOUT = 2.0


async def show_page(where: Where, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the page of a cluster on loopback until SIGTERM or SIGINT. Raises CannotListen, NoCluster.

    Port 0 picks a free one. ``on_ready`` is called with the address.
    """
    with listen(LOOPBACK, port, flag="port", most=MOST_CONNECTIONS) as opened:
        async with connected(where) as api:
            on_ready(f"http://{LOOPBACK}:{opened.getsockname()[1]}/")
            await _serve(View(api, partial(read_decisions, api)), opened, stop_on_signals(lambda _signal: None))


async def serve_page(flags: Flags) -> None:
    """Serve the page of the extender's cluster until SIGTERM or SIGINT. Raises CannotListen, NoCluster."""
    os.nice(NICENESS)
    with listen(flags.page_address, flags.page_port, flag="page-port", most=MOST_CONNECTIONS) as opened:
        async with await connect(flags.kube_config, user_agent="gas-page") as api:
            logger.info("serving the page on port %d", opened.getsockname()[1], extra={"apiserver": api.url})
            stopping = stop_on_signals(lambda _signal: None)
            view = View(api, _from_extender(flags.extender), flags.settings, flags.page_grafana)
            await _serve(view, opened, stopping, flags.page_hosts)


async def _serve(view: View, opened: ListeningSocket, stopping: asyncio.Event, hosts: Collection[str] = ()) -> None:
    port = Port(app=page_app(view, stopping, hosts=hosts), socket=opened, tls=None, keep_alive=PLAIN_KEEP_ALIVE)
    await serve_with([port], stopping, graceful_timeout=GRACE, background=[view.run()])


def _from_extender(url: str) -> ReadDecisions:
    """Return a function that reads the decisions of one extender from its plain port."""

    async def read(cluster: Cluster) -> tuple[str, ...]:
        patience = aiohttp.ClientTimeout(total=_EXTENDER_TIMEOUT)
        try:
            async with (
                aiohttp.ClientSession(timeout=patience) as session,
                session.get(url.rstrip("/") + "/debug/decisions") as sent,
            ):
                cluster.decisions = parse_decisions(await sent.read())
        except (aiohttp.ClientError, TimeoutError, UnusableDocument) as error:
            return (f"the last decisions are not shown: {error or 'the extender did not respond'}",)
        return ()

    return read
