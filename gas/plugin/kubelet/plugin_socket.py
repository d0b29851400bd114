"""The unix socket of one resource in kubelet's directory, and how to tell it from another one of the same name."""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from grpc import aio

from gas.errors import GasError

LONGEST_PATH = 107
"""Bytes that the kernel allows for the path of a unix socket."""


class CannotListen(GasError):
    """The socket could not be made."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot listen at {path}: {reason}")


class SocketIdentity(NamedTuple):
    """Which file it is that lies at a path. File systems use numbers of inodes again at once, hence the time."""

    device: int
    inode: int
    changed_ns: int


def socket_identity(path: Path) -> SocketIdentity | None:
    """What lies at this path now; None when nothing does."""
    try:
        found = path.stat()
    except OSError:
        return None
    return SocketIdentity(found.st_dev, found.st_ino, found.st_ctime_ns)


async def is_served(path: Path) -> bool:
    """Whether somebody listens at this path. A process that was killed leaves its socket behind."""
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_unix_connection(path)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


@dataclass(frozen=True, slots=True)
class PluginSocket:
    """A socket of ours that was at ``path`` when it was made."""

    path: Path
    identity: SocketIdentity

    @classmethod
    async def listen(cls, server: aio.Server, path: Path) -> Self:
        """Start the server at this path, in the place of whatever lies there. Raises CannotListen.

        It is bound under another name in the same directory and then moved: when a gRPC server ends it removes
        what lies at the path that it was bound to, which may by then be the socket of its successor.
        """
        bound = path.with_name(f".{secrets.token_hex(4)}")
        refusal = _bind(server, bound)
        # Even when there is nothing to serve: gRPC's Python crashes, when its debug log is on, with a server that goes
        # away without ever having been started and stopped.
        await server.start()
        try:
            if refusal is not None:
                raise CannotListen(path, refusal)
            bound.rename(path)
            if (identity := socket_identity(path)) is None:
                raise CannotListen(path, "the socket was removed as soon as it was there")
        except OSError as error:
            await server.stop(None)
            raise CannotListen(path, error.strerror or str(error)) from error
        except CannotListen:
            await server.stop(None)
            raise
        return cls(path, identity)

    def is_there(self) -> bool:
        """Whether this very socket still lies at its path."""
        return socket_identity(self.path) == self.identity

    def is_replaced(self) -> bool:
        """Whether another socket lies there instead."""
        return socket_identity(self.path) not in (None, self.identity)

    def remove(self) -> None:
        """Take it away, unless another one lies there."""
        if self.is_there():
            with suppress(OSError):
                self.path.unlink()


def _bind(server: aio.Server, path: Path) -> str | None:
    """Let the server listen at this path once it starts. The reason why it cannot, if so."""
    if len(os.fsencode(path)) > LONGEST_PATH:
        return f"its directory's path is too long for unix sockets ({LONGEST_PATH} bytes)"
    if not path.parent.is_dir():
        return f"{path.parent} is no directory; is it where kubelet has its plugins?"
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        return str(error)
    return None
