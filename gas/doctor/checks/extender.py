"""Check that an extender runs, decides at kube-scheduler's address for it, and has valid certificates."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
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
from gas.doctor import fix
from gas.doctor.check import Check
from gas.doctor.findings import Finding, Unseen, about, not_seen, ok, problem, unknown, warning
from gas.doctor.snapshot import Call, ServiceSeen, Snapshot
from gas.programs import EXTENDER, ORIGINAL_EXTENDER

INSTALL = "kubectl apply --kustomize deploy/overlays/extender   # or your own overlay: docs/deploy.md, 3"
ON_CONTROL_PLANE = "sudo gas doctor   # on the control-plane node, from which kube-scheduler calls it"

SOON = timedelta(days=30)
"""A certificate that ends within this time gets a warning; one with a short life, in its last third."""

RENEW = "sudo gas-configurator   # replaces certificates that have expired or expire soon"


def check_extender(snapshot: Snapshot) -> Iterator[Finding]:
    yield from _pods(snapshot)
    for call in snapshot.calls:
        if isinstance(call.service, ServiceSeen):
            yield from about(f"service {call.service.namespace}/{call.service.name}", _service_behind(call.service))
        yield from about(call.entry.url_prefix, _response(call, kubectl_extender(snapshot, "logs")))


def _pods(snapshot: Snapshot) -> Iterator[Finding]:
    ours, original = snapshot.running(EXTENDER), snapshot.running(ORIGINAL_EXTENDER)
    ready = [pod for pod, _ in ours if pod.is_ready]
    if ready:
        yield ok("an extender is running and ready", where=f"pod {ready[0].key}")
    elif ours:
        pod = ours[0][0]
        yield problem(
            "an extender is running, but none is ready, so no GPU pod is placed",
            fix.pod(pod, "describe", "pod"),
            fix.pod(pod, "logs"),
            where=f"pod {pod.key}",
            found=f"phase {pod.status.phase if pod.status else 'unknown'}, not ready",
        )
    elif not original and not isinstance(snapshot.pods, Unseen) and not any(map(_is_conclusive, snapshot.calls)):
        yield problem("no pod runs an extender, and none was reached outside the cluster", INSTALL, where="extender")
    for pod, _ in original:
        scale = ("scale", "deployment", "gpu-aware-scheduling", "--replicas=0")
        place = "runs beside gas-extender, but only one of them may decide" if ours else "runs instead of gas-extender"
        yield warning(
            f"Intel's GPU Aware Scheduling {place}",
            fix.kubectl(*scale, namespace=pod.metadata.namespace) if ours else INSTALL,
            where=f"pod {pod.key}",
        )


def _is_conclusive(call: Call) -> bool:
    """Return whether the call shows that an extender exists, or that none does."""
    return bool(call.connected or (call.scheduler.is_here and call.tried))


def _service_behind(service: ServiceSeen) -> Iterator[Finding]:
    if not service.exists:
        yield problem("kube-scheduler is configured to call this Service, but it does not exist", INSTALL)
    elif not service.ready:
        yield problem(
            "kube-scheduler calls this Service, but it has no ready extender behind it",
            fix.kubectl("describe", "service", service.name, namespace=service.namespace),
        )


def kubectl_extender(snapshot: Snapshot, *words: str) -> str:
    """Return a kubectl command about the extender's Deployment, whose name is its pod's without the last two parts."""
    namespace, name = "default", "gpu-aware-scheduling"
    for pod, _ in snapshot.running(EXTENDER)[:1]:
        namespace, name = pod.metadata.namespace or "default", pod.metadata.name.rsplit("-", 2)[0]
    return fix.kubectl(*words, f"deployment/{name}", namespace=namespace)


def _response(call: Call, logs: str) -> Iterator[Finding]:
    """Judge the call. Without a connection, the extender may still be reachable from the scheduler's machine."""
    if not call.connected:
        sentence = f"the extender cannot be reached: {call.failure}"
        if call.scheduler.is_here and call.tried:
            yield problem(sentence, INSTALL, "systemctl status gas-extender")
        else:
            yield unknown(f"{sentence}; it may be reachable from another machine", ON_CONTROL_PLANE)
    elif call.not_verified:
        pass  # reported with the certificates
    elif call.reply is None and (isinstance(call.client, Unseen) or isinstance(call.key, Unseen)):
        sentence = f"reached at {call.connected}, but no filter request was sent: {call.not_asked}"
        yield unknown(sentence, ON_CONTROL_PLANE)
    elif call.reply is None:
        yield ok(f"reached at {call.connected}; {call.not_asked}")
    elif call.reply.error:
        yield problem(f"reached at {call.connected}, but it does not decide", logs, found=call.reply.error)
    else:
        yield ok(f"reached at {call.connected}; it decides")


