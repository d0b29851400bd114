"""A temporary directory in which unix sockets can be: the kernel takes only so much of a path."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from tempfile import TemporaryDirectory

from gas.errors import GasError
from gas.plugin.kubelet.plugin_socket import LONGEST_PATH

_PREFIX = "gas-sandbox-"
_RANDOM = 8
"""Characters that ``tempfile`` puts behind the prefix."""


class NoShortDirectory(GasError):
    """Nowhere to put the sockets."""

    def __init__(self, tried: list[Path], longest: int) -> None:
        super().__init__(
            f"the sandbox needs a directory for unix sockets whose path has at most {longest} bytes, and that it may "
            f"write to; tried {', '.join(map(str, tried))}. Let TMPDIR name one"
        )


def short_temporary_directory(longest_inside: str) -> TemporaryDirectory[str]:
    """A directory, to be used in ``with``: where temporary files belong, or elsewhere if that path is too long.

    longest_inside  the longest path of a socket in it, relative to it

    Raises NoShortDirectory.
    """
    longest = LONGEST_PATH - len(longest_inside) - len(_PREFIX) - _RANDOM - 2
    tried = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")]  # noqa: S108 -- where short
    for parent in tried:
        if len(os.fsencode(parent)) <= longest and os.access(parent, os.W_OK | os.X_OK):
            return TemporaryDirectory(prefix=_PREFIX, dir=parent)
    raise NoShortDirectory(tried, longest)
