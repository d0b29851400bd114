"""Check the admission webhooks: that an extender serves them, the authority they trust, and what their failure does.

What kube-scheduler does without the extender is checked here as well, because a webhook for bindings limits the damage.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from gas.cluster.connection import ApiServer
from gas.cluster.listing import Lister
from gas.decision.names import CHECKED
from gas.doctor import fix
from gas.doctor.check import Check, Sources
from gas.doctor.checks.accounts import ACCOUNTS, Account
from gas.doctor.checks.extender import SOON, dates
from gas.doctor.checks.plugins import VOCABULARIES
from gas.doctor.checks.schedulers import CHECK as SCHEDULER_CHECK
from gas.doctor.checks.schedulers import edit as edit_scheduler
from gas.doctor.findings import Finding, Level, Rule, Unseen, about, broken, ok, probe, problem, unknown, warning
from gas.doctor.gather.calls import ClientFiles, find_service, reach
from gas.doctor.objects import RegisteredWebhook, WebhookConfiguration
from gas.doctor.snapshot import Contact, ServiceSeen, Snapshot
from gas.objects.stored import WORKLOADS, DetailedContainer, DetailedPod
from gas.programs import API_SERVER, EXTENDER, flag_value

WEBHOOKS = "webhooks"

CERTIFICATE = "api_server_certificate"
"""Name of the gathered certificate that kube-apiserver presents to webhooks: its file and its content as PEM."""

CERTIFICATE_FILE = "pki/gas/api-server.crt"  # where gas-configurator puts it, below /etc/kubernetes

SUFFIX = ".pods.gas"
"""The end of every name of these webhooks. Names of objects and Services differ between installations."""

INSTALL_WEBHOOKS = "kubectl apply --kustomize deploy/overlays/admission   # or your own overlay: docs/admission.md"
TRUST = "sudo gas-configurator --apply-secret   # the chart: run its Job again; docs/admission.md, certificates"
BIND, COMPLETE = "/bind", "/complete"  # paths of the webhooks that give bindings their cards, and that complete pods
LONGEST = 10  # Seconds. A longer time-out delays every pod that the webhook is called for while the extender hangs.

_MATCHED = {
    "create.pods.gas": (("CREATE", "", ("pods",)),),
    "update.pods.gas": (("UPDATE", "", ("pods", "pods/status")),),
    "complete.pods.gas": (("CREATE", "", ("pods",)),),
    "templates.pods.gas": tuple(
        (operation, group, resources) for operation in ("CREATE", "UPDATE") for group, resources in WORKLOADS.items()
    ),
}
"""By webhook, operations, API groups and resources that its rules must match."""

_BINDINGS = (("CREATE", "", ("pods/binding", "bindings")),)  # the same for every webhook of bindings, whatever its name

_WITHOUT_DEFAULTS = {
    "koordinator": "in Koordinator's words wait unless they state their number of cards",
    "kubeshare": "with KubeShare's annotations run without a card unless their containers request kubeshare/vgpu",
}
"""By vocabulary with defaults, what happens to pods that are not completed."""

_LIMITED = re.compile(r"\s*request\.userInfo\.username\s*(==|in\b)")
_PATTERN = re.compile(r"\.matches\(\s*'([^']*)'\s*\)")
_QUOTED = re.compile(r"'([^']+)'")
_KUBE_SCHEDULER = "system:kube-scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(Contact):
    """One of the admission webhooks, and the outcome of connecting to it."""

    kind: str  # ``validatingwebhookconfiguration`` or ``mutatingwebhookconfiguration``
    configuration: str  # name of the object that it is in
    registered: RegisteredWebhook  # as the API server has it

    @property
    def name(self) -> str:
        return self.registered.name

    @property
    def path(self) -> str:
        called = self.registered.client_config
        return called.service.path if called.service is not None else f"/{'/'.join(called.url.split('/')[3:])}"

    @property
    def conditions(self) -> list[str]:
        return [each.expression for each in self.registered.match_conditions or ()]

    @property
    def is_for_bindings(self) -> bool:
        return self.path == BIND

    @property
    def where(self) -> str:
        return f"{self.kind} {self.configuration}, webhook {self.name}"

    @property
    def limits(self) -> list[str]:
        """The conditions that restrict its calls to requests of some users."""
        return [each for each in self.conditions if _LIMITED.match(each)]

    def edit(self, note: str) -> str:
        return fix.kubectl("edit", self.kind, self.configuration, note=note)


# Gathering


async def _gather(sources: Sources) -> Mapping[str, object]:
    path = sources.files.control_plane / CERTIFICATE_FILE
    content = sources.files.read_here(path)
    return {
        WEBHOOKS: await probe(find_webhooks(sources.api, sources.timeout)),
        CERTIFICATE: None if isinstance(content, Unseen) else (str(path), content),
    }


async def find_webhooks(api: ApiServer, timeout: float) -> tuple[Webhook, ...]:
    """Return the webhooks, each with its Service and the outcome of a TLS connection.

    ``timeout`` is in seconds for each connection. Raises ApiRefused and ApiUnavailable if they cannot be listed.
    """
    found = []
    for kind in ("validatingwebhookconfiguration", "mutatingwebhookconfiguration"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}s"
        for each in (await Lister(api, path, WebhookConfiguration).fetch()).objects:
            for registered in each.webhooks or ():
                if registered.name.endswith(SUFFIX):
                    found.append(Webhook(kind=kind, configuration=each.metadata.name, registered=registered))
    return tuple(await asyncio.gather(*(_called(api, each, timeout) for each in found)))


async def _called(api: ApiServer, webhook: Webhook, timeout: float) -> Webhook:
    client = webhook.registered.client_config
    if client.service is None:
        return replace(webhook, failure="it is called by a URL, which the doctor does not try")
    service = await find_service(api, client.service.namespace, client.service.name)
    webhook = replace(webhook, service=service)
    if isinstance(service, Unseen) or not service.exists:
        return webhook
    files = ClientFiles(certificate=None, key=None, authority=client.ca_bundle)
    addresses = [*filter(None, (service.cluster_address, *service.ready))]
    name = f"{service.name}.{service.namespace}.svc"
    return await reach(webhook, addresses, name, files, timeout, nothing="its Service has no address")


def _seen_webhooks(snapshot: Snapshot) -> tuple[Webhook, ...] | Unseen:
    webhooks: tuple[Webhook, ...] | Unseen = snapshot.gathered.get(WEBHOOKS, ())
    return webhooks


# Checks


def check_admission(snapshot: Snapshot) -> Iterator[Finding]:
    """Check the webhooks. Yield nothing if there are none and no extender serves any."""
    serving = [
        (pod, container)
        for pod, container in snapshot.running(EXTENDER)
        if (flag_value(container, "admission-port") or "0") != "0"
    ]
    seen = _seen_webhooks(snapshot)
    if isinstance(seen, Unseen):
        if serving:
            yield unknown(f"they are unknown: {seen.why}", seen.fix, where="admission webhooks")
        return
    if serving and not seen:
        yield warning(
            "it serves the admission webhooks, but none is registered, so the API server calls none",
            INSTALL_WEBHOOKS,
            where=f"pod {serving[0][0].key}",
        )
    is_served = bool(serving) or any(webhook.connected for webhook in seen)
    if seen and not is_served and not isinstance(snapshot.pods, Unseen):
        yield _not_served(seen)
    for webhook in seen:
        yield from _one(webhook, snapshot)
    yield from _server_certificates(seen, snapshot)
    yield from _scheduler_names(seen, snapshot)
    yield from _avoidable(seen)
    if any(flag_value(container, "admission-client-ca") for _, container in serving):
        yield from _api_servers(snapshot)


def _not_served(webhooks: tuple[Webhook, ...]) -> Finding:
    strict = next((webhook for webhook in webhooks if webhook.registered.failure_policy == "Fail"), None)
    webhook = strict or webhooks[0]
    effect = "it refuses what this webhook should check" if strict else "nothing is checked"
    return (problem if strict else warning)(
        f"the API server calls it, but no pod runs an extender with --admission-port, so {effect}",
        INSTALL_WEBHOOKS,
        fix.kubectl("delete", webhook.kind, webhook.configuration, note="to do without the webhooks"),
        where=webhook.where,
    )


def _one(webhook: Webhook, snapshot: Snapshot) -> Iterator[Finding]:
    findings = [
        *_bundle(webhook, snapshot.now),
        *_service(webhook),
        *broken(_RULES, webhook, webhook.edit),
        *_rules(webhook),
        *(_bindings(webhook, snapshot) if webhook.is_for_bindings else ()),
    ]
    if not findings and not webhook.connected:
        findings = [
            unknown(
                f"the extender cannot be reached from this machine, so its certificate is unknown: {webhook.failure}",
                "sudo gas doctor   # on a control-plane node, where the API server calls it",
            )
        ]
    elif not findings:
        findings = [ok(f"reached at {webhook.connected}; failurePolicy {webhook.registered.failure_policy}")]
    yield from about(webhook.where, findings)


def _bundle(webhook: Webhook, now: float) -> Iterator[Finding]:
    bundle = webhook.registered.client_config.ca_bundle
    if not bundle:
        yield problem(
            "it has no caBundle, so the API server does not trust the extender's certificate and every call fails",
            TRUST,
        )
        return
    try:
        authorities = read_certificates(Path("caBundle"), bundle)
    except BadCertificate:
        yield problem("its caBundle holds no PEM certificate that can be read, so every call fails", TRUST)
        return
    today = datetime.fromtimestamp(now, UTC)
    end = max(each.not_valid_after_utc for each in authorities)
    if end <= today:
        sentence = "its caBundle has expired, so every call fails"
        yield problem(sentence, TRUST, expected="a date in the future", found=day(end))
    elif end - today < SOON:
        yield warning(f"its caBundle expires in {(end - today).days} days, on {day(end)}", TRUST)
    if webhook.not_verified and end > today:
        presented = read_der_certificate(webhook.server_certificate or b"")
        signer = presented.issuer.rfc4514_string() if presented is not None else "an unknown authority"
        yield problem(
            f"the API server does not trust the certificate that {webhook.connected} presents, so every call fails",
            TRUST,
            expected="a certificate for the name of the Service, signed by an authority in caBundle",
            found=f"{webhook.not_verified}; signed by {signer}",
        )


def _service(webhook: Webhook) -> Iterator[Finding]:
    service = webhook.service
    if isinstance(service, Unseen):
        yield unknown(f"its Service is unknown: {service.why}", service.fix)
    if not isinstance(service, ServiceSeen):
        return
    where, calls = f"service {service.namespace}/{service.name}", f"webhook {webhook.name} calls this Service"
    if not service.exists:
        yield problem(f"{calls}, but it does not exist", INSTALL_WEBHOOKS, where=where)
    elif not service.ready:
        describe = fix.kubectl("describe", "service", service.name, namespace=service.namespace)
        yield problem(f"{calls}, but it has no extender behind it", describe, where=where)
    elif service.has_not_ready == webhook.is_for_bindings:
        leads = webhook.is_for_bindings
        wanted = "only the replica that leads serves bindings" if leads else "every replica checks pods"
        setting = f"publishNotReadyAddresses: {str(not leads).lower()}"
        yield warning(
            f"{wanted}, but this Service of webhook {webhook.name} leads to others",
            fix.kubectl("edit", "service", service.name, namespace=service.namespace, note=setting),
            where=where,
            expected=setting,
            found=f"publishNotReadyAddresses: {str(service.has_not_ready).lower()}",
        )


def _stops_all_pods(webhook: Webhook) -> str | None:
    if webhook.registered.failure_policy != "Fail" or not webhook.is_for_bindings:
        return None
    if webhook.limits and not any(_KUBE_SCHEDULER in each for each in webhook.limits):
        return None
    return " && ".join(webhook.conditions) or "failurePolicy: Fail without matchConditions"


_RULES: tuple[Rule[Webhook], ...] = (
    Rule(
        Level.WARNING,
        "while the extender does not respond, every call waits for the whole time-out",
        expected=f"timeoutSeconds of at most {LONGEST}",
        found=lambda each: str(each.registered.timeout_seconds) if each.registered.timeout_seconds > LONGEST else None,
        change="timeoutSeconds: 2",
    ),
    Rule(
        Level.WARNING,
        "while the extender is away, the API server refuses every object that this webhook should check",
        expected="failurePolicy: Ignore",
        found=lambda each: (
            "failurePolicy: Fail" if each.registered.failure_policy == "Fail" and not each.is_for_bindings else None
        ),
    ),
    Rule(
        Level.PROBLEM,
        "while the extender is away, no pod of the cluster is bound, the extender's own neither, so a cluster that"
        " restarts does not come up",
        expected="failurePolicy: Ignore, or a condition request.userInfo.username in [schedulers of GPU pods only]",
        found=_stops_all_pods,
        change="failurePolicy: Ignore, or a matchCondition on request.userInfo.username",
    ),
    Rule(
        Level.WARNING,
        "another mutating webhook may change the cards of a binding after the extender has chosen them",
        expected="reinvocationPolicy: IfNeeded",
        found=lambda each: (
            f"reinvocationPolicy: {each.registered.reinvocation_policy or 'Never'}"
            if each.is_for_bindings and each.registered.reinvocation_policy != "IfNeeded"
            else None
        ),
    ),
)


def _rules(webhook: Webhook) -> Iterator[Finding]:
    """Check that the API server calls the webhook for everything that it must review."""
    rules = webhook.registered.rules or ()
    wanted = _BINDINGS if webhook.is_for_bindings else _MATCHED.get(webhook.name, ())
    missing = [
        f"{operation} of {resource}"
        for operation, group, resources in wanted
        for resource in resources
        if not any(rule.matches(operation, group, resource) for rule in rules)
    ]
    if missing:
        effect = "GPU pods that are bound by them get no cards" if webhook.is_for_bindings else "these are not checked"
        has = [f"{', '.join(rule.operations or ())} of {', '.join(rule.resources or ())}" for rule in rules]
        yield warning(
            f"its rules do not match {', '.join(missing)}, so {effect}",
            webhook.edit("rules as in deploy/components/admission/webhooks.yaml"),
            expected="; ".join(f"{operation} of {', '.join(resources)}" for operation, _, resources in wanted),
            found="; ".join(has) or "no rules",
        )


def _bindings(webhook: Webhook, snapshot: Snapshot) -> Iterator[Finding]:
    """Check that all bindings but the extender's are reviewed. Administrators may choose which pods are checked."""
    selectors = {
        "namespaceSelector": webhook.registered.namespace_selector,
        "objectSelector": webhook.registered.object_selector,
    }
    for name, selector in selectors.items():
        if not selector:
            continue
        yield warning(
            f"its {name} leaves out bindings, and GPU pods that are bound by them get no cards",
            webhook.edit(f"remove {name}"),
            expected=f"no {name}",
            found=json.dumps(selector, sort_keys=True),
        )
    accounts: Iterable[Account] = () if webhook.limits else snapshot.gathered.get(ACCOUNTS, ())
    for account in accounts:
        if account.program is EXTENDER and not _leaves_out(webhook, account):
            yield warning(
                "the extender's own bindings are reviewed as well, although they have their cards: each takes longer",
                webhook.edit(f"matchConditions: request.userInfo.username != '{account.user}'"),
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
            yield from about(webhook.where, dates(name, certificate, snapshot.now))


def _scheduler_names(webhooks: Iterable[Webhook], snapshot: Snapshot) -> Iterator[Finding]:
    """Check that the API server asks for the scheduler that new GPU pods should get, in every vocabulary."""
    completing = [each for each in webhooks if each.path == COMPLETE]
    resources = snapshot.vocabularies.managed_resources
    if any(_asks_about(webhook, resources) for webhook in completing):
        return
    for pod, container in snapshot.running(EXTENDER):
        if name := flag_value(container, "admission-scheduler-name"):
            yield warning(
                f"--admission-scheduler-name={name} has no effect, because the API server calls no webhook that"
                " completes all GPU pods",
                "docs/admission.md, completed pods   # extend the webhook complete.pods.gas, or remove the flag",
                where=f"pod {pod.key}",
                expected=f"a webhook with the path {COMPLETE} that lists the beginnings of create.pods.gas",
                found="; ".join(condition for each in completing for condition in each.conditions) or "none",
            )
            return


def _asks_about(webhook: Webhook, resources: Iterable[str]) -> bool:
    """Return whether the conditions name the beginnings of all these resources, or of none."""
    beginnings = tuple(each for condition in webhook.conditions for each in _QUOTED.findall(condition))
    return not beginnings or all(resource.startswith(beginnings) for resource in resources)


def _avoidable(webhooks: Sequence[Webhook]) -> Iterator[Finding]:
    """Check that a webhook that is not asked about marked pods can rely on the one that marks them."""
    for webhook in webhooks:
        if webhook.path == COMPLETE or not any(CHECKED in each for each in webhook.conditions):
            continue
        policy = webhook.registered.failure_policy
        marking = (each for each in webhooks if each.path == COMPLETE and each.registered.failure_policy == policy)
        if not any(all(CHECKED in each and each[0] != "!" for each in marks.conditions) for marks in marking):
            yield warning(
                f"users can avoid this check with the annotation {CHECKED}",
                INSTALL_WEBHOOKS,
                where=webhook.where,
                expected=f"a webhook with the path {COMPLETE} that marks pods, with failurePolicy: {policy}",
            )


def _api_servers(snapshot: Snapshot) -> Iterator[Finding]:
    """Check that each API server has a configuration with a valid client certificate."""
    seen: tuple[str, bytes] | None = snapshot.gathered.get(CERTIFICATE)
    if seen is not None:
        file, content = seen
        certificate = read_first_certificate(content)
        if certificate is None:
            sentence = "the file contains no PEM certificate, so kube-apiserver presents none"
            yield problem(sentence, TRUST, where=file)
        else:
            yield from about(file, dates("kube-apiserver's client certificate for webhooks", certificate, snapshot.now))
            has = [*filter(None, [common_name(certificate.subject)]), *alternative_names(certificate)]
            yield from _not_allowed(file, has, snapshot.running(EXTENDER))
    for pod, container in snapshot.running(API_SERVER):
        if flag_value(container, "admission-control-config-file") is None:
            yield problem(
                "it presents no certificate to webhooks, but the extender demands one (--admission-client-ca), so every"
                " call fails",
                fix.command("sudo", "gas-configurator", "--api-server", "--apply-secret", note=f"on {pod.node_name}"),
                where=f"pod {pod.key}",
            )


def _not_allowed(
    file: str, has: Sequence[str], extenders: Iterable[tuple[DetailedPod, DetailedContainer]]
) -> Iterator[Finding]:
    """Report an extender that rejects the API server because of the name in its certificate."""
    for pod, container in extenders:
        allowed = [each.strip() for each in (flag_value(container, "admission-client-names") or "").split(",")]
        if any(allowed) and not set(allowed) & set(has):
            yield problem(
                f"it turns away kube-apiserver, whose certificate {file} has none of the names in"
                " --admission-client-names, so every call fails",
                "docs/admission.md, who may call   # add the name to the flag",
                where=f"pod {pod.key}",
                expected=f"one of {', '.join(allowed)}",
                found=", ".join(has) or "no name",
            )


def check_ignorable(snapshot: Snapshot) -> Iterator[Finding]:
    """Report a kube-scheduler that continues without the extender; the webhook for bindings limits the damage."""
    seen = _seen_webhooks(snapshot)
    has_webhook = not isinstance(seen, Unseen) and any(webhook.is_for_bindings for webhook in seen)
    for scheduler in snapshot.schedulers:
        for _ in filter(lambda entry: entry.ignorable, scheduler.entries):
            yield warning(
                "while the extender is unavailable, kube-scheduler binds GPU pods itself, without cards; if only its"
                " response is lost, the bind webhook gives them cards"
                if has_webhook
                else "while the extender is unavailable, or if it fails to bind a pod, kube-scheduler binds GPU pods"
                " itself, without cards",
                edit_scheduler(scheduler, "ignorable: false"),
                *(() if has_webhook else (INSTALL_WEBHOOKS,)),
                where=scheduler.file,
                expected="ignorable: false" + ("" if has_webhook else ", or at least the bind webhook"),
                found="ignorable: true"
                + ("" if has_webhook or isinstance(seen, Unseen) else ", and no webhook for bindings"),
            )


def check_completion(snapshot: Snapshot) -> Iterator[Finding]:
    """Report that no webhook adds their defaults to pods of a vocabulary that has some."""
    seen = _seen_webhooks(snapshot)
    if isinstance(seen, Unseen) or any(each.path == COMPLETE for each in seen):
        return
    for vocabulary in snapshot.vocabularies:
        if (effect := _WITHOUT_DEFAULTS.get(vocabulary.name)) is not None:
            yield warning(f"no webhook completes pods, so those {effect}", INSTALL_WEBHOOKS, where="admission webhooks")


CHECKS = (
    Check(name="admission", title="admission webhooks", findings=check_admission, gather=_gather),
    Check(name=SCHEDULER_CHECK, findings=check_ignorable),
    Check(name=VOCABULARIES, findings=check_completion),
)
