"""A certificate authority for one test run, and the key pairs that it signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """PEM files of a certificate and its private key."""

    certificate: Path
    key: Path


class Authority:
    """Sign certificates for servers on loopback and for clients; valid from yesterday on, for some days."""

    def __init__(self, directory: Path, *, name: str = "e2e-ca") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(name)
        certificate = self._builder(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        signed = certificate.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.certificate = directory / f"{name}.crt"
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def write(self, certificate: Path, key: Path) -> None:
        """Write its certificate and key for another program that signs with them."""
        certificate.write_bytes(self.certificate.read_bytes())
        _write_key(key, self._key)

    def server(self, name: str) -> KeyPair:
        """Sign a certificate for a server on localhost and 127.0.0.1."""
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        return self._signed(name, ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, name: str) -> KeyPair:
        return self._signed(name, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _signed(self, name: str, usage: x509.ObjectIdentifier, names: x509.SubjectAlternativeName | None) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_common_name(name), key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        pair = KeyPair(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        signed = builder.sign(self._key, hashes.SHA256())
        pair.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        _write_key(pair.key, key)
        return pair

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + 10 * _DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def write_token_keys(directory: Path) -> KeyPair:
    """Write the keys with which kube-apiserver signs and checks tokens; `certificate` is a public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = KeyPair(directory / "service-accounts.pub", directory / "service-accounts.key")
    pair.certificate.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    _write_key(pair.key, key)
    return pair


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
