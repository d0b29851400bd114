"""Certificates: read, judged, and signed anew. Bytes to values and back; no files."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from configurator.errors import BadCertificate

AUTHORITY_NAME = "gas-ca"
CLIENT_NAME = "kube-scheduler"
"""What the extender's ``--allowed-names`` may name. It is no user of the API server, whatever authority signs it."""

AUTHORITY_LIFE = timedelta(days=3650)
LIFE = timedelta(days=365)
RENEWAL = timedelta(days=90)
"""A run this long before the end of a certificate signs a new one."""

_CLOCKS = timedelta(hours=1)
"""A certificate begins this long ago, for machines whose clocks are behind."""

_UNREADABLE = (
    ValueError,
    TypeError,
    OverflowError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What is raised for certificates that no program would accept."""

SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its private key, and the PEM texts of both as they are in files.

    ``chain`` is the whole text of the certificate's file: further certificates may follow the first.
    """

    certificate: x509.Certificate
    key: SigningKey
    chain: bytes
    key_text: bytes

    @property
    def is_authority(self) -> bool:
        return is_authority(self.certificate)


def read_certificates(file: Path, text: bytes) -> list[x509.Certificate]:
    """At least one, of which every part can be read. Raises BadCertificate."""
    try:
        found = x509.load_pem_x509_certificates(text)
        for each in found:  # which parses only what is asked for
            _ = (each.subject, each.issuer, each.extensions, each.public_key())
            _ = (each.not_valid_before_utc, each.not_valid_after_utc)
    except _UNREADABLE:
        raise BadCertificate(file, "holds no PEM certificate that can be read") from None
    return found


def read_pair(certificate_file: Path, certificate_text: bytes, key_file: Path, key_text: bytes) -> Pair:
    """Raises BadCertificate for what cannot be read, and for a key that is another certificate's."""
    certificate = read_certificates(certificate_file, certificate_text)[0]
    try:
        key = serialization.load_pem_private_key(key_text, password=None)
    except TypeError:
        raise BadCertificate(key_file, "is encrypted; expected a private key without a passphrase") from None
    except (ValueError, UnsupportedAlgorithm):
        raise BadCertificate(key_file, "holds no PEM private key that can be read") from None
    if not isinstance(key, SigningKey):
        raise BadCertificate(key_file, "is neither an elliptic curve nor an RSA key")
    if key.public_key() != certificate.public_key():
        raise BadCertificate(key_file, f"is not the private key of {certificate_file}")
    return Pair(certificate, key, certificate_text, key_text)


def is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def why_not_valid(certificate: x509.Certificate, now: datetime) -> str | None:
    """In words that follow the name of the file; None: it is valid now."""
    if now > certificate.not_valid_after_utc:
        return f"has expired on {day(certificate.not_valid_after_utc)}"
    if now < certificate.not_valid_before_utc:
        return f"is not valid before {day(certificate.not_valid_before_utc)}; is the clock right?"
    return None


def serves(certificate: x509.Certificate, host: str) -> bool:
    """Whether a client that calls the host accepts a certificate with these names."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    try:
        return ipaddress.ip_address(host) in names.get_values_for_type(x509.IPAddress)
    except ValueError:
        listed = {name.lower() for name in names.get_values_for_type(x509.DNSName)}
        return bool({host.lower(), "*." + host.lower().partition(".")[2]} & listed)


def is_for(certificate: x509.Certificate, usage: x509.ObjectIdentifier) -> bool:
    """Whether it may be used to serve, or as a client. One that does not say may be used for everything."""
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    except ValueError:
        return False
    return usage in usages or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages


def common_name(name: x509.Name) -> str:
    """The empty text when there is none."""
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d")


def described(text: bytes) -> list[str] | None:
    """What certificates say, a few lines each; None: the text is something else."""
    if not text.startswith(b"-----BEGIN CERTIFICATE-----"):
        return None
    try:
        found = read_certificates(Path(), text)
    except BadCertificate:
        return None
    lines = []
    for certificate in found:
        lines += [
            f"(a certificate, number {certificate.serial_number:x})",
            f"subject: {certificate.subject.rfc4514_string()}",
            f"issuer: {certificate.issuer.rfc4514_string()}",
            f"valid: {day(certificate.not_valid_before_utc)} to {day(certificate.not_valid_after_utc)}",
        ]
        with contextlib.suppress(x509.ExtensionNotFound, ValueError):
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            lines.append("names: " + ", ".join(str(name.value) for name in names))
    return lines


def mint_authority(now: datetime) -> Pair:
    """A new authority that can sign certificates of servers and clients, no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(AUTHORITY_NAME)
    builder = _builder(subject, subject, key, now, now + AUTHORITY_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return _pair(builder.add_extension(_key_usage(signs=True), critical=True).sign(key, hashes.SHA256()), key)


def mint_server(authority: Pair, names: Collection[str], now: datetime) -> Pair:
    """For a server that is called by these names and addresses; the first is its common name."""
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    return _mint(authority, "gas-extender", ExtendedKeyUsageOID.SERVER_AUTH, [alternatives], now)


def mint_client(authority: Pair, now: datetime) -> Pair:
    """For kube-scheduler as the extender's client."""
    return _mint(authority, CLIENT_NAME, ExtendedKeyUsageOID.CLIENT_AUTH, [], now)


def _mint(
    authority: Pair, name: str, usage: x509.ObjectIdentifier, more: Iterable[x509.ExtensionType], now: datetime
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    end = min(now + LIFE, issuer.not_valid_after_utc)
    builder = _builder(_name(name), issuer.subject, key, now, end)
    extensions = [
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_key_usage(signs=False), True),
        (x509.ExtendedKeyUsage([usage]), False),
        *((extension, False) for extension in more),
    ]
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return _pair(builder.sign(authority.key, hashes.SHA256()), key)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    encoding = serialization.Encoding.PEM
    text = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate, key, certificate.public_bytes(encoding), text)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
