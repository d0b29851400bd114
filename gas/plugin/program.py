"""The plugin as a process: its plain port, signals, and the order of starting and stopping."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack

from gas.cluster.connection import ApiServer, connect
from gas.daemon.listening import listen
from gas.daemon.serving import PLAIN_KEEP_ALIVE, Port, serve, until_served
from gas.errors import GasError
from gas.plugin.assembly import Plugin
from gas.plugin.devices.cdi_file import remove_cdi_file
from gas.plugin.environment import Environment
from gas.plugin.flags import Flags
from gas.plugin.health import plain_app
from gas.plugin.metrics import Metrics
from gas.plugin.node.nfd_file import remove_feature_file
from gas.plugin.node.node_writer import clear_node
from gas.plugin.readiness import Readiness

logger = logging.getLogger(__name__)

FINISH = 2.0
"""Seconds for requests on the plain port that are in hand when the program is told to end."""


async def run_plugin(flags: Flags, environment: Environment, version: str) -> None:
    """Hand out cards until SIGTERM or SIGINT. Raises GasError for what stops it from starting.

    Then sockets and NFD file are gone, as nobody serves them; labels, annotation and resources stay on the node, and
    the CDI file, without which containers could not be started again.
    """
    metrics = Metrics(version)
    async with AsyncExitStack() as stack:
        plain_socket = stack.enter_context(listen(flags.metrics_address, flags.metrics_port, flag="metrics-port"))
        api: ApiServer | None = None
        if flags.resource_manager:
            api = await _connect(flags)
            stack.push_async_callback(api.close)
        plugin = Plugin(api, flags, environment, metrics)
        shutdown = _shutdown_on_signals(plugin.readiness)
        port = Port(
            app=plain_app(why_not_ready=plugin.readiness.why_not, registry=metrics.registry),
            socket=plain_socket,
            tls=None,
            keep_alive=PLAIN_KEEP_ALIVE,
        )
        logger.info(
            "gas-plugin %s hands out the cards of this node, with health and metrics on port %d",
            version,
            plain_socket.getsockname()[1],
            extra={"node": flags.node_name, "apiserver": api.url if api is not None else "none"},
        )
        background = [asyncio.create_task(plugin.run())]
        try:
            await until_served(serve([port], shutdown, graceful_timeout=FINISH), background)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
    logger.info("stopped")


async def uninstall(flags: Flags) -> tuple[GasError, ...]:
    """Take off the node what plugins wrote: labels, annotation, resources, NFD file, CDI file. Answers what failed.

    The file of NFD goes before what the node says, which NFD would write again.
    """
    failures: list[GasError] = []
    for remove, path in ((remove_feature_file, flags.nfd_file), (remove_cdi_file, flags.cdi_file)):
        try:
            remove(path)
        except GasError as error:
            failures.append(error)
    try:
        await _clear_node(flags)
    except GasError as error:
        failures.append(error)
    return tuple(failures)


async def _clear_node(flags: Flags) -> None:
    api = await _connect(flags)
    try:
        is_there = await clear_node(api, flags.node_name)
    finally:
        await api.close()
    if is_there:
        logger.info("node %s says nothing about cards any more", flags.node_name)
    else:
        logger.warning("there is no node %s, so there is nothing to take off it", flags.node_name)


async def _connect(flags: Flags) -> ApiServer:
    return await connect(flags.kube_config, explicit=flags.kube_config is not None, user_agent="gas-plugin")


def _shutdown_on_signals(readiness: Readiness) -> asyncio.Event:
    """An event that SIGTERM and SIGINT set; readiness says so at once."""
    shutdown = asyncio.Event()

    def stop(name: str) -> None:
        logger.info("%s: stopping", name)
        readiness.stopping = True
        shutdown.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    return shutdown
