"""An answer leaves in one piece: its head and its body in one record of TLS and one packet."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_OK = b"HTTP/1.1 200 "
_END_OF_HEAD = b"\r\n\r\n"
_NO_BODY = b"content-length: 0\r\n"


class WholeAnswers(ssl.SSLObject):
    """The server's side of a connection.

    Hypercorn writes an answer's head, then its body. Each packet wakes the client, which on a busy machine runs in
    our place, only to find that it has to wait for the rest. So the head is kept until the body comes, which is at
    once. Heads without a body to come are written at once, and so are those of other answers, which may have none.
    """

    _head = b""

    def write(self, data: ReadableBuffer) -> int:
        piece = bytes(data)
        is_head = not self._head and piece.startswith(_OK) and piece.endswith(_END_OF_HEAD)
        if is_head and _NO_BODY not in piece.lower():
            self._head = piece
            return len(piece)
        written = super().write(self._head + piece)  # if this raises, the piece comes again
        head, self._head = self._head, b""
        return written - len(head)
