"""Load and renew the certificates of the extender's TLS ports, their own and those of the clients' authorities."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cryptography import x509

from gas.daemon.logs import LimitedLog
from gas.extender.metrics import Metrics
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: forward secrecy and authenticated encryption only. TLS 1.3 has nothing else."""

ALPN = ["http/1.1"]
"""Go keeps two idle connections, so one bind in three or four needs a handshake. Over HTTP/2 every request would pay
for frames and header tables in Python."""

CHECK_PERIOD = 5.0  # seconds between two checks of the certificate files
LARGEST_FILE = 1024 * 1024  # bytes read of a PEM file; real ones are far smaller


class BadCertificate(GasError):
    """A certificate, key or authority cannot be used; the sentence names the flag and the file."""

    def __init__(self, flag: str, file: Path, problem: str) -> None:
        super().__init__(f"--{flag} {file} {problem}")


@dataclass(frozen=True, slots=True)
class CertificateFlags:
    """The flags that name the files of a port and the clients that may call it; by default the scheduler's port."""

    cert: str = "cert"
    key: str = "key"
    cacert: str = "cacert"
    names: str = "allowed-names"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files: the certificate to serve with and its chain, its private key, the authorities of clients."""

    cert: Path
    key: Path
    cacert: Path | None  # None if clients need no certificate
    flags: CertificateFlags = CertificateFlags()
    # returns that of ``cacert``, if it is not the content of a file; ``cacert`` names its origin
    content: Callable[[], str] | None = None

    def read(self) -> tuple[str, str, str]:
        """Return the contents in the order of the fields, empty where there is no file. Raises BadCertificate."""
        flags = self.flags
        cert, key = _read(flags.cert, self.cert), _read(flags.key, self.key)
        if self.cacert is None:
            return cert, key, ""
        return cert, key, self.content() if self.content is not None else _read(flags.cacert, self.cacert)


class ServingCertificates:
    """The server's side of TLS, from files that are read at the start and again when they change.

    Raises BadCertificate if the files cannot be used at the start. Later, the certificates in use stay until the new
    ones can be used; the reason why they cannot is logged and counted once.

    context  for the next connection. Each set of files has its own, because authorities can only be added to a context:
             one that was withdrawn is gone with the next connection
    """

    def __init__(
        self,
        files: CertificateFiles,
        metrics: Metrics,
        *,
        allowed_names: frozenset[str] = frozenset(),
    ) -> None:
        self._files = files
        self._metrics = metrics
        self._allowed_names = allowed_names
        self._log = LimitedLog(logger)
        self._problem = ""
        self._used = self._found = files.read()
        self.context = self._checked(self._found)

    def admits(self, certificate: Mapping[str, Any]) -> bool:
        """Return whether one of the names in a verified certificate is allowed; every one is if none are listed."""
        names = certificate_names(certificate)
        if not self._allowed_names or not self._allowed_names.isdisjoint(names):
            return True
        self._metrics.refused_clients.labels("name").inc()
        self._log.log(
            logging.WARNING,
            "refused a client: none of its certificate's names is in --%s",
            self._files.flags.names,
            extra={"names": ",".join(names) or "none"},
        )
        return False

    def handshake_failed(self, error: ssl.SSLError) -> None:
        """Count a client that was refused, or did no handshake."""
        if isinstance(error, ssl.SSLCertVerificationError):
            reason, sentence = "unverified", "refused a client: its certificate cannot be verified: %s"
            self._log.log(logging.WARNING, sentence, error.verify_message)
        elif error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            reason = "no-certificate"
            self._log.log(logging.WARNING, "refused a client: it has no certificate")
        else:
            reason = "handshake"
            logger.debug("a TLS handshake failed: %s", error)
        self._metrics.refused_clients.labels(reason).inc()

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
            self.context = self._checked(found)
        except BadCertificate as bad:
            self._report(str(bad))
            return False
        self._used = found
        self._problem = ""
        self._metrics.certificate_reloads.labels("used").inc()
        logger.info("serving with changed certificates", extra={"cert": self._files.cert})
        return True

    async def watch(self, period: float = CHECK_PERIOD) -> NoReturn:
        while True:
            await asyncio.sleep(period)
            self.reload()

    def _checked(self, contents: tuple[str, str, str]) -> ssl.SSLContext:
        """Return a context with the present files, and update the metric of their expiry. Raises BadCertificate."""
        cert, key, cacert = contents
        files, flags = self._files, self._files.flags
        ends = {flags.cert: _end_dates(flags.cert, files.cert, cert)[0]}
        if files.cacert is not None:
            ends[flags.cacert] = min(_end_dates(flags.cacert, files.cacert, cacert))
        context = self._load(key, cacert)
        for flag, end in ends.items():
            self._metrics.certificate_expiry.labels(flag).set(end)
        return context

    def _load(self, key: str, cacert: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.set_alpn_protocols(ALPN)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        context.num_tickets = 0
        if self._files.cacert is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # every one of the file is trusted, as Go does
            try:
                context.load_verify_locations(cadata=cacert.encode("ascii", "replace").decode())
            except (ssl.SSLError, OSError) as error:
                problem = f"cannot be used: {_reason(error)}"
                raise BadCertificate(self._files.flags.cacert, self._files.cacert, problem) from None
        self._load_pair(context, key)
        return context

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
    """Return when each certificate of a file expires, in seconds since the epoch. Raises BadCertificate."""
    if "-----BEGIN CERTIFICATE-----" not in pem:
        raise BadCertificate(flag, file, "has no PEM certificate in it")
    try:
        found = x509.load_pem_x509_certificates(pem.encode())
        return [each.not_valid_after_utc.timestamp() for each in found]
    except ValueError as error:
        raise BadCertificate(flag, file, f"has a damaged certificate in it ({error})") from None


def certificate_names(certificate: Mapping[str, Any]) -> list[str]:
    """Return the common names and DNS alternative names in the result of ``getpeercert()``, each once."""
    common = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    alternative = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    return list(dict.fromkeys([*common, *alternative]))


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is damaged").replace("_", " ").lower()
    return error.strerror or str(error)
