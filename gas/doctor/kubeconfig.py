"""Find the credentials that the flags name. Files are checked before they are read."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from gas.cluster.credentials import DEFAULT_KUBECONFIG, Credentials, find_credentials, is_in_a_cluster
from gas.cluster.errors import NoCluster
from gas.doctor.host_files import kind_of

LARGEST = 16 * 1024 * 1024
"""Bytes: enough for a kubeconfig with the certificates of thousands of clusters."""


@asynccontextmanager
async def credentials_of(file: str, context: str, environ: Mapping[str, str]) -> AsyncIterator[Credentials]:
    """Find the credentials of a kubeconfig, or of the usual places. They are valid inside the ``async with``.

    file     one or several, written as in $KUBECONFIG; empty for the usual places
    context  name of a context; empty for the current one

    Raises NoCluster.
    """
    if not (file or context) and is_in_a_cluster(environ):
        yield await find_credentials(None, explicit=False, environ=environ)
        return
    paths = file or environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    _check_files(paths)
    if not context:
        yield await find_credentials(paths, explicit=True, environ=environ)
        return
    # Of several files the last one that names a current context counts, so the context goes into a file of its own.
    with tempfile.TemporaryDirectory(prefix="gas-doctor-") as directory:
        overlay = Path(directory) / "context"
        content = {"apiVersion": "v1", "kind": "Config", "current-context": context}
        overlay.write_bytes(msgspec.json.encode(content))
        try:
            credentials = await find_credentials(f"{paths}{os.pathsep}{overlay}", explicit=True, environ=environ)
        except NoCluster as error:
            raise NoCluster(str(error).replace(f"{os.pathsep}{overlay}", f" with --context={context}")) from error
        yield credentials


def _check_files(paths: str) -> None:
    """Raise NoCluster if no file exists, or one is a pipe or a device, which cannot be read twice or never ends."""
    is_there = False
    for path in filter(None, paths.split(os.pathsep)):
        try:
            found = Path(path).expanduser().stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, RuntimeError) as error:  # RuntimeError: that user's home directory is unknown
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise NoCluster(f"kubeconfig {path}: cannot be read: {why}") from error
        if not stat.S_ISREG(found.st_mode):
            raise NoCluster(f"kubeconfig {path}: expected a file, found {kind_of(found.st_mode)}")
        if found.st_size > LARGEST:
            raise NoCluster(f"kubeconfig {path}: expected at most {LARGEST} bytes, found {found.st_size}")
        is_there = True
    if not is_there:
        raise NoCluster(f"kubeconfig {paths}: the file does not exist; name one with --kubeconfig or $KUBECONFIG")
