from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from gas.extender.tls import MalformedCertificate, end_dates

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(end: datetime) -> str:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x" * 60)])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(datetime(1980, 1, 1, tzinfo=UTC))
        .not_valid_after(end)
        .sign(KEY, hashes.SHA256())
    )
    return signed.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC), id="last-century"),
        pytest.param(datetime(2027, 2, 3, 4, 5, 6, tzinfo=UTC), id="ordinary"),
        pytest.param(datetime(2049, 12, 31, tzinfo=UTC), id="last-year-of-the-short-form"),
        pytest.param(datetime(2050, 1, 1, tzinfo=UTC), id="first-year-of-the-long-form"),
    ],
)
def test_the_end_date_is_read(end: datetime) -> None:
    assert end_dates(certificate(end)) == [end.timestamp()]


def test_several_certificates_with_words_between_them() -> None:
    first = datetime(2030, 1, 1, tzinfo=UTC)
    ends = [first, first + timedelta(days=1)]
    text = "subject: é\n" + certificate(ends[0]) + "\nanother\n" + certificate(ends[1])
    assert end_dates(text) == [each.timestamp() for each in ends]


@pytest.mark.parametrize("text", ["", "hello", "-----BEGIN CERTIFICATE-----", "-----BEGIN PRIVATE KEY-----\nAAAA\n"])
def test_a_text_without_a_certificate_is_refused(text: str) -> None:
    with pytest.raises(MalformedCertificate, match="no PEM certificate"):
        end_dates(text)


@given(st.binary(max_size=40))
def test_a_damaged_certificate_is_refused(content: bytes) -> None:
    import base64

    text = f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(content).decode()}\n-----END CERTIFICATE-----"
    with pytest.raises(MalformedCertificate):
        end_dates(text)


def test_a_certificate_cut_short_is_refused() -> None:
    lines = certificate(datetime(2030, 1, 1, tzinfo=UTC)).splitlines()
    with pytest.raises(MalformedCertificate, match="damaged"):
        end_dates("\n".join([*lines[:3], lines[-1]]))
