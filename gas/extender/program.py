"""The extender as a process: sockets, certificates, signals, and the order of starting and stopping."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack

from gas.cluster.connection import connect
from gas.daemon.listening import listen
from gas.daemon.serving import PLAIN_KEEP_ALIVE, SCHEDULER_KEEP_ALIVE, Port, serve, until_served
from gas.extender.assembly import Extender
from gas.extender.card_books import card_books
from gas.extender.debug import books_json, refusals_json
from gas.extender.flags import Flags
from gas.extender.health import plain_app
from gas.extender.metrics import Metrics
from gas.extender.readiness import Readiness
from gas.extender.server import extender_app
from gas.extender.tls import CertificateFiles, ServingCertificates

logger = logging.getLogger(__name__)

BODY_TIMEOUT = 10.0
"""Seconds for the body of a request: a scheduler sends it at once."""


async def run_extender(flags: Flags, version: str) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is in hand. Raises GasError for what stops it from starting."""
    metrics = Metrics(version)
    certificates = ServingCertificates(
        CertificateFiles(flags.cert, flags.key, flags.cacert), metrics, allowed_names=flags.allowed_names
    )
    async with AsyncExitStack() as stack:
        scheduler_socket = stack.enter_context(listen(flags.bind_address, flags.port, flag="port"))
        plain_socket = stack.enter_context(listen(flags.metrics_address, flags.metrics_port, flag="metrics-port"))
        api = await connect(flags.kube_config, explicit=flags.kube_config is not None, qps=flags.qps, burst=flags.burst)
        stack.push_async_callback(api.close)
        extender = Extender(api, flags, metrics)
        shutdown = _shutdown_on_signals(extender.readiness)
        ports = [
            Port(
                app=extender_app(
                    filter_nodes=extender.filter,
                    bind_pod=extender.binder,
                    metrics=metrics,
                    max_body=flags.max_request_bytes,
                    body_timeout=BODY_TIMEOUT,
                ),
                socket=scheduler_socket,
                tls=certificates.context,
                keep_alive=SCHEDULER_KEEP_ALIVE,
            ),
            Port(
                app=plain_app(
                    why_not_ready=extender.readiness.why_not_serving,
                    registry=metrics.registry,
                    cards=lambda: card_books(extender.nodes, extender.ledger),
                    books=lambda: books_json(extender.nodes, extender.pods, extender.ledger),
                    refusals=lambda: refusals_json(extender.refusals),
                ),
                socket=plain_socket,
                tls=None,
                keep_alive=PLAIN_KEEP_ALIVE,
            ),
        ]
        logger.info(
            "gas-extender %s serves the scheduler on port %d and health, metrics and books on port %d",
            version,
            scheduler_socket.getsockname()[1],
            plain_socket.getsockname()[1],
            extra={"apiserver": api.url},
        )
        background = [asyncio.create_task(extender.run()), asyncio.create_task(certificates.watch())]
        try:
            await until_served(serve(ports, shutdown, graceful_timeout=flags.shutdown_timeout), background)
            await extender.finish(flags.shutdown_timeout)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
    logger.info("stopped")


def _shutdown_on_signals(readiness: Readiness) -> asyncio.Event:
    """An event that SIGTERM and SIGINT set; readiness says so at once, so that a Service sends nothing more."""
    shutdown = asyncio.Event()

    def stop(name: str) -> None:
        logger.info("%s: finishing what is in hand", name)
        readiness.stopping = True
        shutdown.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    return shutdown
