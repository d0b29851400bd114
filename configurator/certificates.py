"""Read, check and sign certificates, for configurator, doctor and sandbox. Bytes to values and back, without files."""

import base64
import binascii
import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from configurator.errors import BadCertificate

AUTHORITY_NAME = "gas-ca"
CLIENT_NAME = "kube-scheduler"
"""A name for the extender's ``--allowed-names``. It is not a user of the API server, whichever authority signs it."""

SERVER_NAME = "gas-extender"

AUTHORITY_LIFE = timedelta(days=3650)
LIFE = timedelta(days=365)
RENEWAL = timedelta(days=90)  # the last part of a certificate's life, in which the first run replaces it
_CLOCK_SKEW = timedelta(hours=1)  # age of a new certificate at its signing, for machines whose clocks are behind

_UNREADABLE = (
    ValueError,
    TypeError,
    OverflowError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""Raised by the library for certificates that no program would accept."""

SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_Extension = TypeVar("_Extension", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its private key, and the PEM texts of both as files hold them."""

    certificate: x509.Certificate
    key: SigningKey
    chain: bytes  # the whole text of the certificate's file; further certificates may follow the first
    key_text: bytes

    @property
    def is_authority(self) -> bool:
        return is_authority(self.certificate)


def decode_base64(text: str) -> bytes:
    """Return the bytes in a field of an object of the API; empty if it is not base64."""
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""


def read_certificates(file: Path, text: bytes) -> list[x509.Certificate]:
    """Return the certificates of a PEM text, at least one. Raises BadCertificate if any part cannot be read."""
    try:
        found = x509.load_pem_x509_certificates(text)
        for each in found:
            _read_every_part(each)
    except _UNREADABLE:
        raise BadCertificate(file, "holds no PEM certificate that can be read") from None
    return found


def read_first_certificate(text: bytes) -> x509.Certificate | None:
    """Return the first certificate of a PEM text, which is the one that counts; None if it cannot be read."""
    try:
        return _read_every_part(x509.load_pem_x509_certificate(text))
    except _UNREADABLE:
        return None


def read_der_certificate(content: bytes) -> x509.Certificate | None:
    """Return a certificate from DER, as TLS has it; None if it cannot be read."""
    try:
        return _read_every_part(x509.load_der_x509_certificate(content))
    except _UNREADABLE:
        return None


def _read_every_part(certificate: x509.Certificate) -> x509.Certificate:
    """Return the certificate itself, with all parts read: the library parses a part, and raises, only then."""
    _ = (certificate.subject, certificate.issuer, certificate.extensions, certificate.public_key())
    _ = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    return certificate


def read_pair(certificate_file: Path, certificate_text: bytes, key_file: Path, key_text: bytes) -> Pair:
    """Return a certificate with its key. Raises BadCertificate if either cannot be read, or they do not match."""
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


def is_key_of(certificate: x509.Certificate, text: bytes) -> bool:
    """Return whether a PEM text holds the private key of a certificate, of any kind, not encrypted."""
    try:
        key = serialization.load_pem_private_key(text, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return key.public_key() == certificate.public_key()


def _extension(certificate: x509.Certificate, kind: type[_Extension]) -> _Extension | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def is_authority(certificate: x509.Certificate) -> bool:
    constraints = _extension(certificate, x509.BasicConstraints)
    return constraints is not None and constraints.ca


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether the authority itself has signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def why_not_valid(certificate: x509.Certificate, now: datetime) -> str | None:
    """Return a clause about why the certificate is not valid now, to follow the name of its file; else None."""
    if now > certificate.not_valid_after_utc:
        return f"expired on {day(certificate.not_valid_after_utc)}"
    if now < certificate.not_valid_before_utc:
        return f"is not valid before {day(certificate.not_valid_before_utc)}; is the clock right?"
    return None


def alternative_names(certificate: x509.Certificate) -> list[str]:
    """Return the DNS names and IP addresses that the certificate is for."""
    names = _extension(certificate, x509.SubjectAlternativeName)
    if names is None:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def serves(certificate: x509.Certificate, host: str) -> bool:
    """Return whether a client that calls the host accepts the certificate's names; ``*`` is one label, as in Go."""
    names = _extension(certificate, x509.SubjectAlternativeName)
    if names is None:
        return False
    try:
        return ipaddress.ip_address(host) in names.get_values_for_type(x509.IPAddress)
    except ValueError:
        wanted = host.lower().rstrip(".")
        listed = {name.lower() for name in names.get_values_for_type(x509.DNSName)}
        return bool({wanted, "*." + wanted.partition(".")[2]} & listed)


def is_for(certificate: x509.Certificate, usage: x509.ObjectIdentifier) -> bool:
    """Return whether the certificate may be used for a server, or a client. Without the extension it may."""
    usages = _extension(certificate, x509.ExtendedKeyUsage)
    return usages is None or usage in usages or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages


def lasts(certificate: x509.Certificate, now: datetime) -> bool:
    """Return whether the certificate is valid now and needs no renewal."""
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc - RENEWAL


def renewed(found: Pair | None, authority: Pair, names: Collection[str], now: datetime, *, name: str) -> Pair:
    """Return the pair that was found, or a new one of this common name if it is not good enough.

    It is good if the authority has signed it for this purpose and for all the names, and it needs no renewal. ``names``
    are for a server; empty for a client.
    """
    usage = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
    if (
        found is not None
        and lasts(found.certificate, now)
        and is_signed_by(found.certificate, authority.certificate)
        and is_for(found.certificate, usage)
        and not found.is_authority
        and all(serves(found.certificate, host) for host in names)
    ):
        return found
    return mint_server(authority, names, now, name=name) if names else mint_client(authority, now, name=name)


def end(pair: Pair) -> str:
    """Return the last day of the certificate as YYYY-MM-DD."""
    return day(pair.certificate.not_valid_after_utc)


def common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d")


def describe_certificates(text: bytes) -> list[str] | None:
    """Return a few lines about each certificate of a PEM text; None for any other text."""
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
        if (names := _extension(certificate, x509.SubjectAlternativeName)) is not None:
            lines.append("names: " + ", ".join(str(name.value) for name in names))
    return lines


def mint_authority(now: datetime, *, name: str = AUTHORITY_NAME, life: timedelta = AUTHORITY_LIFE) -> Pair:
    """Make an authority that can sign certificates of servers and clients, but no further authorities."""
    return _mint(name, None, now, life)


def mint_server(
    authority: Pair, names: Collection[str], now: datetime, *, name: str = SERVER_NAME, life: timedelta = LIFE
) -> Pair:
    """Sign a certificate for a server of these names and addresses, which ends with the authority's at the latest."""
    alternatives = x509.SubjectAlternativeName([_general_name(each) for each in names])
    return _mint(name, authority, now, life, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), alternatives)


def mint_client(authority: Pair, now: datetime, *, name: str = CLIENT_NAME, life: timedelta = LIFE) -> Pair:
    """Sign a certificate for a client with this common name; ``life`` as in `mint_server`.

    Its organization is empty, so it belongs to no group of the API server.
    """
    return _mint(name, authority, now, life, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))


def _mint(name: str, authority: Pair | None, now: datetime, life: timedelta, *more: x509.ExtensionType) -> Pair:
    """Make a pair that the authority signs, or an authority if there is none."""
    key = ec.generate_private_key(ec.SECP256R1())
    signing = key if authority is None else authority.key
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    end = now + life if authority is None else min(now + life, authority.certificate.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - _CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(authority is None, 0 if authority is None else None), critical=True)
        .add_extension(_key_usage(signs=authority is None), critical=True)
    )
    if authority is not None:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
        builder = builder.add_extension(identifier, critical=False)
    for extension in more:
        builder = builder.add_extension(extension, critical=False)
    certificate = builder.sign(signing, hashes.SHA256())
    encoding = serialization.Encoding.PEM
    text = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate, key, certificate.public_bytes(encoding), text)


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
