"""Check the certificates between kube-scheduler and the extender: dates, names, authorities, keys."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from configurator.certificates import (
    alternative_names,
    day,
    is_authority,
    is_for,
    is_key_of,
    read_der_certificate,
    read_first_certificate,
    serves,
)
from gas.doctor.findings import Finding, command, ok, problem, unknown, warning
from gas.doctor.probe import Unseen
from gas.doctor.snapshot import Call, Snapshot

CHECK = "certificates"
SOON = timedelta(days=30)
"""A certificate that ends within this time gets a warning; one with a short life, in its last third."""

RENEW = "sudo gas-configurator   # replaces certificates that have expired or expire soon"


def check_certificates(snapshot: Snapshot) -> Iterator[Finding]:
    """Check the client certificate, the authority and the server certificate of every extender that was called."""
    for call in snapshot.calls:
        yield from _client(call, snapshot.now)
        yield from _authority(call, snapshot.now)
        yield from _server(call, snapshot.now)


def _client(call: Call, now: float) -> Iterator[Finding]:
    tls = call.entry.tls_config
    if tls is None or call.client is None or call.key is None:
        return  # reported with the scheduler's configuration
    cert_file, key_file = call.files.get("client", tls.cert_file), call.files.get("key", tls.key_file)
    for name, content in ((cert_file, call.client), (key_file, call.key)):
        if isinstance(content, Unseen):
            yield unknown(CHECK, name, content.why, content.mend)
    if isinstance(call.client, Unseen):
        return
    certificate = read_first_certificate(call.client)
    if certificate is None:
        yield problem(CHECK, cert_file, "the file contains no PEM certificate", RENEW)
        return
    faults = list(dates(cert_file, "kube-scheduler's client certificate", certificate, now))
    if isinstance(call.key, bytes) and not is_key_of(certificate, call.key):
        yield problem(CHECK, key_file, f"this is not the private key of {cert_file}", RENEW)
        return
    if is_authority(certificate):
        faults.append(
            problem(
                CHECK,
                cert_file,
                "kube-scheduler uses the certificate of an authority: its key can sign any certificate",
                "sudo gas-configurator   # makes a certificate for kube-scheduler alone",
                expected="a certificate for client authentication",
                found=f"the authority {certificate.subject.rfc4514_string()}",
            )
        )
    elif not is_for(certificate, ExtendedKeyUsageOID.CLIENT_AUTH):
        faults.append(
            problem(
                CHECK, cert_file, "the certificate is not for client authentication, so the extender refuses it", RENEW
            )
        )
    if call.key_mode is not None and call.key_mode & 0o077:
        faults.append(
            warning(
                CHECK,
                key_file,
                "users other than its owner can read kube-scheduler's key, and with it bind pods",
                command("sudo", "chmod", "0600", key_file),
                expected="mode 0600",
                found=f"mode {call.key_mode:04o}",
            )
        )
    yield from faults or [ok(CHECK, cert_file, f"valid until {_end(certificate)}")]


def _authority(call: Call, now: float) -> Iterator[Finding]:
    tls = call.entry.tls_config
    if tls is None or call.ca is None:
        return
    ca_file = call.files.get("ca", tls.ca_file)
    if isinstance(call.ca, Unseen):
        yield unknown(CHECK, ca_file, call.ca.why, call.ca.mend)
        return
    certificate = read_first_certificate(call.ca)
    if certificate is None:
        yield problem(CHECK, ca_file, "the file contains no PEM certificate", RENEW)
        return
    faults = list(dates(ca_file, "the authority of the extender's certificate", certificate, now))
    yield from faults or [ok(CHECK, ca_file, f"valid until {_end(certificate)}")]


def _server(call: Call, now: float) -> Iterator[Finding]:
    if not call.connected:
        return
    where = f"{call.entry.url_prefix} at {call.connected}"
    certificate = read_der_certificate(call.server_certificate or b"")
    if certificate is None:
        yield unknown(
            CHECK,
            where,
            "the server presented no certificate that can be read",
            command("openssl", "s_client", "-connect", call.connected),
        )
        return
    tls = call.entry.tls_config
    host = (tls.server_name if tls else "") or urlsplit(call.entry.url_prefix).hostname or ""
    faults = list(dates(where, "the extender's certificate", certificate, now))
    if not serves(certificate, host):
        faults.append(
            problem(
                CHECK,
                where,
                "the extender's certificate is not for the address that kube-scheduler calls",
                RENEW,
                expected=f"{host} among its subject alternative names",
                found=", ".join(alternative_names(certificate)) or "none",
            )
        )
    elif call.not_verified and not faults:
        faults.append(
            problem(
                CHECK,
                where,
                "kube-scheduler does not trust the extender's certificate",
                RENEW,
                expected=f"a certificate signed by the authority in {call.files.get('ca', 'caFile')}",
                found=f"{call.not_verified}; signed by {certificate.issuer.rfc4514_string() or 'no name'}",
            )
        )
    yield from faults or [ok(CHECK, where, f"valid until {_end(certificate)}, for {host}")]


def dates(where: str, name: str, certificate: x509.Certificate, now: float, *, check: str = CHECK) -> Iterator[Finding]:
    """Yield a finding if the certificate is not valid at this time, or will expire soon."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    today = datetime.fromtimestamp(now, UTC)
    if end <= today:
        yield problem(check, where, f"{name} has expired", RENEW, expected="a date in the future", found=day(end))
    elif begin > today:
        yield problem(
            check,
            where,
            f"{name} is not valid yet; a clock may be wrong",
            "timedatectl status",
            expected="a date in the past",
            found=f"{begin:%Y-%m-%d %H:%M} UTC",
        )
    elif end - today < min(SOON, (end - begin) / 3):
        yield warning(check, where, f"{name} expires in {(end - today).days} days, on {day(end)}", RENEW)


def _end(certificate: x509.Certificate) -> str:
    return day(certificate.not_valid_after_utc)
