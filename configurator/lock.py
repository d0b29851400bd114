"""One run at a time on a machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from configurator.errors import ConfiguratorError, FileTrouble


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory while the block runs; the kernel lets go of it when the process ends, however that is.

    The directory itself is locked, so that no file of a lock is left behind. Raises ConfiguratorError when another run
    holds it.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FileTrouble(directory, f"cannot be opened: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfiguratorError(
                f"another configurator is at work in {directory}; nothing was changed, run again when it is done"
            ) from None
        yield
    finally:
        os.close(descriptor)
