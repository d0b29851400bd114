"""A stream of chunks cut into lines."""

from __future__ import annotations

from gas.errors import GasError

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes. An object of Kubernetes has at most a few million; a line beyond this never ends."""


class EndlessLine(GasError):
    def __init__(self) -> None:
        super().__init__(f"expected lines of at most {LONGEST_LINE} bytes from the API server, found a longer one")


class LineSplitter:
    """Feed it chunks as they come; it gives the lines that are complete. Every byte is looked at once."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._pieces: list[bytes] = []
        self._length = 0
        self._longest = longest

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends; no empty ones. Raises EndlessLine."""
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._pieces, lines[0]))
            self._pieces, self._length = [], 0
        if rest:
            self._pieces.append(rest)
            self._length += len(rest)
            if self._length > self._longest:
                raise EndlessLine
        return [line for line in lines if line and not line.isspace()]
