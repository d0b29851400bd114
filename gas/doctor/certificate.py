"""What a certificate says of itself, as far as kube-scheduler and extender care."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from types import ModuleType
from typing import Any

from gas.errors import GasError


class NoCertificateReader(GasError):
    """The library that reads certificates is not installed."""

    def __init__(self) -> None:
        super().__init__("looking at certificates needs cryptography, which is not installed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One certificate.

    alternatives    DNS names and IP addresses that it is for
    is_authority    whether it may sign others
    is_for_clients  whether a client may show it
    public_key      DER
    """

    subject: str
    issuer: str
    begin: datetime
    end: datetime
    alternatives: tuple[str, ...]
    is_authority: bool
    is_for_clients: bool
    public_key: bytes

    def is_for(self, host: str) -> bool:
        """Whether it is for a host name or address; ``*`` stands for one label, as in Go."""
        try:
            wanted = str(ipaddress.ip_address(host))
        except ValueError:
            wanted = host.lower().rstrip(".")
        return any(
            name.lower() == wanted or (name.startswith("*.") and wanted.partition(".")[2] == name[2:].lower())
            for name in self.alternatives
        )


def from_pem(pem: bytes) -> Certificate | None:
    """The first certificate of a text, which is the one that counts; None when there is none that can be read."""
    return _read(lambda: _x509().load_pem_x509_certificate(pem))


def from_der(der: bytes) -> Certificate | None:
    return _read(lambda: _x509().load_der_x509_certificate(der))


def _read(load: Callable[[], Any]) -> Certificate | None:
    _x509()
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return _facts(load())
    except (ValueError, UnsupportedAlgorithm):  # the latter for a key on a curve that nobody uses
        return None


def is_key_of(certificate: Certificate, pem: bytes) -> bool:
    """Whether a text holds the private key of a certificate, not encrypted."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return key.public_key().public_bytes(*form) == certificate.public_key


def _facts(certificate: Any) -> Certificate:
    from cryptography.hazmat.primitives import serialization

    x509 = _x509()
    constraints = _extension(certificate, x509.BasicConstraints)
    usages = _extension(certificate, x509.ExtendedKeyUsage)
    names = _extension(certificate, x509.SubjectAlternativeName)
    alternatives = ()
    if names is not None:
        alternatives = (
            *names.get_values_for_type(x509.DNSName),
            *map(str, names.get_values_for_type(x509.IPAddress)),
        )
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return Certificate(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        begin=certificate.not_valid_before_utc,
        end=certificate.not_valid_after_utc,
        alternatives=alternatives,
        is_authority=constraints is not None and constraints.ca,
        is_for_clients=usages is None or x509.ExtendedKeyUsageOID.CLIENT_AUTH in usages,
        public_key=certificate.public_key().public_bytes(*form),
    )


def _extension(certificate: Any, kind: Any) -> Any:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except _x509().ExtensionNotFound:
        return None


def _x509() -> ModuleType:
    try:
        from cryptography import x509
    except ImportError as error:
        raise NoCertificateReader from error
    return x509
