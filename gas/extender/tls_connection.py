"""A TLS connection of the scheduler: which clients may call, and responses that leave in one packet."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from gas.daemon.logs import LimitedLog

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

logger = logging.getLogger(__name__)

_OK = b"HTTP/1.1 200 "
_END_OF_HEAD = b"\r\n\r\n"
_NO_BODY = b"content-length: 0\r\n"


class CheckingContext(ssl.SSLContext):
    """A server context whose connections also check the names of clients that TLS has verified.

    Use it with `ClientCheck`.

    allowed     common names and DNS names that may call; if empty, every client with a verified certificate may
    flag        that lists these names, for the log
    on_refused  is called with a short reason: ``no-certificate``, ``unverified``, ``name`` or ``handshake``
    log         for refused clients
    """

    def __new__(cls, *, allowed: frozenset[str], flag: str, on_refused: Callable[[str], None]) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, *, allowed: frozenset[str], flag: str, on_refused: Callable[[str], None]) -> None:
        self.allowed = allowed
        self.flag = flag
        self.on_refused = on_refused
        self.log = LimitedLog(logger)


class ClientCheck(ssl.SSLObject):
    """The server's end of a connection that checks the client's names when the handshake ends.

    That is before one byte of a request is read, for every version of TLS. Nothing can be resumed past the check: a
    resumed session still carries the certificate that it began with.
    """

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._report_failure(error)
            raise
        self._check_names()

    def unwrap(self) -> None:
        """Announce the end of what is sent, without waiting for the client to announce its own.

        RFC 8446, 6.1 allows it. A client that never does would keep the connection, and the end of the program, for
        30 s.
        """
        with contextlib.suppress(ssl.SSLWantReadError):
            super().unwrap()

    def _report_failure(self, error: ssl.SSLError) -> None:
        context = self.context
        if not isinstance(context, CheckingContext):
            return
        if isinstance(error, ssl.SSLCertVerificationError):
            context.on_refused("unverified")
            sentence = "refused a client: its certificate cannot be verified: %s"
            context.log.log(logging.WARNING, sentence, error.verify_message)
        elif error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            context.on_refused("no-certificate")
            context.log.log(logging.WARNING, "refused a client: it has no certificate")
        else:
            context.on_refused("handshake")
            logger.debug("a TLS handshake failed: %s", error)

    def _check_names(self) -> None:
        context = self.context
        if not isinstance(context, CheckingContext) or not context.allowed:
            return
        names = certificate_names(self.getpeercert() or {})
        if context.allowed.isdisjoint(names):
            context.on_refused("name")
            context.log.log(
                logging.WARNING,
                "refused a client: none of its certificate's names is in --%s",
                context.flag,
                extra={"names": ",".join(names) or "none"},
            )
            raise ssl.SSLError("none of the client's names may call")  # makes the transport close


class CoalescedWrites(ssl.SSLObject):
    """The server's end of a connection that sends a response's head and body in one TLS record and one packet.

    Hypercorn writes the head, then the body. Each packet wakes the client, which on a busy machine runs in our place,
    only to find that it has to wait for the rest. So the head is kept until the body comes, which is at once. Heads
    without a body are written at once, and so are those of other statuses, which may have none.
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


class SchedulerConnection(ClientCheck, CoalescedWrites):
    """The server's end of a connection of the scheduler."""


def certificate_names(certificate: Mapping[str, Any]) -> list[str]:
    """Return the common names and DNS alternative names in the result of ``getpeercert()``, each once."""
    common = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    alternative = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    return list(dict.fromkeys([*common, *alternative]))