def check_certificates(snapshot: Snapshot) -> Iterator[Finding]:
    """Check the client certificate, the authority and the server certificate of every extender that was called."""
    for call in snapshot.calls:
        if call.client is not None and call.key is not None:
            if isinstance(call.key, Unseen):
                yield not_seen(call.files["key"], call.key)
            further = partial(_client_certificate, call)
            name = "kube-scheduler's client certificate"
            yield from about(call.files["client"], _of_file(call.client, snapshot.now, name, further))
        if call.ca is not None:
            name = "the authority of the extender's certificate"
            yield from about(call.files["ca"], _of_file(call.ca, snapshot.now, name))
        if call.connected:
            yield from about(f"{call.entry.url_prefix} at {call.connected}", _server_certificate(call, snapshot.now))


def _of_file(
    content: bytes | Unseen,
    now: float,
    name: str,
    further: Callable[[x509.Certificate], Iterable[Finding]] = lambda _: (),
) -> Iterator[Finding]:
    """Check the first certificate of a file: its dates, then by ``further``."""
    if isinstance(content, Unseen):
        yield unknown(content.why, content.fix)
    elif (certificate := read_first_certificate(content)) is None:
        yield problem("the file contains no PEM certificate", RENEW)
    else:
        found = [*dates(name, certificate, now), *further(certificate)]
        yield from found or [ok(f"valid until {day(certificate.not_valid_after_utc)}")]


def _client_certificate(call: Call, certificate: x509.Certificate) -> Iterator[Finding]:
    key_file = call.files["key"]
    if isinstance(call.key, bytes) and not is_key_of(certificate, call.key):
        yield problem(f"this is not the private key of {call.files['client']}", RENEW, where=key_file)
        return
    if is_authority(certificate):
        yield problem(
            "kube-scheduler uses the certificate of an authority: its key can sign any certificate",
            "sudo gas-configurator   # makes a certificate for kube-scheduler alone",
            expected="a certificate for client authentication",
            found=f"the authority {certificate.subject.rfc4514_string()}",
        )
    elif not is_for(certificate, ExtendedKeyUsageOID.CLIENT_AUTH):
        yield problem("the certificate is not for client authentication, so the extender refuses it", RENEW)
    if call.key_mode is not None and call.key_mode & 0o077:
        yield warning(
            "users other than its owner can read kube-scheduler's key, and with it bind pods",
            fix.command("sudo", "chmod", "0600", key_file),
            where=key_file,
            expected="mode 0600",
            found=f"mode {call.key_mode:04o}",
        )


def _server_certificate(call: Call, now: float) -> Iterator[Finding]:
    certificate = read_der_certificate(call.server_certificate or b"")
    if certificate is None:
        yield unknown(
            "the server presented no certificate that can be read",
            fix.command("openssl", "s_client", "-connect", call.connected),
        )
        return
    tls = call.entry.tls_config
    host = (tls.server_name if tls else "") or urlsplit(call.entry.url_prefix).hostname or ""
    faults = list(dates("the extender's certificate", certificate, now))
    yield from faults
    if not serves(certificate, host):
        yield problem(
            "the extender's certificate is not for the address that kube-scheduler calls",
            RENEW,
            expected=f"{host} among its subject alternative names",
            found=", ".join(alternative_names(certificate)) or "none",
        )
    elif call.not_verified and not faults:
        yield problem(
            "kube-scheduler does not trust the extender's certificate",
            RENEW,
            expected=f"a certificate signed by the authority in {call.files.get('ca', 'caFile')}",
            found=f"{call.not_verified}; signed by {certificate.issuer.rfc4514_string() or 'no name'}",
        )
    yield ok(f"valid until {day(certificate.not_valid_after_utc)}, for {host}", summary_of="object")


def dates(name: str, certificate: x509.Certificate, now: float) -> Iterator[Finding]:
    """Yield a finding if the certificate is not valid at this time, or will expire soon."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    today = datetime.fromtimestamp(now, UTC)
    if end <= today:
        yield problem(f"{name} has expired", RENEW, expected="a date in the future", found=day(end))
    elif begin > today:
        yield problem(
            f"{name} is not valid yet; a clock may be wrong", "timedatectl status", found=f"{begin:%Y-%m-%d %H:%M} UTC"
        )
    elif end - today < min(SOON, (end - begin) / 3):
        yield warning(f"{name} expires in {(end - today).days} days, on {day(end)}", RENEW)


CHECKS = (
    Check(name="extender", title="the extender", findings=check_extender),
    Check(name="certificates", title="certificates", findings=check_certificates),
)
