"""A TLS port in front of the sandbox's API server, which serves plain HTTP: a service account needs TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from sandbox.certificates import Authority


@asynccontextmanager
async def tls_before(url: str, directory: Path) -> AsyncIterator[int]:
    """Serve a port of 127.0.0.1 that forwards to the server at ``url``; write its authority to ``ca.crt``."""
    files = Authority(directory).server()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    behind = urlsplit(url)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(behind.hostname, behind.port)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    try:
        port: int = server.sockets[0].getsockname()[1]
        yield port
    finally:
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(2**16):
            writer.write(chunk)
            await writer.drain()
    writer.close()
