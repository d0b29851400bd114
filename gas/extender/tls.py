"""TLS for the extender's port: the serving pair, the clients' authorities, and their renewal meanwhile."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gas.errors import GasError
from gas.extender.certificate_dates import MalformedCertificate, end_dates
from gas.extender.client_names import CheckedConnection, NamedClients
from gas.extender.metrics import Metrics

logger = logging.getLogger(__name__)

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: forward secrecy and authenticated encryption only. TLS 1.3 has nothing else."""

ALPN = ("http/1.1",)
"""Go's client keeps only two idle HTTP/1.1 connections, so that one bind in three or four pays for a handshake; over
HTTP/2 every request would pay for frames and header tables in Python, which is as much with the usual questions and
more with large ones (docs/performance.md, HTTP)."""

LOOK_PERIOD = 5.0
"""Seconds between two looks at the certificate files."""

LARGEST_FILE = 1024 * 1024
"""Bytes; no PEM file of ours comes near."""


class BadCertificate(GasError):
    """A certificate, key or authority cannot be used; the sentence names the flag and the file."""

    def __init__(self, flag: str, file: Path, problem: str) -> None:
        super().__init__(f"--{flag} {file} {problem}")


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files: the certificate to serve with and its chain, its private key, the authorities of clients."""

    cert: Path
    key: Path
    cacert: Path

    def read(self) -> tuple[str, str, str]:
        """What is in them now, in the order of the fields. Raises BadCertificate."""
        return _read("cert", self.cert), _read("key", self.key), _read("cacert", self.cacert)


class LiveContext(ssl.SSLContext):
    """A server context whose every new connection gets the newest certificates.

    It is never used for a connection itself: ``current`` is, which may be another one each time. So an authority
    that was withdrawn is gone with the next connection; a context in use can only be given more of them.
    """

    current: ssl.SSLContext

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001 -- as in the class above
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return self.current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


class ServingCertificates:
    """The context to serve with, from files that are read at the start and again when they change.

    Raises BadCertificate when they cannot be used at the start. Later the ones in use stay until the new ones
    can be used; why they cannot is logged and counted once.

    context  to serve with
    """

    def __init__(
        self,
        files: CertificateFiles,
        metrics: Metrics,
        *,
        allowed_names: frozenset[str] = frozenset(),
        alpn: Sequence[str] = ALPN,
    ) -> None:
        self._files = files
        self._metrics = metrics
        self._allowed_names = allowed_names
        self._alpn = list(alpn)
        self._trouble = ""
        self._used = self._found = files.read()
        self.context = LiveContext(ssl.PROTOCOL_TLS_SERVER)
        self._take_over(self._found)

    def look(self) -> bool:
        """Take over files that changed. Answers whether others are in use now than before.

        Two looks in a row must find the same, since somebody may still be writing them at the first.
        """
        try:
            found = self._files.read()
            settled = found == self._found
            self._found = found
            if found == self._used:
                self._trouble = ""
                return False
            if not settled:
                return False
            self._take_over(found)
        except BadCertificate as bad:
            self._report(str(bad))
            return False
        self._trouble = ""
        self._metrics.certificate_reloads.labels("used").inc()
        logger.info("took over changed certificates", extra={"cert": self._files.cert})
        return True

    async def watch(self, period: float = LOOK_PERIOD) -> NoReturn:
        """Look every ``period`` seconds, until cancelled."""
        while True:
            await asyncio.sleep(period)
            self.look()

    def _take_over(self, contents: tuple[str, str, str]) -> None:
        cert, key, cacert = contents
        cert_end = _end("cert", self._files.cert, cert)
        cacert_end = _end("cacert", self._files.cacert, cacert)
        self.context.current = self._load(key)
        self._used = contents
        self._metrics.certificate_expiry.labels("cert").set(cert_end)
        self._metrics.certificate_expiry.labels("cacert").set(cacert_end)

    def _load(self, key: str) -> NamedClients:
        context = NamedClients(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.set_alpn_protocols(self._alpn)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # every one in --cacert is trusted, as Go does
        context.sslobject_class = CheckedConnection
        context.allowed = self._allowed_names
        context.on_refused = self._count_refused
        self._load_authorities(context)
        self._load_pair(context, key)
        return context

    def _load_authorities(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(self._files.cacert)
        except (ssl.SSLError, OSError) as error:
            raise BadCertificate("cacert", self._files.cacert, f"cannot be used: {_reason(error)}") from None

    def _load_pair(self, context: ssl.SSLContext, key: str) -> None:
        files = self._files
        if "ENCRYPTED" in key:
            raise BadCertificate("key", files.key, "is encrypted; expected a private key without a passphrase")
        try:
            context.load_cert_chain(files.cert, files.key, password="")
        except (ssl.SSLError, OSError) as error:
            reason = getattr(error, "reason", None)
            if reason == "KEY_VALUES_MISMATCH":
                problem = f"is not the private key of --cert {files.cert}"
                raise BadCertificate("key", files.key, problem) from None
            if "PRIVATE KEY-----" not in key:
                raise BadCertificate("key", files.key, "has no PEM private key in it") from None
            problem = f"cannot be used with --key {files.key}: {_reason(error)}"
            raise BadCertificate("cert", files.cert, problem) from None

    def _count_refused(self, reason: str) -> None:
        self._metrics.refused_clients.labels(reason).inc()

    def _report(self, trouble: str) -> None:
        if trouble == self._trouble:
            return
        self._trouble = trouble
        self._metrics.certificate_reloads.labels("failed").inc()
        logger.error("changed certificates cannot be used, those before stay in use: %s", trouble)


def _read(flag: str, file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(LARGEST_FILE).decode("utf-8", "replace")
    except OSError as error:
        raise BadCertificate(flag, file, f"cannot be read: {error.strerror}") from None


def _end(flag: str, file: Path, pem: str) -> float:
    """When the first of the certificates that have to hold ends: the serving one, or any authority."""
    try:
        ends = end_dates(pem)
    except MalformedCertificate as error:
        raise BadCertificate(flag, file, f"has {error}") from None
    return ends[0] if flag == "cert" else min(ends)


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is damaged").replace("_", " ").lower()
    return error.strerror or str(error)
