"""The plugin as a process: plain port, signals, and the order of starting and stopping."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack

from gas.cluster.connection import ApiServer, connect
from gas.daemon.command import stop_on_signals
from gas.daemon.plain_port import plain_app
from gas.daemon.serving import PLAIN_KEEP_ALIVE, Port, listen, serve_with
from gas.plugin.assembly import Plugin, card_sources
from gas.plugin.cdi.cdi_file import remove_cdi_file
from gas.plugin.discovery.render_node import Query, memory_regions
from gas.plugin.environment import Environment
from gas.plugin.flags import Flags
from gas.plugin.limits.dmem import DMEM, Controller
from gas.plugin.limits.limit_files import clear_limits
from gas.plugin.limits.memory_limits import MemoryLimitsOf
from gas.plugin.metrics import Metrics
from gas.plugin.nfd.nfd_file import remove_feature_file
from gas.plugin.node.node_writer import clear_node
from gas.plugin.usage.usage_report import usage_json
from gas.values.errors import GasError
from gas.vocabularies.combined import Vocabularies

logger = logging.getLogger(__name__)

FINISH = 2.0
"""Most seconds for requests in progress on the plain port when the program is to stop."""


async def run_plugin(
    flags: Flags,
    environment: Environment,
    version: str,
    *,
    controller: Controller = DMEM,
    query: Query = memory_regions,
) -> None:
    """Allocate cards until SIGTERM or SIGINT. Raises GasError if it cannot start.

    controller  of cgroups, for memory limits
    query       asks a driver how much memory its card has

    At the end the sockets and the NFD file are removed, since nothing serves or updates them any more. Labels,
    annotation and resources stay on the node, and so does the CDI file, without which containers could not restart.
    """
    metrics = Metrics(version)
    async with AsyncExitStack() as stack:
        plain_socket = stack.enter_context(listen(flags.metrics_address, flags.metrics_port, flag="metrics-port"))
        api: ApiServer | None = None
        if flags.resource_manager:
            api = await _connect(flags)
            stack.push_async_callback(api.close)
        sources = card_sources(flags, environment, query=query)
        plugin = Plugin(api, flags, environment, metrics, sources, controller=controller)

        def stop(signal_name: str) -> None:
            logger.info("%s: stopping", signal_name)
            plugin.readiness.stopping = True

        stopping = stop_on_signals(stop)
        port = Port(
            app=plain_app(
                why_not_ready=plugin.readiness.why_not,
                registry=metrics.registry,
                documents={"/usage": lambda: usage_json(plugin.cluster.usage if plugin.cluster is not None else None)},
            ),
            socket=plain_socket,
            tls=None,
            keep_alive=PLAIN_KEEP_ALIVE,
        )
        logger.info(
            "gas-plugin %s allocates the cards of this node; health and metrics are on port %d",
            version,
            plain_socket.getsockname()[1],
            extra={"node": flags.node_name, "apiserver": api.url if api is not None else "none"},
        )
        await serve_with([port], stopping, graceful_timeout=FINISH, background=[plugin.run()])
    logger.info("stopped")


async def uninstall(flags: Flags) -> int:
    """Remove from the node what plugins wrote: labels, annotation, resources, NFD file, CDI file, limits.

    Log what cannot be removed, and return the exit code. The NFD file is removed first, because NFD would write the
    labels again.
    """
    failures: list[GasError] = []
    if flags.memory_limits is not MemoryLimitsOf.NONE:
        try:
            clear_limits(flags.prefix / "sys/fs/cgroup", DMEM)
        except GasError as error:
            failures.append(error)
    for remove, path in ((remove_feature_file, flags.nfd_file), (remove_cdi_file, flags.cdi_file)):
        try:
            remove(path)
        except GasError as error:
            failures.append(error)
    try:
        await _clear_node(flags)
    except GasError as error:
        failures.append(error)
    for failure in failures:
        logger.error("cannot uninstall completely: %s", failure)
    return failures[0].exit_code if failures else 0


async def _clear_node(flags: Flags) -> None:
    api = await _connect(flags)
    try:
        is_there = await clear_node(api, flags.node_name, Vocabularies(flags.vocabularies))
    finally:
        await api.close()
    if is_there:
        logger.info("node %s: removed the labels, the annotation and the resources of its cards", flags.node_name)
    else:
        logger.warning("node %s: not found in the cluster, so nothing was removed from it", flags.node_name)


async def _connect(flags: Flags) -> ApiServer:
    return await connect(flags.kube_config, explicit=flags.kube_config is not None, user_agent="gas-plugin")
