"""Manage the unix socket of one resource in kubelet's directory, and tell it from others of the same name."""

import asyncio
import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from grpc import aio

from gas.values.errors import GasError

LONGEST_PATH = 107  # bytes that the kernel allows for the path of a unix socket

_TOO_LONG = f"its directory's path is too long for unix sockets ({LONGEST_PATH} bytes)"


class CannotServeKubelet(GasError):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot listen at {path}: {reason}")


class FileIdentity(NamedTuple):
    """The identity of one file at any path. The time is part of it, since file systems reuse inode numbers at once."""

    device: int
    inode: int
    modified_ns: int


def file_identity(path: Path) -> FileIdentity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return FileIdentity(found.st_dev, found.st_ino, found.st_mtime_ns)


async def is_served(path: Path) -> bool:
    """Return whether a process listens at this path. A killed process leaves its socket behind."""
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_unix_connection(path)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


@dataclass(slots=True)
class PluginSocket:
    path: Path  # the name by which the plugins of a resource find each other
    identity: FileIdentity  # of the file at ``path`` when the socket was made
    endpoint: Path | None = None  # the name of the current registration with kubelet; None before the first

    @classmethod
    async def listen(cls, server: aio.Server, path: Path) -> Self:
        """Start the server at this path, replacing any file there. Raises CannotServeKubelet.

        The socket is bound under another name and then renamed: when a gRPC server ends, it removes the file at the
        path that it was bound to, which may by then be the socket of its successor.
        """
        bound = path.with_name(f".{secrets.token_hex(4)}")
        refusal = _bind(server, bound)
        # Started even if it cannot serve: with its debug log on, gRPC crashes when a server is deleted that was never
        # started and stopped.
        await server.start()
        try:
            if refusal is not None:
                raise CannotServeKubelet(path, refusal)
            await _remove_leftover_endpoints(path)
            bound.rename(path)
            if (identity := file_identity(path)) is None:
                raise CannotServeKubelet(path, "the socket was removed right after it was created")
        except OSError as error:
            await server.stop(None)
            raise CannotServeKubelet(path, error.strerror or str(error)) from error
        except CannotServeKubelet:
            await server.stop(None)
            raise
        return cls(path, identity)

    def is_there(self) -> bool:
        """Return whether the socket is still at its path. Only valid while the server listens."""
        return file_identity(self.path) == self.identity

    def is_replaced(self) -> bool:
        """Return whether another socket is at the path instead. Only valid while the server listens."""
        return file_identity(self.path) is not None and not self.is_there()

    def new_endpoint(self) -> Path:
        """Replace the socket's previous endpoint by a new name, and return it. Raises CannotServeKubelet.

        Each registration needs a name that kubelet has not seen: kubelet 1.37 refuses the name of a plugin that it
        still considers connected, and never forgets that plugin afterwards.
        """
        self._remove_endpoint()
        endpoint = self.path.with_name(f"{self.path.stem}-{secrets.token_hex(4)}{self.path.suffix}")
        if len(os.fsencode(endpoint)) > LONGEST_PATH:
            raise CannotServeKubelet(endpoint, _TOO_LONG)
        try:
            endpoint.hardlink_to(self.path)
        except OSError as error:
            raise CannotServeKubelet(endpoint, error.strerror or str(error)) from error
        self.endpoint = endpoint
        return endpoint

    def remove(self) -> None:
        """Remove all names of the socket. A socket of another plugin at its path stays."""
        self._remove_endpoint()
        if self.is_there():
            with suppress(OSError):
                self.path.unlink()

    def _remove_endpoint(self) -> None:
        if self.endpoint is not None and file_identity(self.endpoint) == self.identity:
            with suppress(OSError):
                self.endpoint.unlink()
        self.endpoint = None


async def is_served_by_another_system(path: Path) -> bool:
    """Return whether a process serves at this path that has no endpoint, as every plugin of gas has."""
    if not await is_served(path):
        return False
    identity = file_identity(path)
    return all(file_identity(endpoint) != identity for endpoint in _endpoints(path))


def _endpoints(path: Path) -> Iterator[Path]:
    return path.parent.glob(f"{glob.escape(path.stem)}-*{path.suffix}")


async def _remove_leftover_endpoints(path: Path) -> None:
    """Remove the endpoints that killed plugins of the same resource left behind."""
    for endpoint in _endpoints(path):
        if not await is_served(endpoint):
            with suppress(OSError):
                endpoint.unlink()


def _bind(server: aio.Server, path: Path) -> str | None:
    """Let the server listen at this path once it starts. Return why it cannot, else None."""
    if len(os.fsencode(path)) > LONGEST_PATH:
        return _TOO_LONG
    if not path.parent.is_dir():
        return f"{path.parent} is not a directory; does kubelet have its plugins elsewhere?"
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        return str(error)
    return None
