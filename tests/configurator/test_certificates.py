"""Certificates and keys as a file may hold them, or a server may present them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from configurator.certificates import (
    Pair,
    common_name,
    is_key_of,
    is_signed_by,
    mint_authority,
    mint_client,
    mint_server,
    read_der_certificate,
    read_first_certificate,
    renewed,
    serves,
)

PRIME256V1 = bytes.fromhex("06082a8648ce3d030107")
NO_CURVE = bytes.fromhex("06082a8648ce3d03017f")
"""The object identifier of a curve that does not exist, of the same length."""

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
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


def test_a_certificate_on_an_unknown_curve_cannot_be_read() -> None:
    der = certificate().public_bytes(serialization.Encoding.DER)
    found = read_der_certificate(der)
    assert found is not None
    assert found.subject == NAME
    strange = der.replace(PRIME256V1, NO_CURVE)
    assert strange != der
    assert read_der_certificate(strange) is None
    assert read_first_certificate(pem("CERTIFICATE", strange)) is None


def test_a_key_on_an_unknown_curve_belongs_to_no_certificate() -> None:
    found = read_first_certificate(certificate().public_bytes(serialization.Encoding.PEM))
    assert found is not None
    form = (serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    der = KEY.private_bytes(*form)
    assert is_key_of(found, pem("PRIVATE KEY", der))
    assert not is_key_of(found, pem("PRIVATE KEY", der.replace(PRIME256V1, NO_CURVE)))


@pytest.mark.parametrize(
    ("host", "is_served"),
    [
        pytest.param("gas.default.svc", True, id="name"),
        pytest.param("GAS.default.svc.", True, id="another case and a trailing dot"),
        pytest.param("a.example.org", True, id="one label for the wildcard"),
        pytest.param("b.a.example.org", False, id="two labels for the wildcard"),
        pytest.param("::1", True, id="address"),
        pytest.param("0:0::1", True, id="the same address in another form"),
        pytest.param("10.0.0.1", False, id="another address"),
    ],
)
def test_a_certificate_serves_the_names_and_addresses_in_it(host: str, *, is_served: bool) -> None:
    pair = mint_server(mint_authority(NOW), ["gas.default.svc", "*.example.org", "::1"], NOW)
    assert serves(pair.certificate, host) is is_served


AUTHORITY = mint_authority(NOW)
SERVER = mint_server(AUTHORITY, ["gas.default.svc"], NOW)
CLIENT = mint_client(AUTHORITY, NOW)


@pytest.mark.parametrize(
    ("found", "names", "days", "is_kept"),
    [
        pytest.param(SERVER, ["gas.default.svc"], 0, True, id="server"),
        pytest.param(CLIENT, [], 275, True, id="client in the last hour before its renewal"),
        pytest.param(CLIENT, [], 276, False, id="client that expires within 90 days"),
        pytest.param(CLIENT, [], -1, False, id="client that is not valid yet"),
        pytest.param(SERVER, ["gas.default.svc", "more.example"], 0, False, id="another name"),
        pytest.param(CLIENT, ["gas.default.svc"], 0, False, id="client as server"),
        pytest.param(SERVER, [], 0, False, id="server as client"),
        pytest.param(mint_client(mint_authority(NOW), NOW), [], 0, False, id="another authority"),
        pytest.param(AUTHORITY, [], 0, False, id="the authority itself"),
        pytest.param(None, [], 0, False, id="none"),
    ],
)
def test_a_pair_is_renewed_unless_it_is_good(found: Pair | None, names: list[str], days: int, *, is_kept: bool) -> None:
    now = NOW + timedelta(days=days)
    pair = renewed(found, AUTHORITY, names, now, name="new")
    assert (pair is found) is is_kept
    assert renewed(pair, AUTHORITY, names, now, name="again") is pair
    if not is_kept:
        assert common_name(pair.certificate.subject) == "new"


def test_a_certificate_ends_with_its_authority_at_the_latest() -> None:
    authority = mint_authority(NOW, name="short", life=timedelta(days=2))
    pair = mint_client(authority, NOW, name="a-client", life=timedelta(days=3))
    assert is_signed_by(pair.certificate, authority.certificate)
    assert pair.certificate.not_valid_after_utc == NOW + timedelta(days=2)


def test_a_certificate_of_negative_life_is_one_that_has_expired() -> None:
    pair = mint_client(mint_authority(NOW), NOW, life=timedelta(days=-1))
    assert pair.certificate.not_valid_before_utc < pair.certificate.not_valid_after_utc < NOW


def pem(kind: str, der: bytes) -> bytes:
    return f"-----BEGIN {kind}-----\n{base64.b64encode(der).decode()}\n-----END {kind}-----\n".encode()
