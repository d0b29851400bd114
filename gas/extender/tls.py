"""Certificates of the extender's TLS ports: their own, those of the clients' authorities, and their renewal."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, Self

from gas.extender.metrics import Metrics
from gas.extender.tls_connection import CheckingContext, SchedulerConnection
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: forward secrecy and authenticated encryption only. TLS 1.3 has nothing else."""

ALPN = ("http/1.1",)
"""Go's client keeps only two idle HTTP/1.1 connections, so one bind in three or four needs a handshake. Over HTTP/2
every request would pay for frames and header tables in Python: as much for usual requests, more for large ones
(docs/performance.md, HTTP)."""

CHECK_PERIOD = 5.0
"""Seconds between two checks of the certificate files."""

LARGEST_FILE = 1024 * 1024
"""Bytes read of a PEM file; real ones are far smaller."""

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE = 0x30
_EXPLICIT_VERSION = 0xA0
_UTC_TIME = 0x17
_GENERALIZED_TIME = 0x18


class BadCertificate(GasError):
    """A certificate, key or authority cannot be used; the sentence names the flag and the file."""

    def __init__(self, flag: str, file: Path, problem: str) -> None:
        super().__init__(f"--{flag} {file} {problem}")


@dataclass(frozen=True, slots=True)
class CertificateFlags:
    """The flags that name the files of a port and the clients that may call it, for messages and metrics."""

    cert: str = "cert"
    key: str = "key"
    cacert: str = "cacert"
    names: str = "allowed-names"


SCHEDULER_FLAGS = CertificateFlags()
"""The flags of the scheduler's port."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files: the certificate to serve with and its chain, its private key, the authorities of clients.

    cacert  None if clients need no certificate
    flags   that name these files
    """

    cert: Path
    key: Path
    cacert: Path | None
    flags: CertificateFlags = SCHEDULER_FLAGS

    def read(self) -> tuple[str, str, str]:
        """Return the present contents, in the order of the fields; of no file the empty text. Raises BadCertificate."""
        flags = self.flags
        cert, key = _read(flags.cert, self.cert), _read(flags.key, self.key)
        return cert, key, "" if self.cacert is None else _read(flags.cacert, self.cacert)


class LiveContext(ssl.SSLContext):
    """A server context whose every new connection gets the newest certificates.

    It is never used for a connection itself; another context is, which `use` may replace at any time. So an authority
    that was withdrawn is gone with the next connection; to a context in use, authorities can only be added.
    """

    def __new__(cls, current: ssl.SSLContext) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, current: ssl.SSLContext) -> None:
        self._current = current

    @property
    def current(self) -> ssl.SSLContext:
        """The context that new connections are made with."""
        return self._current

    def use(self, current: ssl.SSLContext) -> None:
        """Make new connections with this context from now on."""
        self._current = current

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001 -- as in the class above
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return self._current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


