"""Run the plugin as a process: plain port, signals, and the order of starting and stopping."""

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from gas.cluster.connection import ApiServer, connect
from gas.daemon.command import stop_on_signals
from gas.daemon.listening import listen
from gas.daemon.plain_port import plain_app
from gas.daemon.serving import PLAIN_KEEP_ALIVE, Port, serve_with
from gas.plugin.assembly import Plugin
from gas.plugin.flags import Environment, Flags
from gas.plugin.metrics import Metrics
from gas.plugin.node_writer import clear_node
from gas.plugin.part import Part
from gas.plugin.parts import PARTS
from gas.values.errors import GasError
from gas.vocabularies.combined import Vocabularies

logger = logging.getLogger(__name__)

FINISH = 2.0  # most seconds for requests in progress on the plain port when the program stops


async def run_plugin(
    flags: Flags,
    environment: Environment,
    version: str,
    *,
    parts: Sequence[Part[Any]] = PARTS,
) -> None:
    """Allocate cards until SIGTERM or SIGINT. Raises GasError if it cannot start.

    The sockets are removed at the end. Labels, annotation and resources stay on the node.
    """
    metrics = Metrics(version, [row for part in parts if part.runs_with(flags) for row in part.metrics])
    async with AsyncExitStack() as stack:
        plain_socket = stack.enter_context(listen(flags.metrics_address, flags.metrics_port, flag="metrics-port"))
        api: ApiServer | None = None
        if flags.resource_manager:
            api = await stack.enter_async_context(await connect(flags.kube_config, user_agent="gas-plugin"))
        plugin = Plugin(api, flags, environment, metrics, parts=parts)

        def stop(signal_name: str) -> None:
            logger.info("%s: stopping", signal_name)
            plugin.readiness.stopping = True

        stopping = stop_on_signals(stop)
        port = Port(
            app=plain_app(
                why_not_ready=plugin.readiness.why_not,
                why_not_healthy=lambda: plugin.scanner.needs_restart,
                registry=metrics.registry,
                documents=plugin.documents(parts),
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


async def uninstall(flags: Flags, parts: Sequence[Part[Any]] = PARTS) -> int:
    """Remove what plugins wrote on the node, log what cannot be removed, and return the exit code.

    The parts come before labels, annotation and resources, because NFD would write labels again.
    """
    failures: list[GasError] = []
    for part in parts:
        try:
            part.clean_up(flags)
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
    async with await connect(flags.kube_config, user_agent="gas-plugin") as api:
        kept = await clear_node(api, flags.node_name, Vocabularies(flags.vocabularies))
    if kept is None:
        logger.warning("node %s: not found in the cluster, so nothing was removed from it", flags.node_name)
        return
    rest = f"; kubelet keeps {' and '.join(kept)} in its capacity, after five minutes as 0" if kept else ""
    logger.info("node %s: removed the labels, the annotation and the resources of its cards%s", flags.node_name, rest)
