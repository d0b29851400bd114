"""Certificates and keys as they may lie in a file, or be shown by whoever answers at the extender's address."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gas.doctor.certificate import from_der, from_pem, is_key_of

PRIME256V1 = bytes.fromhex("06082a8648ce3d030107")
NO_CURVE = bytes.fromhex("06082a8648ce3d03017f")
"""The object identifier of a curve that there is not, of the same length."""

KEY = ec.generate_private_key(ec.SECP256R1())
NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kube-scheduler")])


def certificate() -> x509.Certificate:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(NAME)
        .issuer_name(NAME)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(KEY, hashes.SHA256())
    )


def test_certificate_on_a_curve_that_is_not_known_is_none_that_can_be_read() -> None:
    der = certificate().public_bytes(serialization.Encoding.DER)
    found = from_der(der)
    assert found is not None
    assert found.subject == "CN=kube-scheduler"
    strange = der.replace(PRIME256V1, NO_CURVE)
    assert strange != der
    assert from_der(strange) is None
    assert from_pem(pem("CERTIFICATE", strange)) is None


def test_key_on_a_curve_that_is_not_known_belongs_to_no_certificate() -> None:
    found = from_pem(certificate().public_bytes(serialization.Encoding.PEM))
    assert found is not None
    form = (serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    der = KEY.private_bytes(*form)
    assert is_key_of(found, pem("PRIVATE KEY", der))
    assert not is_key_of(found, pem("PRIVATE KEY", der.replace(PRIME256V1, NO_CURVE)))


def pem(kind: str, der: bytes) -> bytes:
    return f"-----BEGIN {kind}-----\n{base64.b64encode(der).decode()}\n-----END {kind}-----\n".encode()