class ServingCertificates:
    """The context to serve with, from files that are read at the start and again when they change.

    Raises BadCertificate if the files cannot be used at the start. Later, the certificates in use stay until the new
    ones can be used; the reason why they cannot is logged and counted once.

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
        self._problem = ""
        self._used = self._found = files.read()
        self.context = LiveContext(self._checked(self._found))

    def reload(self) -> bool:
        """Use files that changed. Return whether other certificates are in use now than before.

        Two calls in a row must find the same contents, since the files may still be being written at the first.
        """
        try:
            found = self._files.read()
            settled = found == self._found
            self._found = found
            if found == self._used:
                self._problem = ""
                return False
            if not settled:
                return False
            self.context.use(self._checked(found))
        except BadCertificate as bad:
            self._report(str(bad))
            return False
        self._used = found
        self._problem = ""
        self._metrics.certificate_reloads.labels("used").inc()
        logger.info("serving with changed certificates", extra={"cert": self._files.cert})
        return True

    async def watch(self, period: float = CHECK_PERIOD) -> NoReturn:
        """Check the files every ``period`` seconds, until cancelled."""
        while True:
            await asyncio.sleep(period)
            self.reload()

    def _checked(self, contents: tuple[str, str, str]) -> CheckingContext:
        """Return a context with the present files, and show when they end. Raises BadCertificate."""
        cert, key, cacert = contents
        files, flags = self._files, self._files.flags
        ends = {flags.cert: _end_dates(flags.cert, files.cert, cert)[0]}
        if files.cacert is not None:
            ends[flags.cacert] = min(_end_dates(flags.cacert, files.cacert, cacert))
        context = self._load(key)
        for flag, end in ends.items():
            self._metrics.certificate_expiry.labels(flag).set(end)
        return context

    def _load(self, key: str) -> CheckingContext:
        context = CheckingContext(
            allowed=self._allowed_names, flag=self._files.flags.names, on_refused=self._count_refused
        )
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.set_alpn_protocols(self._alpn)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.sslobject_class = SchedulerConnection
        if self._files.cacert is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # every one of the file is trusted, as Go does
            self._load_authorities(context, self._files.cacert)
        self._load_pair(context, key)
        return context

    def _load_authorities(self, context: ssl.SSLContext, cacert: Path) -> None:
        try:
            context.load_verify_locations(cacert)
        except (ssl.SSLError, OSError) as error:
            raise BadCertificate(self._files.flags.cacert, cacert, f"cannot be used: {_reason(error)}") from None

    def _load_pair(self, context: ssl.SSLContext, key: str) -> None:
        files, flags = self._files, self._files.flags
        if "ENCRYPTED" in key:
            raise BadCertificate(flags.key, files.key, "is encrypted; expected a private key without a passphrase")
        try:
            context.load_cert_chain(files.cert, files.key, password="")
        except (ssl.SSLError, OSError) as error:
            reason = getattr(error, "reason", None)
            if reason == "KEY_VALUES_MISMATCH":
                problem = f"is not the private key of --{flags.cert} {files.cert}"
                raise BadCertificate(flags.key, files.key, problem) from None
            if "PRIVATE KEY-----" not in key:
                raise BadCertificate(flags.key, files.key, "has no PEM private key in it") from None
            problem = f"cannot be used with --{flags.key} {files.key}: {_reason(error)}"
            raise BadCertificate(flags.cert, files.cert, problem) from None

    def _count_refused(self, reason: str) -> None:
        self._metrics.refused_clients.labels(reason).inc()

    def _report(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        self._metrics.certificate_reloads.labels("failed").inc()
        logger.error("changed certificates cannot be used, the previous ones stay in use: %s", problem)


def _read(flag: str, file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(LARGEST_FILE).decode("utf-8", "replace")
    except OSError as error:
        raise BadCertificate(flag, file, f"cannot be read: {error.strerror}") from None


def _end_dates(flag: str, file: Path, pem: str) -> list[float]:
    """Return when each certificate of a file ends, in seconds since the epoch. Raises BadCertificate."""
    try:
        return end_dates(pem)
    except MalformedCertificate as error:
        raise BadCertificate(flag, file, f"has {error}") from None


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is damaged").replace("_", " ").lower()
    return error.strerror or str(error)


class MalformedCertificate(ValueError):
    """The text contains no certificate, or one whose dates cannot be found."""


def end_dates(pem: str) -> list[float]:
    """Return when each certificate in a PEM text ends, in seconds since the epoch, in the order of the text.

    The ssl module does not expose the dates of the server's own certificates. Raises MalformedCertificate if there is
    no certificate or one of them is damaged.
    """
    blocks = _PEM.findall(pem)
    if not blocks:
        raise MalformedCertificate("no PEM certificate in it")
    try:
        return [_end_date(base64.b64decode("".join(block.split()), validate=True)) for block in blocks]
    except (binascii.Error, IndexError, ValueError) as error:
        raise MalformedCertificate(f"a damaged certificate in it ({error})") from None


def _end_date(der: bytes) -> float:
    """Return the second date of Validity, which comes after version, serial, signature and issuer (RFC 5280, 4.1)."""
    _, certificate = _element(der, 0, _SEQUENCE)
    _, body = _element(certificate, 0, _SEQUENCE)
    at = 0
    if body[0] == _EXPLICIT_VERSION:
        at, _ = _element(body, at)
    for _member in ("serial number", "signature", "issuer"):
        at, _ = _element(body, at)
    _, validity = _element(body, at, _SEQUENCE)
    at, _ = _element(validity, 0)
    kind = validity[at]
    _, end = _element(validity, at)
    text = end.decode("ascii")
    if kind == _UTC_TIME:
        text = ("19" if text >= "50" else "20") + text
    elif kind != _GENERALIZED_TIME:
        raise ValueError("no date where one should be")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _element(data: bytes, at: int, expected: int | None = None) -> tuple[int, bytes]:
    """Return where the element after the one at ``at`` begins, and the content of the one at ``at`` (DER)."""
    if expected is not None and data[at] != expected:
        raise ValueError("not the structure of a certificate")
    length = data[at + 1]
    start = at + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    end = start + length
    if end > len(data):
        raise ValueError("it ends too early")
    return end, data[start:end]
