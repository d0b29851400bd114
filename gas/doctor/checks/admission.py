"""Check the admission webhooks: that an extender serves them, the authority they trust, and what their failure does."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from configurator.certificates import (
    alternative_names,
    common_name,
    day,
    read_certificates,
    read_der_certificate,
    read_first_certificate,
)
from configurator.errors import BadCertificate
from gas.doctor.checks.certificates import SOON, dates
from gas.doctor.checks.schedulers import INSTALL_WEBHOOKS
from gas.doctor.findings import Finding, command, kubectl, ok, problem, unknown, warning
from gas.doctor.probe import Unseen
from gas.doctor.programs import Program, flag_value
from gas.doctor.snapshot import Account, ServiceSeen, Snapshot, Webhook
from gas.doctor.spoken import spoken_vocabularies

CHECK = "admission"
COMPLETE = "/complete"
"""The path of the webhook that completes new pods."""

LONGEST = 10
"""Seconds. A webhook with a longer time-out holds up every pod that it is asked about while the extender hangs."""

_MATCHED = {
    "create.pods.gas": (("CREATE", "", ("pods",)),),
    "update.pods.gas": (("UPDATE", "", ("pods", "pods/status")),),
    "complete.pods.gas": (("CREATE", "", ("pods",)),),
    "templates.pods.gas": tuple(
        (operation, group, resources)
        for operation in ("CREATE", "UPDATE")
        for group, resources in (
            ("", ("replicationcontrollers", "podtemplates")),
            ("apps", ("deployments", "statefulsets", "daemonsets", "replicasets")),
            ("batch", ("jobs", "cronjobs")),
        )
    ),
}
"""Webhook -> operations, API groups and resources that its rules must match."""

_BINDINGS = (("CREATE", "", ("pods/binding", "bindings")),)
"""The same for every webhook of bindings, of any name."""

TRUST = "sudo gas-configurator --apply-secret   # the chart: run its Job again; docs/admission.md, certificates"
_LIMITED = re.compile(r"\s*request\.userInfo\.username\s*(==|in\b)")
_PATTERN = re.compile(r"\.matches\(\s*'([^']*)'\s*\)")
_QUOTED = re.compile(r"'([^']+)'")
_KUBE_SCHEDULER = "system:kube-scheduler"


def check_admission(snapshot: Snapshot) -> Iterator[Finding]:
    """Check the webhooks. Yield nothing if there are none and no extender serves any."""
    serving = [
        (pod, container)
        for pod, container in snapshot.running(Program.EXTENDER)
        if (flag_value(container, "admission-port") or "0") != "0"
    ]
    seen = snapshot.webhooks
    if isinstance(seen, Unseen):
        if serving:
            yield unknown(CHECK, "admission webhooks", f"they are unknown: {seen.why}", seen.mend)
        return
    if serving and not seen:
        yield warning(
            CHECK,
            f"pod {serving[0][0].key}",
            "it serves the admission webhooks, but none is registered, so the API server calls none",
            INSTALL_WEBHOOKS,
        )
    is_served = bool(serving) or any(webhook.connected for webhook in seen)
    if seen and not is_served and not isinstance(snapshot.pods, Unseen):
        yield _not_served(seen)
    for webhook in seen:
        faults = [
            *_bundle(webhook, snapshot.now),
            *_service(webhook),
            *_policy(webhook),
            *_reinvocation(webhook),
            *_rules(webhook),
            *_selectors(webhook),
            *_own_bindings(webhook, snapshot),
        ]
        yield from faults
        if not faults and not webhook.connected:
            yield _not_reached(webhook)
        elif not faults:
            yield ok(CHECK, _where(webhook), f"reached at {webhook.connected}; failurePolicy {webhook.policy}")
    yield from _server_certificates(seen, snapshot)
    yield from _scheduler_names(seen, snapshot)
    if any(flag_value(container, "admission-client-ca") for _, container in serving):
        yield from _api_servers(snapshot)


def _where(webhook: Webhook) -> str:
    return f"{webhook.kind} {webhook.configuration}, webhook {webhook.name}"


def _edit(webhook: Webhook, note: str) -> str:
    return kubectl("edit", webhook.kind, webhook.configuration, note=note)


def _not_served(webhooks: tuple[Webhook, ...]) -> Finding:
    strict = next((webhook for webhook in webhooks if webhook.policy == "Fail"), None)
    webhook = strict or webhooks[0]
    effect = "it refuses what this webhook should check" if strict else "nothing is checked"
    return (problem if strict else warning)(
        CHECK,
        _where(webhook),
        f"the API server calls it, but no pod runs an extender with --admission-port, so {effect}",
        INSTALL_WEBHOOKS,
        kubectl("delete", webhook.kind, webhook.configuration, note="to do without the webhooks"),
    )


def _bundle(webhook: Webhook, now: float) -> Iterator[Finding]:
    where = _where(webhook)
    if not webhook.bundle:
        yield problem(
            CHECK,
            where,
            "it has no caBundle, so the API server does not trust the extender's certificate and every call fails",
            TRUST,
        )
        return
    try:
        authorities = read_certificates(Path("caBundle"), webhook.bundle)
    except BadCertificate:
        yield problem(
            CHECK, where, "its caBundle holds no PEM certificate that can be read, so every call fails", TRUST
        )
        return
    today = datetime.fromtimestamp(now, UTC)
    end = max(each.not_valid_after_utc for each in authorities)
    if end <= today:
        yield problem(
            CHECK, where, "its caBundle has expired, so every call fails", TRUST,
            expected="a date in the future", found=day(end),
        )  # fmt: skip
    elif end - today < SOON:
        yield warning(CHECK, where, f"its caBundle expires in {(end - today).days} days, on {day(end)}", TRUST)
    if webhook.not_verified and end > today:
        presented = read_der_certificate(webhook.server_certificate or b"")
        signer = presented.issuer.rfc4514_string() if presented is not None else "an unknown authority"
        yield problem(
            CHECK,
            where,
            f"the API server does not trust the certificate that {webhook.connected} presents, so every call fails",
            TRUST,
            expected="a certificate for the name of the Service, signed by an authority in caBundle",
            found=f"{webhook.not_verified}; signed by {signer}",
        )


def _service(webhook: Webhook) -> Iterator[Finding]:
    service = webhook.service
    if isinstance(service, Unseen):
        yield unknown(CHECK, _where(webhook), f"its Service is unknown: {service.why}", service.mend)
    if not isinstance(service, ServiceSeen):
        return
    name = f"service {service.namespace}/{service.name}"
    if not service.exists:
        yield problem(
            CHECK, name, f"webhook {webhook.name} calls this Service, but it does not exist", INSTALL_WEBHOOKS
        )
    elif not service.ready:
        yield problem(
            CHECK,
            name,
            f"webhook {webhook.name} calls this Service, but it has no extender behind it",
            kubectl("describe", "service", service.name, namespace=service.namespace),
        )
    elif service.has_not_ready == webhook.is_for_bindings:
        wanted = (
            "only the replica that leads serves bindings" if webhook.is_for_bindings else "every replica checks pods"
        )
        setting = f"publishNotReadyAddresses: {str(not webhook.is_for_bindings).lower()}"
        yield warning(
            CHECK,
            name,
            f"{wanted}, but this Service of webhook {webhook.name} leads to others",
            kubectl("edit", "service", service.name, namespace=service.namespace, note=setting),
            expected=setting,
            found=f"publishNotReadyAddresses: {str(service.has_not_ready).lower()}",
        )


def _policy(webhook: Webhook) -> Iterator[Finding]:
    if webhook.timeout > LONGEST:
        yield warning(
            CHECK,
            _where(webhook),
            "while the extender does not respond, every call waits for the whole time-out",
            _edit(webhook, "timeoutSeconds: 2"),
            expected=f"timeoutSeconds of at most {LONGEST}",
            found=str(webhook.timeout),
        )
    if webhook.policy != "Fail":
        return
    if not webhook.is_for_bindings:
        yield warning(
            CHECK,
            _where(webhook),
            "while the extender is away, the API server refuses every object that this webhook should check",
            _edit(webhook, "failurePolicy: Ignore"),
            expected="failurePolicy: Ignore",
            found="failurePolicy: Fail",
        )
    elif not (limits := [each for each in webhook.conditions if _LIMITED.match(each)]) or any(
        _KUBE_SCHEDULER in each for each in limits
    ):
        yield problem(
            CHECK,
            _where(webhook),
            "while the extender is away, no pod of the cluster is bound, the extender's own neither, so a cluster that"
            " restarts does not come up",
            _edit(webhook, "failurePolicy: Ignore, or a matchCondition on request.userInfo.username"),
            expected="failurePolicy: Ignore, or a condition request.userInfo.username in [schedulers of GPU pods only]",
            found=" && ".join(webhook.conditions) or "failurePolicy: Fail without matchConditions",
        )


def _reinvocation(webhook: Webhook) -> Iterator[Finding]:
    if webhook.is_for_bindings and webhook.reinvocation != "IfNeeded":
        yield warning(
            CHECK,
            _where(webhook),
            "another mutating webhook may change the cards of a binding after the extender has chosen them",
            _edit(webhook, "reinvocationPolicy: IfNeeded"),
            expected="reinvocationPolicy: IfNeeded",
            found=f"reinvocationPolicy: {webhook.reinvocation or 'Never'}",
        )


def _rules(webhook: Webhook) -> Iterator[Finding]:
    """Check that the API server asks the webhook about everything that it is for."""
    wanted = _BINDINGS if webhook.is_for_bindings else _MATCHED.get(webhook.name, ())
    missing = [
        f"{operation} of {resource}"
        for operation, group, resources in wanted
        for resource in resources
        if not any(rule.matches(operation, group, resource) for rule in webhook.rules)
    ]
    if missing:
        effect = "GPU pods that are bound by them get no cards" if webhook.is_for_bindings else "these are not checked"
        yield warning(
            CHECK,
            _where(webhook),
            f"its rules do not match {', '.join(missing)}, so {effect}",
            _edit(webhook, "rules as in deploy/components/admission/webhooks.yaml"),
            expected="; ".join(f"{operation} of {', '.join(resources)}" for operation, _, resources in wanted),
            found="; ".join(
                f"{', '.join(rule.operations or ())} of {', '.join(rule.resources or ())}" for rule in webhook.rules
            )
            or "no rules",
        )


def _selectors(webhook: Webhook) -> Iterator[Finding]:
    """Check that no binding is left out. Which pods are checked, an administrator may choose."""
    if not webhook.is_for_bindings:
        return
    for name, selector in webhook.selectors.items():
        yield warning(
            CHECK,
            _where(webhook),
            f"its {name} leaves out bindings, and GPU pods that are bound by them get no cards",
            _edit(webhook, f"remove {name}"),
            expected=f"no {name}",
            found=json.dumps(selector, sort_keys=True),
        )


def _own_bindings(webhook: Webhook, snapshot: Snapshot) -> Iterator[Finding]:
    if not webhook.is_for_bindings or any(_LIMITED.match(each) for each in webhook.conditions):
        return
    for account in snapshot.accounts:
        if account.program is Program.EXTENDER and not _leaves_out(webhook, account):
            yield warning(
                CHECK,
                _where(webhook),
                "the extender's own bindings are reviewed as well, although they have their cards: each takes longer",
                _edit(webhook, f"matchConditions: request.userInfo.username != '{account.user}'"),
                expected=f"a matchCondition that leaves out {account.user}",
                found=" && ".join(webhook.conditions) or "no matchConditions",
            )


def _leaves_out(webhook: Webhook, account: Account) -> bool:
    """Return whether a condition names the account, or has a pattern for it as the manifests do."""
    for condition in webhook.conditions:
        with contextlib.suppress(re.error):
            if account.user in condition or any(re.search(each, account.user) for each in _PATTERN.findall(condition)):
                return True
    return False


def _not_reached(webhook: Webhook) -> Finding:
    return unknown(
        CHECK,
        _where(webhook),
        f"the extender cannot be reached from this machine, so its certificate is unknown: {webhook.failure}",
        "sudo gas doctor   # on a control-plane node, where the API server calls it",
    )


def _server_certificates(webhooks: Iterable[Webhook], snapshot: Snapshot) -> Iterator[Finding]:
    """Check the dates of the certificates on the port of the webhooks, unless kube-scheduler gets the same ones."""
    reported = {call.server_certificate for call in snapshot.calls}
    for webhook in webhooks:
        if webhook.server_certificate in reported or webhook.not_verified:
            continue
        reported.add(webhook.server_certificate)
        certificate = read_der_certificate(webhook.server_certificate or b"")
        if certificate is not None:
            name = f"the certificate at {webhook.connected}, for the admission webhooks,"
            yield from dates(_where(webhook), name, certificate, snapshot.now, check=CHECK)


def _scheduler_names(webhooks: Iterable[Webhook], snapshot: Snapshot) -> Iterator[Finding]:
    """Check that the API server asks for the scheduler that new GPU pods are to get, in every vocabulary."""
    resources = spoken_vocabularies(snapshot).managed_resources
    if any(webhook.path == COMPLETE and _asks_about(webhook, resources) for webhook in webhooks):
        return
    for pod, container in snapshot.running(Program.EXTENDER):
        if name := flag_value(container, "admission-scheduler-name"):
            yield warning(
                CHECK,
                f"pod {pod.key}",
                f"--admission-scheduler-name={name} has no effect, because the API server calls no webhook that"
                " completes all GPU pods",
                "docs/admission.md, completed pods   # extend the webhook complete.pods.gas, or remove the flag",
                expected=f"a webhook with the path {COMPLETE} and the condition of create.pods.gas",
                found="; ".join(
                    condition for each in webhooks if each.path == COMPLETE for condition in each.conditions
                )
                or "none",
            )
            return


def _asks_about(webhook: Webhook, resources: Iterable[str]) -> bool:
    """Return whether the conditions name the beginnings of all these resources, or of none."""
    beginnings = tuple(each for condition in webhook.conditions for each in _QUOTED.findall(condition))
    return not beginnings or all(resource.startswith(beginnings) for resource in resources)


def _not_allowed(file: str, has: Sequence[str], snapshot: Snapshot) -> Iterator[Finding]:
    """Report an extender that turns away the API server because of the name in its certificate."""
    for pod, container in snapshot.running(Program.EXTENDER):
        allowed = [each.strip() for each in (flag_value(container, "admission-client-names") or "").split(",")]
        if any(allowed) and not set(allowed) & set(has):
            yield problem(
                CHECK,
                f"pod {pod.key}",
                f"it turns away kube-apiserver, whose certificate {file} has none of the names in"
                " --admission-client-names, so every call fails",
                "docs/admission.md, who may call   # add the name to the flag",
                expected=f"one of {', '.join(allowed)}",
                found=", ".join(has) or "no name",
            )


def _api_servers(snapshot: Snapshot) -> Iterator[Finding]:
    """Check that each API server has a configuration from which it takes a client certificate, and a valid one."""
    if snapshot.api_server_certificate is not None:
        file, content = snapshot.api_server_certificate
        certificate = read_first_certificate(content)
        if certificate is None:
            yield problem(CHECK, file, "the file contains no PEM certificate, so kube-apiserver presents none", TRUST)
        else:
            yield from dates(
                file, "kube-apiserver's client certificate for webhooks", certificate, snapshot.now, check=CHECK
            )
            has = [*filter(None, [common_name(certificate.subject)]), *alternative_names(certificate)]
            yield from _not_allowed(file, has, snapshot)
    for pod, container in snapshot.running(Program.API_SERVER):
        if flag_value(container, "admission-control-config-file") is None:
            yield problem(
                CHECK,
                f"pod {pod.key}",
                "it presents no certificate to webhooks, but the extender demands one (--admission-client-ca), so every"
                " call fails",
                command("sudo", "gas-configurator", "--api-server", "--apply-secret", note=f"on {pod.node_name}"),
                expected="--admission-control-config-file",
                found="it is not set",
            )
