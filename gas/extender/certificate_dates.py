"""When certificates end: the one thing about our own certificates that the ssl module does not tell."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE = 0x30
_EXPLICIT_VERSION = 0xA0
_UTC_TIME = 0x17
_GENERALIZED_TIME = 0x18


class MalformedCertificate(ValueError):
    """The text holds no certificate, or one whose dates cannot be found."""


def end_dates(pem: str) -> list[float]:
    """The end of every certificate in a PEM text, in seconds since the epoch, in the text's order.

    Raises MalformedCertificate when there is none or when one of them is damaged.
    """
    blocks = _PEM.findall(pem)
    if not blocks:
        raise MalformedCertificate("no PEM certificate in it")
    try:
        return [_end_date(base64.b64decode("".join(block.split()), validate=True)) for block in blocks]
    except (binascii.Error, IndexError, ValueError) as error:
        raise MalformedCertificate(f"a damaged certificate in it ({error})") from None


def _end_date(der: bytes) -> float:
    """RFC 5280, 4.1: the second date of Validity, which stands after version, serial, signature, issuer."""
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
    """The DER element at ``at``: where the next one begins, and its content."""
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
