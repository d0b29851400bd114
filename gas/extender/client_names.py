"""Which clients may call: their certificate says who they are, and is looked at right after the handshake."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from gas.extender.whole_answers import WholeAnswers

logger = logging.getLogger(__name__)


class NamedClients(ssl.SSLContext):
    """A context that also looks at the names of the clients whose certificates it has verified.

    The check ends the handshake of every connection, before one byte of a request is read, for every version of
    TLS. Nothing can be resumed past it: a resumed session still carries the certificate it began with.
    """

    allowed: frozenset[str] = frozenset()
    """Common names and DNS names that may call; empty is every client that can be verified."""

    on_refused: Callable[[str], None] = staticmethod(lambda _reason: None)
    """Called with a short reason, ``no-certificate``, ``unverified``, ``name`` or ``handshake``."""


class CheckedConnection(WholeAnswers):
    """One connection of a `NamedClients` context."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._turn_away(error)
            raise
        self._check_names()

    def unwrap(self) -> None:
        """Say that nothing follows, without waiting for the client to say so too.

        RFC 8446, 6.1 allows it. A client that never answers would hold the connection, and our own end, for 30 s.
        """
        with contextlib.suppress(ssl.SSLWantReadError):
            super().unwrap()

    def _turn_away(self, error: ssl.SSLError) -> None:
        context = self.context
        if not isinstance(context, NamedClients):
            return
        if isinstance(error, ssl.SSLCertVerificationError):
            context.on_refused("unverified")
            logger.warning("refused a client: its certificate cannot be verified: %s", error.verify_message)
        elif error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            context.on_refused("no-certificate")
            logger.warning("refused a client: it has no certificate")
        else:
            context.on_refused("handshake")
            logger.debug("a TLS handshake failed: %s", error)

    def _check_names(self) -> None:
        context = self.context
        if not isinstance(context, NamedClients) or not context.allowed:
            return
        names = certificate_names(self.getpeercert() or {})
        if context.allowed.isdisjoint(names):
            context.on_refused("name")
            logger.warning(
                "refused a client: none of its certificate's names is in --allowed-names",
                extra={"names": ",".join(names) or "none"},
            )
            raise ssl.SSLError("none of the client's names may call")  # what makes the transport close


def certificate_names(certificate: Mapping[str, Any]) -> list[str]:
    """Common names and DNS alternative names of what ``getpeercert()`` answers, without doubles."""
    common = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    alternative = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    return list(dict.fromkeys([*common, *alternative]))
