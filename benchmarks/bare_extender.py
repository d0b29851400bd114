"""The extender to compare with: the same server, TLS and decoding, but it answers every name and keeps no books.

Run as ``python -m benchmarks.bare_extender PORT CERT KEY CACERT``; it serves until SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from gas.daemon.listening import listen
from gas.daemon.serving import SCHEDULER_KEEP_ALIVE, Port, serve
from gas.extender.metrics import Metrics
from gas.extender.server import extender_app
from gas.extender.tls import CertificateFiles, ServingCertificates
from gas.extender.wire import decode_filter, encode_binding_result, encode_filter_result


async def answer_all(body: bytes) -> bytes:
    """Every node passes."""
    return encode_filter_result(node_names=decode_filter(body).node_names or [])


async def bind_nothing(_body: bytes) -> bytes:
    return encode_binding_result(error="the bare extender binds nothing")


async def run(port: int, files: CertificateFiles) -> None:
    metrics = Metrics("bare")
    app = extender_app(
        filter_nodes=answer_all, bind_pod=bind_nothing, metrics=metrics, max_body=64 * 2**20, body_timeout=10
    )
    shutdown = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, shutdown.set)
    with listen("127.0.0.1", port, flag="port") as socket:
        context = ServingCertificates(files, metrics).context
        await serve(
            [Port(app=app, socket=socket, tls=context, keep_alive=SCHEDULER_KEEP_ALIVE)], shutdown, graceful_timeout=1
        )


if __name__ == "__main__":
    own_port, *paths = sys.argv[1:]
    cert, key, cacert = map(Path, paths)
    asyncio.run(run(int(own_port), CertificateFiles(cert, key, cacert)))
