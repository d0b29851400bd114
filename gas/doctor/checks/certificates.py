"""The certificates between kube-scheduler and extender: dates, names, authorities, keys."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from gas.doctor.certificate import Certificate, NoCertificateReader, from_der, from_pem, is_key_of
from gas.doctor.commands import INSTALL_TOOLS, command
from gas.doctor.findings import Finding, ok, problem, unknown, warning
from gas.doctor.looked import Unseen
from gas.doctor.snapshot import Call, Snapshot

CHECK = "certificates"
SOON = timedelta(days=30)
"""Before its end a certificate should be renewed; one that lives shorter than three times that, in its last third."""

RENEW = "sudo gas-configurator   # makes new certificates where these have ended or are about to"


def check_certificates(snapshot: Snapshot) -> Iterator[Finding]:
    try:
        for call in snapshot.calls:
            yield from _client(call, snapshot.now)
            yield from _authority(call, snapshot.now)
            yield from _server(call, snapshot.now)
    except NoCertificateReader as error:
        yield unknown(CHECK, "certificates", str(error), INSTALL_TOOLS)


def _client(call: Call, now: float) -> Iterator[Finding]:
    tls = call.entry.tls_config
    if tls is None or call.client is None or call.key is None:
        return  # told among the scheduler's configuration
    cert_file, key_file = call.files.get("client", tls.cert_file), call.files.get("key", tls.key_file)
    for name, content in ((cert_file, call.client), (key_file, call.key)):
        if isinstance(content, Unseen):
            yield unknown(CHECK, name, content.why, content.mend)
    if isinstance(call.client, Unseen):
        return
    certificate = from_pem(call.client)
    if certificate is None:
        yield problem(CHECK, cert_file, "there is no PEM certificate in it", RENEW)
        return
    faults = list(_dates(cert_file, "the certificate that kube-scheduler shows", certificate, now))
    if isinstance(call.key, bytes) and not is_key_of(certificate, call.key):
        yield problem(CHECK, key_file, f"it is not the private key of {cert_file}", RENEW)
        return
    if certificate.is_authority:
        faults.append(
            problem(
                CHECK,
                cert_file,
                "kube-scheduler shows an authority's own certificate: who holds its key can sign any certificate",
                "sudo gas-configurator   # makes a certificate for kube-scheduler alone",
                expected="a certificate for client authentication",
                found=f"the authority {certificate.subject}",
            )
        )
    elif not certificate.is_for_clients:
        faults.append(
            problem(CHECK, cert_file, "it is not for client authentication, so the extender refuses it", RENEW)
        )
    if call.key_mode is not None and call.key_mode & 0o077:
        faults.append(
            warning(
                CHECK,
                key_file,
                "others than its owner may use kube-scheduler's key, and with it bind pods",
                command("sudo", "chmod", "0600", key_file),
                expected="mode 0600",
                found=f"mode {call.key_mode:04o}",
            )
        )
    yield from faults or [ok(CHECK, cert_file, f"valid until {_day(certificate)}")]


def _authority(call: Call, now: float) -> Iterator[Finding]:
    tls = call.entry.tls_config
    if tls is None or call.ca is None:
        return
    ca_file = call.files.get("ca", tls.ca_file)
    if isinstance(call.ca, Unseen):
        yield unknown(CHECK, ca_file, call.ca.why, call.ca.mend)
        return
    certificate = from_pem(call.ca)
    if certificate is None:
        yield problem(CHECK, ca_file, "there is no PEM certificate in it", RENEW)
        return
    faults = list(_dates(ca_file, "the authority of the extender's certificate", certificate, now))
    yield from faults or [ok(CHECK, ca_file, f"valid until {_day(certificate)}")]


def _server(call: Call, now: float) -> Iterator[Finding]:
    if not call.connected:
        return
    where = f"{call.entry.url_prefix} at {call.connected}"
    certificate = from_der(call.server_certificate or b"")
    if certificate is None:
        yield unknown(
            CHECK,
            where,
            "it showed no certificate that can be read",
            command("openssl", "s_client", "-connect", call.connected),
        )
        return
    tls = call.entry.tls_config
    host = (tls.server_name if tls else "") or urlsplit(call.entry.url_prefix).hostname or ""
    faults = list(_dates(where, "the extender's certificate", certificate, now))
    if not certificate.is_for(host):
        faults.append(
            problem(
                CHECK,
                where,
                "the extender's certificate is not for the address that kube-scheduler calls",
                RENEW,
                expected=f"{host} among its subject alternative names",
                found=", ".join(certificate.alternatives) or "none",
            )
        )
    elif call.not_verified and not faults:
        faults.append(
            problem(
                CHECK,
                where,
                "kube-scheduler does not believe the extender's certificate",
                RENEW,
                expected=f"a certificate that the authority in {call.files.get('ca', 'caFile')} has signed",
                found=f"{call.not_verified}; it was signed by {certificate.issuer or 'nobody'}",
            )
        )
    yield from faults or [ok(CHECK, where, f"valid until {_day(certificate)}, for {host}")]


def _dates(where: str, what: str, certificate: Certificate, now: float) -> Iterator[Finding]:
    begin, end = certificate.begin, certificate.end
    today = datetime.fromtimestamp(now, UTC)
    if end <= today:
        yield problem(CHECK, where, f"{what} has ended", RENEW, expected="a date to come", found=_day(certificate))
    elif begin > today:
        yield problem(
            CHECK,
            where,
            f"{what} is not valid yet; a clock may be wrong",
            "timedatectl status",
            expected="a date that has passed",
            found=f"{begin:%Y-%m-%d %H:%M} UTC",
        )
    elif end - today < min(SOON, (end - begin) / 3):
        days = (end - today).days
        yield warning(CHECK, where, f"{what} ends in {days} days, on {_day(certificate)}", RENEW)


def _day(certificate: Certificate) -> str:
    return f"{certificate.end:%Y-%m-%d}"
