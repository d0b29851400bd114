"""Certificates for the sandbox and the tests: an authority, and what it signs for servers and clients."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True, slots=True)
class PemFiles:
    """A certificate and its key on disk; only the owner may read the key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Validity:
    begin: datetime
    end: datetime

    @classmethod
    def days(cls, days: float) -> Self:
        """From five minutes ago, for clocks that are a little off, until so many days from now; negative: expired."""
        now = datetime.now(UTC)
        end = now + timedelta(days=days)
        return cls(min(now, end) - timedelta(minutes=5), end)


class Authority:
    """A certificate authority with a name of its own. Two of one name are still strangers: their keys differ."""

    def __init__(self, name: str = "sandbox-ca", *, days: float = 3650) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(name)
        usage = _key_usage(signs_certificates=True)
        builder = _builder(self._name, self._name, self._key.public_key(), Validity.days(days))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self._certificate = builder.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())

    def write(self, directory: Path, name: str = "ca") -> Path:
        """Write the authority's certificate to ``NAME.crt``."""
        path = directory / f"{name}.crt"
        path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def write_server(
        self,
        directory: Path,
        name: str = "server",
        *,
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        validity: Validity | None = None,
    ) -> PemFiles:
        """Write a server's certificate for ``hosts``, names and addresses, to ``NAME.crt``, its key to ``NAME.key``."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        purpose = [names, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])]
        return self._write_signed(_files(directory, name), hosts[0], purpose, validity or Validity.days(365))

    def write_client(
        self,
        directory: Path,
        name: str = "client",
        *,
        common_name: str = "system:kube-scheduler",
        validity: Validity | None = None,
    ) -> PemFiles:
        """Write a certificate with which a client called ``common_name`` shows who it is."""
        purpose = [x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])]
        return self._write_signed(_files(directory, name), common_name, purpose, validity or Validity.days(365))

    def _write_signed(
        self,
        files: PemFiles,
        common_name: str,
        purpose: Sequence[x509.ExtensionType],
        validity: Validity,
    ) -> PemFiles:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_common_name(common_name), self._name, key.public_key(), validity)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        for extension in purpose:
            builder = builder.add_extension(extension, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files.key.touch(mode=0o600)
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files


def _files(directory: Path, name: str) -> PemFiles:
    return PemFiles(directory / f"{name}.crt", directory / f"{name}.key")


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, validity: Validity
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity.begin)
        .not_valid_after(validity.end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
